/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hugging Face's config.json of a GPT-2. The sizes must be there; what has a default there has the
 * same one here. Switches that would change the arithmetic must be as GPT-2 has them. Dropout
 * (resid_pdrop, embd_pdrop, attn_pdrop) is ignored, as are all other keys: we train without it.
 */
#include "doc/at.h"
#include "model/config.h"

#include <stdio.h>
#include <string.h>

#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum mics_status try_status = (call);                                                      \
        if (try_status != MICS_OK)                                                                 \
            return try_status;                                                                     \
    } while (0)

static enum mics_status expect_string(const struct mics_at *at, const char *key,
                                      const char *const *accepted, struct mics_err *err)
{
    const char *text;

    TRY(mics_at_string(at, key, &text, err));
    for (size_t i = 0; accepted[i]; i++)
        if (strcmp(text, accepted[i]) == 0)
            return MICS_OK;
    return mics_at_fail(at, key, err, "'%s' is not supported, only '%s'", text, accepted[0]);
}

/* Switches of the reference code that change what is computed. */
static enum mics_status expect_switches(const struct mics_at *at, struct mics_err *err)
{
    static const struct {
        const char *key;
        bool wanted;
    } switches[] = {
        {"tie_word_embeddings", true},
        {"scale_attn_weights", true},
        {"scale_attn_by_inverse_layer_idx", false},
        {"add_cross_attention", false},
    };

    for (size_t i = 0; i < sizeof switches / sizeof switches[0]; i++) {
        bool value;

        if (!mics_at_has(at, switches[i].key))
            continue;
        TRY(mics_at_bool(at, switches[i].key, &value, err));
        if (value != switches[i].wanted)
            return mics_at_fail(at, switches[i].key, err, "%s is not supported",
                                value ? "true" : "false");
    }
    return MICS_OK;
}

static enum mics_status read_sizes(const struct mics_at *at, struct mics_model_config *out,
                                   struct mics_err *err)
{
    TRY(mics_at_u32(at, "n_layer", 1, MICS_MAX_LAYERS, &out->n_layer, err));
    TRY(mics_at_u32(at, "n_embd", 1, MICS_MAX_EMBD, &out->n_embd, err));
    TRY(mics_at_u32(at, "n_head", 1, MICS_MAX_EMBD, &out->n_head, err));
    TRY(mics_at_u32(at, "n_positions", 1, MICS_MAX_POSITIONS, &out->n_positions, err));
    TRY(mics_at_u32(at, "vocab_size", 1, MICS_MAX_VOCAB, &out->vocab_size, err));
    out->n_inner = 4 * out->n_embd;
    if (mics_at_has(at, "n_inner"))
        TRY(mics_at_u32(at, "n_inner", 1, MICS_MAX_INNER, &out->n_inner, err));
    out->layer_norm_epsilon = 1e-5;
    if (mics_at_has(at, "layer_norm_epsilon"))
        TRY(mics_at_double(at, "layer_norm_epsilon", 0, 1, &out->layer_norm_epsilon, err));
    return MICS_OK;
}

enum mics_status mics_config_from_hf(const json_t *doc, const char *name,
                                     struct mics_model_config *out, struct mics_err *err)
{
    static const char *const types[] = {"gpt2", NULL};
    static const char *const activations[] = {"gelu_new", "gelu_pytorch_tanh", NULL};
    const struct mics_at at = mics_at_root(doc);
    struct mics_model_config config = {.family = "gpt2"};

    TRY(expect_string(&at, "model_type", types, err));
    if (mics_at_has(&at, "activation_function"))
        TRY(expect_string(&at, "activation_function", activations, err));
    TRY(expect_switches(&at, err));
    TRY(read_sizes(&at, &config, err));
    snprintf(config.name, sizeof config.name, "%s", name);
    TRY(mics_config_check(&config, err));
    *out = config;
    return MICS_OK;
}
