/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hf_config.c - Hugging Face's config.json, by the keys of the family's row, as version 4 of the
 * library writes it (rope_theta, rope_scaling) and as version 5 does (rope_parameters).
 *
 * A key that is absent has the default of the library's own class. A switch that changes the
 * arithmetic must have the supported value. All other keys are ignored, dropout among them:
 * training is without it.
 */
#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_ROPE_THETA     10000.0
#define DEFAULT_SLIDING_WINDOW 4096
#define DEFAULT_WINDOW_LAYERS  28
#define ATTENTION_BIAS         "attention_bias"

/* The member must be one of `accepted`; the error names the first of them. */
static void expect_text(const struct mics_cursor *at, const char *key, const char *const *accepted)
{
    const char *text = mics_cursor_get_string(at, key);

    for (size_t i = 0; accepted[i]; i++)
        if (strcmp(text, accepted[i]) == 0)
            return;
    mics_cursor_reject(at, key, "'%s' is not supported, only '%s'", text, accepted[0]);
}

/* Those that are there must have the supported value. */
static void expect_switches(const struct mics_cursor *at, const struct mics_hf_switch *switches)
{
    for (const struct mics_hf_switch *one = switches; one->key; one++) {
        const bool value = mics_cursor_opt_bool(at, one->key, one->value);

        if (value != one->value)
            mics_cursor_reject(at, one->key, "%s is not supported", value ? "true" : "false");
    }
}

static uint32_t *size_field(struct mics_model_config *config, const struct mics_hf_size *size)
{
    return (uint32_t *)(void *)((char *)config + size->offset);
}

/* An optional size that is null follows from other sizes, as one whose default is 0. */
static void read_sizes(const struct mics_cursor *at, const struct mics_hf_size *sizes,
                       struct mics_model_config *out)
{
    for (const struct mics_hf_size *size = sizes; size->key; size++) {
        if (size->absent == MICS_HF_REQUIRED || mics_cursor_has(at, size->key))
            *size_field(out, size) = mics_cursor_get_u32(at, size->key, 1, size->max);
        else if (!json_object_get(at->value, size->key))
            *size_field(out, size) = size->absent;
    }
    if (out->n_inner == 0)
        out->n_inner = 4 * out->n_embd;
}

/* Rotary positions as one map has them. */
struct rope {
    double theta; /* 0: not in it */
    struct mics_rope_scaling scaling;
};

static void read_rope_map(const struct mics_cursor *map,
                          const struct mics_rope_positions *positions, struct rope *out)
{
    mics_rope_scaling_read(map, positions, &out->scaling);
    (void)mics_cursor_opt_double(map, "partial_rotary_factor", 1, 1, 1);
    out->theta = mics_cursor_opt_double(map, "rope_theta", 1, MICS_MAX_ROPE_THETA, 0);
}

static bool rope_equal(const struct rope *a, const struct rope *b)
{
    return !(a->theta < b->theta || a->theta > b->theta) &&
           mics_rope_scaling_equal(&a->scaling, &b->scaling);
}

/* A map, or maps by the names of layer_types, which must then be equal. */
static void read_rope_maps(const struct mics_cursor *map,
                           const struct mics_rope_positions *positions, struct rope *out)
{
    static const char *const names[] = {"full_attention", "sliding_attention"};
    bool found = false;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct rope rope = {0};

        if (!mics_cursor_has(map, names[i]))
            continue;
        const struct mics_cursor inner = mics_cursor_get_object(map, names[i]);
        read_rope_map(&inner, positions, &rope);
        if (found && !rope_equal(out, &rope))
            mics_cursor_reject(map, names[i],
                               "other rotary positions than those of %s are not supported",
                               names[0]);
        *out = rope;
        found = true;
    }
    if (!found)
        read_rope_map(map, positions, out);
}

/* The map `key`; false: it is absent or has no members. */
static bool read_rope_member(const struct mics_cursor *at, const char *key,
                             const struct mics_rope_positions *positions, struct rope *out)
{
    if (!mics_cursor_has(at, key))
        return false;
    const struct mics_cursor map = mics_cursor_get_object(at, key);
    const bool found = json_object_size(map.value) > 0;
    if (found)
        read_rope_maps(&map, positions, out);
    return found;
}

/* rope_scaling replaces rope_parameters, with its base. A base that is then not used, or another
 * scaling, is an error: either of the two may be meant. absent: the base if there is none. */
static void read_rope(const struct mics_cursor *at, double absent, struct mics_model_config *out)
{
    struct mics_rope_positions positions = {.model = out->n_positions};
    struct rope old = {0}, new = {0};

    const double outer = mics_cursor_opt_double(at, "rope_theta", 1, MICS_MAX_ROPE_THETA, 0);
    positions.original =
        mics_cursor_opt_u32(at, "original_max_position_embeddings", 1, MICS_MAX_POSITIONS, 0);
    const bool has_old = read_rope_member(at, "rope_scaling", &positions, &old);
    read_rope_member(at, "rope_parameters", &positions, &new);

    const struct rope *const used = has_old ? &old : &new;
    const double theta = used->theta > 0 ? used->theta : outer > 0 ? outer : absent;
    if (outer > 0 && fabs(outer - theta) > 0)
        mics_cursor_reject(at, "rope_theta", "%g, but %s has %g", outer,
                           has_old ? "rope_scaling" : "rope_parameters", theta);
    if (new.theta > 0 && fabs(new.theta - theta) > 0)
        mics_cursor_reject(at, "rope_parameters",
                           "has rope_theta %g, but with rope_scaling it is %g", new.theta, theta);
    if (has_old && new.scaling.kind != MICS_ROPE_PLAIN &&
        !mics_rope_scaling_equal(&old.scaling, &new.scaling))
        mics_cursor_reject(at, "rope_parameters", "has another scaling than rope_scaling");
    out->rope_theta = theta;
    out->rope_scaling = used->scaling;
}

/* Can config.json say of each layer whether the window applies to it? */
static bool has_layer_types(enum mics_hf_window kind)
{
    return kind == MICS_HF_WINDOW_LAYERS || kind == MICS_HF_WINDOW_LISTED;
}

/* The layers that the window applies to: all but those of full_attention. */
static void read_window_layers(const struct mics_cursor *at, enum mics_hf_window kind,
                               bool windowed, struct mics_model_config *out)
{
    if (mics_cursor_has(at, "layer_types")) {
        mics_layer_types_read(at, out);
        return;
    }
    if (kind == MICS_HF_WINDOW_LISTED) {
        if (windowed)
            mics_cursor_reject(at, "layer_types",
                               "must list the layers of the window: without it versions 4 and 5 "
                               "of transformers take different ones");
        return;
    }
    const uint32_t first =
        mics_cursor_opt_u32(at, "max_window_layers", 0, UINT32_MAX, DEFAULT_WINDOW_LAYERS);
    for (uint32_t i = 0; i < out->n_layer && i < first; i++)
        out->full_attention[i / 64] |= UINT64_C(1) << i % 64;
}

static void read_window(const struct mics_cursor *at, enum mics_hf_window kind,
                        struct mics_model_config *out)
{
    bool windowed = kind == MICS_HF_WINDOW_ALWAYS || kind == MICS_HF_WINDOW_GIVEN;

    if (has_layer_types(kind) || kind == MICS_HF_WINDOW_USED)
        windowed = mics_cursor_opt_bool(at, "use_sliding_window", false);
    if (has_layer_types(kind))
        read_window_layers(at, kind, windowed, out);
    if (windowed && mics_cursor_has(at, "sliding_window"))
        out->sliding_window = mics_cursor_get_u32(at, "sliding_window", 1, UINT32_MAX);
    else if (windowed && kind != MICS_HF_WINDOW_GIVEN &&
             !json_object_get(at->value, "sliding_window"))
        out->sliding_window = DEFAULT_SLIDING_WINDOW;
    if (out->sliding_window > 0 || !mics_cursor_has(at, "layer_types") || !has_layer_types(kind))
        return;
    out->sliding_window = 1; /* is there a layer that would have it? */
    if (mics_config_windowed_layers(out) > 0)
        mics_cursor_reject(at, "layer_types",
                           "has 'sliding_attention', but the model has no sliding_window%s",
                           windowed ? "" : ": use_sliding_window is not true");
    out->sliding_window = 0;
}

static const char *bias_key(const struct mics_family *family)
{
    return family->hf.bias_key ? family->hf.bias_key : ATTENTION_BIAS;
}

/* What comes with rotary positions. */
static void read_hf_rotary(const struct mics_cursor *at, const struct mics_family *family,
                           struct mics_model_config *out)
{
    read_rope(at, family->hf.rope_theta > 0 ? family->hf.rope_theta : DEFAULT_ROPE_THETA, out);
    read_window(at, family->hf.window, out);
    if (family->optional_attention_bias)
        out->attention_bias = mics_cursor_opt_bool(at, bias_key(family), family->hf.bias);
    if (family->optional_mlp_bias)
        out->mlp_bias = mics_cursor_opt_bool(at, "mlp_bias", false);
    out->untied = !mics_cursor_opt_bool(at, "tie_word_embeddings", false);
}

/* Both names of the number of experts are read in every family; version 5 writes num_local_experts
 * where version 4 wrote num_experts. */
static uint32_t read_expert_count(const struct mics_cursor *at, uint32_t absent)
{
    static const char one[] = "num_experts", other[] = "num_local_experts";
    const uint32_t count = mics_cursor_opt_u32(at, one, 1, MICS_EXPERTS_MAX, 0);
    const uint32_t local = mics_cursor_opt_u32(at, other, 1, MICS_EXPERTS_MAX, 0);

    if (count > 0 && local > 0 && count != local)
        mics_cursor_reject(at, other, "%u, but %s is %u", local, one, count);
    return count > 0 ? count : local > 0 ? local : absent;
}

static void read_experts(const struct mics_cursor *at, const struct mics_hf_experts *experts,
                         struct mics_model_config *out)
{
    out->n_expert = read_expert_count(at, experts->count);
    out->n_expert_used =
        mics_cursor_opt_u32(at, "num_experts_per_tok", 1, MICS_EXPERTS_MAX, experts->used);
    if (out->n_expert_used > out->n_expert)
        mics_cursor_reject(at, "num_experts_per_tok", "%u experts of a token, but a layer has %u",
                           out->n_expert_used, out->n_expert);
    if (experts->inner_key)
        out->expert_inner =
            mics_cursor_opt_u32(at, experts->inner_key, 1, MICS_MAX_INNER, experts->inner);
    if (experts->shared_key)
        out->shared_inner =
            mics_cursor_opt_u32(at, experts->shared_key, 1, MICS_MAX_INNER, experts->shared);
    out->norm_topk_prob =
        experts->always_normalised || mics_cursor_opt_bool(at, "norm_topk_prob", false);
    if (experts->dense_layers)
        mics_dense_layers_read(
            at, "mlp_only_layers",
            mics_cursor_opt_u32(at, "decoder_sparse_step", 1, MICS_MAX_LAYERS, 1), out);
    if (!mics_cursor_opt_bool(at, "output_router_logits", false))
        return;
    out->balance.coefficient =
        mics_cursor_opt_double(at, "router_aux_loss_coef", 0, 1e6, experts->coefficient);
    if (out->balance.coefficient > 0)
        out->balance.kind = MICS_BALANCE_MICRO_BATCH;
}

/* Refuse positions of another kind, and those that do not begin where the family's do. */
static void check_positions(const struct mics_cursor *at, const struct mics_family *family)
{
    static const char *const absolute[] = {"absolute", NULL};
    const uint32_t padding = family->position_offset - 1;

    if (family->hf.position_kind && mics_cursor_has(at, "position_embedding_type"))
        expect_text(at, "position_embedding_type", absolute);
    if (family->position_offset > 0 &&
        mics_cursor_opt_u32(at, "pad_token_id", 0, UINT32_MAX, padding) != padding)
        mics_cursor_reject(at, "pad_token_id",
                           "only %u is supported: the positions of a %s begin behind it", padding,
                           family->name);
}

/* Keys of experts of a family that has none, and those that must not be set. */
static void refuse_keys(const struct mics_cursor *at, const struct mics_family *family)
{
    static const char *const experts[] = {"num_experts", "num_local_experts", "n_routed_experts",
                                          NULL};

    for (const char *const *key = experts; !family->experts && *key; key++)
        if (json_integer_value(json_object_get(at->value, *key)) > 0)
            mics_cursor_reject(at, *key, "a %s has no experts", family->name);
    for (const char *const *key = family->hf.nulls; key && *key; key++) {
        const json_t *value = json_object_get(at->value, *key);

        if (value && !json_is_null(value) && !(json_number_value(value) <= 0))
            mics_cursor_reject(at, *key, "is not supported");
    }
}

enum mics_status mics_config_from_hf(const json_t *doc, const char *name,
                                     struct mics_model_config *out, struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor at = mics_cursor_begin(doc, &reading);
    const char *type = mics_cursor_get_string(&at, "model_type");
    const struct mics_family *family = mics_family_find(type);
    struct mics_model_config config = {.family = ""};
    char names[256];

    if (!family) {
        mics_cursor_reject(&at, "model_type", "'%s' is not supported, only %s", type,
                           mics_family_names(names, sizeof names));
        return reading.status;
    }
    const struct mics_hf_keys *keys = &family->hf;
    if (mics_cursor_has(&at, keys->activation_key))
        expect_text(&at, keys->activation_key, keys->activations);
    expect_switches(&at, keys->switches);
    refuse_keys(&at, family);
    check_positions(&at, family);
    read_sizes(&at, keys->sizes, &config);
    config.layer_norm_epsilon = mics_cursor_opt_double(&at, keys->epsilon_key, 0, 1, keys->epsilon);
    if (reading.status == MICS_OK && mics_family_is_rotary(family))
        read_hf_rotary(&at, family, &config);
    if (family->bidirectional)
        config.mask_rate = MICS_MASK_RATE;
    if (reading.status == MICS_OK && family->experts)
        read_experts(&at, family->experts, &config);
    if (reading.status != MICS_OK)
        return reading.status;
    snprintf(config.family, sizeof config.family, "%s", family->name);
    snprintf(config.name, sizeof config.name, "%s", name);
    mics_config_resolve(&config, family);
    reading.status = mics_config_check(&config, family, err);
    if (reading.status == MICS_OK)
        *out = config;
    return reading.status;
}

/*
 * Written.
 */

/* Version 4 reads base and scaling of the rotary positions in two places, version 5 in one. A
 * scaling that the source has stays as it is. */
static int add_rope(json_t *config, const struct mics_model_config *c)
{
    json_t *parameters = mics_rope_scaling_to_json(&c->rope_scaling);
    int failed = json_object_set_new(parameters, "rope_theta", json_real(c->rope_theta));

    failed |= json_object_set_new(config, "rope_theta", json_real(c->rope_theta));
    failed |= json_object_set_new(config, "rope_parameters", parameters);
    if (c->rope_scaling.kind != MICS_ROPE_PLAIN &&
        !json_is_object(json_object_get(config, "rope_scaling")))
        failed |= json_object_set_new(config, "rope_scaling",
                                      mics_rope_scaling_to_json(&c->rope_scaling));
    return failed;
}

/* The model's window for version 4, which knows the first layer that has it, and 5, which knows
 * each. */
static int add_window(json_t *config, const struct mics_model *model)
{
    const struct mics_model_config *c = &model->config;
    const uint32_t window = c->sliding_window;
    const enum mics_hf_window kind = model->family->hf.window;
    uint32_t first = 0;
    int failed = 0;

    if (kind == MICS_HF_WINDOW_NONE)
        return 0;
    failed |= json_object_set_new(config, "sliding_window",
                                  window ? json_integer((json_int_t)window) : json_null());
    if (kind == MICS_HF_WINDOW_USED || kind == MICS_HF_WINDOW_LISTED)
        failed |= json_object_set_new(config, "use_sliding_window", json_boolean(window > 0));
    if (kind == MICS_HF_WINDOW_LISTED && window > 0)
        failed |= json_object_set_new(config, "layer_types", mics_layer_types_to_json(c));
    if (kind == MICS_HF_WINDOW_LAYERS) {
        while (first < c->n_layer && !mics_config_is_windowed(c, first))
            first++;
        failed |= json_object_set_new(config, "use_sliding_window", json_boolean(window > 0));
        failed |= json_object_set_new(config, "max_window_layers", json_integer(first));
        if (mics_config_windowed_layers(c) + first < c->n_layer)
            failed |= json_object_set_new(config, "layer_types", mics_layer_types_to_json(c));
    }
    return failed;
}

static int add_biases(json_t *config, const struct mics_model *model)
{
    int failed = 0;

    if (model->family->optional_attention_bias)
        failed |= json_object_set_new(config, bias_key(model->family),
                                      json_boolean(model->config.attention_bias));
    if (model->family->optional_mlp_bias)
        failed |= json_object_set_new(config, "mlp_bias", json_boolean(model->config.mlp_bias));
    return failed;
}

static int add_experts(json_t *config, const struct mics_model *model)
{
    const struct mics_hf_experts *experts = model->family->experts;
    const struct mics_model_config *c = &model->config;
    json_t *dense = json_array();
    int failed = dense == NULL;

    if (experts) {
        failed |= json_object_set_new(config, "num_experts", json_integer(c->n_expert));
        failed |= json_object_set_new(config, "num_local_experts", json_integer(c->n_expert));
        failed |=
            json_object_set_new(config, "num_experts_per_tok", json_integer(c->n_expert_used));
        failed |= json_object_set_new(config,
                                      experts->inner_key ? experts->inner_key : "intermediate_size",
                                      json_integer(c->expert_inner));
        if (experts->shared_key)
            failed |=
                json_object_set_new(config, experts->shared_key, json_integer(c->shared_inner));
        if (!experts->always_normalised)
            failed |=
                json_object_set_new(config, "norm_topk_prob", json_boolean(c->norm_topk_prob));
        if (c->balance.kind != MICS_BALANCE_NONE)
            failed |= json_object_set_new(config, "router_aux_loss_coef",
                                          json_real(c->balance.coefficient));
        failed |= json_object_set_new(config, "output_router_logits",
                                      json_boolean(c->balance.kind == MICS_BALANCE_MICRO_BATCH));
    }
    for (uint32_t i = 0; i < c->n_layer && experts; i++)
        if (!mics_model_is_sparse(model, i))
            failed |= json_array_append_new(dense, json_integer(i));
    if (experts && experts->dense_layers) {
        failed |= json_object_set_new(config, "decoder_sparse_step", json_integer(1));
        failed |= json_object_set(config, "mlp_only_layers", dense);
    }
    json_decref(dense);
    return failed;
}

/* The library's default ids of special tokens would be outside a small vocabulary. The last token
 * ends a document. */
static int add_special_tokens(json_t *config, const struct mics_model_config *c)
{
    const json_int_t last = (json_int_t)c->vocab_size - 1;

    return json_object_set_new(config, "bos_token_id", json_integer(last)) |
           json_object_set_new(config, "eos_token_id", json_integer(last));
}

static json_t *new_config(const struct mics_model *model)
{
    const struct mics_family *family = model->family;
    const struct mics_hf_keys *keys = &family->hf;
    struct mics_model_config c = model->config;
    json_t *config =
        json_pack("{s:[s], s:s, s:s}", "architectures", family->architecture, "model_type",
                  family->name, keys->activation_key, keys->activations[0]);
    int failed = config == NULL;

    for (const struct mics_hf_size *size = keys->sizes; size->key; size++)
        failed |=
            json_object_set_new(config, size->key, json_integer((json_int_t)*size_field(&c, size)));
    failed |= json_object_set_new(config, keys->epsilon_key, json_real(c.layer_norm_epsilon));
    if (mics_family_is_rotary(family))
        failed |= json_object_set_new(config, "tie_word_embeddings", json_boolean(!c.untied));
    for (const struct mics_hf_switch *one = keys->switches; one->key; one++)
        if (one->written)
            failed |= json_object_set_new(config, one->key, json_boolean(one->value));
    failed |= add_biases(config, model);
    failed |= add_window(config, model);
    failed |= add_experts(config, model);
    for (const char *const *dropout = keys->dropouts; *dropout; dropout++)
        failed |= json_object_set_new(config, *dropout, json_real(0.0));
    if (!family->bidirectional)
        failed |= add_special_tokens(config, &c);
    if (!failed)
        return config;
    json_decref(config);
    return NULL;
}

json_t *mics_model_to_hf_config(const struct mics_model *model)
{
    json_t *config = model->source ? json_deep_copy(model->source) : new_config(model);

    if (config && mics_family_is_rotary(model->family) && add_rope(config, &model->config) != 0) {
        json_decref(config);
        return NULL;
    }
    return config;
}
