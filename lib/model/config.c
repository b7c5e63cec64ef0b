/* SPDX-License-Identifier: Apache-2.0 */
#include "model/config.h"

#include "model/build.h"

#include <stddef.h>

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

enum mics_status mics_config_check(const struct mics_model_config *config, struct mics_err *err)
{
    if (!mics_family_find(config->family))
        return mics_err_set(err, MICS_ERR_UNSUPPORTED, "family: '%s' is not one of gpt2, counting",
                            config->family);

    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        const char *field = (const char *)config + limits[i].offset;
        const uint32_t value = *(const uint32_t *)(const void *)field;

        if (value < 1 || value > limits[i].max)
            return mics_err_set(err, MICS_ERR_FORMAT, "%s: %u is not in 1 .. %u", limits[i].key,
                                value, limits[i].max);
    }
    if (config->n_embd % config->n_head != 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "n_head: %u does not divide n_embd, %u",
                            config->n_head, config->n_embd);
    if (config->n_embd / config->n_head > MICS_HEAD_MAX)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                            "n_head: %u heads of %u channels are wider than %u, the most supported",
                            config->n_head, config->n_embd / config->n_head, MICS_HEAD_MAX);
    if (!(config->layer_norm_epsilon > 0 && config->layer_norm_epsilon < 1))
        return mics_err_set(err, MICS_ERR_FORMAT, "layer_norm_epsilon: %g is not between 0 and 1",
                            config->layer_norm_epsilon);
    return MICS_OK;
}
