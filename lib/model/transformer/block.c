/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block.c - a block is two sublayers, attention and the MLP (transformer.h).
 *
 * forward computes both. backward goes the opposite way. With full recomputation it first runs the
 * forward pass again, up to the last product, whose result only a norm behind it would need; with
 * selective recomputation each result that was not kept is computed again just before it is used.
 *
 * In a layer with experts the first stage ends with the norm in front of the experts and the
 * router, whose results are boundary tensors: they stay, and only attention is computed again, and
 * a shared expert. That takes the place of the MLP: what it adds to the residual stream is handed
 * on to the experts, which add theirs.
 */
#include "device/launch.h"
#include "model/transformer/transformer.h"

#include <assert.h>

struct block {
    const struct mics_pass *pass;
    struct mics_block_activations acts;
    struct mics_sublayer attention, mlp;
};

static uint32_t index_of(const struct mics_model *model, uint32_t layer,
                         enum mics_block_tensor tensor)
{
    return tensor < MICS_BLOCK_TENSORS && mics_transformer_has(model, layer, tensor)
               ? mics_transformer_block_index(model, layer, tensor)
               : MICS_NO_TENSOR;
}

struct mics_linear mics_sublayer_linear(const struct mics_sublayer *sublayer,
                                        enum mics_block_tensor weight, enum mics_block_tensor first,
                                        enum mics_block_tensor bias,
                                        enum mics_block_tensor first_bias, uint32_t in,
                                        uint32_t out)
{
    const struct mics_model *model = sublayer->pass->model;
    const uint32_t layer = sublayer->stage->layer;
    const bool one = mics_transformer_has(model, layer, weight);

    return mics_linear_of(sublayer->pass, sublayer->stage->unit,
                          index_of(model, layer, one ? weight : first),
                          index_of(model, layer, one ? bias : first_bias), in, out);
}

struct mics_norm mics_sublayer_norm(const struct mics_sublayer *sublayer,
                                    enum mics_block_tensor weight, enum mics_block_tensor bias,
                                    const struct mics_norm_stats *stats)
{
    const struct mics_model *model = sublayer->pass->model;
    const uint32_t layer = sublayer->stage->layer;

    return mics_norm_of(sublayer->pass, sublayer->stage->unit, index_of(model, layer, weight),
                        index_of(model, layer, bias), stats);
}

/* The places of a sublayer's activations: from `in` to `out`, with norm_in, what a norm before it
 * takes, `normed`, what that puts out, and `sum`, what a norm after it takes. */
static void connect(struct mics_sublayer *sublayer, const void *in, const void *norm_in,
                    void *normed, void *sum, void *out)
{
    sublayer->in = in;
    if (sublayer->place == MICS_NORM_BEFORE) {
        sublayer->norm_in = norm_in;
        sublayer->taken = sublayer->norm_out = normed;
        sublayer->sum = out;
    } else {
        sublayer->taken = in;
        sublayer->norm_in = sublayer->sum = sum;
        sublayer->norm_out = out;
    }
}

static bool has_shared_expert(const struct mics_model *model)
{
    return model->config.shared_inner > 0;
}

/* `block` must stay where it is. out: where the output goes. */
static void open_block(struct block *block, const struct mics_pass *pass,
                       const struct mics_stage *stage, struct mics_kv_cache *kv_cache, void *out)
{
    const struct mics_family *family = pass->model->family;
    const void *const in = pass->in[MICS_RESIDUAL];
    const bool sparse = mics_model_is_sparse(pass->model, stage->layer);
    struct mics_block_activations *acts = &block->acts;

    assert(!family->parallel_residual || family->norm_place == MICS_NORM_BEFORE);
    assert(!family->experts ||
           (!family->parallel_residual && family->norm_place == MICS_NORM_BEFORE));
    block->pass = pass;
    *acts = mics_block_activations_of(pass->model, &pass->batch, stage->layer, pass->saved,
                                      pass->scratch, NULL);
    if (sparse)
        acts->normed_2 = pass->out[MICS_NORMED];
    if (sparse && !has_shared_expert(pass->model))
        acts->middle = pass->out[MICS_RESIDUAL];
    block->attention = (struct mics_sublayer){
        .function = &mics_attention_function,
        .pass = pass,
        .kv_cache = kv_cache,
        .stage = stage,
        .dims = mics_transformer_layer_dims_of(pass->model, &pass->batch, stage->layer),
        .acts = acts,
        .place = family->norm_place,
    };
    block->mlp = block->attention;
    block->mlp.function = &mics_mlp_function;
    block->mlp.keeps_taken = sparse;
    block->attention.norm = mics_sublayer_norm(&block->attention, MICS_BLOCK_NORM_1,
                                               MICS_BLOCK_NORM_1_BIAS, &acts->norm_1);
    block->mlp.norm =
        mics_sublayer_norm(&block->mlp, MICS_BLOCK_NORM_2, MICS_BLOCK_NORM_2_BIAS, &acts->norm_2);
    connect(&block->attention, in, in, acts->normed_1, acts->sum_1, acts->middle);
    connect(&block->mlp, acts->middle, family->parallel_residual ? in : acts->middle,
            acts->normed_2, acts->sum_2, out);
}

static void run_norm(const struct mics_sublayer *sublayer)
{
    mics_norm_forward(&sublayer->norm, sublayer->dims.rows, sublayer->norm_in, sublayer->norm_out);
}

static void forward(const struct mics_sublayer *sublayer)
{
    if (sublayer->place == MICS_NORM_BEFORE)
        run_norm(sublayer);
    sublayer->function->forward(sublayer);
    if (sublayer->place == MICS_NORM_AFTER)
        run_norm(sublayer);
}

void mics_block_forward(const struct mics_pass *pass, const struct mics_stage *stage,
                        struct mics_kv_cache *kv_cache)
{
    struct block block;

    if (stage->part == 1) {
        mics_experts_forward(pass, stage);
        return;
    }
    open_block(&block, pass, stage, kv_cache, pass->out[MICS_RESIDUAL]);
    forward(&block.attention);
    if (mics_model_is_sparse(pass->model, stage->layer)) {
        run_norm(&block.mlp);
        mics_router_forward(&block.mlp);
        if (has_shared_expert(pass->model))
            block.mlp.function->forward(&block.mlp);
        return;
    }
    forward(&block.mlp);
}

void mics_sublayer_first_backward(const struct mics_sublayer *sublayer,
                                  const struct mics_linear *layer, const void *grad,
                                  const void *add, void *grad_taken)
{
    const uint32_t rows = sublayer->dims.rows;
    const void *taken = sublayer->taken;

    if (sublayer->place == MICS_NORM_BEFORE && !sublayer->keeps_taken &&
        sublayer->pass->batch.recompute != MICS_RECOMPUTE_NONE) {
        mics_norm_forward(&sublayer->norm, rows, sublayer->norm_in, sublayer->acts->wide_a);
        taken = sublayer->acts->wide_a;
    }
    mics_linear_grad_params(layer, rows, taken, grad);
    mics_linear_grad_in(layer, rows, grad, add, grad_taken);
}

/* Keep the gradient of an output, where its memory is needed for that of the input. */
static void copy_grad(const struct block *block)
{
    const struct mics_transformer_dims *dims = &block->attention.dims;

    mics_launch_copy(block->pass->stream,
                     &(struct mics_args_copy){
                         .dst = block->acts.grad_out,
                         .src = block->pass->grad[MICS_RESIDUAL],
                         .bytes = mics_dtype_bytes(block->pass->batch.dtype) * dims->rows * dims->C,
                     });
}

/* The gradient of the residual stream: from that of the sublayer's output to that of its input.
 * With the norm before, the gradient of norm_in is added to it; `grad` is that of the output. */
static void backward_before(const struct mics_sublayer *sublayer, const void *grad)
{
    void *const grad_normed = sublayer->acts->wide_a;

    sublayer->function->backward(sublayer, grad, NULL, grad_normed);
    mics_norm_backward(&sublayer->norm, sublayer->dims.rows, sublayer->norm_in, grad_normed,
                       sublayer->pass->grad[MICS_RESIDUAL]);
}

/* The same with the norm after. */
static void backward_after(const struct block *block, const struct mics_sublayer *sublayer)
{
    const struct mics_pass *pass = block->pass;
    const struct mics_transformer_dims *dims = &sublayer->dims;
    void *const grad = pass->grad[MICS_RESIDUAL];

    copy_grad(block);
    mics_launch_zero(pass->stream,
                     &(struct mics_args_zero){
                         .dst = grad,
                         .bytes = mics_dtype_bytes(pass->batch.dtype) * dims->rows * dims->C,
                     });
    mics_norm_backward(&sublayer->norm, dims->rows, sublayer->norm_in, block->acts.grad_out, grad);
    sublayer->function->backward(sublayer, grad, grad, grad);
}

/* Compute again what the backward pass reads and the forward pass has not kept. */
static void recompute(const struct block *block)
{
    const struct mics_sublayer *mlp = &block->mlp;

    if (block->pass->batch.recompute != MICS_RECOMPUTE_FULL) {
        block->attention.function->recompute(&block->attention);
        mlp->function->recompute(mlp);
        return;
    }
    forward(&block->attention);
    if (mlp->place == MICS_NORM_AFTER) {
        forward(mlp);
        return;
    }
    run_norm(mlp);
    mlp->function->recompute(mlp);
}

/* The shared expert: the gradient of what it takes is added to that of the experts. With full
 * recomputation attention runs again first, for the stream behind it. */
static void shared_backward(const struct block *block)
{
    const struct mics_pass *pass = block->pass;
    const struct mics_sublayer *shared = &block->mlp;
    void *const grad_taken = pass->grad[MICS_NORMED];

    if (pass->batch.recompute == MICS_RECOMPUTE_FULL)
        forward(&block->attention);
    shared->function->recompute(shared);
    shared->function->backward(shared, pass->grad[MICS_RESIDUAL], grad_taken, grad_taken);
}

/* The stage of attention and the router. */
static void routed_backward(const struct block *block)
{
    const struct mics_pass *pass = block->pass;
    const struct mics_sublayer *attention = &block->attention, *router = &block->mlp;
    const bool shared = has_shared_expert(pass->model);
    const enum mics_recompute level = pass->batch.recompute;
    const bool recomputed = shared && level == MICS_RECOMPUTE_FULL; /* attention */

    if (shared)
        shared_backward(block);
    mics_router_backward(router, block->acts.wide_a);
    mics_norm_backward(&router->norm, router->dims.rows, router->norm_in, block->acts.wide_a,
                       pass->grad[MICS_RESIDUAL]);
    if (level == MICS_RECOMPUTE_FULL && !recomputed)
        run_norm(attention);
    if (level != MICS_RECOMPUTE_NONE && !recomputed)
        attention->function->recompute(attention);
    backward_before(attention, pass->grad[MICS_RESIDUAL]);
}

void mics_block_backward(const struct mics_pass *pass, const struct mics_stage *stage)
{
    const void *grad_middle = pass->grad[MICS_RESIDUAL];
    struct block block;

    if (stage->part == 1) {
        mics_experts_backward(pass, stage);
        return;
    }
    open_block(&block, pass, stage, NULL, NULL);
    if (mics_model_is_sparse(pass->model, stage->layer)) {
        routed_backward(&block);
        return;
    }
    if (block.mlp.place == MICS_NORM_AFTER)
        block.mlp.norm_out = block.acts.grad_out; /* of a recomputation; not read */
    if (pass->batch.recompute != MICS_RECOMPUTE_NONE)
        recompute(&block);
    if (block.mlp.place == MICS_NORM_AFTER) {
        backward_after(&block, &block.mlp);
        backward_after(&block, &block.attention);
        return;
    }
    if (pass->model->family->parallel_residual) { /* both take the gradient of the output */
        copy_grad(&block);
        grad_middle = block.acts.grad_out;
    }
    backward_before(&block.mlp, pass->grad[MICS_RESIDUAL]);
    backward_before(&block.attention, grad_middle);
}
