/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards.h - checkpoints of shards, as a source and as a target of conversions.
 */
#ifndef MICS_CKPT_CONVERT_SHARDS_H
#define MICS_CKPT_CONVERT_SHARDS_H

#include "ckpt/convert/target.h"
#include "plan/plan.h"

/* What a plan makes of a model's state. */
struct mics_shard_plan {
    struct mics_plan *plan;
    json_t *doc; /* the plan's */
    struct mics_layout *layouts;
    struct mics_ckpt_form form;
};

/* `doc` is a document mics.plan; `states` 1 to MICS_CKPT_STATES. */
enum mics_status mics_shard_plan_open(json_t *doc, uint32_t states, struct mics_shard_plan *out,
                                      struct mics_err *err);
void mics_shard_plan_close(struct mics_shard_plan *plan); /* of zeros is fine */

/* A checkpoint on disk. Not to be moved: the store points into it. */
struct mics_shard_source {
    char folder[MICS_PATH_MAX];
    json_t *doc;
    struct mics_manifest manifest;
    struct mics_ckpt_table table;
    struct mics_model *model;
    struct mics_store store;
};

/* Open the checkpoint that `path` names (a folder of a run: its latest), and check the manifest, and sizes and
 * headers of all files, but not their sums. The plan in it is not looked at: how the files are cut is in the table, and
 * what a plan must say changes from version to version. Closed by the caller in any case. */
enum mics_status mics_shard_source_open(const char *path, struct mics_shard_source *out,
                                        struct mics_err *err);
void mics_shard_source_close(struct mics_shard_source *source); /* of zeros is fine */

/* The files of a checkpoint to be. */
struct mics_shard_target {
    struct mics_target target;
    struct mics_section *sections;
    char *header;
};

enum mics_status mics_shard_target_new(const struct mics_ckpt_form *form,
                                       struct mics_shard_target *out, struct mics_err *err);
void mics_shard_target_free(struct mics_shard_target *target); /* of zeros is fine */

/* The manifest of what mics_convert() made, into the folder. `manifest` has all but the files. */
enum mics_status mics_shard_target_finish(const struct mics_shard_target *target,
                                          const struct mics_ckpt_form *form,
                                          struct mics_manifest *manifest,
                                          struct mics_new_folder *folder, struct mics_err *err);

/* MICS_ERR_FORMAT, naming the first difference, unless two models compute the same. */
enum mics_status mics_models_match(const struct mics_model *a, const char *a_name,
                                   const struct mics_model *b, const char *b_name,
                                   struct mics_err *err);

#endif
