/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.h - the document mics.checkpoint: what a checkpoint contains and which run wrote it.
 *
 * It is written last: a folder with a manifest is complete. It has the plan, the table of units and
 * tensors with their offsets in the flat vectors, the shapes that cut these, and size and XXH64 of
 * each file. Its own member "xxh64" is the XXH64 of all others, encoded as MessagePack.
 */
#ifndef MICS_CKPT_MANIFEST_H
#define MICS_CKPT_MANIFEST_H

#include "base/err.h"
#include "ckpt/ckpt_table.h"
#include "ckpt/format/checksum.h"
#include "model/model.h"
#include "plan/plan.h"

#include <jansson.h>
#include <stdio.h>

#define MICS_CHECKPOINT_KIND    "mics.checkpoint"
#define MICS_CHECKPOINT_VERSION 2
#define MICS_MANIFEST_NAME      "manifest.mp"
#define MICS_CKPT_MAX_FILES     (1u << 20)

/* The form of a run's training state. Borrows everything. */
struct mics_ckpt_layout {
    const struct mics_model *model;
    const struct mics_plan_choice *choice;
    const struct mics_layout *layouts; /* [unit_count] */
    uint32_t states;                   /* of the plan (ckpt_table.h), 1 to MICS_CKPT_STATES */
    uint32_t parts;                    /* files of each shard (ckpt_table.h) */
};

/* Owns its references. */
struct mics_manifest {
    uint64_t step;    /* steps done */
    uint64_t samples; /* sequences seen by all ranks */
    /* Step and samples of the checkpoint that the run continued, or 0: since then steps have the
     * plan's batch. */
    uint64_t base_step, base_samples;
    json_t *plan;        /* the document mics.plan */
    json_t *training;    /* settings and data of the run; only the trainer interprets it */
    json_t *tokenizer;   /* tokenizer_files.h; NULL: not known */
    json_t *history;     /* array; NULL: an empty one is written */
    uint32_t file_count; /* shards * parts (ckpt_table.h) */
    struct mics_file_sum *files;
};

void mics_manifest_free(struct mics_manifest *manifest); /* all zeros is fine */

/* *out = a new document, which shares the manifest's references. */
enum mics_status mics_manifest_to_doc(const struct mics_manifest *manifest,
                                      const struct mics_ckpt_layout *form, json_t **out,
                                      struct mics_err *err);

/* Set the document's own checksum, after a change. */
enum mics_status mics_manifest_seal(json_t *doc, struct mics_err *err);

/* Check kind, version and checksum. MICS_ERR_FORMAT. */
enum mics_status mics_manifest_check(const json_t *doc, struct mics_err *err);

/* Check the document, and read the members of struct mics_manifest; mics_ckpt_table_read() reads
 * the table. */
enum mics_status mics_manifest_from_doc(json_t *doc, struct mics_manifest *out,
                                        struct mics_err *err);

/* The names of the first `states` states: a new array, or NULL if out of memory. */
json_t *mics_ckpt_states_to_json(uint32_t states);

/* Check that a checkpoint has the state of the present model and optimizer. Its shape, segments and
 * padding may differ. `table` is the table of `doc`. MICS_ERR_FORMAT with both values, or all
 * tensors that differ. */
enum mics_status mics_manifest_match(const json_t *doc, const struct mics_ckpt_table *table,
                                     const struct mics_ckpt_layout *form, struct mics_err *err);

/* Check that a checkpoint has exactly the tensors of a model. MICS_ERR_FORMAT lists those that are
 * missing, unknown, of another shape or at another offset; layers that differ in the same way share
 * an entry: "h.*.ln_1.weight is missing (12)". */
enum mics_status mics_ckpt_match_tensors(const struct mics_ckpt_table *table,
                                         const struct mics_model *model, struct mics_err *err);

/* *units = a new array [model->unit_count], the caller's: the index of each unit in the table.
 * MICS_ERR_FORMAT: a unit is missing or of another size. */
enum mics_status mics_ckpt_map_units(const struct mics_ckpt_table *table,
                                     const struct mics_model *model, uint32_t **units,
                                     struct mics_err *err);

/* The optimizer that the manifest's plan names; NULL: it names none that is known. */
const struct mics_optimizer_row *mics_manifest_optimizer(const json_t *doc);

/* "shard-00002.safetensors" */
void mics_ckpt_file_name(uint32_t index, char *buf, size_t size);

/* Print a manifest as tables: model, step, settings and data of the run, and the files, which are
 * not read. MICS_ERR_FORMAT if the document is not a manifest. */
enum mics_status mics_manifest_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err);

#endif
