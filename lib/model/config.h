/* SPDX-License-Identifier: Apache-2.0 */
/* config.h - the sizes of a model: by name, from config.json, checked. Private to lib/model. */
#ifndef MICS_MODEL_CONFIG_H
#define MICS_MODEL_CONFIG_H

#include "model/model.h"

/* Largest values taken, so that no product of two of them leaves 64 bits. */
#define MICS_MAX_LAYERS     4096
#define MICS_MAX_EMBD       65536
#define MICS_MAX_POSITIONS  (1u << 20)
#define MICS_MAX_VOCAB      (1u << 22)
#define MICS_MAX_INNER      (4u * MICS_MAX_EMBD)
#define MICS_MAX_ROPE_THETA 1e12

/* Give sizes that follow from others their values: of a Llama those that are 0. */
void mics_config_resolve(struct mics_model_config *config);

/* Of a resolved one. MICS_ERR_FORMAT names the field, the value and the range. */
enum mics_status mics_config_check(const struct mics_model_config *config, struct mics_err *err);

/* The configuration of a name that is built in, or NULL. */
const struct mics_model_config *mics_model_known(const char *name);
/* All names, with commas between; cut to `size`. Returns buf. */
char *mics_model_names(char *buf, size_t size);

/* Read a Hugging Face config.json (model_type gpt2 or llama). `name` becomes the model's. */
enum mics_status mics_config_from_hf(const json_t *doc, const char *name,
                                     struct mics_model_config *out, struct mics_err *err);

#endif
