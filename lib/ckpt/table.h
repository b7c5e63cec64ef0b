/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h - how the state in a checkpoint is laid out, whatever run is to read it.
 *
 * Each unit's flat vector is cut into p_optim shards as by plan/layout.h. The ranks that hold the same shard
 * share the writing of it: a shard of c elements is cut into `parts` runs, part j being the elements
 * floor(c j / parts) to floor(c (j + 1) / parts) of it. File number shard * parts + part has that run of
 * every unit and state.
 */
#ifndef MICS_CKPT_TABLE_H
#define MICS_CKPT_TABLE_H

#include "plan/layout.h"

#include <jansson.h>

/* First element of part `part` (0 to parts) of a shard of `count` elements. */
uint64_t mics_ckpt_part_begin(uint64_t count, uint32_t parts, uint32_t part);

/* Where element `element` (below padded) of a unit is: in file `file`, at `offset` elements from the beginning of
 * the tensor there, and `run` elements from it on follow each other in that file. */
struct mics_ckpt_place {
    uint32_t file;
    uint64_t offset, run;
};
struct mics_ckpt_place mics_ckpt_locate(const struct mics_layout *layout, uint32_t parts,
                                        uint64_t element);

struct mics_ckpt_tensor {
    char name[64];
    uint32_t rank; /* 1 or 2 */
    uint64_t shape[2];
    uint64_t offset; /* elements, in the unit's flat vector */
};

struct mics_ckpt_unit {
    char name[32];
    struct mics_layout layout;
    struct mics_ckpt_tensor *tensors;
    uint32_t tensor_count;
};

struct mics_ckpt_table {
    struct mics_shape shape;
    uint32_t states; /* the first so many of mics_ckpt_state_name() */
    uint32_t parts;  /* files of each shard */
    uint32_t unit_count;
    struct mics_ckpt_unit *units;
};

/* Read the members shape, states, parts and units of a manifest. Everything in *out is in range and
 * fits together; *out belongs to the caller. MICS_ERR_FORMAT names the path of what does not. */
enum mics_status mics_ckpt_table_read(const json_t *doc, struct mics_ckpt_table *out,
                                      struct mics_err *err);
void mics_ckpt_table_free(struct mics_ckpt_table *table); /* of zeros is fine */

/* The place of a unit by its name, or -1. */
int64_t mics_ckpt_table_find(const struct mics_ckpt_table *table, const char *unit);

#endif
