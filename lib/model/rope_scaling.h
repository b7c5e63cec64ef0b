/* SPDX-License-Identifier: Apache-2.0 */
/* rope_scaling.h - how rotary positions are scaled, as a map in the words of Hugging Face's config.json. */
#ifndef MICS_MODEL_ROPE_SCALING_H
#define MICS_MODEL_ROPE_SCALING_H

#include "doc/cursor.h"
#include "ops.h"

/* A new map: rope_type "default", "linear" or "llama3", with the numbers of that kind. NULL: no memory. */
json_t *mics_rope_scaling_to_json(const struct mics_rope_scaling *scaling);

/* Of a map with rope_type or, as old files have it, type; with neither it is "default". MICS_ERR_FORMAT names the
 * member: another kind, a number that is missing or out of range. */
enum mics_status mics_rope_scaling_read(const struct mics_cursor *map,
                                        struct mics_rope_scaling *out, struct mics_err *err);

bool mics_rope_scaling_equal(const struct mics_rope_scaling *a, const struct mics_rope_scaling *b);

#endif
