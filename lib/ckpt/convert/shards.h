/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards.h - checkpoints as sources and targets of conversions.
 */
#ifndef MICS_CKPT_CONVERT_SHARDS_H
#define MICS_CKPT_CONVERT_SHARDS_H

#include "ckpt/ckpt_reader.h"
#include "ckpt/convert/target.h"
#include "plan/plan.h"

/* How a plan cuts a model's state. */
struct mics_shard_plan {
    struct mics_plan *plan;
    json_t *doc; /* the plan's */
    struct mics_layout *layouts;
    struct mics_ckpt_layout form;
};

/* `doc` is a document mics.plan; `states` is 1 to MICS_CKPT_STATES. The caller closes the plan also
 * after an error. */
enum mics_status mics_shard_plan_open(json_t *doc, uint32_t states, struct mics_shard_plan *out,
                                      struct mics_err *err);
void mics_shard_plan_close(struct mics_shard_plan *plan); /* all zeros is fine */

/* A checkpoint on disk with its model. Must not be moved: the reader points into itself. */
struct mics_shard_source {
    struct mics_ckpt_reader reader;
    struct mics_model *model;
};

/* Open the checkpoint at `path` (of a run's folder: its latest), and check the manifest and the
 * sizes and headers of all files, but not their sums. The plan in the manifest is not read: the
 * table has how the files are cut, and other versions make plans that this one may not accept. The
 * caller closes the source also after an error. */
enum mics_status mics_shard_source_open(const char *path, struct mics_shard_source *out,
                                        struct mics_err *err);
void mics_shard_source_close(struct mics_shard_source *source); /* all zeros is fine */

/* The shards of a checkpoint to write. Those of one kind of unit share sections and header. */
struct mics_shard_target {
    struct mics_target target;
    struct mics_section *sections[MICS_UNIT_KIND_COUNT];
    char *headers[MICS_UNIT_KIND_COUNT];
};

enum mics_status mics_shard_target_new(const struct mics_ckpt_layout *form,
                                       struct mics_shard_target *out, struct mics_err *err);
void mics_shard_target_free(struct mics_shard_target *target); /* all zeros is fine */

/* Write the manifest of the files that mics_target_write() wrote. `manifest` has everything but the
 * files. */
enum mics_status mics_shard_target_write_manifest(const struct mics_shard_target *target,
                                                  const struct mics_ckpt_layout *form,
                                                  struct mics_manifest *manifest,
                                                  struct mics_output_folder *folder,
                                                  struct mics_err *err);

#endif
