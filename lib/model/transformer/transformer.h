/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transformer.h - the decoder: an embedding, L blocks and a head, computed as the family's row says
 * (family.h). Private to lib/model.
 *
 * Shapes: R = B T rows, C = n_embd, F = n_inner, H heads of D channels for queries, H_kv for keys
 * and values, A = H D channels of all queries, W = (H + 2 H_kv) D of queries, keys and values, V
 * vocabulary.
 */
#ifndef MICS_MODEL_TRANSFORMER_TRANSFORMER_H
#define MICS_MODEL_TRANSFORMER_TRANSFORMER_H

#include "model/family.h"
#include "model/model.h"

extern const struct mics_model_ops mics_transformer_ops;

struct mics_transformer_dims {
    uint32_t rows, C, F, H, H_kv, D, A, W;
    uint32_t hidden; /* of the MLP's first product: F, or 2 F of gate and up side by side */
};

struct mics_transformer_dims mics_transformer_dims_of(const struct mics_model *model,
                                                      const struct mics_batch *batch);

/* Does a block have that tensor? */
bool mics_transformer_has(const struct mics_model *model, enum mics_block_tensor tensor);

/* The index in its unit of a tensor of a block, or of the unit that stage `stage` uses. Only for
 * tensors that the model has. */
uint32_t mics_transformer_block_index(const struct mics_model *model,
                                      enum mics_block_tensor tensor);
uint32_t mics_transformer_embed_head_index(const struct mics_model *model,
                                           enum mics_embed_head_tensor tensor);

/*
 * layers.c: a linear layer and a norm on a device, with their gradients.
 */

/* What names no tensor: a layer without a bias. */
#define MICS_NO_TENSOR UINT32_MAX

struct mics_linear {
    struct mics_stream *stream;
    const void *weight, *bias; /* [in, out] or, transposed, [out, in]; [out] or NULL */
    void *grad_weight, *grad_bias;
    uint32_t in, out;
    bool transposed;
    bool writes_grad;                  /* grad_weight is written, not added to */
    enum mics_dtype dtype, grad_dtype; /* of all but the gradients of parameters, and of those */
};

/* A linear layer of the tensors at indices `weight` and `bias` of a unit. */
struct mics_linear mics_linear_of(const struct mics_pass *pass, uint32_t unit, uint32_t weight,
                                  uint32_t bias, uint32_t in, uint32_t out);

/* out[rows, out] = in[rows, in] weight + bias, weight as [in, out]; with a residual[rows, out]
 * added. */
void mics_linear_forward(const struct mics_linear *layer, uint32_t rows, const void *in, void *out);
void mics_linear_forward_add(const struct mics_linear *layer, uint32_t rows, const void *in,
                             const void *residual, void *out);
/* pre = in weight + bias, out = gelu(pre), both [rows, out]. */
void mics_linear_forward_gelu(const struct mics_linear *layer, uint32_t rows, const void *in,
                              void *pre, void *out);
/* grad_weight += in' grad_out, or = if the layer writes it, stored as the weight is; grad_bias +=
 * column sums of grad_out. */
void mics_linear_grad_params(const struct mics_linear *layer, uint32_t rows, const void *in,
                             const void *grad_out);
/* grad_in[rows, in] = grad_out weight'; behind a GELU times its derivative at pre[rows, in]. */
void mics_linear_grad_in(const struct mics_linear *layer, uint32_t rows, const void *grad_out,
                         void *grad_in);
void mics_linear_grad_in_gelu(const struct mics_linear *layer, uint32_t rows, const void *grad_out,
                              const void *pre, void *grad_in);

/* The statistics of a norm's rows, saved for its gradient. */
struct mics_norm_stats {
    float *mean, *rstd; /* [rows]; the mean is NULL in a root mean square norm */
};

struct mics_norm {
    struct mics_stream *stream;
    enum mics_norm_kind kind;
    const void *weight, *bias; /* [C]; no bias in a root mean square norm */
    void *grad_weight, *grad_bias;
    struct mics_norm_stats stats;
    uint32_t C;
    float eps;
    enum mics_dtype dtype, grad_dtype;
};

struct mics_norm mics_norm_of(const struct mics_pass *pass, uint32_t unit, uint32_t weight,
                              uint32_t bias, const struct mics_norm_stats *stats);

/* out[rows, C] = norm of in; the statistics are written. */
void mics_norm_forward(const struct mics_norm *norm, uint32_t rows, const void *in, void *out);
/* grad_in += ..., and the gradients of the parameters. */
void mics_norm_backward(const struct mics_norm *norm, uint32_t rows, const void *in,
                        const void *grad_out, void *grad_in);

/*
 * activations.c: where a stage keeps its activations.
 */

/* The memory of one block's pass. What the forward pass leaves for the backward pass is in the
 * saved area or, where the whole block is recomputed, in the scratch area, computed again by the
 * backward pass. */
struct mics_block_activations {
    struct mics_norm_stats norm_1, norm_2;
    void *qkv; /* [R, W]: what the product puts out; with rotary positions rotated in place, unless
                        heads are normalised first */
    float *qk_rstd;  /* [R, H + H_kv], of the norms of heads */
    void *attended;  /* [R, W]: what attention takes: qkv, or qkv normalised and rotated */
    float *lse;      /* [B, H, T] */
    void *attention; /* [R, A] */
    void *middle;    /* [R, C]: the residual stream after attention */
    void *hidden; /* [R, F] before GELU, or [R, 2F] of gate and up, replaced by their gradients */
    /* Saved if nothing is recomputed; otherwise both norms use wide_b and the activation uses
     * wide_a. */
    void *normed_1, *normed_2; /* [R, C] */
    void *activated;           /* [R, F] */
    /* Always scratch. */
    void *wide_a;   /* [R, max(F, C, A)]; [R, max(C, A)] if nothing is recomputed */
    void *wide_b;   /* [R, max(F, C, W)]; [R, max(F, W)] if nothing is recomputed */
    float *delta;   /* [B, H, T] */
    void *grad_out; /* [R, C] of a block with a parallel residual: the gradient of its output */
};

/* The head works on a chunk of `rows` rows at a time. */
struct mics_head_activations {
    uint32_t rows;
    uint32_t columns; /* of the logits, with padding */
    struct mics_norm_stats norm;
    void *normed, *grad_normed; /* [rows, C] */
    void *logits;               /* [rows, columns] */
};

/* Each either measures (saved and scratch NULL, *bytes is filled) or returns pointers (bytes may be
 * NULL). */
struct mics_block_activations mics_block_activations_of(const struct mics_model *model,
                                                        const struct mics_batch *batch, void *saved,
                                                        void *scratch,
                                                        struct mics_stage_bytes *bytes);
struct mics_head_activations mics_head_activations_of(const struct mics_model *model,
                                                      const struct mics_batch *batch, void *scratch,
                                                      struct mics_stage_bytes *bytes);

/* The only boundary tensor is the residual stream [B, T, C]. */
enum { MICS_RESIDUAL };

void mics_transformer_boundary_bytes(const struct mics_model *model, const struct mics_batch *batch,
                                     uint32_t boundary, struct mics_boundary_bytes *out);
void mics_transformer_stage_bytes(const struct mics_model *model, const struct mics_batch *batch,
                                  uint32_t stage, struct mics_stage_bytes *out);

/*
 * block.c and embed_head.c: the stages.
 */
void mics_block_forward(const struct mics_pass *pass, uint32_t unit);
void mics_block_backward(const struct mics_pass *pass, uint32_t unit);
void mics_embed_forward(const struct mics_pass *pass);
void mics_embed_backward(const struct mics_pass *pass);
void mics_head_forward(const struct mics_pass *pass, uint32_t unit); /* and backward */
void mics_head_logits(const struct mics_pass *pass, uint32_t unit, uint32_t row, void *logits);

#endif
