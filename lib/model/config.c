/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c - a model's sizes: their defaults and checks, and the model as a plan stores it: its
 * configuration, its number of parameters, for people and as a check, and the document that it was
 * made from.
 */
#include "model/config.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* The sizes of every model, by their names in a plan. */
#define SIZE(field, max)                                                                           \
    {                                                                                              \
#field, offsetof(struct mics_model_config, field), max                                     \
    }

static const struct size {
    const char *key;
    size_t offset;
    uint32_t max;
} sizes[] = {
    SIZE(n_layer, MICS_MAX_LAYERS),   SIZE(n_embd, MICS_MAX_EMBD),
    SIZE(n_head, MICS_MAX_EMBD),      SIZE(n_positions, MICS_MAX_POSITIONS),
    SIZE(vocab_size, MICS_MAX_VOCAB), SIZE(n_inner, MICS_MAX_INNER),
};

static uint32_t *size_of(struct mics_model_config *config, const struct size *size)
{
    return (uint32_t *)(void *)((char *)config + size->offset);
}

void mics_config_resolve(struct mics_model_config *config, const struct mics_family *family)
{
    const bool divides = config->n_head > 0 && config->n_embd % config->n_head == 0;
    const bool fixed = !mics_family_is_rotary(family);

    if (fixed || config->n_kv_head == 0)
        config->n_kv_head = config->n_head;
    if (fixed || config->head_dim == 0)
        config->head_dim = divides ? config->n_embd / config->n_head : 0;
    if (family->experts && config->expert_inner == 0)
        config->expert_inner = config->n_inner;
    if (config->n_layer <= MICS_MAX_LAYERS && mics_config_windowed_layers(config) == 0) {
        config->sliding_window = 0;
        memset(config->full_attention, 0, sizeof config->full_attention);
    }
}

/* Heads may be wider or narrower than the model, and share keys and values. */
static enum mics_status check_rotary(const struct mics_model_config *config, struct mics_err *err)
{
    if (config->n_kv_head > config->n_head || config->n_head % config->n_kv_head != 0)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "n_kv_head: %u heads of keys do not divide %u heads of queries",
                            config->n_kv_head, config->n_head);
    if (config->head_dim % 2 != 0)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "head_dim: %u is odd, but rotary positions rotate pairs of channels",
                            config->head_dim);
    if (!(config->rope_theta >= 1 && config->rope_theta <= MICS_MAX_ROPE_THETA))
        return mics_err_set(err, MICS_ERR_FORMAT, "rope_theta: %g is not in 1 .. %g",
                            config->rope_theta, MICS_MAX_ROPE_THETA);
    if (config->rope_scaling.kind == MICS_ROPE_YARN && config->rope_theta <= 1)
        return mics_err_set(err, MICS_ERR_FORMAT, "rope_theta: yarn needs more than 1");
    return MICS_OK;
}

static enum mics_status check_heads(const struct mics_model_config *config,
                                    const struct mics_family *family, struct mics_err *err)
{
    if (config->head_dim == 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "n_head: %u does not divide n_embd, %u",
                            config->n_head, config->n_embd);
    if (config->head_dim > MICS_HEAD_MAX)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                            "n_head: %u heads of %u channels are wider than %u, the most supported",
                            config->n_head, config->head_dim, MICS_HEAD_MAX);
    if (config->n_positions <= family->position_offset)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "n_positions: %u, but the first token of a %s has position %u",
                            config->n_positions, config->family, family->position_offset);
    if (family->embed_head[MICS_HEAD_TYPES]
            ? config->type_vocab_size < 1 || config->type_vocab_size > MICS_MAX_TYPES
            : config->type_vocab_size > 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "type_vocab_size: a %s cannot have %u types",
                            config->family, config->type_vocab_size);
    if (config->untied && family->always_tied)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED, "family: a %s has a tied head",
                            config->family);
    if ((config->attention_bias && !family->optional_attention_bias) ||
        (config->mlp_bias && !family->optional_mlp_bias))
        return mics_err_set(err, MICS_ERR_UNSUPPORTED, "%s: a %s has no choice of biases",
                            config->attention_bias && !family->optional_attention_bias
                                ? "attention_bias"
                                : "mlp_bias",
                            config->family);
    return mics_family_is_rotary(family) ? check_rotary(config, err) : MICS_OK;
}

static enum mics_status check_experts(const struct mics_model_config *config,
                                      const struct mics_family *family, struct mics_err *err)
{
    if (!family->experts && config->n_expert > 0)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED, "n_expert: a %s has no experts",
                            config->family);
    if (!family->experts)
        return MICS_OK;
    if (config->n_expert < 1 || config->n_expert > MICS_EXPERTS_MAX)
        return mics_err_set(err, MICS_ERR_FORMAT, "n_expert: %u is not in 1 .. %d",
                            config->n_expert, MICS_EXPERTS_MAX);
    if (config->n_expert_used < 1 || config->n_expert_used > config->n_expert)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "n_expert_used: %u experts of a token, but a layer has %u",
                            config->n_expert_used, config->n_expert);
    if (config->expert_inner < 1 || config->expert_inner > MICS_MAX_INNER)
        return mics_err_set(err, MICS_ERR_FORMAT, "expert_inner: %u is not in 1 .. %u",
                            config->expert_inner, MICS_MAX_INNER);
    if (!family->experts->shared_key && config->shared_inner > 0)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED, "shared_inner: a %s has no shared expert",
                            config->family);
    if (family->experts->shared_key &&
        (config->shared_inner < 1 || config->shared_inner > MICS_MAX_INNER))
        return mics_err_set(err, MICS_ERR_FORMAT, "shared_inner: %u is not in 1 .. %u",
                            config->shared_inner, MICS_MAX_INNER);
    return MICS_OK;
}

enum mics_status mics_config_check(const struct mics_model_config *config,
                                   const struct mics_family *family, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const uint32_t value = *size_of((struct mics_model_config *)config, &sizes[i]);

        if (value < 1 || value > sizes[i].max)
            return mics_err_set(err, MICS_ERR_FORMAT, "%s: %u is not in 1 .. %u", sizes[i].key,
                                value, sizes[i].max);
    }
    if (!(config->layer_norm_epsilon > 0 && config->layer_norm_epsilon < 1))
        return mics_err_set(err, MICS_ERR_FORMAT, "layer_norm_epsilon: %g is not between 0 and 1",
                            config->layer_norm_epsilon);
    if (family)
        status = check_heads(config, family, err);
    return family && status == MICS_OK ? check_experts(config, family, err) : status;
}

uint32_t mics_model_seq_max(const struct mics_model *model)
{
    return model->config.n_positions - (model->family ? model->family->position_offset : 0);
}

enum mics_status mics_model_check_seq(const struct mics_model *model, uint32_t seq,
                                      struct mics_err *err)
{
    if (seq == 0 || seq > mics_model_seq_max(model))
        return mics_err_set(err, MICS_ERR_ARG, "sequence of %u: the model has %u positions", seq,
                            mics_model_seq_max(model));
    return MICS_OK;
}

/*
 * The layers that the sliding window applies to.
 */

static const char full_attention[] = "full_attention", sliding_attention[] = "sliding_attention";

uint32_t mics_config_windowed_layers(const struct mics_model_config *config)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < config->n_layer; i++)
        count += mics_config_is_windowed(config, i);
    return count;
}

uint32_t mics_model_window(const struct mics_model *model, uint32_t layer)
{
    const struct mics_model_config *c = &model->config;

    return mics_config_is_windowed(c, layer) ? c->sliding_window : 0;
}

json_t *mics_layer_types_to_json(const struct mics_model_config *config)
{
    json_t *types = json_array();

    for (uint32_t i = 0; types && i < config->n_layer; i++) {
        const bool windowed = mics_config_is_windowed(config, i);

        if (json_array_append_new(types,
                                  json_string(windowed ? sliding_attention : full_attention)) < 0) {
            json_decref(types);
            return NULL;
        }
    }
    return types;
}

void mics_layer_types_read(const struct mics_cursor *at, struct mics_model_config *out)
{
    const struct mics_cursor types = mics_cursor_get_array(at, "layer_types", 0, MICS_MAX_LAYERS);

    if (mics_cursor_count(&types) != out->n_layer)
        mics_cursor_reject(at, "layer_types", "%zu names, but the model has %u layers",
                           mics_cursor_count(&types), out->n_layer);
    for (uint32_t i = 0; i < out->n_layer && mics_cursor_ok(at); i++) {
        const struct mics_cursor type = mics_cursor_item_any(&types, i);
        const char *const name = json_string_value(type.value);

        if (!name)
            mics_cursor_reject(&type, NULL, "expected a string");
        else if (strcmp(name, full_attention) == 0)
            out->full_attention[i / 64] |= UINT64_C(1) << i % 64;
        else if (strcmp(name, sliding_attention) != 0)
            mics_cursor_reject(&type, NULL, "'%s' is not supported, only '%s' and '%s'", name,
                               full_attention, sliding_attention);
    }
}

/*
 * The scaling of rotary positions.
 */

#define MIN_FACTOR 1e-6
#define MAX_FACTOR 1e6

static const char *const kinds[] = {[MICS_ROPE_PLAIN] = "default",
                                    [MICS_ROPE_LINEAR] = "linear",
                                    [MICS_ROPE_LLAMA3] = "llama3",
                                    [MICS_ROPE_DYNAMIC] = "dynamic",
                                    [MICS_ROPE_YARN] = "yarn"};

json_t *mics_rope_scaling_to_json(const struct mics_rope_scaling *scaling)
{
    const char *const kind = kinds[scaling->kind];

    switch (scaling->kind) {
    case MICS_ROPE_LINEAR:
    case MICS_ROPE_DYNAMIC:
        return json_pack("{s:s, s:f}", "rope_type", kind, "factor", scaling->factor);
    case MICS_ROPE_LLAMA3:
        return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", kind, "factor", scaling->factor,
                         "low_freq_factor", scaling->low_freq_factor, "high_freq_factor",
                         scaling->high_freq_factor, "original_max_position_embeddings",
                         (json_int_t)scaling->original_positions);
    case MICS_ROPE_YARN:
        return json_pack("{s:s, s:f, s:f, s:f, s:f, s:b, s:I}", "rope_type", kind, "factor",
                         scaling->factor, "attention_factor", scaling->attention_factor,
                         "beta_fast", scaling->beta_fast, "beta_slow", scaling->beta_slow,
                         "truncate", scaling->truncate, "original_max_position_embeddings",
                         (json_int_t)scaling->original_positions);
    case MICS_ROPE_PLAIN:
        break;
    }
    return json_pack("{s:s}", "rope_type", kind);
}

static enum mics_rope_kind read_kind(const struct mics_cursor *map)
{
    const char *const key = mics_cursor_has(map, "rope_type") ? "rope_type" : "type";
    const char *text = mics_cursor_opt_string(map, key, kinds[MICS_ROPE_PLAIN]);

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(text, kinds[i]) == 0)
            return (enum mics_rope_kind)i;
    mics_cursor_reject(
        map, key, "'%s' is not supported, only 'default', 'linear', 'llama3', 'dynamic' and 'yarn'",
        text);
    return MICS_ROPE_PLAIN;
}

/* As the library resolves it: those beside the map before those in it, else those of the model. */
static uint32_t read_original(const struct mics_cursor *map,
                              const struct mics_rope_positions *positions)
{
    const char *const key = "original_max_position_embeddings";

    if (positions->original == 0 && (positions->model == 0 || mics_cursor_has(map, key)))
        return mics_cursor_get_u32(map, key, 1, MICS_MAX_POSITIONS);
    return positions->original ? positions->original : positions->model;
}

static void read_llama3(const struct mics_cursor *map, const struct mics_rope_positions *positions,
                        struct mics_rope_scaling *out)
{
    out->factor = mics_cursor_get_double(map, "factor", 1, MAX_FACTOR);
    out->low_freq_factor = mics_cursor_get_double(map, "low_freq_factor", MIN_FACTOR, MAX_FACTOR);
    out->high_freq_factor = mics_cursor_get_double(map, "high_freq_factor", MIN_FACTOR, MAX_FACTOR);
    out->original_positions = read_original(map, positions);
    if (out->high_freq_factor <= out->low_freq_factor)
        mics_cursor_reject(map, "high_freq_factor", "%g is not above low_freq_factor, %g",
                           out->high_freq_factor, out->low_freq_factor);
}

/* `absent` where the member is absent, null or 0. */
static double read_nonzero(const struct mics_cursor *map, const char *key, double absent)
{
    const double value = mics_cursor_opt_double(map, key, 0, MAX_FACTOR, 0);

    return value > 0 ? value : absent;
}

/* The attention factor that follows from the others, if the map has none. */
static double read_attention_factor(const struct mics_cursor *map, double factor)
{
    const double growth = 0.1 * log(factor);

    if (mics_cursor_has(map, "attention_factor"))
        return mics_cursor_get_double(map, "attention_factor", MIN_FACTOR, MAX_FACTOR);
    const double mscale = read_nonzero(map, "mscale", 0);
    const double all_dim = read_nonzero(map, "mscale_all_dim", 0);
    return mscale > 0 && all_dim > 0 ? (mscale * growth + 1) / (all_dim * growth + 1) : growth + 1;
}

/* A factor of null is that by which the model's positions exceed the original ones. */
static void read_yarn(const struct mics_cursor *map, const struct mics_rope_positions *positions,
                      struct mics_rope_scaling *out)
{
    out->original_positions = read_original(map, positions);
    if (positions->model > 0 && json_is_null(json_object_get(map->value, "factor")))
        out->factor = (double)positions->model / out->original_positions;
    else
        out->factor = mics_cursor_get_double(map, "factor", 1, MAX_FACTOR);
    if (out->factor < 1)
        mics_cursor_reject(map, "original_max_position_embeddings",
                           "%u is more than the model's %u", out->original_positions,
                           positions->model);
    out->beta_fast = read_nonzero(map, "beta_fast", 32);
    out->beta_slow = read_nonzero(map, "beta_slow", 1);
    out->truncate = mics_cursor_opt_bool(map, "truncate",
                                         !json_is_null(json_object_get(map->value, "truncate")));
    out->attention_factor = read_attention_factor(map, out->factor);
}

void mics_rope_scaling_read(const struct mics_cursor *map,
                            const struct mics_rope_positions *positions,
                            struct mics_rope_scaling *out)
{
    *out = (struct mics_rope_scaling){.kind = read_kind(map)};
    switch (out->kind) {
    case MICS_ROPE_LINEAR:
    case MICS_ROPE_DYNAMIC:
        out->factor = mics_cursor_get_double(map, "factor", 1, MAX_FACTOR);
        break;
    case MICS_ROPE_LLAMA3:
        read_llama3(map, positions, out);
        break;
    case MICS_ROPE_YARN:
        read_yarn(map, positions, out);
        break;
    case MICS_ROPE_PLAIN:
        break;
    }
}

/* Files have numbers of 15 digits. */
static bool same(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fabs(a);
}

bool mics_rope_scaling_equal(const struct mics_rope_scaling *a, const struct mics_rope_scaling *b)
{
    return a->kind == b->kind && a->original_positions == b->original_positions &&
           same(a->factor, b->factor) && same(a->low_freq_factor, b->low_freq_factor) &&
           same(a->high_freq_factor, b->high_freq_factor) && same(a->beta_fast, b->beta_fast) &&
           same(a->beta_slow, b->beta_slow) && same(a->attention_factor, b->attention_factor) &&
           a->truncate == b->truncate;
}

/*
 * Mixtures of experts in a plan.
 */

static const char *const balances[MICS_BALANCE_KINDS] = {"none", "micro-batch", "sequence"};

static json_t *dense_layers_to_json(const struct mics_model_config *c)
{
    json_t *layers = json_array();

    for (uint32_t i = 0; layers && i < c->n_layer; i++)
        if (c->dense_layers[i / 64] >> i % 64 & 1 &&
            json_array_append_new(layers, json_integer((json_int_t)i)) < 0) {
            json_decref(layers);
            return NULL;
        }
    return layers;
}

static int add_experts(json_t *value, const struct mics_model_config *c)
{
    json_t *more = json_pack("{s:I, s:I, s:I, s:b}", "n_expert", (json_int_t)c->n_expert,
                             "n_expert_used", (json_int_t)c->n_expert_used, "expert_inner",
                             (json_int_t)c->expert_inner, "norm_topk_prob", c->norm_topk_prob);
    int failed = more ? json_object_update(value, more) : -1;
    json_t *dense = dense_layers_to_json(c);

    if (c->shared_inner > 0)
        failed |= json_object_set_new(value, "shared_inner", json_integer(c->shared_inner));
    if (json_array_size(dense) > 0)
        failed |= json_object_set(value, "dense_layers", dense);
    if (c->balance.kind != MICS_BALANCE_NONE)
        failed |= json_object_set_new(value, "balance_loss",
                                      json_pack("{s:s, s:f}", "over", balances[c->balance.kind],
                                                "coefficient", c->balance.coefficient));
    if (c->balance.z_coefficient > 0)
        failed |= json_object_set_new(value, "router_z_loss", json_real(c->balance.z_coefficient));
    if (c->expert_capacity > 0)
        failed |= json_object_set_new(value, "expert_capacity", json_real(c->expert_capacity));
    json_decref(dense);
    json_decref(more);
    return failed;
}

static void read_dense_layers(const struct mics_cursor *at, const char *key,
                              struct mics_model_config *out)
{
    const struct mics_cursor layers = mics_cursor_get_array(at, key, 0, MICS_MAX_LAYERS);

    for (size_t i = 0; i < mics_cursor_count(&layers) && mics_cursor_ok(at); i++) {
        const struct mics_cursor layer = mics_cursor_item_any(&layers, i);
        const json_int_t number = json_integer_value(layer.value);

        if (!json_is_integer(layer.value) || number < 0 || number >= (json_int_t)out->n_layer)
            mics_cursor_reject(&layer, NULL, "expected the number of a layer below %u",
                               out->n_layer);
        else
            out->dense_layers[number / 64] |= UINT64_C(1) << number % 64;
    }
}

void mics_dense_layers_read(const struct mics_cursor *at, const char *key, uint32_t sparse_step,
                            struct mics_model_config *out)
{
    if (mics_cursor_has(at, key))
        read_dense_layers(at, key, out);
    for (uint32_t i = 0; i < out->n_layer; i++)
        if ((i + 1) % sparse_step != 0)
            out->dense_layers[i / 64] |= UINT64_C(1) << i % 64;
}

static void read_balance(const struct mics_cursor *at, struct mics_balance *out)
{
    const struct mics_cursor balance = mics_cursor_get_object(at, "balance_loss");
    const char *const over = mics_cursor_get_string(&balance, "over");

    for (int i = MICS_BALANCE_MICRO_BATCH; i < MICS_BALANCE_KINDS; i++)
        if (strcmp(over, balances[i]) == 0)
            out->kind = (enum mics_balance_kind)i;
    if (out->kind == MICS_BALANCE_NONE)
        mics_cursor_reject(&balance, "over", "'%s' is not 'micro-batch' or 'sequence'", over);
    out->coefficient = mics_cursor_get_double(&balance, "coefficient", 0, 1e6);
}

static void read_experts(const struct mics_cursor *at, struct mics_model_config *out)
{
    out->n_expert = mics_cursor_get_u32(at, "n_expert", 1, MICS_EXPERTS_MAX);
    out->n_expert_used = mics_cursor_get_u32(at, "n_expert_used", 1, MICS_EXPERTS_MAX);
    out->expert_inner = mics_cursor_get_u32(at, "expert_inner", 1, MICS_MAX_INNER);
    out->shared_inner = mics_cursor_opt_u32(at, "shared_inner", 1, MICS_MAX_INNER, 0);
    out->norm_topk_prob = mics_cursor_get_bool(at, "norm_topk_prob");
    mics_dense_layers_read(at, "dense_layers", 1, out);
    if (mics_cursor_has(at, "balance_loss"))
        read_balance(at, &out->balance);
    out->balance.z_coefficient = mics_cursor_opt_double(at, "router_z_loss", 0, 1e6, 0);
    out->expert_capacity =
        mics_cursor_opt_double(at, "expert_capacity", MICS_CAPACITY_MIN, MICS_EXPERTS_MAX, 0);
}

/*
 * The model in a plan.
 */

/* The keys of families with rotary positions. */
static int add_rotary(json_t *value, const struct mics_model_config *c)
{
    json_t *more =
        json_pack("{s:I, s:I, s:f, s:o, s:b}", "n_kv_head", (json_int_t)c->n_kv_head, "head_dim",
                  (json_int_t)c->head_dim, "rope_theta", c->rope_theta, "rope_scaling",
                  mics_rope_scaling_to_json(&c->rope_scaling), "tie_word_embeddings", !c->untied);
    int failed = more ? json_object_update(value, more) : -1;

    if (c->attention_bias)
        failed |= json_object_set_new(value, "attention_bias", json_true());
    if (c->mlp_bias)
        failed |= json_object_set_new(value, "mlp_bias", json_true());
    if (c->sliding_window > 0)
        failed |= json_object_set_new(value, "sliding_window",
                                      json_integer((json_int_t)c->sliding_window));
    if (c->sliding_window > 0 && mics_config_windowed_layers(c) < c->n_layer)
        failed |= json_object_set_new(value, "layer_types", mics_layer_types_to_json(c));
    json_decref(more);
    return failed;
}

json_t *mics_model_to_json(const struct mics_model *model)
{
    const struct mics_model_config *c = &model->config;
    const bool rotary = model->family && mics_family_is_rotary(model->family);
    json_t *value =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "family", c->family, "name",
                  c->name, "n_layer", (json_int_t)c->n_layer, "n_embd", (json_int_t)c->n_embd,
                  "n_head", (json_int_t)c->n_head, "n_positions", (json_int_t)c->n_positions,
                  "vocab_size", (json_int_t)c->vocab_size, "n_inner", (json_int_t)c->n_inner,
                  "layer_norm_epsilon", c->layer_norm_epsilon);

    if (value &&
        ((rotary && add_rotary(value, c) != 0) ||
         (c->type_vocab_size > 0 &&
          json_object_set_new(value, "type_vocab_size", json_integer(c->type_vocab_size)) != 0) ||
         (c->n_expert > 0 && add_experts(value, c) != 0) ||
         (model->family && model->family->bidirectional && c->mask_rate != MICS_MASK_RATE &&
          json_object_set_new(value, "mask_rate", json_real(c->mask_rate)) != 0) ||
         json_object_set_new(value, "parameters", json_integer((json_int_t)model->param_count)) !=
             0 ||
         (model->source && json_object_set(value, "source", model->source) < 0))) {
        json_decref(value);
        return NULL;
    }
    return value;
}

static void read_rotary(const struct mics_cursor *at, struct mics_model_config *out)
{
    out->n_kv_head = mics_cursor_get_u32(at, "n_kv_head", 1, MICS_MAX_EMBD);
    out->head_dim = mics_cursor_get_u32(at, "head_dim", 1, MICS_HEAD_MAX);
    out->rope_theta = mics_cursor_get_double(at, "rope_theta", 1, MICS_MAX_ROPE_THETA);
    if (mics_cursor_has(at, "rope_scaling")) {
        const struct mics_cursor scaling = mics_cursor_get_object(at, "rope_scaling");

        mics_rope_scaling_read(&scaling, &(struct mics_rope_positions){0}, &out->rope_scaling);
    }
    out->untied = !mics_cursor_get_bool(at, "tie_word_embeddings");
    out->attention_bias = mics_cursor_opt_bool(at, "attention_bias", false);
    out->mlp_bias = mics_cursor_opt_bool(at, "mlp_bias", false);
    out->sliding_window = mics_cursor_opt_u32(at, "sliding_window", 1, UINT32_MAX, 0);
    if (mics_cursor_has(at, "layer_types"))
        mics_layer_types_read(at, out);
}

static void read_config(const struct mics_cursor *at, struct mics_model_config *out)
{
    const struct mics_family *family;

    mics_cursor_get_text(at, "family", out->family, sizeof out->family);
    mics_cursor_get_text(at, "name", out->name, sizeof out->name);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        *size_of(out, &sizes[i]) = mics_cursor_get_u32(at, sizes[i].key, 1, sizes[i].max);
    out->layer_norm_epsilon = mics_cursor_get_double(at, "layer_norm_epsilon", 0, 1);
    family = mics_family_find(out->family); /* an unknown one is refused with the whole model */
    if (family && mics_family_is_rotary(family))
        read_rotary(at, out);
    if (family && family->embed_head[MICS_HEAD_TYPES])
        out->type_vocab_size = mics_cursor_get_u32(at, "type_vocab_size", 1, MICS_MAX_TYPES);
    if (family && family->experts)
        read_experts(at, out);
    if (family && family->bidirectional)
        out->mask_rate = mics_cursor_opt_double(at, "mask_rate", 0, 1, MICS_MASK_RATE);
}

enum mics_status mics_model_from_json(const json_t *value, struct mics_model **out,
                                      struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor at = mics_cursor_begin(value, &reading);
    struct mics_model_config config = {0};
    struct mics_model *model = NULL;
    const json_t *source = NULL;

    read_config(&at, &config);
    if (mics_cursor_has(&at, "source"))
        source = mics_cursor_get_object(&at, "source").value;
    if (reading.status != MICS_OK)
        return reading.status;
    reading.status = mics_model_new(&config, &model, err);
    if (reading.status != MICS_OK)
        return reading.status;
    const uint64_t parameters =
        mics_cursor_opt_u64(&at, "parameters", 1, UINT64_MAX, model->param_count);
    if (parameters != model->param_count)
        mics_cursor_reject(&at, "parameters", "%llu, but the sizes make %llu",
                           (unsigned long long)parameters, (unsigned long long)model->param_count);
    if (reading.status != MICS_OK) {
        mics_model_free(model);
        return reading.status;
    }
    model->source = json_incref((json_t *)(uintptr_t)source);
    *out = model;
    return MICS_OK;
}
