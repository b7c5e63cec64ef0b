/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt2.h - the GPT-2 family, inside. Private to lib/model.
 *
 * Radford et al. 2019: pre-norm blocks, learned positions, GELU (tanh), biases, the head tied to the
 * token embedding. Shapes: R = B T rows, C = n_embd, F = n_inner, H heads, V vocabulary.
 */
#ifndef MICS_MODEL_DECODER_GPT2_H
#define MICS_MODEL_DECODER_GPT2_H

#include "model/decoder/linear.h"
#include "model/model.h"

/* Tensors of the unit "ends", in order. */
enum mics_gpt2_end_tensor {
    MICS_GPT2_WTE,
    MICS_GPT2_WPE,
    MICS_GPT2_LN_F_WEIGHT,
    MICS_GPT2_LN_F_BIAS,
    MICS_GPT2_END_TENSORS
};

/* Tensors of a block, in order. */
enum mics_gpt2_block_tensor {
    MICS_GPT2_ATTN_WEIGHT,
    MICS_GPT2_ATTN_PROJ_WEIGHT,
    MICS_GPT2_FC_WEIGHT,
    MICS_GPT2_MLP_PROJ_WEIGHT,
    MICS_GPT2_LN_1_WEIGHT,
    MICS_GPT2_LN_1_BIAS,
    MICS_GPT2_ATTN_BIAS,
    MICS_GPT2_ATTN_PROJ_BIAS,
    MICS_GPT2_LN_2_WEIGHT,
    MICS_GPT2_LN_2_BIAS,
    MICS_GPT2_FC_BIAS,
    MICS_GPT2_MLP_PROJ_BIAS,
    MICS_GPT2_BLOCK_TENSORS
};

/* A normalisation's row statistics, saved for its gradient. */
struct mics_gpt2_norm {
    float *mean, *rstd; /* [R] */
};

/* The memory of one block's pass. What the forward pass leaves for the backward pass is in the saved area or,
 * where the whole block is recomputed, in the scratch area, computed again by the backward pass. */
struct mics_gpt2_block_areas {
    void *in; /* [R, C], always saved */
    struct mics_gpt2_norm ln_1, ln_2;
    void *qkv;       /* [R, 3C] */
    float *lse;      /* [B, H, T] */
    void *attention; /* [R, C] */
    void *middle;    /* [R, C]: the residual stream after attention */
    void *hidden;    /* [R, F], before GELU */
    /* Saved if nothing is recomputed; otherwise both norms use wide_b and GELU uses wide_a. */
    void *normed_1, *normed_2; /* [R, C]: what the norms put out */
    void *gelu;                /* [R, F] */
    /* Always scratch. */
    void *wide_a; /* [R, max(F, C)]; [R, C] if nothing is recomputed */
    void *wide_b; /* [R, max(F, 3C)] */
    float *delta; /* [B, H, T] */
};

/* The head works on `rows` rows at a time. */
struct mics_gpt2_head_areas {
    const void *in; /* [R, C], saved */
    uint32_t rows;
    uint32_t columns; /* of the logits, spare ones too */
    struct mics_gpt2_norm norm;
    void *normed, *grad_normed; /* [rows, C] */
    void *logits;               /* [rows, V] */
};

/* Each both measures (saved and scratch NULL, *bytes filled) and places (bytes may be NULL). */
struct mics_gpt2_block_areas mics_gpt2_block_carve(const struct mics_model *model,
                                                   const struct mics_batch *batch, void *saved,
                                                   void *scratch, struct mics_stage_bytes *bytes);
struct mics_gpt2_head_areas mics_gpt2_head_carve(const struct mics_model *model,
                                                 const struct mics_batch *batch, void *saved,
                                                 void *scratch, struct mics_stage_bytes *bytes);

/* out[rows, C] = layer norm of in, by the tensors `weight` and `weight + 1` of the unit. */
void mics_gpt2_norm_forward(const struct mics_pass *pass, uint32_t unit, uint32_t weight,
                            const struct mics_gpt2_norm *norm, uint32_t rows, const void *in,
                            void *out);
/* grad_in += ... and the gradients of the two tensors. */
void mics_gpt2_norm_backward(const struct mics_pass *pass, uint32_t unit, uint32_t weight,
                             const struct mics_gpt2_norm *norm, uint32_t rows, const void *in,
                             const void *grad_out, void *grad_in);

/* The entries of the family's table. */
enum mics_status mics_gpt2_build(struct mics_model *model, struct mics_err *err);
void mics_gpt2_work(const struct mics_model *model, const struct mics_batch *batch, uint32_t stage,
                    struct mics_stage_work *out);
void mics_gpt2_block_forward(const struct mics_pass *pass, uint32_t unit);
void mics_gpt2_block_backward(const struct mics_pass *pass, uint32_t unit);
void mics_gpt2_embed_forward(const struct mics_pass *pass);
void mics_gpt2_embed_backward(const struct mics_pass *pass);
void mics_gpt2_head(const struct mics_pass *pass);
void mics_gpt2_logits(const struct mics_pass *pass, uint32_t row, void *logits);

#endif
