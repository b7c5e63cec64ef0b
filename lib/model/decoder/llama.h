/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama.h - the Llama family, inside. Private to lib/model.
 *
 * Touvron et al. 2023: pre-norm blocks with root mean square norms, rotary positions, grouped queries,
 * SwiGLU, no biases; the head has a matrix of its own or is tied to the embedding. Shapes: R = B T rows,
 * C = n_embd, F = n_inner, H heads of D, of which H_kv for keys and values, W = (H + 2 H_kv) D, V vocabulary.
 *
 * Matrices are stored [out, in], as the checkpoints have them. Those that share their input lie end to end
 * and are multiplied as one: q, k, v [W, C], and gate, up [2F, C].
 */
#ifndef MICS_MODEL_DECODER_LLAMA_H
#define MICS_MODEL_DECODER_LLAMA_H

#include "model/decoder/linear.h"
#include "model/model.h"

/* Tensors of a block, in order. */
enum mics_llama_block_tensor {
    MICS_LLAMA_Q,
    MICS_LLAMA_K,
    MICS_LLAMA_V,
    MICS_LLAMA_O,
    MICS_LLAMA_GATE,
    MICS_LLAMA_UP,
    MICS_LLAMA_DOWN,
    MICS_LLAMA_NORM_1,
    MICS_LLAMA_NORM_2,
    MICS_LLAMA_BLOCK_TENSORS
};

/* Of the head's unit: a matrix [V, C], which in a tied model is the embedding's, and the last norm. The
 * embedding's own unit, in an untied model, has the matrix only. */
enum mics_llama_end_tensor { MICS_LLAMA_VOCABULARY, MICS_LLAMA_NORM, MICS_LLAMA_END_TENSORS };

struct mics_llama_sizes {
    uint32_t rows, C, F, H, H_kv, D;
    uint32_t heads_width; /* H D: of the queries, and of what attention puts out */
    uint32_t qkv_width;   /* W */
};

/* The memory of one block's pass. What the forward pass leaves for the backward pass is in the saved area or,
 * where the whole block is recomputed, in the scratch area, computed again by the backward pass. */
struct mics_llama_block_areas {
    void *in;               /* [R, C], always saved */
    float *norm_1, *norm_2; /* [R]: the norms' statistics */
    void *qkv;              /* [R, W], turned */
    float *lse;             /* [B, H, T] */
    void *attention;        /* [R, H D] */
    void *middle;           /* [R, C]: the residual stream after attention */
    void *hidden;           /* [R, 2F]: gate and up; the backward puts their gradients there */
    /* Saved if nothing is recomputed; otherwise both norms use wide_b and SwiGLU uses wide_a. */
    void *normed_1, *normed_2; /* [R, C]: what the norms put out */
    void *swiglu;              /* [R, F] */
    /* Always scratch. */
    void *wide_a; /* [R, max(F, C, H D)]; [R, max(C, H D)] if nothing is recomputed */
    void *wide_b; /* [R, max(F, C, W)]; [R, max(F, W)] if nothing is recomputed */
    float *delta; /* [B, H, T] */
};

/* The head works on `rows` rows at a time. */
struct mics_llama_head_areas {
    const void *in; /* [R, C], saved */
    uint32_t rows;
    uint32_t columns;           /* of the logits, spare ones too */
    float *norm;                /* [rows] */
    void *normed, *grad_normed; /* [rows, C] */
    void *logits;               /* [rows, V] */
};

struct mics_llama_sizes mics_llama_sizes_of(const struct mics_model *model,
                                            const struct mics_batch *batch);

/* Each both measures (saved and scratch NULL, *bytes filled) and places (bytes may be NULL). */
struct mics_llama_block_areas mics_llama_block_carve(const struct mics_model *model,
                                                     const struct mics_batch *batch, void *saved,
                                                     void *scratch, struct mics_stage_bytes *bytes);
struct mics_llama_head_areas mics_llama_head_carve(const struct mics_model *model,
                                                   const struct mics_batch *batch, void *saved,
                                                   void *scratch, struct mics_stage_bytes *bytes);

/* out[rows, C] = norm of in by the tensor `weight` of the unit; rstd[rows] is left for the gradient. */
void mics_llama_norm_forward(const struct mics_pass *pass, uint32_t unit, uint32_t weight,
                             float *rstd, uint32_t rows, const void *in, void *out);
/* grad_in += ... and the gradient of the tensor. */
void mics_llama_norm_backward(const struct mics_pass *pass, uint32_t unit, uint32_t weight,
                              const float *rstd, uint32_t rows, const void *in,
                              const void *grad_out, void *grad_in);

/* The entries of the family's table. */
enum mics_status mics_llama_build(struct mics_model *model, struct mics_err *err);
void mics_llama_work(const struct mics_model *model, const struct mics_batch *batch, uint32_t stage,
                     struct mics_stage_work *out);
void mics_llama_block_forward(const struct mics_pass *pass, uint32_t unit);
void mics_llama_block_backward(const struct mics_pass *pass, uint32_t unit);
void mics_llama_embed_forward(const struct mics_pass *pass);
void mics_llama_embed_backward(const struct mics_pass *pass);
void mics_llama_head(const struct mics_pass *pass, uint32_t unit);
void mics_llama_logits(const struct mics_pass *pass, uint32_t unit, uint32_t row, void *logits);

#endif
