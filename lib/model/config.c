/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c - a model's sizes: their defaults and checks, and the model as a plan stores it: its
 * configuration, its number of parameters, for people and as a check, and the document that it was
 * made from.
 */
#include "model/config.h"

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

uint32_t mics_model_max_seq(const struct mics_model *model)
{
    const struct mics_model_config *c = &model->config;

    return c->sliding_window > 0 && c->sliding_window < c->n_positions ? c->sliding_window
                                                                       : c->n_positions;
}

enum mics_status mics_model_check_seq(const struct mics_model *model, uint32_t seq,
                                      struct mics_err *err)
{
    if (seq == 0 || seq > model->config.n_positions)
        return mics_err_set(err, MICS_ERR_ARG, "sequence of %u: the model has %u positions", seq,
                            model->config.n_positions);
    if (seq > mics_model_max_seq(model))
        return mics_err_set(err, MICS_ERR_ARG,
                            "sequence of %u: the model has a sliding_window of %u, and a shorter "
                            "window than the sequence is not supported",
                            seq, model->config.sliding_window);
    return MICS_OK;
}

/*
 * The scaling of rotary positions.
 */

#define MAX_FACTOR 1e6

static const char *const kinds[] = {
    [MICS_ROPE_PLAIN] = "default", [MICS_ROPE_LINEAR] = "linear", [MICS_ROPE_LLAMA3] = "llama3"};

json_t *mics_rope_scaling_to_json(const struct mics_rope_scaling *scaling)
{
    const char *const kind = kinds[scaling->kind];

    if (scaling->kind == MICS_ROPE_PLAIN)
        return json_pack("{s:s}", "rope_type", kind);
    if (scaling->kind == MICS_ROPE_LINEAR)
        return json_pack("{s:s, s:f}", "rope_type", kind, "factor", scaling->factor);
    return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", kind, "factor", scaling->factor,
                     "low_freq_factor", scaling->low_freq_factor, "high_freq_factor",
                     scaling->high_freq_factor, "original_max_position_embeddings",
                     (json_int_t)scaling->original_positions);
}

static enum mics_status read_kind(const struct mics_cursor *map, enum mics_rope_kind *out,
                                  struct mics_err *err)
{
    const char *const key = mics_cursor_has(map, "rope_type") ? "rope_type" : "type";
    enum mics_status status;
    const char *text;

    *out = MICS_ROPE_PLAIN;
    if (!mics_cursor_has(map, key))
        return MICS_OK;
    status = mics_cursor_string(map, key, &text, err);
    if (status != MICS_OK)
        return status;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(text, kinds[i]) == 0) {
            *out = (enum mics_rope_kind)i;
            return MICS_OK;
        }
    return mics_cursor_fail(map, key, err,
                            "'%s' is not supported, only 'default', 'linear' and 'llama3'", text);
}

static enum mics_status read_llama3(const struct mics_cursor *map, struct mics_rope_scaling *out,
                                    struct mics_err *err)
{
    enum mics_status status =
        mics_cursor_double(map, "low_freq_factor", 1e-6, MAX_FACTOR, &out->low_freq_factor, err);

    if (status == MICS_OK)
        status = mics_cursor_double(map, "high_freq_factor", 1e-6, MAX_FACTOR,
                                    &out->high_freq_factor, err);
    if (status == MICS_OK)
        status = mics_cursor_u32(map, "original_max_position_embeddings", 1, MICS_MAX_POSITIONS,
                                 &out->original_positions, err);
    if (status == MICS_OK && out->high_freq_factor <= out->low_freq_factor)
        status =
            mics_cursor_fail(map, "high_freq_factor", err, "%g is not above low_freq_factor, %g",
                             out->high_freq_factor, out->low_freq_factor);
    return status;
}

enum mics_status mics_rope_scaling_read(const struct mics_cursor *map,
                                        struct mics_rope_scaling *out, struct mics_err *err)
{
    enum mics_status status;

    *out = (struct mics_rope_scaling){.kind = MICS_ROPE_PLAIN};
    status = read_kind(map, &out->kind, err);
    if (status == MICS_OK && out->kind != MICS_ROPE_PLAIN)
        status = mics_cursor_double(map, "factor", 1, MAX_FACTOR, &out->factor, err);
    if (status == MICS_OK && out->kind == MICS_ROPE_LLAMA3)
        status = read_llama3(map, out, err);
    return status;
}

static bool same(double a, double b)
{
    return a <= b && a >= b;
}

bool mics_rope_scaling_equal(const struct mics_rope_scaling *a, const struct mics_rope_scaling *b)
{
    return a->kind == b->kind && a->original_positions == b->original_positions &&
           same(a->factor, b->factor) && same(a->low_freq_factor, b->low_freq_factor) &&
           same(a->high_freq_factor, b->high_freq_factor);
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

    if (c->sliding_window > 0)
        failed |= json_object_set_new(value, "sliding_window",
                                      json_integer((json_int_t)c->sliding_window));
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
        TRY(mics_rope_scaling_read(&scaling, &out->rope_scaling, err));
    }
    TRY(mics_cursor_bool(at, "tie_word_embeddings", &tied, err));
    out->untied = !tied;
    if (mics_cursor_has(at, "sliding_window"))
        TRY(mics_cursor_u32(at, "sliding_window", 1, UINT32_MAX, &out->sliding_window, err));
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
