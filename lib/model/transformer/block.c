/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block.c - a block:
 *
 *     middle = in + out(attention(q, k, v)),     q, k, v = qkv(norm_1(in))
 *     output = middle + down(activation(fc(norm_2(middle))))
 *
 * q and k may be normalised by heads and rotated to their positions. With a parallel residual
 * norm_2 is of `in`. fc puts out `hidden`: what GELU takes, in the same product, or gate and up for
 * SwiGLU.
 *
 * forward computes in -> hidden, then the output. backward goes the opposite way. With full
 * recomputation it first computes in -> hidden again (the last product is not repeated), with
 * selective recomputation only the outputs of the norms and of the activation.
 */
#include "device/launch.h"
#include "model/transformer/transformer.h"

struct block {
    const struct mics_pass *pass;
    uint32_t window; /* of attention; 0: all tokens */
    const struct mics_model *model;
    struct mics_transformer_dims is;
    struct mics_block_activations acts;
    uint32_t unit;
    struct mics_linear qkv, out, fc, down;
    struct mics_norm norm_1, norm_2;
};

static uint32_t index_of(const struct mics_model *model, enum mics_block_tensor tensor)
{
    return mics_transformer_has(model, tensor) ? mics_transformer_block_index(model, tensor)
                                               : MICS_NO_TENSOR;
}

/* The layer whose weight and bias are the tensors `weight` and `bias`, or, where the family has
 * several end to end instead, begin with `first` and `first_bias`. */
static struct mics_linear layer_of(const struct block *block, enum mics_block_tensor weight,
                                   enum mics_block_tensor first, enum mics_block_tensor bias,
                                   enum mics_block_tensor first_bias, uint32_t in, uint32_t out)
{
    const struct mics_model *model = block->model;
    const bool one = mics_transformer_has(model, weight);

    return mics_linear_of(block->pass, block->unit, index_of(model, one ? weight : first),
                          index_of(model, one ? bias : first_bias), in, out);
}

static struct mics_norm norm_of(const struct block *block, enum mics_block_tensor weight,
                                enum mics_block_tensor bias, const struct mics_norm_stats *stats)
{
    return mics_norm_of(block->pass, block->unit, index_of(block->model, weight),
                        index_of(block->model, bias), stats);
}

static struct block block_of(const struct mics_pass *pass, uint32_t unit)
{
    const struct mics_transformer_dims s = mics_transformer_dims_of(pass->model, &pass->batch);
    struct block block = {
        .pass = pass,
        .model = pass->model,
        .is = s,
        .acts =
            mics_block_activations_of(pass->model, &pass->batch, pass->saved, pass->scratch, NULL),
        .unit = unit,
        .window = mics_attention_window(mics_model_window(pass->model, unit - 1), pass->batch.T),
    };

    block.qkv = layer_of(&block, MICS_BLOCK_QKV, MICS_BLOCK_Q, MICS_BLOCK_QKV_BIAS,
                         MICS_BLOCK_Q_BIAS, s.C, s.W);
    block.out = layer_of(&block, MICS_BLOCK_OUT, MICS_BLOCK_OUT, MICS_BLOCK_OUT_BIAS,
                         MICS_BLOCK_OUT_BIAS, s.A, s.C);
    block.fc = layer_of(&block, MICS_BLOCK_FC, MICS_BLOCK_GATE, MICS_BLOCK_FC_BIAS,
                        MICS_BLOCK_GATE_BIAS, s.C, s.hidden);
    block.down = layer_of(&block, MICS_BLOCK_DOWN, MICS_BLOCK_DOWN, MICS_BLOCK_DOWN_BIAS,
                          MICS_BLOCK_DOWN_BIAS, s.F, s.C);
    block.norm_1 = norm_of(&block, MICS_BLOCK_NORM_1, MICS_BLOCK_NORM_1_BIAS, &block.acts.norm_1);
    block.norm_2 = norm_of(&block, MICS_BLOCK_NORM_2, MICS_BLOCK_NORM_2_BIAS, &block.acts.norm_2);
    return block;
}

/* What norm_2 normalises. */
static const void *norm_2_input(const struct block *block)
{
    return block->model->family->parallel_residual ? block->pass->in[MICS_RESIDUAL]
                                                   : block->acts.middle;
}

static bool has_qk_norm(const struct block *block)
{
    return mics_transformer_has(block->model, MICS_BLOCK_Q_NORM);
}

/* Rotate queries and keys to their positions, or their gradients back. */
static void rotate(const struct block *block, void *qkv, bool inverse)
{
    const struct mics_model_config *c = &block->model->config;

    if (mics_family_is_rotary(block->model->family))
        mics_launch_rope(block->pass->stream, &(struct mics_args_rope){
                                                  .data = qkv,
                                                  .B = block->pass->batch.B,
                                                  .T = block->pass->batch.T,
                                                  .heads = block->is.H + block->is.H_kv,
                                                  .D = block->is.D,
                                                  .stride = block->is.W,
                                                  .base = (float)c->rope_theta,
                                                  .inverse = inverse,
                                                  .dtype = block->pass->batch.dtype,
                                                  .scaling = c->rope_scaling,
                                              });
}

/* The norms of heads; their parameters as those of two root mean square norms. */
struct qk_norms {
    struct mics_norm q, k;
};

static struct qk_norms qk_norms_of(const struct block *block)
{
    const struct mics_norm_stats stats = {.rstd = block->acts.qk_rstd};

    return (struct qk_norms){
        .q = mics_norm_of(block->pass, block->unit, index_of(block->model, MICS_BLOCK_Q_NORM),
                          MICS_NO_TENSOR, &stats),
        .k = mics_norm_of(block->pass, block->unit, index_of(block->model, MICS_BLOCK_K_NORM),
                          MICS_NO_TENSOR, &stats),
    };
}

/* qkv -> attended. */
static void prepare_heads(const struct block *block)
{
    if (has_qk_norm(block)) {
        const struct qk_norms norms = qk_norms_of(block);

        mics_launch_qk_norm(block->pass->stream, &(struct mics_args_qk_norm){
                                                     .out = block->acts.attended,
                                                     .rstd = norms.q.stats.rstd,
                                                     .in = block->acts.qkv,
                                                     .q_weight = norms.q.weight,
                                                     .k_weight = norms.k.weight,
                                                     .rows = block->is.rows,
                                                     .H = block->is.H,
                                                     .H_kv = block->is.H_kv,
                                                     .D = block->is.D,
                                                     .eps = norms.q.eps,
                                                     .dtype = norms.q.dtype,
                                                 });
    }
    rotate(block, block->acts.attended, false);
}

/* In wide_b: from the gradient of `attended` to that of qkv. */
static void prepare_heads_backward(const struct block *block)
{
    rotate(block, block->acts.wide_b, true);
    if (has_qk_norm(block)) {
        const struct qk_norms norms = qk_norms_of(block);

        mics_launch_qk_norm_grad(block->pass->stream, &(struct mics_args_qk_norm_grad){
                                                          .grad = block->acts.wide_b,
                                                          .grad_q_weight = norms.q.grad_weight,
                                                          .grad_k_weight = norms.k.grad_weight,
                                                          .in = block->acts.qkv,
                                                          .q_weight = norms.q.weight,
                                                          .k_weight = norms.k.weight,
                                                          .rstd = norms.q.stats.rstd,
                                                          .rows = block->is.rows,
                                                          .H = block->is.H,
                                                          .H_kv = block->is.H_kv,
                                                          .D = block->is.D,
                                                          .dtype = norms.q.dtype,
                                                          .grad_dtype = norms.q.grad_dtype,
                                                      });
    }
}

/* What ends documents, or NULL. */
static const int32_t *document_targets(const struct mics_pass *pass)
{
    return pass->batch.documents ? pass->targets : NULL;
}

static void attend(const struct block *block)
{
    mics_launch_attention(block->pass->stream, &(struct mics_args_attention){
                                                   .out = block->acts.attention,
                                                   .lse = block->acts.lse,
                                                   .qkv = block->acts.attended,
                                                   .B = block->pass->batch.B,
                                                   .T = block->pass->batch.T,
                                                   .H = block->is.H,
                                                   .H_kv = block->is.H_kv,
                                                   .D = block->is.D,
                                                   .causal = true,
                                                   .dtype = block->pass->batch.dtype,
                                                   .targets = document_targets(block->pass),
                                                   .window = block->window,
                                               });
}

/* in -> qkv, attended, attention, middle and norm_2's output, from which `hidden` is computed. */
static void run_to_norm_2(const struct block *block)
{
    const struct mics_block_activations *acts = &block->acts;
    const uint32_t rows = block->is.rows;

    mics_norm_forward(&block->norm_1, rows, block->pass->in[MICS_RESIDUAL], acts->normed_1);
    mics_linear_forward(&block->qkv, rows, acts->normed_1, acts->qkv);
    prepare_heads(block);
    attend(block);
    mics_linear_forward_add(&block->out, rows, acts->attention, block->pass->in[MICS_RESIDUAL],
                            acts->middle);
    mics_norm_forward(&block->norm_2, rows, norm_2_input(block), acts->normed_2);
}

/* hidden -> activated. GELU of `hidden` as it is stored, as the product's epilogue takes it: the
 * same bits. */
static void activate(const struct block *block)
{
    const struct mics_block_activations *acts = &block->acts;

    if (block->model->family->mlp == MICS_MLP_SWIGLU)
        mics_launch_swiglu(block->pass->stream, &(struct mics_args_swiglu){
                                                    .out = acts->activated,
                                                    .in = acts->hidden,
                                                    .rows = block->is.rows,
                                                    .F = block->is.F,
                                                    .dtype = block->pass->batch.dtype,
                                                });
    else
        mics_launch_gelu(block->pass->stream, &(struct mics_args_gelu){
                                                  .out = acts->activated,
                                                  .in = acts->hidden,
                                                  .count = (uint64_t)block->is.rows * block->is.F,
                                                  .dtype = block->pass->batch.dtype,
                                              });
}

void mics_block_forward(const struct mics_pass *pass, uint32_t unit)
{
    const struct block block = block_of(pass, unit);
    const struct mics_block_activations *acts = &block.acts;

    run_to_norm_2(&block);
    if (block.model->family->mlp == MICS_MLP_GELU) {
        mics_linear_forward_gelu(&block.fc, block.is.rows, acts->normed_2, acts->hidden,
                                 acts->activated);
    } else {
        mics_linear_forward(&block.fc, block.is.rows, acts->normed_2, acts->hidden);
        activate(&block);
    }
    mics_linear_forward_add(&block.down, block.is.rows, acts->activated, acts->middle,
                            pass->out[MICS_RESIDUAL]);
}

/* The gradients of a norm and of the linear layer after it: from the gradient of the layer's output
 * to that of the norm's input, added to that of the residual stream. The norm's output is `normed`
 * if it was saved, else it is computed again in wide_a, which then takes its gradient. */
static void branch_backward(const struct block *block, const struct mics_linear *layer,
                            const void *grad_out, const struct mics_norm *norm, const void *in,
                            const void *normed)
{
    void *const grad_normed = block->acts.wide_a;
    const uint32_t rows = block->is.rows;

    if (block->pass->batch.recompute != MICS_RECOMPUTE_NONE) {
        mics_norm_forward(norm, rows, in, grad_normed);
        normed = grad_normed;
    }
    mics_linear_grad_params(layer, rows, normed, grad_out);
    mics_linear_grad_in(layer, rows, grad_out, grad_normed);
    mics_norm_backward(norm, rows, in, grad_normed, block->pass->grad[MICS_RESIDUAL]);
}

/* The gradient of `hidden`, into its place for SwiGLU, into wide_b for GELU. */
static const void *activation_backward(const struct block *block)
{
    const struct mics_pass *pass = block->pass;
    const struct mics_block_activations *acts = &block->acts;
    const uint32_t rows = block->is.rows;

    if (block->model->family->mlp == MICS_MLP_GELU) {
        mics_linear_grad_in_gelu(&block->down, rows, pass->grad[MICS_RESIDUAL], acts->hidden,
                                 acts->wide_b);
        return acts->wide_b;
    }
    mics_linear_grad_in(&block->down, rows, pass->grad[MICS_RESIDUAL], acts->wide_b);
    mics_launch_swiglu_grad(pass->stream, &(struct mics_args_swiglu_grad){
                                              .grad_in = acts->hidden,
                                              .in = acts->hidden,
                                              .grad_out = acts->wide_b,
                                              .rows = rows,
                                              .F = block->is.F,
                                              .dtype = pass->batch.dtype,
                                          });
    return acts->hidden;
}

/* The gradient of the residual stream: from that of the block's output to that of norm_2's input.
 */
static void mlp_backward(const struct block *block)
{
    const struct mics_block_activations *acts = &block->acts;

    if (block->pass->batch.recompute != MICS_RECOMPUTE_NONE)
        activate(block);
    mics_linear_grad_params(&block->down, block->is.rows, acts->activated,
                            block->pass->grad[MICS_RESIDUAL]);
    const void *grad_hidden = activation_backward(block);
    branch_backward(block, &block->fc, grad_hidden, &block->norm_2, norm_2_input(block),
                    acts->normed_2);
}

/* Adds the gradient of the block's input through attention to that of the residual stream;
 * grad_middle is that of `middle`. */
static void attention_backward(const struct block *block, const void *grad_middle)
{
    const struct mics_pass *pass = block->pass;
    const struct mics_block_activations *acts = &block->acts;
    const uint32_t rows = block->is.rows;

    mics_linear_grad_params(&block->out, rows, acts->attention, grad_middle);
    mics_linear_grad_in(&block->out, rows, grad_middle, acts->wide_a);
    mics_launch_attention_grad(pass->stream, &(struct mics_args_attention_grad){
                                                 .grad_qkv = acts->wide_b,
                                                 .delta = acts->delta,
                                                 .grad_out = acts->wide_a,
                                                 .out = acts->attention,
                                                 .qkv = acts->attended,
                                                 .lse = acts->lse,
                                                 .B = pass->batch.B,
                                                 .T = pass->batch.T,
                                                 .H = block->is.H,
                                                 .H_kv = block->is.H_kv,
                                                 .D = block->is.D,
                                                 .causal = true,
                                                 .dtype = pass->batch.dtype,
                                                 .targets = document_targets(pass),
                                                 .window = block->window,
                                             });
    prepare_heads_backward(block);
    branch_backward(block, &block->qkv, acts->wide_b, &block->norm_1,
                    block->pass->in[MICS_RESIDUAL], acts->normed_1);
}

void mics_block_backward(const struct mics_pass *pass, uint32_t unit)
{
    const struct block block = block_of(pass, unit);
    const struct mics_block_activations *acts = &block.acts;
    const void *grad_middle = pass->grad[MICS_RESIDUAL];

    if (pass->batch.recompute == MICS_RECOMPUTE_FULL) {
        run_to_norm_2(&block);
        mics_linear_forward(&block.fc, block.is.rows, acts->normed_2, acts->hidden);
    } else if (pass->batch.recompute == MICS_RECOMPUTE_SELECTIVE && has_qk_norm(&block)) {
        prepare_heads(&block);
    }
    if (acts->grad_out) { /* both branches take the gradient of the output */
        mics_launch_copy(pass->stream, &(struct mics_args_copy){
                                           .dst = acts->grad_out,
                                           .src = pass->grad[MICS_RESIDUAL],
                                           .bytes = mics_dtype_bytes(pass->batch.dtype) *
                                                    block.is.rows * block.is.C,
                                       });
        grad_middle = acts->grad_out;
    }
    mlp_backward(&block);
    attention_backward(&block, grad_middle);
}
