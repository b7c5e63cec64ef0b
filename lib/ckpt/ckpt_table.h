/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_table.h - how the training state is cut into the files of a checkpoint.
 *
 * Each unit's flat vector is cut into p_optim shards (plan/layout.h). The ranks that hold the same
 * shard write it together: a shard of c elements is cut into `parts` parts, of which part j has
 * elements floor(c j / parts) up to floor(c (j + 1) / parts). File shard * parts + part contains
 * that part of every unit and state.
 *
 * Where dense and expert units are cut by different shapes, each kind has files of its own: shards
 * of expert units have the numbers after those of dense units.
 */
#ifndef MICS_CKPT_CKPT_TABLE_H
#define MICS_CKPT_CKPT_TABLE_H

#include "plan/layout.h"

#include <jansson.h>
#include <stdbool.h>

/* The states of an element, in the order of the tensors of a file: the fp32 parameter, then the
 * optimizer's (both moments of AdamW; the momentum of SGD and Lion), and of plans with outer steps
 * the anchor and the outer momentum. Their number says which they are. Tensors in a file are called
 * "UNIT.STATE". */
#define MICS_CKPT_OUTER_STATES 2
#define MICS_CKPT_STATES       (1 + MICS_OPTIMIZER_STATES_MAX + MICS_CKPT_OUTER_STATES)

/* The name of one of `states` states: "param", "m", "v", "anchor", "outer_m". */
const char *mics_ckpt_state_name(uint32_t states, uint32_t state);
/* How many of `states` states are not of outer steps. */
uint32_t mics_ckpt_inner_states(uint32_t states);
/* The first states that two checkpoints have in common: all, or those that are not of outer steps.
 */
uint32_t mics_ckpt_common_states(uint32_t states, uint32_t others);

/* First element of part `part` (0 to parts) of a shard of `count` elements. */
uint64_t mics_ckpt_part_begin(uint64_t count, uint32_t parts, uint32_t part);

/* Where an element is: in file `file`, `offset` elements after the beginning of its tensor there.
 * The next `run` elements, itself included, are contiguous in that file. */
struct mics_ckpt_place {
    uint32_t file;
    uint64_t offset, run;
};
struct mics_ckpt_tensor {
    char name[64];
    uint32_t rank; /* 1 or 2 */
    uint64_t shape[2];
    uint64_t offset; /* elements, in the unit's flat vector */
};

struct mics_ckpt_unit {
    char name[32];
    enum mics_unit_kind kind; /* of the shape that cuts it */
    struct mics_layout layout;
    uint32_t first_shard; /* number of its first shard */
    struct mics_ckpt_tensor *tensors;
    uint32_t tensor_count;
};

struct mics_ckpt_table {
    uint32_t states;      /* 1 to MICS_CKPT_STATES */
    uint32_t parts;       /* files of each shard */
    uint32_t shard_count; /* of all kinds */
    uint32_t unit_count;
    struct mics_ckpt_unit *units;
};

/* `element` is below layout->padded of the unit. */
struct mics_ckpt_place mics_ckpt_locate(const struct mics_ckpt_unit *unit, uint32_t parts,
                                        uint64_t element);

/* Does file `file` contain a part of the unit? */
bool mics_ckpt_file_has(const struct mics_ckpt_table *table, const struct mics_ckpt_unit *unit,
                        uint32_t file);

/* Read the members shape, experts, align, states, parts and units of a manifest, and check that all
 * values are in range and consistent. MICS_ERR_FORMAT begins with the path of the wrong member. */
enum mics_status mics_ckpt_table_read(const json_t *doc, struct mics_ckpt_table *out,
                                      struct mics_err *err);
void mics_ckpt_table_free(struct mics_ckpt_table *table); /* all zeros is fine */

/* The index of a unit, or -1. */
int64_t mics_ckpt_table_find(const struct mics_ckpt_table *table, const char *unit);

#endif
