/* SPDX-License-Identifier: Apache-2.0 */
/*
 * experts.c - the router and the experts of a layer.
 *
 * The router's logits are fp32, products of activations; its choice is made once, in the forward
 * pass. Experts compute down(w silu(gate x) up x) for each of a token's assignments: the router's
 * weight w is folded into the activation, so that the sum over a token's assignments needs no
 * weights, and the gradient of w needs no result of an expert.
 */
#include "base/num.h"
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

/* Rows of an expert; 0: no assignment is dropped. */
static uint32_t capacity_of(const struct mics_pass *pass)
{
    return pass->model->config.expert_capacity > 0
               ? mics_model_expert_rows(pass->model, &pass->batch)
               : 0;
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
                                               .capacity = capacity_of(pass),
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
                               .grad_scale = pass->grad_scale,
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

/* The experts that a rank has, and rows for them. */
struct experts {
    const struct mics_pass *pass;
    struct mics_transformer_dims dims;
    struct mics_routing routing;
    struct mics_expert_activations acts;
    uint32_t count, rows;
    const uint32_t *offsets, *order; /* rows of each expert; of each row its place in `weights` */
    const float *weights;
    float *grad_weights; /* of a backward pass */
    /* The first expert's: gate and up as one matrix [2 I, C], and down [C, I]. */
    struct mics_linear gate_up, down;
    uint64_t stride; /* elements from an expert to the next */
};

static struct experts experts_of(const struct mics_pass *pass, const struct mics_stage *stage)
{
    const struct mics_unit *unit = &pass->model->units[stage->unit];
    const struct mics_transformer_dims dims = mics_transformer_dims_of(pass->model, &pass->batch);
    const struct mics_routing routing = routing_of(pass, pass->in[MICS_ROUTING]);

    return (struct experts){
        .pass = pass,
        .dims = dims,
        .routing = routing,
        .acts =
            mics_expert_activations_of(pass->model, &pass->batch, pass->saved, pass->scratch, NULL),
        .count = dims.E,
        .rows = dims.taken,
        .offsets = routing.offsets,
        .order = routing.order,
        .weights = routing.weights,
        .gate_up =
            mics_linear_of(pass, stage->unit, MICS_EXPERT_GATE, MICS_NO_TENSOR, dims.C, 2 * dims.I),
        .down = mics_linear_of(pass, stage->unit, MICS_EXPERT_DOWN, MICS_NO_TENSOR, dims.I, dims.C),
        .stride = dims.E > 1 ? unit->tensors[MICS_EXPERT_TENSORS].offset : unit->count,
    };
}

/* out[i] = in[order[i] / k], `count` rows of C. */
static void gather_rows(const struct experts *x, const void *in, const uint32_t *order,
                        uint32_t count, uint32_t k, void *out)
{
    mics_launch_gather_rows(x->pass->stream, &(struct mics_args_gather_rows){
                                                 .out = out,
                                                 .in = in,
                                                 .order = order,
                                                 .rows = count / k,
                                                 .k = k,
                                                 .C = x->dims.C,
                                                 .dtype = x->pass->batch.dtype,
                                             });
}

static void gather(const struct experts *x, const void *in, void *out)
{
    gather_rows(x, in, x->routing.order, x->dims.taken, x->dims.k, out);
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
                                                    .offsets = x->offsets,
                                                    .stride = x->stride,
                                                    .rows = x->rows,
                                                    .E = x->count,
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
                                                         .offsets = x->offsets,
                                                         .stride = x->stride,
                                                         .rows = x->rows,
                                                         .E = x->count,
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
                                                   .weights = x->weights,
                                                   .order = x->order,
                                                   .rows = x->rows,
                                                   .F = x->dims.I,
                                                   .dtype = x->pass->batch.dtype,
                                               });
}

/* From `taken` to `rows`, the results. */
static void compute_rows(const struct experts *x)
{
    multiply(x, &x->gate_up, false, x->acts.taken, x->acts.hidden);
    activate(x);
    multiply(x, &x->down, false, x->acts.activated, x->acts.rows);
}

/* From taken, hidden, activated, and in `rows` the gradients of the results, to those of parameters
 * and weights, and in `rows` of `taken`. */
static void compute_grads(const struct experts *x)
{
    grad_params(x, &x->down, x->acts.activated, x->acts.rows);
    multiply(x, &x->down, true, x->acts.rows, x->acts.grad_activated);
    mics_launch_expert_swiglu_grad(x->pass->stream, &(struct mics_args_expert_swiglu_grad){
                                                        .grad_in = x->acts.hidden,
                                                        .grad_weights = x->grad_weights,
                                                        .in = x->acts.hidden,
                                                        .grad_out = x->acts.grad_activated,
                                                        .weights = x->weights,
                                                        .order = x->order,
                                                        .rows = x->rows,
                                                        .F = x->dims.I,
                                                        .dtype = x->pass->batch.dtype,
                                                    });
    grad_params(x, &x->gate_up, x->acts.taken, x->acts.hidden);
    multiply(x, &x->gate_up, true, x->acts.hidden, x->acts.rows);
}

/* Assignments that are dropped have no row to write the gradient of their weight. */
static void clear_grad_weights(const struct experts *x)
{
    if (capacity_of(x->pass) > 0)
        mics_launch_zero(x->pass->stream, &(struct mics_args_zero){
                                              .dst = x->pass->grad[MICS_ROUTING],
                                              .bytes = x->dims.N * sizeof(float),
                                          });
}

/* Experts to which tokens travel -------------------------------------------------------------- */

/* The experts of this rank, with the rows of a round. */
struct dispatched {
    struct experts x;
    struct mics_dispatch_activations acts;
    uint32_t slots; /* for each rank */
};

/* In a round, or in all of them as one. */
static uint32_t slots_of(const struct mics_pass *pass)
{
    const struct mics_dispatch dispatch = mics_model_dispatch(pass->model, &pass->batch);
    const uint64_t before = (uint64_t)pass->round * dispatch.slots;

    if (pass->batch.expert_load <= 0)
        return dispatch.slots;
    if (pass->phase == MICS_PHASE_ALL)
        return dispatch.rows;
    return before < dispatch.rows ? (uint32_t)mics_min_u64(dispatch.slots, dispatch.rows - before)
                                  : 0;
}

static struct dispatched dispatched_of(const struct mics_pass *pass, const struct mics_stage *stage)
{
    struct dispatched d = {
        .x = experts_of(pass, stage),
        .acts = mics_dispatch_activations_of(pass->model, &pass->batch, pass->saved, pass->scratch,
                                             NULL),
        .slots = slots_of(pass),
    };

    d.x.acts = d.acts.experts;
    d.x.count = d.x.dims.E / pass->batch.expert_ranks;
    d.x.rows = pass->batch.expert_ranks * d.slots;
    d.x.offsets = d.acts.received_offsets;
    d.x.order = d.acts.received_slots;
    d.x.weights = d.acts.received.weights;
    d.x.grad_weights = d.acts.received.grad_weights;
    return d;
}

/* out[order[i]] = in[i], for the slots of a round. */
static void scatter_slots(const struct dispatched *d, const void *in, const uint32_t *order,
                          uint32_t C, enum mics_dtype dtype, void *out)
{
    mics_launch_scatter_rows(d->x.pass->stream, &(struct mics_args_scatter_rows){
                                                    .out = out,
                                                    .in = in,
                                                    .order = order,
                                                    .rows = d->x.rows,
                                                    .C = C,
                                                    .dtype = dtype,
                                                });
}

static void count_rows(const struct dispatched *d)
{
    const uint32_t count = d->x.dims.E + 1;

    mics_launch_copy(d->x.pass->stream,
                     &(struct mics_args_copy){
                         .dst = d->acts.offsets + (uint64_t)d->x.pass->rank * count,
                         .src = d->x.routing.offsets,
                         .bytes = count * sizeof *d->acts.offsets,
                     });
}

static void send_rows(const struct dispatched *d, bool backward)
{
    const struct mics_pass *pass = d->x.pass;
    const struct mics_transformer_dims *dims = &d->x.dims;

    mics_launch_dispatch_round(pass->stream, &(struct mics_args_dispatch_round){
                                                 .row = d->acts.row,
                                                 .assignment = d->acts.assignment,
                                                 .received_offsets = d->acts.received_offsets,
                                                 .received = d->acts.received_slots,
                                                 .active = d->acts.active,
                                                 .offsets = d->acts.offsets,
                                                 .order = d->x.routing.order,
                                                 .ranks = pass->batch.expert_ranks,
                                                 .rank = pass->rank,
                                                 .E = dims->E,
                                                 .slots = d->slots,
                                                 .round = pass->round,
                                             });
    gather_rows(&d->x, pass->in[MICS_NORMED], d->acts.assignment, d->x.rows, dims->k,
                d->acts.sent.x);
    mics_launch_gather_rows(pass->stream, &(struct mics_args_gather_rows){
                                              .out = d->acts.sent.weights,
                                              .in = d->x.routing.weights,
                                              .order = d->acts.assignment,
                                              .rows = d->x.rows,
                                              .k = 1,
                                              .C = 1,
                                              .dtype = MICS_F32,
                                          });
    if (backward)
        gather_rows(&d->x, pass->grad[MICS_RESIDUAL], d->acts.assignment, d->x.rows, dims->k,
                    d->acts.sent.grad);
    if (backward && pass->round == 0)
        clear_grad_weights(&d->x);
}

/* The results, or the gradients of what was received, go back in the place of that. */
static void compute_received(const struct dispatched *d, bool backward)
{
    const struct experts *x = &d->x;

    gather_rows(x, d->acts.received.x, x->order, x->rows, 1, x->acts.taken);
    if (backward) {
        multiply(x, &x->gate_up, false, x->acts.taken, x->acts.hidden);
        activate(x);
        gather_rows(x, d->acts.received.grad, x->order, x->rows, 1, x->acts.rows);
        compute_grads(x);
    } else {
        compute_rows(x);
    }
    scatter_slots(d, x->acts.rows, x->order, x->dims.C, x->pass->batch.dtype, d->acts.received.x);
}

static void receive_rows(const struct dispatched *d, bool backward)
{
    const struct mics_pass *pass = d->x.pass;

    scatter_slots(d, d->acts.sent.x, d->acts.row, d->x.dims.C, pass->batch.dtype, d->acts.sorted);
    if (backward)
        scatter_slots(d, d->acts.sent.grad_weights, d->acts.assignment, 1, MICS_F32,
                      pass->grad[MICS_ROUTING]);
}

static void sum_rows(const struct dispatched *d, bool backward)
{
    const struct mics_pass *pass = d->x.pass;

    if (backward)
        combine(&d->x, d->acts.sorted, NULL, pass->grad[MICS_NORMED]);
    else
        combine(&d->x, d->acts.sorted, pass->in[MICS_RESIDUAL], pass->out[MICS_RESIDUAL]);
}

/* One phase, or with MICS_PHASE_ALL all of them as one round has them. */
static void run_phases(const struct mics_pass *pass, const struct mics_stage *stage, bool backward)
{
    const struct dispatched d = dispatched_of(pass, stage);
    const bool all = pass->phase == MICS_PHASE_ALL;

    if ((all && !backward) || pass->phase == MICS_PHASE_COUNT)
        count_rows(&d);
    if (all || pass->phase == MICS_PHASE_SEND)
        send_rows(&d, backward);
    if (all || pass->phase == MICS_PHASE_EXPERTS)
        compute_received(&d, backward);
    if (all || pass->phase == MICS_PHASE_RECEIVE)
        receive_rows(&d, backward);
    if (all || pass->phase == MICS_PHASE_SUM)
        sum_rows(&d, backward);
}

static struct mics_pass_exchange exchange_of(const struct dispatched *d, const void *from, void *to,
                                             uint64_t row_bytes)
{
    return (struct mics_pass_exchange){
        .from = from, .to = to, .bytes = d->slots * row_bytes, .active = d->acts.active};
}

uint32_t mics_experts_exchanges(const struct mics_pass *pass, uint32_t stage, bool backward,
                                struct mics_pass_exchange *out)
{
    const struct dispatched d = dispatched_of(pass, &pass->model->stages[stage]);
    const struct mics_dispatch_buffers *sent = &d.acts.sent, *received = &d.acts.received;
    const uint64_t row_bytes = d.x.dims.C * mics_dtype_bytes(pass->batch.dtype);
    const uint64_t own_bytes = (d.x.dims.E + 1) * sizeof *d.acts.offsets;

    switch (pass->phase) {
    case MICS_PHASE_COUNT:
        out[0] = (struct mics_pass_exchange){
            .gathers = true,
            .from = (const char *)d.acts.offsets + pass->rank * own_bytes,
            .to = d.acts.offsets,
            .bytes = own_bytes,
        };
        return 1;
    case MICS_PHASE_SEND:
        out[0] = exchange_of(&d, sent->x, received->x, row_bytes);
        out[1] = exchange_of(&d, sent->weights, received->weights, sizeof(float));
        out[2] = exchange_of(&d, sent->grad, received->grad, row_bytes);
        return backward ? 3 : 2;
    case MICS_PHASE_EXPERTS:
        out[0] = exchange_of(&d, received->x, sent->x, row_bytes);
        out[1] = exchange_of(&d, received->grad_weights, sent->grad_weights, sizeof(float));
        return backward ? 2 : 1;
    default:
        return 0;
    }
}

/* The stage ----------------------------------------------------------------------------------- */

void mics_experts_forward(const struct mics_pass *pass, const struct mics_stage *stage)
{
    const struct experts x = experts_of(pass, stage);

    if (pass->batch.expert_ranks > 0) {
        run_phases(pass, stage, false);
        return;
    }
    gather(&x, pass->in[MICS_NORMED], x.acts.taken);
    compute_rows(&x);
    combine(&x, x.acts.rows, pass->in[MICS_RESIDUAL], pass->out[MICS_RESIDUAL]);
}

/* The gradient of the residual stream is that of its input, too. */
void mics_experts_backward(const struct mics_pass *pass, const struct mics_stage *stage)
{
    struct experts x = experts_of(pass, stage);
    const enum mics_recompute level = pass->batch.recompute;

    if (pass->batch.expert_ranks > 0) {
        run_phases(pass, stage, true);
        return;
    }
    x.grad_weights = pass->grad[MICS_ROUTING];
    clear_grad_weights(&x);
    if (level != MICS_RECOMPUTE_NONE)
        gather(&x, pass->in[MICS_NORMED], x.acts.taken);
    if (level == MICS_RECOMPUTE_FULL)
        multiply(&x, &x.gate_up, false, x.acts.taken, x.acts.hidden);
    if (level != MICS_RECOMPUTE_NONE)
        activate(&x);
    gather(&x, pass->grad[MICS_RESIDUAL], x.acts.rows);
    compute_grads(&x);
    combine(&x, x.acts.rows, NULL, pass->grad[MICS_NORMED]);
}
