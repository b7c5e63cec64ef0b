/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hugging Face's config.json of a Llama, as version 4 of the library writes it (rope_theta, rope_scaling) and as
 * version 5 does (rope_parameters).
 */
#include "model/hf_config.h"
#include "model/rope_scaling.h"

#include <math.h>

#define TRY MICS_CONFIG_TRY

#define DEFAULT_THETA     10000.0
#define DEFAULT_POSITIONS 2048
#define DEFAULT_EPSILON   1e-6

/* `map` is of either version. Its own base, if it has one. */
static enum mics_status read_rope_map(const struct mics_cursor *map, double *theta,
                                      struct mics_rope_scaling *scaling, struct mics_err *err)
{
    double rotary = 1;

    TRY(mics_rope_scaling_read(map, scaling, err));
    if (mics_cursor_has(map, "partial_rotary_factor"))
        TRY(mics_cursor_double(map, "partial_rotary_factor", 1, 1, &rotary, err));
    if (mics_cursor_has(map, "rope_theta"))
        TRY(mics_cursor_double(map, "rope_theta", 1, MICS_MAX_ROPE_THETA, theta, err));
    return MICS_OK;
}

static enum mics_status read_rope(const struct mics_cursor *at, struct mics_model_config *out,
                                  struct mics_err *err)
{
    static const char *const maps[] = {"rope_scaling", "rope_parameters"};
    struct mics_rope_scaling scaling[2];
    double outer = 0, inner = 0;
    int found = 0;

    if (mics_cursor_has(at, "rope_theta"))
        TRY(mics_cursor_double(at, "rope_theta", 1, MICS_MAX_ROPE_THETA, &outer, err));
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        struct mics_cursor map;

        if (!mics_cursor_has(at, maps[i]))
            continue;
        TRY(mics_cursor_object(at, maps[i], &map, err));
        TRY(read_rope_map(&map, &inner, &scaling[found++], err));
    }
    if (outer > 0 && inner > 0 && fabs(outer - inner) > 0)
        return mics_cursor_fail(at, "rope_theta", err, "%g, but rope_parameters has %g", outer,
                                inner);
    if (found == 2 && !mics_rope_scaling_equal(&scaling[0], &scaling[1]))
        return mics_cursor_fail(at, "rope_parameters", err, "scales otherwise than rope_scaling");
    out->rope_theta = inner > 0 ? inner : outer > 0 ? outer : DEFAULT_THETA;
    if (found > 0)
        out->rope_scaling = scaling[0];
    return MICS_OK;
}

static enum mics_status read_sizes(const struct mics_cursor *at, struct mics_model_config *out,
                                   struct mics_err *err)
{
    const struct {
        const char *key;
        uint32_t max, *field;
        bool needed;
    } sizes[] = {
        {"num_hidden_layers", MICS_MAX_LAYERS, &out->n_layer, true},
        {"hidden_size", MICS_MAX_EMBD, &out->n_embd, true},
        {"num_attention_heads", MICS_MAX_EMBD, &out->n_head, true},
        {"intermediate_size", MICS_MAX_INNER, &out->n_inner, true},
        {"vocab_size", MICS_MAX_VOCAB, &out->vocab_size, true},
        {"max_position_embeddings", MICS_MAX_POSITIONS, &out->n_positions, false},
        {"num_key_value_heads", MICS_MAX_EMBD, &out->n_kv_head, false},
        {"head_dim", MICS_MAX_EMBD, &out->head_dim, false},
    };

    out->n_positions = DEFAULT_POSITIONS;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].needed || mics_cursor_has(at, sizes[i].key))
            TRY(mics_cursor_u32(at, sizes[i].key, 1, sizes[i].max, sizes[i].field, err));
    return MICS_OK;
}

enum mics_status mics_config_read_llama(const struct mics_cursor *at, struct mics_model_config *out,
                                        struct mics_err *err)
{
    static const char *const activations[] = {"silu", "swish", NULL};
    static const struct mics_config_switch switches[] = {
        {"attention_bias", false},
        {"mlp_bias", false},
    };
    bool tied = false;

    if (mics_cursor_has(at, "hidden_act"))
        TRY(mics_config_expect_text(at, "hidden_act", activations, err));
    TRY(mics_config_expect_switches(at, switches, sizeof switches / sizeof *switches, err));
    TRY(read_sizes(at, out, err));
    TRY(read_rope(at, out, err));
    out->layer_norm_epsilon = DEFAULT_EPSILON;
    if (mics_cursor_has(at, "rms_norm_eps"))
        TRY(mics_cursor_double(at, "rms_norm_eps", 0, 1, &out->layer_norm_epsilon, err));
    if (mics_cursor_has(at, "tie_word_embeddings"))
        TRY(mics_cursor_bool(at, "tie_word_embeddings", &tied, err));
    out->untied = !tied;
    return MICS_OK;
}
