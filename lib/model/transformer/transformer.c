/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transformer.c - the units of a model from its family's row, and the dispatch from stages to
 * their pieces.
 *
 * A layer with experts has two units and two stages: one of attention, the router and an expert
 * that all tokens share, as other blocks, and one of kind expert. The latter is laid out expert by
 * expert, each at a multiple of MICS_TENSOR_ALIGN: so a group whose size divides their number cuts
 * it between experts.
 *
 * Matrices start from N(0, 0.02), those that end a residual branch, where the family scales them,
 * from N(0, 0.02 / sqrt(2 L)); norms from 1, biases from 0.
 */
#include "model/transformer/transformer.h"

#include "model/activation_layout.h"
#include "model/unit_build.h"

#include "base/num.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define STD 0.02

/* Of the assignments of a micro-batch, the most that experts with a capacity take. */
static uint32_t taken_rows(const struct mics_model *model, const struct mics_batch *batch)
{
    const struct mics_model_config *c = &model->config;
    const uint64_t all = (uint64_t)batch->B * batch->T * c->n_expert_used;
    const uint64_t taken = (uint64_t)c->n_expert * mics_model_expert_rows(model, batch);

    return c->n_expert == 0 ? 0
                            : (uint32_t)mics_min_u64(all, mics_round_up(taken, c->n_expert_used));
}

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
        .E = c->n_expert,
        .k = c->n_expert_used,
        .N = batch->B * batch->T * c->n_expert_used,
        .taken = taken_rows(model, batch),
        .I = c->expert_inner,
    };
}

struct mics_transformer_dims mics_transformer_layer_dims_of(const struct mics_model *model,
                                                            const struct mics_batch *batch,
                                                            uint32_t layer)
{
    struct mics_transformer_dims dims = mics_transformer_dims_of(model, batch);

    if (mics_model_is_sparse(model, layer)) {
        dims.F = model->config.shared_inner;
        dims.hidden = 2 * dims.F;
    }
    return dims;
}

/* Is that tensor of the head, not of the embedding? */
static bool is_of_head(enum mics_embed_head_tensor tensor)
{
    switch (tensor) {
    case MICS_HEAD_EMBEDDING:
    case MICS_HEAD_POSITIONS:
    case MICS_HEAD_TYPES:
    case MICS_HEAD_EMBED_NORM:
    case MICS_HEAD_EMBED_NORM_BIAS:
        return false;
    default:
        return true;
    }
}

/* Is that tensor in the unit of the embedding, or in that of the head? */
static bool is_in_embed_head(const struct mics_model *model, enum mics_embed_head_tensor tensor,
                             bool head)
{
    if (!model->family->embed_head[tensor])
        return false;
    if (tensor == MICS_HEAD_WEIGHT)
        return head && model->config.untied;
    return is_of_head(tensor) == head || !model->config.untied;
}

uint32_t mics_transformer_embed_head_index(const struct mics_model *model,
                                           enum mics_embed_head_tensor tensor)
{
    const bool head = is_of_head(tensor);
    uint32_t index = 0;

    if (!model->family->embed_head[tensor])
        return MICS_NO_TENSOR;
    if (tensor == MICS_HEAD_WEIGHT && !model->config.untied)
        tensor = MICS_HEAD_EMBEDDING;
    for (int i = 0; i < (int)tensor; i++)
        index += is_in_embed_head(model, (enum mics_embed_head_tensor)i, head);
    return index;
}

bool mics_transformer_has(const struct mics_model *model, uint32_t layer,
                          enum mics_block_tensor tensor)
{
    const struct mics_family *family = model->family;

    if (!family->block[tensor])
        return false;
    switch (tensor) {
    case MICS_BLOCK_FC:
    case MICS_BLOCK_GATE:
    case MICS_BLOCK_UP:
    case MICS_BLOCK_DOWN:
        return !mics_model_is_sparse(model, layer);
    case MICS_BLOCK_ROUTER:
    case MICS_BLOCK_SHARED_GATE:
    case MICS_BLOCK_SHARED_UP:
    case MICS_BLOCK_SHARED_DOWN:
    case MICS_BLOCK_SHARED_ROUTER:
        return mics_model_is_sparse(model, layer);
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

uint32_t mics_transformer_block_index(const struct mics_model *model, uint32_t layer,
                                      enum mics_block_tensor tensor)
{
    uint32_t index = 0;

    for (int i = 0; i < (int)tensor; i++)
        index += mics_transformer_has(model, layer, (enum mics_block_tensor)i);
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
    case MICS_HEAD_TYPES:
        return matrix_spec(name, c->type_vocab_size, c->n_embd);
    case MICS_HEAD_TRANSFORM:
        return matrix_spec(name, c->n_embd, c->n_embd);
    case MICS_HEAD_NORM:
    case MICS_HEAD_EMBED_NORM:
        return norm_spec(name, c->n_embd);
    case MICS_HEAD_NORM_BIAS:
    case MICS_HEAD_EMBED_NORM_BIAS:
    case MICS_HEAD_TRANSFORM_BIAS:
        return bias_spec(name, c->n_embd);
    case MICS_HEAD_BIAS: /* as long as the rows of logits */
        spec = bias_spec(name, c->vocab_size);
        spec.padding_rows = mics_padded_vocab(c->vocab_size) - c->vocab_size;
        return spec;
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
    const uint64_t shared = c->shared_inner;
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
        [MICS_BLOCK_ROUTER] = {C, c->n_expert},
        [MICS_BLOCK_SHARED_GATE] = {C, shared},
        [MICS_BLOCK_SHARED_UP] = {C, shared},
        [MICS_BLOCK_SHARED_DOWN] = {shared, C},
        [MICS_BLOCK_SHARED_ROUTER] = {C, 1},
        [MICS_BLOCK_NORM_1] = {C, 0},
        [MICS_BLOCK_NORM_1_BIAS] = {C, 0},
        [MICS_BLOCK_QKV_BIAS] = {W, 0},
        [MICS_BLOCK_Q_BIAS] = {A, 0},
        [MICS_BLOCK_K_BIAS] = {keys, 0},
        [MICS_BLOCK_V_BIAS] = {keys, 0},
        [MICS_BLOCK_Q_NORM] = {model->family->qk_norm_whole ? A : c->head_dim, 0},
        [MICS_BLOCK_K_NORM] = {model->family->qk_norm_whole ? keys : c->head_dim, 0},
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
                      tensor == MICS_BLOCK_SHARED_UP || tensor == MICS_BLOCK_K_BIAS ||
                      tensor == MICS_BLOCK_V_BIAS || tensor == MICS_BLOCK_UP_BIAS;
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

/* The unit of attention, the router and a shared expert, or of a whole block. */
static enum mics_status build_block(struct mics_model *model, uint32_t index, uint32_t layer,
                                    struct mics_err *err)
{
    struct mics_unit *unit = &model->units[index];
    enum mics_status status;
    struct mics_tensor_spec specs[MICS_BLOCK_TENSORS];
    uint32_t count = 0;
    char name[32];

    for (int i = 0; i < MICS_BLOCK_TENSORS; i++)
        if (mics_transformer_has(model, layer, (enum mics_block_tensor)i))
            specs[count++] = block_spec(model, (enum mics_block_tensor)i);
    snprintf(name, sizeof name, "%s.%u", model->family->layer, layer);
    status = mics_build_unit(model, index, name, name, false, specs, count, err);
    if (status == MICS_OK)
        unit->written_count = written_count(unit);
    return status;
}

/* The unit of a layer's experts. */
static enum mics_status build_experts(struct mics_model *model, uint32_t index, uint32_t layer,
                                      struct mics_err *err)
{
    const struct mics_hf_experts *const experts = model->family->experts;
    const struct mics_model_config *c = &model->config;
    const uint32_t count = c->n_expert * MICS_EXPERT_TENSORS;
    struct mics_tensor_spec *specs = calloc(count, sizeof *specs);
    char(*names)[64] = calloc(count, sizeof *names);
    char name[32], prefix[32];
    enum mics_status status = specs && names ? MICS_OK : mics_err_nomem(err);

    snprintf(name, sizeof name, "%s.%u.experts", model->family->layer, layer);
    snprintf(prefix, sizeof prefix, "%s.%u", model->family->layer, layer);
    for (uint32_t i = 0; status == MICS_OK && i < count; i++) {
        const uint32_t kind = i % MICS_EXPERT_TENSORS;
        const bool down = kind == MICS_EXPERT_DOWN;

        snprintf(names[i], sizeof names[i], "%s.%u.%s", experts->block, i / MICS_EXPERT_TENSORS,
                 experts->names[kind]);
        specs[i] = matrix_spec(names[i], down ? c->n_embd : c->expert_inner,
                               down ? c->expert_inner : c->n_embd);
        specs[i].contiguous = kind != MICS_EXPERT_GATE;
    }
    if (status == MICS_OK)
        status = mics_build_unit(model, index, name, prefix, false, specs, count, err);
    if (status == MICS_OK) {
        model->units[index].kind = MICS_UNIT_EXPERT;
        model->units[index].written_count = written_count(&model->units[index]);
    }
    free(specs);
    free(names);
    return status;
}

/* Those before `layer`. */
static uint32_t sparse_before(const struct mics_model *model, uint32_t layer)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < layer; i++)
        count += mics_model_is_sparse(model, i);
    return count;
}

uint32_t mics_transformer_sparse_layers(const struct mics_model *model)
{
    return sparse_before(model, model->config.n_layer);
}

double *mics_transformer_layer_stats(const struct mics_pass *pass, uint32_t layer)
{
    return pass->stats + MICS_STAT_LAYERS +
           (size_t)sparse_before(pass->model, layer) * (1 + pass->model->config.n_expert);
}

bool mics_transformer_pools_load(const struct mics_model *model)
{
    return model->config.balance.kind == MICS_BALANCE_MICRO_BATCH &&
           mics_transformer_sparse_layers(model) > 0;
}

/* The stages of a layer with experts, from `at` on, and their units, from `unit` on. */
static void add_sparse_layer(const struct mics_model *model, uint32_t layer, uint32_t unit,
                             bool first, struct mics_stage *at)
{
    const bool pooled = mics_transformer_pools_load(model);
    const uint32_t routed = 1u << MICS_RESIDUAL | 1u << MICS_NORMED | 1u << MICS_ROUTING;
    const uint32_t load = pooled ? 1u << MICS_LOAD : 0;

    at[0] = (struct mics_stage){.kind = MICS_STAGE_BLOCK,
                                .unit = unit,
                                .layer = layer,
                                .receives = 1u << MICS_RESIDUAL | (first ? 0 : load),
                                .hands_on = routed | load,
                                .backward_needs_params = true};
    at[1] = (struct mics_stage){.kind = MICS_STAGE_BLOCK,
                                .unit = unit + 1,
                                .layer = layer,
                                .part = 1,
                                .receives = routed,
                                .hands_on = 1u << MICS_RESIDUAL,
                                .backward_needs_params = true};
}

/* As mics_build_stages(), with two stages and units for each layer with experts. */
static enum mics_status build_sparse_stages(struct mics_model *model, struct mics_err *err)
{
    const uint32_t layers = model->config.n_layer, sparse = mics_transformer_sparse_layers(model);
    const bool pooled = mics_transformer_pools_load(model);
    const enum mics_status status = mics_build_alloc(
        model, layers + sparse + (model->config.untied ? 2 : 1), layers + sparse + 2, err);
    uint32_t stage = 1, seen = 0;

    if (status != MICS_OK)
        return status;
    model->boundary_count = pooled ? MICS_LOAD + 1 : MICS_ROUTING + 1;
    model->stat_count = MICS_STAT_LAYERS + sparse * (1 + model->config.n_expert);
    model->stages[0] = (struct mics_stage){.kind = MICS_STAGE_EMBED, .hands_on = 1};
    for (uint32_t i = 0; i < layers; i++) {
        if (mics_model_is_sparse(model, i)) {
            add_sparse_layer(model, i, stage, seen++ == 0, &model->stages[stage]);
            stage += 2;
            continue;
        }
        model->stages[stage] = (struct mics_stage){.kind = MICS_STAGE_BLOCK,
                                                   .unit = stage,
                                                   .layer = i,
                                                   .receives = 1,
                                                   .hands_on = 1,
                                                   .backward_needs_params = true};
        stage++;
    }
    model->stages[stage] =
        (struct mics_stage){.kind = MICS_STAGE_HEAD,
                            .unit = model->config.untied ? model->unit_count - 1 : 0,
                            .receives = 1u << MICS_RESIDUAL | (pooled ? 1u << MICS_LOAD : 0),
                            .backward_needs_params = true};
    return MICS_OK;
}

static enum mics_status build(struct mics_model *model, struct mics_err *err)
{
    enum mics_status status = mics_transformer_sparse_layers(model) > 0
                                  ? build_sparse_stages(model, err)
                                  : mics_build_stages(model, err);

    if (status == MICS_OK) {
        model->stages[0].backward_needs_params = model->family->embed_head[MICS_HEAD_EMBED_NORM];
        status = build_embed_head(model, 0, false, err);
    }
    for (uint32_t i = 1; status == MICS_OK && i + 1 < model->stage_count; i++) {
        const struct mics_stage *stage = &model->stages[i];

        status = stage->part == 0 ? build_block(model, stage->unit, stage->layer, err)
                                  : build_experts(model, stage->unit, stage->layer, err);
    }
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
    .exchanges = mics_experts_exchanges,
};
