/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - a model's sizes: limits, defaults, checks, and the scaling of rotary positions as a
 * map. Private to lib/model.
 */
#ifndef MICS_MODEL_CONFIG_H
#define MICS_MODEL_CONFIG_H

#include "doc/cursor.h"
#include "model/family.h"
#include "model/model.h"

/* Largest values accepted, so that no product of two of them leaves 64 bits. */
#define MICS_MAX_EMBD       65536
#define MICS_MAX_POSITIONS  (1u << 30)
#define MICS_MAX_VOCAB      (1u << 22)
#define MICS_MAX_TYPES      65536
#define MICS_MAX_INNER      (4u * MICS_MAX_EMBD)
#define MICS_MAX_ROPE_THETA 1e12

/* Give the sizes that follow from others their values: those that are 0, and in a family without
 * rotary positions those that it does not choose. */
void mics_config_resolve(struct mics_model_config *config, const struct mics_family *family);

/* Check a resolved configuration; without a family only that sizes are in range. MICS_ERR_FORMAT
 * names the field, the value and the range. */
enum mics_status mics_config_check(const struct mics_model_config *config,
                                   const struct mics_family *family, struct mics_err *err);

/* The configuration of a built-in name, or NULL. */
const struct mics_model_config *mics_preset_find(const char *name);
/* A table of all of them. */
enum mics_status mics_presets_print(FILE *out, int tsv, struct mics_err *err);
/* Up to three similar to `name`, with commas between; cut to `size`. Returns buf. */
char *mics_preset_similar(const char *name, char *buf, size_t size);

/* Read a Hugging Face config.json. `name` becomes the model's. */
enum mics_status mics_config_from_hf(const json_t *doc, const char *name,
                                     struct mics_model_config *out, struct mics_err *err);

static inline bool mics_config_is_windowed(const struct mics_model_config *config, uint32_t layer)
{
    return config->sliding_window > 0 && !(config->full_attention[layer / 64] >> layer % 64 & 1);
}

/* Layers that the window applies to. */
uint32_t mics_config_windowed_layers(const struct mics_model_config *config);

/* layer_types, as Hugging Face has it: one name for each layer, "full_attention" or
 * "sliding_attention". NULL: out of memory. */
json_t *mics_layer_types_to_json(const struct mics_model_config *config);
/* Read it into full_attention, which is 0; n_layer is set. */
void mics_layer_types_read(const struct mics_cursor *at, struct mics_model_config *out);

/* Which layers have no experts: those that the list `key`, which may be absent, has, and all but
 * every sparse_step-th, the first of which is layer sparse_step - 1. n_layer is set. */
void mics_dense_layers_read(const struct mics_cursor *at, const char *key, uint32_t sparse_step,
                            struct mics_model_config *out);

/* What a scaling takes from outside of its map. 0: the map must have it. */
struct mics_rope_positions {
    uint32_t model;    /* max_position_embeddings, which the map's own default to */
    uint32_t original; /* original_max_position_embeddings beside the map, instead of the map's */
};

/* The scaling as a new map, with Hugging Face's keys: rope_type "default", "linear", "dynamic",
 * "llama3" or "yarn", and the numbers of that kind. NULL: out of memory. */
json_t *mics_rope_scaling_to_json(const struct mics_rope_scaling *scaling);
/* Read a map with rope_type or, as old files have it, type; without either it is "default". */
void mics_rope_scaling_read(const struct mics_cursor *map,
                            const struct mics_rope_positions *positions,
                            struct mics_rope_scaling *out);
bool mics_rope_scaling_equal(const struct mics_rope_scaling *a, const struct mics_rope_scaling *b);

#endif
