/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transformer.c - the units of a decoder from its family's row, and the dispatch from stages to
 * their pieces.
 *
 * Matrices start from N(0, 0.02), those that end a residual branch, where the family scales them,
 * from N(0, 0.02 / sqrt(2 L)); norms from 1, biases from 0.
 */
#include "model/transformer/transformer.h"

#include "model/activation_layout.h"
#include "model/unit_build.h"

#include <math.h>
#include <stdio.h>

#define STD 0.02

struct mics_transformer_dims mics_transformer_dims_of(const struct mics_model *model,
                                                      const struct mics_batch *batch)
{
    const struct mics_model_config *c = &model->config;

    return (struct mics_transformer_dims){
        .rows = batch->B * batch->T,
        .C = c->n_embd,
        .F = c->n_inner,
        .H = c->n_head,
        .H_kv = c->n_kv_head,
        .D = c->head_dim,
        .A = c->n_head * c->head_dim,
        .W = (c->n_head + 2 * c->n_kv_head) * c->head_dim,
        .hidden = model->family->mlp == MICS_MLP_SWIGLU ? 2 * c->n_inner : c->n_inner,
    };
}

/* Is that tensor in the unit of the embedding, or in that of the head? */
static bool is_in_embed_head(const struct mics_model *model, enum mics_embed_head_tensor tensor,
                             bool head)
{
    if (!model->family->embed_head[tensor])
        return false;
    if (tensor == MICS_HEAD_WEIGHT)
        return head && model->config.untied;
    if (tensor == MICS_HEAD_EMBEDDING || tensor == MICS_HEAD_POSITIONS)
        return !head || !model->config.untied;
    return head || !model->config.untied;
}

uint32_t mics_transformer_embed_head_index(const struct mics_model *model,
                                           enum mics_embed_head_tensor tensor)
{
    const bool head = tensor > MICS_HEAD_POSITIONS;
    uint32_t index = 0;

    if (tensor == MICS_HEAD_WEIGHT && !model->config.untied)
        tensor = MICS_HEAD_EMBEDDING;
    for (int i = 0; i < (int)tensor; i++)
        index += is_in_embed_head(model, (enum mics_embed_head_tensor)i, head);
    return index;
}

bool mics_transformer_has(const struct mics_model *model, enum mics_block_tensor tensor)
{
    const struct mics_family *family = model->family;

    if (!family->block[tensor])
        return false;
    switch (tensor) {
    case MICS_BLOCK_QKV_BIAS:
    case MICS_BLOCK_Q_BIAS:
    case MICS_BLOCK_K_BIAS:
    case MICS_BLOCK_V_BIAS:
    case MICS_BLOCK_OUT_BIAS:
        return !family->optional_attention_bias || model->config.attention_bias;
    case MICS_BLOCK_FC_BIAS:
    case MICS_BLOCK_GATE_BIAS:
    case MICS_BLOCK_UP_BIAS:
    case MICS_BLOCK_DOWN_BIAS:
        return !family->optional_mlp_bias || model->config.mlp_bias;
    default:
        return true;
    }
}

uint32_t mics_transformer_block_index(const struct mics_model *model, enum mics_block_tensor tensor)
{
    uint32_t index = 0;

    for (int i = 0; i < (int)tensor; i++)
        index += mics_transformer_has(model, (enum mics_block_tensor)i);
    return index;
}

static struct mics_tensor_spec norm_spec(const char *name, uint64_t width)
{
    return (struct mics_tensor_spec){.name = name, .rows = width, .init = MICS_INIT_ONE};
}

static struct mics_tensor_spec bias_spec(const char *name, uint64_t width)
{
    return (struct mics_tensor_spec){.name = name, .rows = width, .init = MICS_INIT_ZERO};
}

static struct mics_tensor_spec matrix_spec(const char *name, uint64_t rows, uint64_t columns)
{
    return (struct mics_tensor_spec){.name = name,
                                     .rows = rows,
                                     .columns = columns,
                                     .init = MICS_INIT_NORMAL,
                                     .std = STD,
                                     .decay = true};
}

static struct mics_tensor_spec embed_head_spec(const struct mics_model *model,
                                               enum mics_embed_head_tensor tensor, bool head)
{
    const struct mics_model_config *c = &model->config;
    const char *const name = model->family->embed_head[tensor];
    struct mics_tensor_spec spec;

    switch (tensor) {
    case MICS_HEAD_POSITIONS:
        return matrix_spec(name, c->n_positions, c->n_embd);
    case MICS_HEAD_NORM:
        return norm_spec(name, c->n_embd);
    case MICS_HEAD_NORM_BIAS:
        return bias_spec(name, c->n_embd);
    default: /* the head's matrix, which may be the embedding's, is padded for its product */
        spec = matrix_spec(name, c->vocab_size, c->n_embd);
        if (head)
            spec.padding_rows = mics_padded_vocab(c->vocab_size) - c->vocab_size;
        return spec;
    }
}

/* The unit of the embedding or of the head, or, in a tied model, of both. */
static enum mics_status build_embed_head(struct mics_model *model, uint32_t unit, bool head,
                                         struct mics_err *err)
{
    const bool tied = !model->config.untied;
    struct mics_tensor_spec specs[MICS_HEAD_TENSORS];
    uint32_t count = 0;

    for (int i = 0; i < MICS_HEAD_TENSORS; i++)
        if (is_in_embed_head(model, (enum mics_embed_head_tensor)i, head))
            specs[count++] = embed_head_spec(model, (enum mics_embed_head_tensor)i, head || tied);
    return mics_build_unit(model, unit,
                           tied   ? "ends"
                           : head ? "head"
                                  : "embed",
                           "", tied, specs, count, err);
}

/* [in, out] of a matrix of a block, or the width of a vector and 0. */
struct shape {
    uint64_t in, out;
};

static struct shape shape_of(const struct mics_model *model, enum mics_block_tensor tensor)
{
    const struct mics_model_config *c = &model->config;
    const uint64_t C = c->n_embd, F = c->n_inner, A = (uint64_t)c->n_head * c->head_dim;
    const uint64_t keys = (uint64_t)c->n_kv_head * c->head_dim, W = A + 2 * keys;
    const struct shape shapes[MICS_BLOCK_TENSORS] = {
        [MICS_BLOCK_QKV] = {C, W},
        [MICS_BLOCK_Q] = {C, A},
        [MICS_BLOCK_K] = {C, keys},
        [MICS_BLOCK_V] = {C, keys},
        [MICS_BLOCK_OUT] = {A, C},
        [MICS_BLOCK_FC] = {C, F},
        [MICS_BLOCK_GATE] = {C, F},
        [MICS_BLOCK_UP] = {C, F},
        [MICS_BLOCK_DOWN] = {F, C},
        [MICS_BLOCK_NORM_1] = {C, 0},
        [MICS_BLOCK_NORM_1_BIAS] = {C, 0},
        [MICS_BLOCK_QKV_BIAS] = {W, 0},
        [MICS_BLOCK_Q_BIAS] = {A, 0},
        [MICS_BLOCK_K_BIAS] = {keys, 0},
        [MICS_BLOCK_V_BIAS] = {keys, 0},
        [MICS_BLOCK_Q_NORM] = {c->head_dim, 0},
        [MICS_BLOCK_K_NORM] = {c->head_dim, 0},
        [MICS_BLOCK_OUT_BIAS] = {C, 0},
        [MICS_BLOCK_NORM_2] = {C, 0},
        [MICS_BLOCK_NORM_2_BIAS] = {C, 0},
        [MICS_BLOCK_FC_BIAS] = {F, 0},
        [MICS_BLOCK_GATE_BIAS] = {F, 0},
        [MICS_BLOCK_UP_BIAS] = {F, 0},
        [MICS_BLOCK_DOWN_BIAS] = {C, 0},
    };

    return shapes[tensor];
}

static struct mics_tensor_spec block_spec(const struct mics_model *model,
                                          enum mics_block_tensor tensor)
{
    const struct mics_family *family = model->family;
    const char *const name = family->block[tensor];
    const struct shape shape = shape_of(model, tensor);
    const bool in_out = family->weights_in_out;
    struct mics_tensor_spec spec;

    switch (tensor) {
    case MICS_BLOCK_NORM_1:
    case MICS_BLOCK_NORM_2:
    case MICS_BLOCK_Q_NORM:
    case MICS_BLOCK_K_NORM:
        return norm_spec(name, shape.in);
    default:
        if (shape.out == 0)
            spec = bias_spec(name, shape.in);
        else
            spec = matrix_spec(name, in_out ? shape.in : shape.out, in_out ? shape.out : shape.in);
    }
    spec.contiguous = tensor == MICS_BLOCK_K || tensor == MICS_BLOCK_V || tensor == MICS_BLOCK_UP ||
                      tensor == MICS_BLOCK_K_BIAS || tensor == MICS_BLOCK_V_BIAS ||
                      tensor == MICS_BLOCK_UP_BIAS;
    if (family->scaled_init && (tensor == MICS_BLOCK_OUT || tensor == MICS_BLOCK_DOWN))
        spec.std = STD / sqrt(2.0 * model->config.n_layer);
    return spec;
}

/* The matrices of a block come first and have one product each; but only if there is nothing
 * between them. */
static uint64_t written_count(const struct mics_unit *unit)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < unit->tensor_count; i++)
        if (unit->tensors[i].decay)
            count += unit->tensors[i].count;
    return count == unit->decay_count ? count : 0;
}

static enum mics_status build_block(struct mics_model *model, uint32_t layer, struct mics_err *err)
{
    struct mics_unit *unit = &model->units[1 + layer];
    enum mics_status status;
    struct mics_tensor_spec specs[MICS_BLOCK_TENSORS];
    uint32_t count = 0;
    char name[32];

    for (int i = 0; i < MICS_BLOCK_TENSORS; i++)
        if (mics_transformer_has(model, (enum mics_block_tensor)i))
            specs[count++] = block_spec(model, (enum mics_block_tensor)i);
    snprintf(name, sizeof name, "%s.%u", model->family->layer, layer);
    status = mics_build_unit(model, 1 + layer, name, name, false, specs, count, err);
    if (status == MICS_OK)
        unit->written_count = written_count(unit);
    return status;
}

static enum mics_status build(struct mics_model *model, struct mics_err *err)
{
    enum mics_status status = mics_build_stages(model, err);

    if (status == MICS_OK)
        status = build_embed_head(model, 0, false, err);
    for (uint32_t i = 0; status == MICS_OK && i < model->config.n_layer; i++)
        status = build_block(model, i, err);
    if (status == MICS_OK && model->config.untied)
        status = build_embed_head(model, model->unit_count - 1, true, err);
    return status;
}

static void forward(const struct mics_pass *pass, uint32_t index)
{
    const struct mics_stage *stage = &pass->model->stages[index];

    switch (stage->kind) {
    case MICS_STAGE_EMBED:
        mics_embed_forward(pass, 0);
        break;
    case MICS_STAGE_BLOCK:
        mics_block_forward(pass, stage, NULL);
        break;
    case MICS_STAGE_HEAD:
        mics_head_forward(pass, stage->unit);
        break;
    }
}

static void backward(const struct mics_pass *pass, uint32_t index)
{
    const struct mics_stage *stage = &pass->model->stages[index];

    if (stage->kind == MICS_STAGE_EMBED)
        mics_embed_backward(pass);
    else if (stage->kind == MICS_STAGE_BLOCK)
        mics_block_backward(pass, stage);
}

const struct mics_model_ops mics_transformer_ops = {
    .build = build,
    .stage_bytes = mics_transformer_stage_bytes,
    .boundary_bytes = mics_transformer_boundary_bytes,
    .forward = forward,
    .backward = backward,
};
