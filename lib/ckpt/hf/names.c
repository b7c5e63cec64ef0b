/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/hf/names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* What follows "<word><number>.", or NULL. */
static const char *after_layer(const char *name, const char *word)
{
    const size_t length = strlen(word);

    if (strncmp(name, word, length) != 0 || !isdigit((unsigned char)name[length]))
        return NULL;
    name += length;
    name += strspn(name, "0123456789");
    return *name == '.' ? name + 1 : NULL;
}

/* "h.7.attn.bias" and "h.7.attn.masked_bias": causal masks, not parameters. */
static bool is_mask(const char *name)
{
    const char *rest = after_layer(name, "h.");

    return rest && (strcmp(rest, "attn.bias") == 0 || strcmp(rest, "attn.masked_bias") == 0);
}

/* "layers.7.self_attn.rotary_emb.inv_freq": old files hold the frequencies that rope_theta gives. */
static bool is_frequency(const char *name)
{
    const char *rest = after_layer(name, "layers.");

    return strcmp(name, "rotary_emb.inv_freq") == 0 ||
           (rest && strcmp(rest, "self_attn.rotary_emb.inv_freq") == 0);
}

static const struct mics_hf_family families[] = {
    {"gpt2", "transformer.", "wte.weight", is_mask},
    {"llama", "model.", "embed_tokens.weight", is_frequency},
};

const struct mics_hf_family *mics_hf_family_of(const struct mics_model *model)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].family, model->config.family) == 0)
            return &families[i];
    return &families[0];
}

const char *mics_hf_bare_name(const struct mics_hf_family *family, const char *name)
{
    const size_t length = strlen(family->prefix);

    return strncmp(name, family->prefix, length) == 0 ? name + length : name;
}

void mics_hf_full_name(const struct mics_hf_family *family, const char *bare, char *buf,
                       size_t size)
{
    snprintf(buf, size, "%s%s", strcmp(bare, MICS_HF_HEAD) == 0 ? "" : family->prefix, bare);
}
