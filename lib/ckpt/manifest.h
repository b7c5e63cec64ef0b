/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.h - the document mics.checkpoint: what a checkpoint folder holds, and of which run.
 *
 * It is written last, so a folder that has one is whole. It has the plan, the table of units and tensors with
 * their places in the flat vectors, the shape by which these are cut, and size and XXH64 of each file.
 */
#ifndef MICS_CKPT_MANIFEST_H
#define MICS_CKPT_MANIFEST_H

#include "ckpt/format/hashed_file.h"
#include "plan/plan.h"

#include <jansson.h>

#define MICS_CHECKPOINT_KIND    "mics.checkpoint"
#define MICS_CHECKPOINT_VERSION 1
#define MICS_MANIFEST_NAME      "manifest.mp"
#define MICS_CKPT_MAX_FILES     (1u << 20)

/* The states of an element, in the order of the files: the fp32 parameter, then the optimizer's (of
 * AdamW both moments, of SGD and Lion the momentum). Tensors in a file are "<unit>.<state>". */
#define MICS_CKPT_STATES (1 + MICS_OPTIMIZER_STATES_MAX)
const char *mics_ckpt_state_name(uint32_t state); /* "param", "m", "v" */

/* What the state of training looks like: borrowed. */
struct mics_ckpt_form {
    const struct mics_model *model;
    const struct mics_plan_choice *choice;
    const struct mics_layout *layouts; /* [unit_count] */
    uint32_t states;                   /* that the optimizer has, 1 to MICS_CKPT_STATES */
    uint32_t parts;                    /* files of each shard, 1 to the replicas: see table.h */
};

/* Owns its references. */
struct mics_manifest {
    uint64_t step, samples; /* done; sequences seen, over all ranks */
    json_t *plan;           /* the document mics.plan */
    json_t *training;       /* settings and data of the run: the trainer's own */
    json_t *history;        /* array, or NULL */
    uint32_t file_count;    /* p_optim * parts: see table.h */
    struct mics_file_sum *files;
};

void mics_manifest_free(struct mics_manifest *manifest); /* of zeros is fine */

/* A new document. The manifest's references are shared. */
enum mics_status mics_manifest_to_doc(const struct mics_manifest *manifest,
                                      const struct mics_ckpt_form *form, json_t **out,
                                      struct mics_err *err);

/* Read what is independent of the present run; *out belongs to the caller. */
enum mics_status mics_manifest_from_doc(json_t *doc, struct mics_manifest *out,
                                        struct mics_err *err);

struct mics_ckpt_table;

/* Does the checkpoint `doc`, whose table is `table`, hold the state of the present model and optimizer? Its
 * shape, segments and padding are its own. MICS_ERR_FORMAT with both values, or all tensors that differ. */
enum mics_status mics_manifest_match(const json_t *doc, const struct mics_ckpt_table *table,
                                     const struct mics_ckpt_form *form, struct mics_err *err);

/* The optimizer that the manifest's plan names; NULL: it names none that is known. */
const struct mics_optimizer_row *mics_manifest_optimizer(const json_t *doc);

/* "shard-00002.safetensors" */
void mics_ckpt_file_name(uint32_t index, char *buf, size_t size);

#endif
