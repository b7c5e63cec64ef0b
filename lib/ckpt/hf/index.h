/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.h - model.safetensors.index.json, which says in which file each tensor is.
 *
 *     {"metadata": {"total_size": BYTES}, "weight_map": {TENSOR: FILE, ...}}
 *
 * The names in it are data from outside: none may lead out of the folder.
 */
#ifndef MICS_CKPT_HF_INDEX_H
#define MICS_CKPT_HF_INDEX_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define MICS_HF_INDEX_NAME      "model.safetensors.index.json"
#define MICS_HF_INDEX_MAX_BYTES ((size_t)64 << 20)

/* Is it a relative path without "..", "." or empty parts, and without control characters? */
bool mics_hf_name_is_safe(const char *name);

/* Check an index; *map is its weight_map, whose values are safe names, and the caller's. MICS_ERR_FORMAT. */
enum mics_status mics_hf_index_parse(const char *data, size_t size, json_t **map,
                                     struct mics_err *err);

#endif
