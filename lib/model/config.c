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

#define TRY MICS_CONFIG_TRY

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

enum mics_status mics_config_check(const struct mics_model_config *config,
                                   const struct mics_family *family, struct mics_err *err)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const uint32_t value = *size_of((struct mics_model_config *)config, &sizes[i]);

        if (value < 1 || value > sizes[i].max)
            return mics_err_set(err, MICS_ERR_FORMAT, "%s: %u is not in 1 .. %u", sizes[i].key,
                                value, sizes[i].max);
    }
    if (!(config->layer_norm_epsilon > 0 && config->layer_norm_epsilon < 1))
        return mics_err_set(err, MICS_ERR_FORMAT, "layer_norm_epsilon: %g is not between 0 and 1",
                            config->layer_norm_epsilon);
    return family ? check_heads(config, family, err) : MICS_OK;
}

enum mics_status mics_model_check_seq(const struct mics_model *model, uint32_t seq,
                                      struct mics_err *err)
{
    if (seq == 0 || seq > model->config.n_positions)
        return mics_err_set(err, MICS_ERR_ARG, "sequence of %u: the model has %u positions", seq,
                            model->config.n_positions);
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

enum mics_status mics_layer_types_read(const struct mics_cursor *at, struct mics_model_config *out,
                                       struct mics_err *err)
{
    struct mics_cursor types;

    TRY(mics_cursor_array(at, "layer_types", 0, MICS_MAX_LAYERS, &types, err));
    if (mics_cursor_count(&types) != out->n_layer)
        return mics_cursor_fail(at, "layer_types", err, "%zu names, but the model has %u layers",
                                mics_cursor_count(&types), out->n_layer);
    for (uint32_t i = 0; i < out->n_layer; i++) {
        const struct mics_cursor type = mics_cursor_item_any(&types, i);
        const char *const name = json_string_value(type.value);

        if (!name)
            return mics_cursor_fail(&type, NULL, err, "expected a string");
        if (strcmp(name, full_attention) == 0)
            out->full_attention[i / 64] |= UINT64_C(1) << i % 64;
        else if (strcmp(name, sliding_attention) != 0)
            return mics_cursor_fail(&type, NULL, err, "'%s' is not supported, only '%s' and '%s'",
                                    name, full_attention, sliding_attention);
    }
    return MICS_OK;
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

static enum mics_status read_kind(const struct mics_cursor *map, enum mics_rope_kind *out,
                                  struct mics_err *err)
{
    const char *const key = mics_cursor_has(map, "rope_type") ? "rope_type" : "type";
    const char *text;

    *out = MICS_ROPE_PLAIN;
    if (!mics_cursor_has(map, key))
        return MICS_OK;
    TRY(mics_cursor_string(map, key, &text, err));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(text, kinds[i]) == 0) {
            *out = (enum mics_rope_kind)i;
            return MICS_OK;
        }
    return mics_cursor_fail(
        map, key, err,
        "'%s' is not supported, only 'default', 'linear', 'llama3', 'dynamic' and 'yarn'", text);
}

/* As the library resolves it: those beside the map before those in it, else those of the model. */
static enum mics_status read_original(const struct mics_cursor *map,
                                      const struct mics_rope_positions *positions, uint32_t *out,
                                      struct mics_err *err)
{
    const char *const key = "original_max_position_embeddings";

    *out = positions->original ? positions->original : positions->model;
    if (positions->original == 0 && (positions->model == 0 || mics_cursor_has(map, key)))
        return mics_cursor_u32(map, key, 1, MICS_MAX_POSITIONS, out, err);
    return MICS_OK;
}

static enum mics_status read_llama3(const struct mics_cursor *map,
                                    const struct mics_rope_positions *positions,
                                    struct mics_rope_scaling *out, struct mics_err *err)
{
    TRY(mics_cursor_double(map, "factor", 1, MAX_FACTOR, &out->factor, err));
    TRY(mics_cursor_double(map, "low_freq_factor", MIN_FACTOR, MAX_FACTOR, &out->low_freq_factor,
                           err));
    TRY(mics_cursor_double(map, "high_freq_factor", MIN_FACTOR, MAX_FACTOR, &out->high_freq_factor,
                           err));
    TRY(read_original(map, positions, &out->original_positions, err));
    if (out->high_freq_factor <= out->low_freq_factor)
        return mics_cursor_fail(map, "high_freq_factor", err, "%g is not above low_freq_factor, %g",
                                out->high_freq_factor, out->low_freq_factor);
    return MICS_OK;
}

/* *out stays as it is where the member is absent, null or 0. */
static enum mics_status read_nonzero(const struct mics_cursor *map, const char *key, double *out,
                                     struct mics_err *err)
{
    double value = 0;

    if (mics_cursor_has(map, key))
        TRY(mics_cursor_double(map, key, 0, MAX_FACTOR, &value, err));
    if (value > 0)
        *out = value;
    return MICS_OK;
}

/* The attention factor that follows from the others, if the map has none. */
static enum mics_status read_attention_factor(const struct mics_cursor *map,
                                              struct mics_rope_scaling *out, struct mics_err *err)
{
    const double growth = 0.1 * log(out->factor);
    double mscale = 0, all_dim = 0;

    if (mics_cursor_has(map, "attention_factor"))
        return mics_cursor_double(map, "attention_factor", MIN_FACTOR, MAX_FACTOR,
                                  &out->attention_factor, err);
    TRY(read_nonzero(map, "mscale", &mscale, err));
    TRY(read_nonzero(map, "mscale_all_dim", &all_dim, err));
    out->attention_factor =
        mscale > 0 && all_dim > 0 ? (mscale * growth + 1) / (all_dim * growth + 1) : growth + 1;
    return MICS_OK;
}

/* A factor of null is that by which the model's positions exceed the original ones. */
static enum mics_status read_yarn(const struct mics_cursor *map,
                                  const struct mics_rope_positions *positions,
                                  struct mics_rope_scaling *out, struct mics_err *err)
{
    TRY(read_original(map, positions, &out->original_positions, err));
    if (positions->model > 0 && json_is_null(json_object_get(map->value, "factor")))
        out->factor = (double)positions->model / out->original_positions;
    else
        TRY(mics_cursor_double(map, "factor", 1, MAX_FACTOR, &out->factor, err));
    if (out->factor < 1)
        return mics_cursor_fail(map, "original_max_position_embeddings", err,
                                "%u is more than the model's %u", out->original_positions,
                                positions->model);
    out->beta_fast = 32;
    out->beta_slow = 1;
    TRY(read_nonzero(map, "beta_fast", &out->beta_fast, err));
    TRY(read_nonzero(map, "beta_slow", &out->beta_slow, err));
    out->truncate = !json_is_null(json_object_get(map->value, "truncate"));
    if (mics_cursor_has(map, "truncate"))
        TRY(mics_cursor_bool(map, "truncate", &out->truncate, err));
    return read_attention_factor(map, out, err);
}

enum mics_status mics_rope_scaling_read(const struct mics_cursor *map,
                                        const struct mics_rope_positions *positions,
                                        struct mics_rope_scaling *out, struct mics_err *err)
{
    *out = (struct mics_rope_scaling){.kind = MICS_ROPE_PLAIN};
    TRY(read_kind(map, &out->kind, err));
    switch (out->kind) {
    case MICS_ROPE_LINEAR:
    case MICS_ROPE_DYNAMIC:
        return mics_cursor_double(map, "factor", 1, MAX_FACTOR, &out->factor, err);
    case MICS_ROPE_LLAMA3:
        return read_llama3(map, positions, out, err);
    case MICS_ROPE_YARN:
        return read_yarn(map, positions, out, err);
    case MICS_ROPE_PLAIN:
        break;
    }
    return MICS_OK;
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

    if (value && ((rotary && add_rotary(value, c) != 0) ||
                  json_object_set_new(value, "parameters",
                                      json_integer((json_int_t)model->param_count)) != 0 ||
                  (model->source && json_object_set(value, "source", model->source) < 0))) {
        json_decref(value);
        return NULL;
    }
    return value;
}

static enum mics_status read_rotary(const struct mics_cursor *at, struct mics_model_config *out,
                                    struct mics_err *err)
{
    bool tied = false;
    struct mics_cursor scaling;

    TRY(mics_cursor_u32(at, "n_kv_head", 1, MICS_MAX_EMBD, &out->n_kv_head, err));
    TRY(mics_cursor_u32(at, "head_dim", 1, MICS_HEAD_MAX, &out->head_dim, err));
    TRY(mics_cursor_double(at, "rope_theta", 1, MICS_MAX_ROPE_THETA, &out->rope_theta, err));
    if (mics_cursor_has(at, "rope_scaling")) {
        TRY(mics_cursor_object(at, "rope_scaling", &scaling, err));
        TRY(mics_rope_scaling_read(&scaling, &(struct mics_rope_positions){0}, &out->rope_scaling,
                                   err));
    }
    TRY(mics_cursor_bool(at, "tie_word_embeddings", &tied, err));
    out->untied = !tied;
    if (mics_cursor_has(at, "attention_bias"))
        TRY(mics_cursor_bool(at, "attention_bias", &out->attention_bias, err));
    if (mics_cursor_has(at, "mlp_bias"))
        TRY(mics_cursor_bool(at, "mlp_bias", &out->mlp_bias, err));
    if (mics_cursor_has(at, "sliding_window"))
        TRY(mics_cursor_u32(at, "sliding_window", 1, UINT32_MAX, &out->sliding_window, err));
    if (mics_cursor_has(at, "layer_types"))
        TRY(mics_layer_types_read(at, out, err));
    return MICS_OK;
}

static enum mics_status read_config(const struct mics_cursor *at, struct mics_model_config *out,
                                    struct mics_err *err)
{
    const struct mics_family *family;

    TRY(mics_cursor_text(at, "family", out->family, sizeof out->family, err));
    TRY(mics_cursor_text(at, "name", out->name, sizeof out->name, err));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        TRY(mics_cursor_u32(at, sizes[i].key, 1, sizes[i].max, size_of(out, &sizes[i]), err));
    TRY(mics_cursor_double(at, "layer_norm_epsilon", 0, 1, &out->layer_norm_epsilon, err));
    family = mics_family_find(out->family); /* an unknown one is refused with the whole model */
    return family && mics_family_is_rotary(family) ? read_rotary(at, out, err) : MICS_OK;
}

static enum mics_status check_parameters(const struct mics_cursor *at,
                                         const struct mics_model *model, struct mics_err *err)
{
    uint64_t said;
    enum mics_status status = mics_cursor_u64(at, "parameters", 1, UINT64_MAX, &said, err);

    if (status == MICS_OK && said != model->param_count)
        return mics_cursor_fail(at, "parameters", err, "%llu, but the sizes make %llu",
                                (unsigned long long)said, (unsigned long long)model->param_count);
    return status;
}

enum mics_status mics_model_from_json(const json_t *value, struct mics_model **out,
                                      struct mics_err *err)
{
    const struct mics_cursor at = mics_cursor_root(value);
    struct mics_cursor source = at;
    struct mics_model_config config = {0};
    struct mics_model *model = NULL;

    enum mics_status status = read_config(&at, &config, err);
    if (status == MICS_OK && mics_cursor_has(&at, "source"))
        status = mics_cursor_object(&at, "source", &source, err);
    if (status == MICS_OK)
        status = mics_model_new(&config, &model, err);
    if (status == MICS_OK && mics_cursor_has(&at, "parameters"))
        status = check_parameters(&at, model, err);
    if (status != MICS_OK) {
        mics_model_free(model);
        return status;
    }
    if (source.value != value)
        model->source = json_incref((json_t *)source.value);
    *out = model;
    return MICS_OK;
}
