/* SPDX-License-Identifier: Apache-2.0 */
/* hf_config.h - what the readers of config.json share. Private to lib/model. */
#ifndef MICS_MODEL_HF_CONFIG_H
#define MICS_MODEL_HF_CONFIG_H

#include "doc/cursor.h"
#include "model/config.h"

#define MICS_CONFIG_TRY(call)                                                                      \
    do {                                                                                           \
        enum mics_status try_status = (call);                                                      \
        if (try_status != MICS_OK)                                                                 \
            return try_status;                                                                     \
    } while (0)

/* A switch of the reference code that changes what is computed. */
struct mics_config_switch {
    const char *key;
    bool wanted;
};

/* A member must be one of `accepted` (the last is NULL). MICS_ERR_FORMAT names the first of them. */
enum mics_status mics_config_expect_text(const struct mics_cursor *at, const char *key,
                                         const char *const *accepted, struct mics_err *err);

/* Those that are there must be as wanted. */
enum mics_status mics_config_expect_switches(const struct mics_cursor *at,
                                             const struct mics_config_switch *switches,
                                             size_t count, struct mics_err *err);

/* All but family and name, of a document of model_type llama. */
enum mics_status mics_config_read_llama(const struct mics_cursor *at, struct mics_model_config *out,
                                        struct mics_err *err);

#endif
