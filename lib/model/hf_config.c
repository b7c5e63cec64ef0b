/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hugging Face's config.json: of a GPT-2 here, of a Llama in hf_config_llama.c. The sizes must be there; what
 * has a default there has the same one here. Switches that would change the arithmetic must be as the
 * family has them. Dropout (resid_pdrop, embd_pdrop, attn_pdrop) is ignored, as are all other keys: we
 * train without it.
 */
#include "model/hf_config.h"

#include <stdio.h>
#include <string.h>

#define TRY MICS_CONFIG_TRY

enum mics_status mics_config_expect_text(const struct mics_cursor *at, const char *key,
                                         const char *const *accepted, struct mics_err *err)
{
    const char *text;

    TRY(mics_cursor_string(at, key, &text, err));
    for (size_t i = 0; accepted[i]; i++)
        if (strcmp(text, accepted[i]) == 0)
            return MICS_OK;
    return mics_cursor_fail(at, key, err, "'%s' is not supported, only '%s'", text, accepted[0]);
}

enum mics_status mics_config_expect_switches(const struct mics_cursor *at,
                                             const struct mics_config_switch *switches,
                                             size_t count, struct mics_err *err)
{
    for (size_t i = 0; i < count; i++) {
        bool value;

        if (!mics_cursor_has(at, switches[i].key))
            continue;
        TRY(mics_cursor_bool(at, switches[i].key, &value, err));
        if (value != switches[i].wanted)
            return mics_cursor_fail(at, switches[i].key, err, "%s is not supported",
                                    value ? "true" : "false");
    }
    return MICS_OK;
}

static enum mics_status read_sizes(const struct mics_cursor *at, struct mics_model_config *out,
                                   struct mics_err *err)
{
    TRY(mics_cursor_u32(at, "n_layer", 1, MICS_MAX_LAYERS, &out->n_layer, err));
    TRY(mics_cursor_u32(at, "n_embd", 1, MICS_MAX_EMBD, &out->n_embd, err));
    TRY(mics_cursor_u32(at, "n_head", 1, MICS_MAX_EMBD, &out->n_head, err));
    TRY(mics_cursor_u32(at, "n_positions", 1, MICS_MAX_POSITIONS, &out->n_positions, err));
    TRY(mics_cursor_u32(at, "vocab_size", 1, MICS_MAX_VOCAB, &out->vocab_size, err));
    out->n_inner = 4 * out->n_embd;
    if (mics_cursor_has(at, "n_inner"))
        TRY(mics_cursor_u32(at, "n_inner", 1, MICS_MAX_INNER, &out->n_inner, err));
    out->layer_norm_epsilon = 1e-5;
    if (mics_cursor_has(at, "layer_norm_epsilon"))
        TRY(mics_cursor_double(at, "layer_norm_epsilon", 0, 1, &out->layer_norm_epsilon, err));
    return MICS_OK;
}

static enum mics_status read_gpt2(const struct mics_cursor *at, struct mics_model_config *out,
                                  struct mics_err *err)
{
    static const char *const activations[] = {"gelu_new", "gelu_pytorch_tanh", NULL};
    static const struct mics_config_switch switches[] = {
        {"tie_word_embeddings", true},
        {"scale_attn_weights", true},
        {"scale_attn_by_inverse_layer_idx", false},
        {"add_cross_attention", false},
    };

    if (mics_cursor_has(at, "activation_function"))
        TRY(mics_config_expect_text(at, "activation_function", activations, err));
    TRY(mics_config_expect_switches(at, switches, sizeof switches / sizeof *switches, err));
    return read_sizes(at, out, err);
}

enum mics_status mics_config_from_hf(const json_t *doc, const char *name,
                                     struct mics_model_config *out, struct mics_err *err)
{
    const struct mics_cursor at = mics_cursor_root(doc);
    struct mics_model_config config = {.family = ""};
    const char *type;

    TRY(mics_cursor_string(&at, "model_type", &type, err));
    if (strcmp(type, "gpt2") == 0)
        TRY(read_gpt2(&at, &config, err));
    else if (strcmp(type, "llama") == 0)
        TRY(mics_config_read_llama(&at, &config, err));
    else
        return mics_cursor_fail(&at, "model_type", err,
                                "'%s' is not supported, only 'gpt2' and 'llama'", type);
    snprintf(config.family, sizeof config.family, "%s", type);
    snprintf(config.name, sizeof config.name, "%s", name);
    mics_config_resolve(&config);
    TRY(mics_config_check(&config, err));
    *out = config;
    return MICS_OK;
}
