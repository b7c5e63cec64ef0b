/* SPDX-License-Identifier: Apache-2.0 */
/* convert_model.h - a model on disk in either form: a checkpoint of shards, or files of Hugging Face. */
#ifndef MICS_CKPT_CONVERT_MODEL_H
#define MICS_CKPT_CONVERT_MODEL_H

#include "base/diagnostics.h"
#include "ckpt/convert/shards.h"
#include "ckpt/hf/hf.h"

/* Not to be moved. */
struct mics_disk_model {
    bool is_hf;
    struct mics_shard_source shards;
    struct mics_hf hf;
    struct mics_model *own; /* of a folder's config.json, or NULL */
};

/* What `path` is, by what is in it. Closed by the caller in any case. */
enum mics_status mics_disk_model_open(const char *path, struct mics_diagnostics *diagnostics,
                                      struct mics_disk_model *out, struct mics_err *err);
void mics_disk_model_close(struct mics_disk_model *model); /* of zeros is fine */

/* Read config.json, if it is a folder that has one: only then its model is known. */
enum mics_status mics_disk_model_config(struct mics_disk_model *out, struct mics_err *err);

/* Its model: the checkpoint's own, or of config.json; NULL: not known. */
const struct mics_model *mics_disk_model_of(const struct mics_disk_model *model);

/* States that it has: 1 for Hugging Face. */
uint32_t mics_disk_model_states(const struct mics_disk_model *model);

/* Give its store the spaces of `model`, which must be its own; messages call that of `model_name`. */
enum mics_status mics_disk_model_match(struct mics_disk_model *disk, const struct mics_model *model,
                                       const char *model_name, struct mics_diagnostics *diagnostics,
                                       const struct mics_store **store, struct mics_err *err);

#endif
