/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model as a plan stores it: its configuration, its number of parameters for people and as a check,
 * and the document that it came from.
 */
#include "doc/cursor.h"
#include "model/config.h"
#include "model/model.h"
#include "model/rope_scaling.h"

#include <stdio.h>
#include <string.h>

/* What only a Llama has. */
static int add_llama(json_t *value, const struct mics_model_config *c)
{
    json_t *more =
        json_pack("{s:I, s:I, s:f, s:o, s:b}", "n_kv_head", (json_int_t)c->n_kv_head, "head_dim",
                  (json_int_t)c->head_dim, "rope_theta", c->rope_theta, "rope_scaling",
                  mics_rope_scaling_to_json(&c->rope_scaling), "tie_word_embeddings", !c->untied);
    const int failed = more ? json_object_update(value, more) : -1;

    json_decref(more);
    return failed;
}

json_t *mics_model_to_json(const struct mics_model *model)
{
    const struct mics_model_config *c = &model->config;
    const bool llama = strcmp(c->family, "llama") == 0;
    json_t *value =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "family", c->family, "name",
                  c->name, "n_layer", (json_int_t)c->n_layer, "n_embd", (json_int_t)c->n_embd,
                  "n_head", (json_int_t)c->n_head, "n_positions", (json_int_t)c->n_positions,
                  "vocab_size", (json_int_t)c->vocab_size, "n_inner", (json_int_t)c->n_inner,
                  "layer_norm_epsilon", c->layer_norm_epsilon);

    if (value && ((llama && add_llama(value, c) != 0) ||
                  json_object_set_new(value, "parameters",
                                      json_integer((json_int_t)model->param_count)) != 0 ||
                  (model->source && json_object_set(value, "source", model->source) < 0))) {
        json_decref(value);
        return NULL;
    }
    return value;
}

static enum mics_status read_llama(const struct mics_cursor *at, struct mics_model_config *out,
                                   struct mics_err *err)
{
    bool tied = false;
    struct mics_cursor scaling;
    enum mics_status status =
        mics_cursor_u32(at, "n_kv_head", 1, MICS_MAX_EMBD, &out->n_kv_head, err);

    if (status == MICS_OK)
        status = mics_cursor_u32(at, "head_dim", 1, MICS_HEAD_MAX, &out->head_dim, err);
    if (status == MICS_OK)
        status =
            mics_cursor_double(at, "rope_theta", 1, MICS_MAX_ROPE_THETA, &out->rope_theta, err);
    if (status == MICS_OK && mics_cursor_has(at, "rope_scaling")) {
        status = mics_cursor_object(at, "rope_scaling", &scaling, err);
        if (status == MICS_OK)
            status = mics_rope_scaling_read(&scaling, &out->rope_scaling, err);
    }
    if (status == MICS_OK)
        status = mics_cursor_bool(at, "tie_word_embeddings", &tied, err);
    out->untied = !tied;
    return status;
}

static enum mics_status read_config(const struct mics_cursor *at, struct mics_model_config *out,
                                    struct mics_err *err)
{
    const struct {
        const char *key;
        uint32_t *field, max;
    } sizes[] = {
        {"n_layer", &out->n_layer, MICS_MAX_LAYERS},
        {"n_embd", &out->n_embd, MICS_MAX_EMBD},
        {"n_head", &out->n_head, MICS_MAX_EMBD},
        {"n_positions", &out->n_positions, MICS_MAX_POSITIONS},
        {"vocab_size", &out->vocab_size, MICS_MAX_VOCAB},
        {"n_inner", &out->n_inner, MICS_MAX_INNER},
    };
    enum mics_status status = mics_cursor_text(at, "family", out->family, sizeof out->family, err);

    if (status == MICS_OK)
        status = mics_cursor_text(at, "name", out->name, sizeof out->name, err);
    for (size_t i = 0; status == MICS_OK && i < sizeof sizes / sizeof sizes[0]; i++)
        status = mics_cursor_u32(at, sizes[i].key, 1, sizes[i].max, sizes[i].field, err);
    if (status == MICS_OK)
        status = mics_cursor_double(at, "layer_norm_epsilon", 0, 1, &out->layer_norm_epsilon, err);
    if (status == MICS_OK && strcmp(out->family, "llama") == 0)
        status = read_llama(at, out, err);
    return status;
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
