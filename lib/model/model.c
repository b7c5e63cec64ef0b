/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - making models, and their initial values. */
#include "model/model.h"

#include "base/num.h"
#include "base/philox.h"
#include "model/config.h"
#include "model/transformer/transformer.h"

#include "host/pool.h"
#include "work.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const recompute_names[MICS_RECOMPUTE_LEVELS] = {
    [MICS_RECOMPUTE_NONE] = "none",
    [MICS_RECOMPUTE_SELECTIVE] = "selective",
    [MICS_RECOMPUTE_FULL] = "full",
};

const char *mics_recompute_name(enum mics_recompute level)
{
    return recompute_names[level];
}

bool mics_recompute_parse(const char *name, enum mics_recompute *out)
{
    for (int i = 0; i < MICS_RECOMPUTE_LEVELS; i++) {
        if (strcmp(name, recompute_names[i]) == 0) {
            *out = (enum mics_recompute)i;
            return true;
        }
    }
    return false;
}

/* Are the units and boundary tensors that stages name there, and is each tensor handed on before it
 * is received? */
static bool has_valid_stages(const struct mics_model *model)
{
    uint32_t handed_on = 0;

    for (uint32_t i = 0; i < model->stage_count; i++) {
        const struct mics_stage *stage = &model->stages[i];

        if ((stage->unit != MICS_NO_UNIT && stage->unit >= model->unit_count) ||
            (stage->receives & ~handed_on) != 0)
            return false;
        handed_on |= stage->hands_on;
    }
    return model->stages[0].unit != MICS_NO_UNIT &&
           model->stages[model->stage_count - 1].unit != MICS_NO_UNIT &&
           model->boundary_count <= MICS_BOUNDARIES_MAX && handed_on >> model->boundary_count == 0;
}

enum mics_status mics_model_new_custom(const struct mics_model_ops *ops,
                                       const struct mics_family *family,
                                       const struct mics_model_config *config,
                                       struct mics_model **out, struct mics_err *err)
{
    struct mics_model_config resolved = *config;

    if (family)
        mics_config_resolve(&resolved, family);
    enum mics_status status = mics_config_check(&resolved, family, err);
    if (status != MICS_OK)
        return status;

    struct mics_model *model = calloc(1, sizeof *model);
    if (!model)
        return mics_err_nomem(err);
    model->config = resolved;
    model->family = family;
    model->ops = ops;

    status = ops->build(model, err);
    if (status != MICS_OK) {
        mics_model_free(model);
        return status;
    }
    assert(has_valid_stages(model));
    *out = model;
    return MICS_OK;
}

enum mics_status mics_model_new(const struct mics_model_config *config, struct mics_model **out,
                                struct mics_err *err)
{
    const struct mics_family *family = mics_family_find(config->family);
    char names[256];

    if (!family)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED, "family: '%s' is not one of %s",
                            config->family, mics_family_names(names, sizeof names));
    return mics_model_new_custom(&mics_transformer_ops, family, config, out, err);
}

/* Sum and maximum of the experts of a layer. */
static double sum_rows(const struct mics_model *model, const double *rows, double *most,
                       uint32_t *idle)
{
    double sum = 0;

    *most = 0;
    for (uint32_t e = 0; e < model->config.n_expert; e++) {
        sum += rows[e];
        *most = fmax(*most, rows[e]);
        *idle += rows[e] == 0;
    }
    return sum;
}

/* The entropy of a layer, before the rows of its experts. */
static const double *layer_stats(const struct mics_model *model, const double *stats,
                                 uint32_t layer)
{
    return stats + MICS_STAT_LAYERS + (size_t)layer * (1 + model->config.n_expert);
}

double mics_model_layer_load(const struct mics_model *model, const double *stats, uint32_t layer)
{
    uint32_t idle = 0;
    double most;
    const double sum = sum_rows(model, layer_stats(model, stats, layer) + 1, &most, &idle);

    return sum > 0 ? most * model->config.n_expert / sum : 0;
}

/* The rows of the busiest of so many ranks over their mean. */
static double rank_load(const struct mics_model *model, const double *rows, uint32_t ranks)
{
    const uint32_t each = model->config.n_expert / ranks;
    double sum = 0, most = 0;

    for (uint32_t rank = 0; rank < ranks; rank++) {
        double own = 0;

        for (uint32_t e = 0; e < each; e++)
            own += rows[rank * each + e];
        sum += own;
        most = fmax(most, own);
    }
    return sum > 0 ? most * ranks / sum : 0;
}

void mics_model_router_summary(const struct mics_model *model, const double *stats, double targets,
                               double rows, uint32_t ranks, struct mics_router_summary *out)
{
    const bool spread = ranks > 1 && model->config.n_expert % ranks == 0;
    const uint32_t each = 1 + model->config.n_expert;
    double entropy = 0, assignments = 0, loads = 0;

    *out = (struct mics_router_summary){.layers = (model->stat_count - MICS_STAT_LAYERS) / each};
    for (uint32_t i = 0; i < out->layers; i++) {
        const double *const layer = layer_stats(model, stats, i);
        const double load = mics_model_layer_load(model, stats, i);
        double most;

        entropy += layer[0];
        assignments += sum_rows(model, layer + 1, &most, &out->idle_experts);
        loads += load;
        if (spread)
            out->rank_load += rank_load(model, layer + 1, ranks) / out->layers;
        out->load = fmax(out->load, load);
    }
    out->mean_load = loads / out->layers;
    if (rows > 0) {
        out->entropy = entropy / (rows * out->layers);
        out->dropped = 1 - assignments / (rows * out->layers * model->config.n_expert_used);
    }
    if (targets > 0) {
        out->aux_loss = stats[MICS_STAT_AUX_LOSS] / targets;
        out->z_loss = stats[MICS_STAT_Z_LOSS] / targets;
    }
}

bool mics_model_is_sparse(const struct mics_model *model, uint32_t layer)
{
    const struct mics_model_config *c = &model->config;

    return c->n_expert > 0 && !(c->dense_layers[layer / 64] >> layer % 64 & 1);
}

uint32_t mics_model_expert_rows(const struct mics_model *model, const struct mics_batch *batch)
{
    const struct mics_model_config *c = &model->config;
    const double rows = (double)batch->B * batch->T;

    if (c->expert_capacity <= 0)
        return (uint32_t)rows;
    return (uint32_t)fmin(rows, ceil(c->expert_capacity * rows * c->n_expert_used / c->n_expert));
}

/* Slots for a fourth more rows than with even loads, so that mostly one round has all. */
struct mics_dispatch mics_model_dispatch(const struct mics_model *model,
                                         const struct mics_batch *batch)
{
    const struct mics_model_config *c = &model->config;
    const uint64_t rows = (uint64_t)batch->B * batch->T, k = c->n_expert_used;
    const uint64_t mean = mics_ceil_div(rows * k, batch->expert_ranks);
    const uint64_t experts = c->n_expert / batch->expert_ranks;
    const uint64_t most = mics_min_u64(rows * mics_min_u64(k, experts),
                                       experts * mics_model_expert_rows(model, batch));
    const uint64_t slots = mics_round_up(mics_min_u64(mean + mean / 4, most), k);
    const double busiest = fmin(ceil((double)batch->expert_load * (double)mean), (double)most);

    return (struct mics_dispatch){.slots = (uint32_t)slots,
                                  .rounds = (uint32_t)mics_ceil_div(most, slots),
                                  .rows = (uint32_t)mics_round_up((uint64_t)busiest, k)};
}

uint32_t mics_model_dispatch_rounds(const struct mics_model *model, const struct mics_batch *batch,
                                    const uint32_t *offsets)
{
    const uint32_t E = model->config.n_expert, ranks = batch->expert_ranks, experts = E / ranks;
    uint32_t most = 0; /* rows from one rank to another */

    for (uint32_t from = 0; from < ranks; from++, offsets += E + 1)
        for (uint32_t to = 0; to < ranks; to++) {
            const uint32_t rows = offsets[(to + 1) * experts] - offsets[to * experts];

            most = rows > most ? rows : most;
        }
    const uint64_t rounds = mics_ceil_div(most, mics_model_dispatch(model, batch).slots);
    return rounds > 1 ? (uint32_t)rounds : 1;
}

uint64_t mics_model_active_params(const struct mics_model *model)
{
    const struct mics_model_config *c = &model->config;
    uint64_t count = model->param_count;

    for (uint32_t i = 0; i < model->unit_count; i++)
        if (model->units[i].kind == MICS_UNIT_EXPERT && c->n_expert > 0)
            count -= model->units[i].param_count / c->n_expert * (c->n_expert - c->n_expert_used);
    return count;
}

/* Replace a model by one of another configuration. */
static enum mics_status replace(struct mics_model **model, const struct mics_model_config *config,
                                struct mics_err *err)
{
    struct mics_model *changed = NULL;
    const enum mics_status status = mics_model_new(config, &changed, err);

    if (status != MICS_OK)
        return status;
    changed->source = json_incref((*model)->source);
    mics_model_free(*model);
    *model = changed;
    return MICS_OK;
}

enum mics_status mics_model_set_balance(struct mics_model **model,
                                        const struct mics_balance *balance, struct mics_err *err)
{
    struct mics_model_config config = (*model)->config;

    if (config.n_expert == 0)
        return mics_err_set(err, MICS_ERR_ARG, "'%s' has no experts", config.name);
    config.balance = *balance;
    return replace(model, &config, err);
}

enum mics_status mics_model_set_expert_capacity(struct mics_model **model, double capacity,
                                                struct mics_err *err)
{
    struct mics_model_config config = (*model)->config;

    if (config.n_expert == 0)
        return mics_err_set(err, MICS_ERR_ARG, "'%s' has no experts", config.name);
    config.expert_capacity = capacity;
    return replace(model, &config, err);
}

enum mics_status mics_model_set_mask_rate(struct mics_model **model, double rate,
                                          struct mics_err *err)
{
    struct mics_model_config config = (*model)->config;

    if (!(*model)->family || !(*model)->family->bidirectional)
        return mics_err_set(err, MICS_ERR_ARG,
                            "the model '%s' predicts the next token, not masked ones", config.name);
    config.mask_rate = rate;
    return replace(model, &config, err);
}

uint32_t mics_model_targets_max(const struct mics_model *model, uint32_t T)
{
    const double rate = model->config.mask_rate;

    return rate > 0 ? (uint32_t)fmin(T, ceil(fmax(rate, MICS_MASK_RATE) * T)) : T;
}

void mics_model_free(struct mics_model *model)
{
    if (!model)
        return;
    for (uint32_t i = 0; i < model->unit_count; i++)
        free(model->units[i].tensors);
    free(model->units);
    free(model->stages);
    json_decref(model->source);
    free(model);
}

/* Parameters of the matrices that every row of the head is multiplied with. */
static double head_matrices(const struct mics_model *model)
{
    const struct mics_model_config *c = &model->config;
    const bool transforms = model->family->embed_head[MICS_HEAD_TRANSFORM] != NULL;

    return (double)c->n_embd * (c->vocab_size + (transforms ? c->n_embd : 0));
}

/* Narayanan et al. 2021 count 6 N per token for the matrices; attention's two products of [T, C] by
 * [C, T] take 4 C T forward and twice that backward, halved because half of each row is masked; of
 * a window only what it leaves. */
double mics_model_flops_per_token(const struct mics_model *model, uint32_t T)
{
    const struct mics_model_config *c = &model->config;
    const double looked_up = c->untied ? (double)c->vocab_size * c->n_embd : 0;
    const double width = (double)c->n_head * c->head_dim;

    const uint32_t windowed = mics_config_windowed_layers(c);
    const double seen = model->family && model->family->bidirectional ? 2 : 1;
    double flops = 6.0 * ((double)mics_model_active_params(model) - looked_up) +
                   seen * 6.0 * (c->n_layer - windowed) * width * T;

    if (windowed > 0 && T > 0)
        flops += 12.0 * windowed * width * mics_attention_pairs(T, c->sliding_window) / T;
    if (c->mask_rate > 0 && T > 0)
        flops -= 6.0 * head_matrices(model) * (1 - (double)mics_model_targets_max(model, T) / T);
    return flops;
}

/*
 * Initial values. Every element is a function of (seed, tensor id, place in the tensor) alone, so
 * that a rank can make any piece of a unit, and however the model is sharded it starts from the
 * same numbers.
 */

static void fill_normal(const struct mics_tensor *tensor, uint64_t first, uint64_t count,
                        uint64_t seed, float *out)
{
    mics_philox_normals(seed, tensor->id, first, count, out);
    for (uint64_t i = 0; i < count; i++)
        out[i] = (float)(tensor->std * (double)out[i]);
}

static void fill_constant(uint64_t count, float value, float *out)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = value;
}

/* Elements [first, first + count) of one tensor. */
static void init_tensor(const struct mics_tensor *tensor, uint64_t first, uint64_t count,
                        uint64_t seed, float *out)
{
    switch (tensor->init) {
    case MICS_INIT_ZERO:
        fill_constant(count, 0.0f, out);
        break;
    case MICS_INIT_ONE:
        fill_constant(count, 1.0f, out);
        break;
    case MICS_INIT_NORMAL:
        fill_normal(tensor, first, count, seed, out);
        break;
    }
}

void mics_model_init_range(const struct mics_model *model, uint32_t index, uint64_t first,
                           uint64_t count, uint64_t seed, float *out)
{
    const struct mics_unit *unit = &model->units[index];
    const uint64_t end = first + count;

    fill_constant(count, 0.0f, out);
    for (uint32_t i = 0; i < unit->tensor_count; i++) {
        const struct mics_tensor *tensor = &unit->tensors[i];
        const uint64_t from = mics_max_u64(first, tensor->offset);
        const uint64_t to = mics_min_u64(end, tensor->offset + tensor->count);

        if (from < to)
            init_tensor(tensor, from - tensor->offset, to - from, seed, out + (from - first));
    }
}

struct range {
    const struct mics_model *model;
    uint32_t unit;
    uint64_t first, seed;
    float *out;
};

static void init_part(void *context, uint64_t begin, uint64_t end)
{
    const struct range *range = context;

    mics_model_init_range(range->model, range->unit, range->first + begin, end - begin, range->seed,
                          range->out + begin);
}

void mics_model_init_range_parallel(struct mics_pool *pool, const struct mics_model *model,
                                    uint32_t unit, uint64_t first, uint64_t count, uint64_t seed,
                                    float *out)
{
    struct range range = {model, unit, first, seed, out};

    mics_pool_run(pool, count, 4096, init_part, &range);
}
