/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.h - the document mics.checkpoint: what a checkpoint folder holds, and of which run.
 *
 * It is written last, so a folder that has one is whole. It has the plan, the table of units and tensors with
 * their places in the flat vectors, the shape by which these are cut, and size and XXH64 of each file.
 */
#ifndef MICS_CKPT_MANIFEST_H
#define MICS_CKPT_MANIFEST_H

#include "base/err.h"
#include "ckpt/format/checksum.h"
#include "ckpt/table.h"
#include "model/model.h"
#include "plan/plan.h"

#include <jansson.h>
#include <stdio.h>

#define MICS_CHECKPOINT_KIND    "mics.checkpoint"
#define MICS_CHECKPOINT_VERSION 1
#define MICS_MANIFEST_NAME      "manifest.mp"
#define MICS_CKPT_MAX_FILES     (1u << 20)

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

/* Does the checkpoint `doc`, whose table is `table`, hold the state of the present model and optimizer? Its
 * shape, segments and padding are its own. MICS_ERR_FORMAT with both values, or all tensors that differ. */
enum mics_status mics_manifest_match(const json_t *doc, const struct mics_ckpt_table *table,
                                     const struct mics_ckpt_form *form, struct mics_err *err);

/* "shard-00002.safetensors" */
void mics_ckpt_file_name(uint32_t index, char *buf, size_t size);

/* manifest_form.h - the part of a manifest that says how the state is laid out. */
/* Each a new reference, or NULL without memory. */
json_t *mics_form_shape(const struct mics_shape *shape);
json_t *mics_form_states(uint32_t states);
json_t *mics_form_unit(const struct mics_unit *unit, const struct mics_layout *layout);
json_t *mics_form_units(const struct mics_ckpt_form *form);

/* match_tensors.h - which tensors of a model a checkpoint lacks, or has in another form. */
/* MICS_ERR_FORMAT names all tensors that are missing, left over, of another shape, or elsewhere in their unit;
 * those of layers that differ in the same way share a word: "h.*.ln_1.weight (12)". */
enum mics_status mics_ckpt_match_tensors(const struct mics_ckpt_table *table,
                                         const struct mics_model *model, struct mics_err *err);

/* manifest_print.h - a checkpoint's manifest as tables. */
/* What was trained and how far, the settings and data of the run, and the files. The files themselves are
 * not looked at. MICS_ERR_FORMAT for a document that is no manifest. */
enum mics_status mics_manifest_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err);

#endif
