/* SPDX-License-Identifier: Apache-2.0 */
/*
 * experts.c - the router and the experts of a layer.
 *
 * The router's logits are fp32, products of activations; its choice is made once, in the forward
 * pass. Experts compute down(w silu(gate x) up x) for each of a token's assignments: the router's
 * weight w is folded into the activation, so that the sum over a token's assignments needs no
 * weights, and the gradient of w needs no result of an expert.
 */
#include "device/launch.h"
#include "model/transformer/transformer.h"

/* The router ---------------------------------------------------------------------------------- */

static struct mics_linear router_of(const struct mics_sublayer *sublayer)
{
    return mics_sublayer_linear(sublayer, MICS_BLOCK_ROUTER, MICS_BLOCK_ROUTER, MICS_BLOCK_TENSORS,
                                MICS_BLOCK_TENSORS, sublayer->dims.C, sublayer->dims.E);
}

static struct mics_routing routing_of(const struct mics_pass *pass, void *base)
{
    return mics_routing_of(pass->model, &pass->batch, base, NULL);
}

static double *own_sum(const struct mics_pass *pass, enum mics_stat stat)
{
    return pass->stats ? pass->stats + stat : NULL;
}

/* What losses of balance are computed from. */
static void count_load(const struct mics_sublayer *sublayer, const struct mics_routing *routing)
{
    const struct mics_pass *pass = sublayer->pass;
    const struct mics_balance *balance = &pass->model->config.balance;
    const struct mics_transformer_dims *dims = &sublayer->dims;
    const bool pooled = balance->kind == MICS_BALANCE_MICRO_BATCH;
    const uint32_t rows = pooled ? dims->rows : pass->batch.T;
    float *const load = pooled ? pass->out[MICS_LOAD] : sublayer->acts->load;

    mics_launch_router_load(pass->stream, &(struct mics_args_router_load){
                                              .load = load,
                                              .loss_sum = pass->loss_sum,
                                              .logits = sublayer->acts->logits,
                                              .add = pooled ? pass->in[MICS_LOAD] : NULL,
                                              .experts = routing->experts,
                                              .targets = pass->targets,
                                              .rows = dims->rows,
                                              .E = dims->E,
                                              .k = dims->k,
                                              .group_rows = rows,
                                              .z_coefficient = (float)balance->z_coefficient,
                                              .own_sum = own_sum(pass, MICS_STAT_Z_LOSS),
                                          });
    if (balance->kind == MICS_BALANCE_SEQUENCE)
        mics_launch_balance_loss(
            pass->stream,
            &(struct mics_args_balance_loss){
                .balance = sublayer->acts->balance,
                .loss_sum = pass->loss_sum,
                .load = load,
                .targets = pass->targets,
                .groups = pass->batch.B,
                .group_rows = pass->batch.T,
                .E = dims->E,
                .coefficient = balance->coefficient / mics_transformer_sparse_layers(pass->model),
                .divisor = pass->batch.T,
                .own_sum = own_sum(pass, MICS_STAT_AUX_LOSS),
            });
}

void mics_router_forward(const struct mics_sublayer *sublayer)
{
    const struct mics_pass *pass = sublayer->pass;
    const struct mics_balance *balance = &pass->model->config.balance;
    const struct mics_transformer_dims *dims = &sublayer->dims;
    const struct mics_routing routing = routing_of(pass, pass->out[MICS_ROUTING]);
    const struct mics_linear router = router_of(sublayer);

    mics_linear_forward_f32(&router, dims->rows, sublayer->taken, sublayer->acts->logits);
    mics_launch_route(pass->stream, &(struct mics_args_route){
                                        .experts = routing.experts,
                                        .weights = routing.weights,
                                        .logits = sublayer->acts->logits,
                                        .rows = dims->rows,
                                        .E = dims->E,
                                        .k = dims->k,
                                        .renormalise = pass->model->config.norm_topk_prob,
                                    });
    mics_launch_sort_experts(pass->stream, &(struct mics_args_sort_experts){
                                               .offsets = routing.offsets,
                                               .order = routing.order,
                                               .position = routing.position,
                                               .experts = routing.experts,
                                               .rows = dims->rows,
                                               .E = dims->E,
                                               .k = dims->k,
                                           });
    if (pass->targets && (balance->kind != MICS_BALANCE_NONE || balance->z_coefficient > 0))
        count_load(sublayer, &routing);
    if (pass->stats)
        mics_launch_router_stats(
            pass->stream, &(struct mics_args_router_stats){
                              .stats = mics_transformer_layer_stats(pass, sublayer->stage->layer),
                              .logits = sublayer->acts->logits,
                              .offsets = routing.offsets,
                              .rows = dims->rows,
                              .E = dims->E,
                          });
}

void mics_router_backward(const struct mics_sublayer *sublayer, void *grad_normed)
{
    const struct mics_pass *pass = sublayer->pass;
    const struct mics_balance *balance = &pass->model->config.balance;
    const struct mics_transformer_dims *dims = &sublayer->dims;
    const struct mics_routing routing = routing_of(pass, pass->out[MICS_ROUTING]);
    const struct mics_linear router = router_of(sublayer);
    const bool pooled = balance->kind == MICS_BALANCE_MICRO_BATCH;

    mics_launch_route_grad(pass->stream,
                           &(struct mics_args_route_grad){
                               .grad_logits = sublayer->acts->grad_logits,
                               .logits = sublayer->acts->logits,
                               .experts = routing.experts,
                               .weights = routing.weights,
                               .grad_weights = pass->grad[MICS_ROUTING],
                               .balance = pooled ? pass->grad[MICS_LOAD] : sublayer->acts->balance,
                               .targets = pass->targets,
                               .rows = dims->rows,
                               .E = dims->E,
                               .k = dims->k,
                               .group_rows = pooled ? dims->rows : pass->batch.T,
                               .z_coefficient = (float)balance->z_coefficient,
                               .renormalise = pass->model->config.norm_topk_prob,
                               .dtype = pass->batch.dtype,
                           });
    mics_linear_grad_params(&router, dims->rows, sublayer->taken, sublayer->acts->grad_logits);
    mics_linear_grad_in(&router, dims->rows, sublayer->acts->grad_logits, pass->grad[MICS_NORMED],
                        grad_normed);
}

void mics_load_loss(const struct mics_pass *pass)
{
    const struct mics_model *model = pass->model;
    const uint32_t rows = pass->batch.B * pass->batch.T;

    mics_launch_balance_loss(pass->stream,
                             &(struct mics_args_balance_loss){
                                 .balance = pass->batch.train ? pass->grad[MICS_LOAD] : NULL,
                                 .loss_sum = pass->loss_sum,
                                 .load = pass->in[MICS_LOAD],
                                 .targets = pass->targets,
                                 .groups = 1,
                                 .group_rows = rows,
                                 .E = model->config.n_expert,
                                 .coefficient = model->config.balance.coefficient,
                                 .divisor = (double)rows * mics_transformer_sparse_layers(model),
                                 .own_sum = own_sum(pass, MICS_STAT_AUX_LOSS),
                             });
}

/* Experts ------------------------------------------------------------------------------------- */

struct experts {
    const struct mics_pass *pass;
    struct mics_transformer_dims dims;
    struct mics_routing routing;
    struct mics_expert_activations acts;
    /* The first expert's: gate and up as one matrix [2 I, C], and down [C, I]. */
    struct mics_linear gate_up, down;
    uint64_t stride; /* elements from an expert to the next */
};

static struct experts experts_of(const struct mics_pass *pass, const struct mics_stage *stage)
{
    const struct mics_unit *unit = &pass->model->units[stage->unit];
    const struct mics_transformer_dims dims = mics_transformer_dims_of(pass->model, &pass->batch);

    return (struct experts){
        .pass = pass,
        .dims = dims,
        .routing = routing_of(pass, pass->in[MICS_ROUTING]),
        .acts =
            mics_expert_activations_of(pass->model, &pass->batch, pass->saved, pass->scratch, NULL),
        .gate_up =
            mics_linear_of(pass, stage->unit, MICS_EXPERT_GATE, MICS_NO_TENSOR, dims.C, 2 * dims.I),
        .down = mics_linear_of(pass, stage->unit, MICS_EXPERT_DOWN, MICS_NO_TENSOR, dims.I, dims.C),
        .stride = dims.E > 1 ? unit->tensors[MICS_EXPERT_TENSORS].offset : unit->count,
    };
}

static void gather(const struct experts *x, const void *in, void *out)
{
    mics_launch_gather_rows(x->pass->stream, &(struct mics_args_gather_rows){
                                                 .out = out,
                                                 .in = in,
                                                 .order = x->routing.order,
                                                 .rows = x->dims.rows,
                                                 .k = x->dims.k,
                                                 .C = x->dims.C,
                                                 .dtype = x->pass->batch.dtype,
                                             });
}

static void combine(const struct experts *x, const void *in, const void *add, void *out)
{
    mics_launch_combine_rows(x->pass->stream, &(struct mics_args_combine_rows){
                                                  .out = out,
                                                  .in = in,
                                                  .add = add,
                                                  .position = x->routing.position,
                                                  .rows = x->dims.rows,
                                                  .k = x->dims.k,
                                                  .C = x->dims.C,
                                                  .dtype = x->pass->batch.dtype,
                                              });
}

/* out = in weight' of each expert; or backwards, out = in weight. */
static void multiply(const struct experts *x, const struct mics_linear *layer, bool backward,
                     const void *in, void *out)
{
    mics_launch_grouped_matmul(x->pass->stream, &(struct mics_args_grouped_matmul){
                                                    .out = out,
                                                    .a = in,
                                                    .b = layer->weight,
                                                    .offsets = x->routing.offsets,
                                                    .stride = x->stride,
                                                    .rows = x->dims.N,
                                                    .E = x->dims.E,
                                                    .n = backward ? layer->in : layer->out,
                                                    .k = backward ? layer->out : layer->in,
                                                    .trans_b = !backward,
                                                    .dtype = layer->dtype,
                                                });
}

static void grad_params(const struct experts *x, const struct mics_linear *layer, const void *in,
                        const void *grad_out)
{
    mics_launch_grouped_matmul_grad(x->pass->stream, &(struct mics_args_grouped_matmul_grad){
                                                         .out = layer->grad_weight,
                                                         .a = grad_out,
                                                         .b = in,
                                                         .offsets = x->routing.offsets,
                                                         .stride = x->stride,
                                                         .rows = x->dims.N,
                                                         .E = x->dims.E,
                                                         .m = layer->out,
                                                         .n = layer->in,
                                                         .add = !layer->writes_grad,
                                                         .dtype = layer->dtype,
                                                         .grad_dtype = layer->grad_dtype,
                                                     });
}

static void activate(const struct experts *x)
{
    mics_launch_expert_swiglu(x->pass->stream, &(struct mics_args_expert_swiglu){
                                                   .out = x->acts.activated,
                                                   .in = x->acts.hidden,
                                                   .weights = x->routing.weights,
                                                   .order = x->routing.order,
                                                   .rows = x->dims.N,
                                                   .F = x->dims.I,
                                                   .dtype = x->pass->batch.dtype,
                                               });
}

void mics_experts_forward(const struct mics_pass *pass, const struct mics_stage *stage)
{
    const struct experts x = experts_of(pass, stage);

    gather(&x, pass->in[MICS_NORMED], x.acts.taken);
    multiply(&x, &x.gate_up, false, x.acts.taken, x.acts.hidden);
    activate(&x);
    multiply(&x, &x.down, false, x.acts.activated, x.acts.rows);
    combine(&x, x.acts.rows, pass->in[MICS_RESIDUAL], pass->out[MICS_RESIDUAL]);
}

/* The gradient of the residual stream is that of its input, too. */
void mics_experts_backward(const struct mics_pass *pass, const struct mics_stage *stage)
{
    const struct experts x = experts_of(pass, stage);
    const enum mics_recompute level = pass->batch.recompute;

    if (level != MICS_RECOMPUTE_NONE)
        gather(&x, pass->in[MICS_NORMED], x.acts.taken);
    if (level == MICS_RECOMPUTE_FULL)
        multiply(&x, &x.gate_up, false, x.acts.taken, x.acts.hidden);
    if (level != MICS_RECOMPUTE_NONE)
        activate(&x);
    gather(&x, pass->grad[MICS_RESIDUAL], x.acts.rows);
    grad_params(&x, &x.down, x.acts.activated, x.acts.rows);
    multiply(&x, &x.down, true, x.acts.rows, x.acts.grad_activated);
    mics_launch_expert_swiglu_grad(pass->stream, &(struct mics_args_expert_swiglu_grad){
                                                     .grad_in = x.acts.hidden,
                                                     .grad_weights = pass->grad[MICS_ROUTING],
                                                     .in = x.acts.hidden,
                                                     .grad_out = x.acts.grad_activated,
                                                     .weights = x.routing.weights,
                                                     .order = x.routing.order,
                                                     .rows = x.dims.N,
                                                     .F = x.dims.I,
                                                     .dtype = pass->batch.dtype,
                                                 });
    grad_params(&x, &x.gate_up, x.acts.taken, x.acts.hidden);
    multiply(&x, &x.gate_up, true, x.acts.hidden, x.acts.rows);
    combine(&x, x.acts.rows, NULL, pass->grad[MICS_NORMED]);
}
