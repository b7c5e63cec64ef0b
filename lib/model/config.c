/* SPDX-License-Identifier: Apache-2.0 */
#include "model/config.h"

#include "model/build.h"

#include <stddef.h>
#include <string.h>

struct limit {
    const char *key;
    size_t offset;
    uint32_t max;
};

#define LIMIT(field, max)                                                                          \
    {                                                                                              \
#field, offsetof(struct mics_model_config, field), max                                     \
    }

static const struct limit limits[] = {
    LIMIT(n_layer, MICS_MAX_LAYERS),   LIMIT(n_embd, MICS_MAX_EMBD),
    LIMIT(n_head, MICS_MAX_EMBD),      LIMIT(n_positions, MICS_MAX_POSITIONS),
    LIMIT(vocab_size, MICS_MAX_VOCAB), LIMIT(n_inner, MICS_MAX_INNER),
};

static bool is_llama(const struct mics_model_config *config)
{
    return strcmp(config->family, "llama") == 0;
}

void mics_config_resolve(struct mics_model_config *config)
{
    const bool divides = config->n_head > 0 && config->n_embd % config->n_head == 0;
    const bool follow = !is_llama(config);

    if (follow || config->n_kv_head == 0)
        config->n_kv_head = config->n_head;
    if (follow || config->head_dim == 0)
        config->head_dim = divides ? config->n_embd / config->n_head : 0;
}

/* Llama's heads may be wider or narrower than the model, and share keys and values. */
static enum mics_status check_llama(const struct mics_model_config *config, struct mics_err *err)
{
    if (config->n_kv_head > config->n_head || config->n_head % config->n_kv_head != 0)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "n_kv_head: %u heads of keys do not divide %u heads of queries",
                            config->n_kv_head, config->n_head);
    if (config->head_dim % 2 != 0)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "head_dim: %u is odd, and rotary positions turn pairs",
                            config->head_dim);
    if (!(config->rope_theta >= 1 && config->rope_theta <= MICS_MAX_ROPE_THETA))
        return mics_err_set(err, MICS_ERR_FORMAT, "rope_theta: %g is not in 1 .. %g",
                            config->rope_theta, MICS_MAX_ROPE_THETA);
    return MICS_OK;
}

static enum mics_status check_heads(const struct mics_model_config *config, struct mics_err *err)
{
    if (config->head_dim == 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "n_head: %u does not divide n_embd, %u",
                            config->n_head, config->n_embd);
    if (config->head_dim > MICS_HEAD_MAX)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                            "n_head: %u heads of %u channels are wider than %u, the most supported",
                            config->n_head, config->head_dim, MICS_HEAD_MAX);
    if (is_llama(config))
        return check_llama(config, err);
    if (config->untied)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED, "family: a %s has a tied head",
                            config->family);
    return MICS_OK;
}

enum mics_status mics_config_check(const struct mics_model_config *config, struct mics_err *err)
{
    if (!mics_family_find(config->family))
        return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                            "family: '%s' is not one of gpt2, llama, counting", config->family);

    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        const char *field = (const char *)config + limits[i].offset;
        const uint32_t value = *(const uint32_t *)(const void *)field;

        if (value < 1 || value > limits[i].max)
            return mics_err_set(err, MICS_ERR_FORMAT, "%s: %u is not in 1 .. %u", limits[i].key,
                                value, limits[i].max);
    }
    if (!(config->layer_norm_epsilon > 0 && config->layer_norm_epsilon < 1))
        return mics_err_set(err, MICS_ERR_FORMAT, "layer_norm_epsilon: %g is not between 0 and 1",
                            config->layer_norm_epsilon);
    return check_heads(config, err);
}
