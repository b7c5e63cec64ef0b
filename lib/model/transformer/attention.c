/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention.c - out(attention(q, k, v)) with q, k, v = qkv(taken), as a sublayer's function.
 *
 * q and k may be normalised by heads and rotated to their positions. A KV cache replaces only what
 * looks at other rows and at positions.
 */
#include "device/launch.h"
#include "model/transformer/transformer.h"

static struct mics_linear qkv_of(const struct mics_sublayer *attention)
{
    return mics_sublayer_linear(attention, MICS_BLOCK_QKV, MICS_BLOCK_Q, MICS_BLOCK_QKV_BIAS,
                                MICS_BLOCK_Q_BIAS, attention->dims.C, attention->dims.W);
}

static struct mics_linear out_of(const struct mics_sublayer *attention)
{
    return mics_sublayer_linear(attention, MICS_BLOCK_OUT, MICS_BLOCK_OUT, MICS_BLOCK_OUT_BIAS,
                                MICS_BLOCK_OUT_BIAS, attention->dims.A, attention->dims.C);
}

static bool has_qk_norm(const struct mics_sublayer *attention)
{
    return mics_transformer_has(attention->pass->model, attention->stage->layer, MICS_BLOCK_Q_NORM);
}

/* The norms of heads; their parameters as those of two root mean square norms. Norms of all queries
 * and of all keys are those of one wide head each. */
struct qk_norms {
    struct mics_norm q, k;
    uint32_t H, H_kv, D, D_kv;
};

static struct qk_norms qk_norms_of(const struct mics_sublayer *attention)
{
    const struct mics_norm_stats stats = {.rstd = attention->acts->qk_rstd};
    const bool whole = attention->pass->model->family->qk_norm_whole;

    return (struct qk_norms){
        .H = whole ? 1 : attention->dims.H,
        .H_kv = whole ? 1 : attention->dims.H_kv,
        .D = whole ? attention->dims.A : attention->dims.D,
        .D_kv = (whole ? attention->dims.H_kv : 1) * attention->dims.D,
        .q = mics_sublayer_norm(attention, MICS_BLOCK_Q_NORM, MICS_BLOCK_TENSORS, &stats),
        .k = mics_sublayer_norm(attention, MICS_BLOCK_K_NORM, MICS_BLOCK_TENSORS, &stats),
    };
}

/* Rotate queries and keys to their positions, or their gradients back. */
static void rotate(const struct mics_sublayer *attention, void *qkv, bool inverse)
{
    const struct mics_pass *pass = attention->pass;
    const struct mics_model_config *config = &pass->model->config;
    const struct mics_args_rope args = {
        .data = qkv,
        .B = pass->batch.B,
        .T = pass->batch.T,
        .heads = attention->dims.H + attention->dims.H_kv,
        .D = attention->dims.D,
        .stride = attention->dims.W,
        .base = (float)config->rope_theta,
        .inverse = inverse,
        .dtype = pass->batch.dtype,
        .scaling = config->rope_scaling,
    };

    if (!mics_family_is_rotary(pass->model->family))
        return;
    if (attention->kv_cache)
        mics_kv_cache_rotate(attention->kv_cache, &args);
    else
        mics_launch_rope(pass->stream, &args);
}

/* qkv -> attended. */
static void prepare_heads(const struct mics_sublayer *attention)
{
    if (has_qk_norm(attention)) {
        const struct qk_norms norms = qk_norms_of(attention);

        mics_launch_qk_norm(attention->pass->stream, &(struct mics_args_qk_norm){
                                                         .out = attention->acts->attended,
                                                         .rstd = norms.q.stats.rstd,
                                                         .in = attention->acts->qkv,
                                                         .q_weight = norms.q.weight,
                                                         .k_weight = norms.k.weight,
                                                         .rows = attention->dims.rows,
                                                         .H = norms.H,
                                                         .H_kv = norms.H_kv,
                                                         .D = norms.D,
                                                         .D_kv = norms.D_kv,
                                                         .eps = norms.q.eps,
                                                         .dtype = norms.q.dtype,
                                                     });
    }
    rotate(attention, attention->acts->attended, false);
}

/* In wide_b: from the gradient of `attended` to that of qkv. */
static void prepare_heads_backward(const struct mics_sublayer *attention)
{
    rotate(attention, attention->acts->wide_b, true);
    if (has_qk_norm(attention)) {
        const struct qk_norms norms = qk_norms_of(attention);

        mics_launch_qk_norm_grad(attention->pass->stream, &(struct mics_args_qk_norm_grad){
                                                              .grad = attention->acts->wide_b,
                                                              .grad_q_weight = norms.q.grad_weight,
                                                              .grad_k_weight = norms.k.grad_weight,
                                                              .in = attention->acts->qkv,
                                                              .q_weight = norms.q.weight,
                                                              .k_weight = norms.k.weight,
                                                              .rstd = norms.q.stats.rstd,
                                                              .rows = attention->dims.rows,
                                                              .H = norms.H,
                                                              .H_kv = norms.H_kv,
                                                              .D = norms.D,
                                                              .D_kv = norms.D_kv,
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

/* attended -> attention. */
static void attend(const struct mics_sublayer *attention)
{
    const struct mics_pass *pass = attention->pass;
    const struct mics_transformer_dims *dims = &attention->dims;
    const struct mics_block_activations *acts = attention->acts;
    const uint32_t layer = attention->stage->layer, window = mics_model_window(pass->model, layer);

    if (attention->kv_cache) {
        mics_kv_cache_attend(attention->kv_cache, layer, window, acts->attended, acts->attention);
        return;
    }
    mics_launch_attention(pass->stream, &(struct mics_args_attention){
                                            .out = acts->attention,
                                            .lse = acts->lse,
                                            .qkv = acts->attended,
                                            .B = pass->batch.B,
                                            .T = pass->batch.T,
                                            .H = dims->H,
                                            .H_kv = dims->H_kv,
                                            .D = dims->D,
                                            .causal = !pass->model->family->bidirectional,
                                            .dtype = pass->batch.dtype,
                                            .targets = document_targets(pass),
                                            .window = mics_attention_window(window, pass->batch.T),
                                        });
}

static void forward(const struct mics_sublayer *attention)
{
    const struct mics_block_activations *acts = attention->acts;
    const struct mics_linear qkv = qkv_of(attention), out = out_of(attention);

    mics_linear_forward(&qkv, attention->dims.rows, attention->taken, acts->qkv);
    prepare_heads(attention);
    attend(attention);
    mics_linear_forward_add(&out, attention->dims.rows, acts->attention, attention->in,
                            attention->sum);
}

/* With full recomputation, where an MLP needs the result, forward() runs again instead. */
static void recompute(const struct mics_sublayer *attention)
{
    const struct mics_linear qkv = qkv_of(attention);
    const bool full = attention->pass->batch.recompute == MICS_RECOMPUTE_FULL;

    if (full)
        mics_linear_forward(&qkv, attention->dims.rows, attention->taken, attention->acts->qkv);
    if (full || has_qk_norm(attention))
        prepare_heads(attention);
    if (full)
        attend(attention);
}

static void backward(const struct mics_sublayer *attention, const void *grad, const void *add,
                     void *grad_taken)
{
    const struct mics_pass *pass = attention->pass;
    const struct mics_transformer_dims *dims = &attention->dims;
    const struct mics_block_activations *acts = attention->acts;
    const struct mics_linear qkv = qkv_of(attention), out = out_of(attention);
    const uint32_t window = mics_model_window(pass->model, attention->stage->layer);

    mics_linear_grad_params(&out, dims->rows, acts->attention, grad);
    mics_linear_grad_in(&out, dims->rows, grad, NULL, acts->wide_a);
    mics_launch_attention_grad(pass->stream,
                               &(struct mics_args_attention_grad){
                                   .grad_qkv = acts->wide_b,
                                   .delta = acts->delta,
                                   .grad_out = acts->wide_a,
                                   .out = acts->attention,
                                   .qkv = acts->attended,
                                   .lse = acts->lse,
                                   .B = pass->batch.B,
                                   .T = pass->batch.T,
                                   .H = dims->H,
                                   .H_kv = dims->H_kv,
                                   .D = dims->D,
                                   .causal = !pass->model->family->bidirectional,
                                   .dtype = pass->batch.dtype,
                                   .targets = document_targets(pass),
                                   .window = mics_attention_window(window, pass->batch.T),
                               });
    prepare_heads_backward(attention);
    mics_sublayer_first_backward(attention, &qkv, acts->wide_b, add, grad_taken);
}

const struct mics_sublayer_function mics_attention_function = {forward, recompute, backward};
