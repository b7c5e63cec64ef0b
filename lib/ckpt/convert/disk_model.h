/* SPDX-License-Identifier: Apache-2.0 */
/* disk_model.h - a model on disk in either form: a sharded checkpoint or Hugging Face files. */
#ifndef MICS_CKPT_CONVERT_MODEL_H
#define MICS_CKPT_CONVERT_MODEL_H

#include "base/diagnostics.h"
#include "ckpt/convert/shards.h"
#include "ckpt/hf/hf.h"

/* Must not be moved. */
struct mics_disk_model {
    bool is_hf;
    struct mics_shard_source shards;
    struct mics_hf hf;
    struct mics_model *own; /* of config.json, or NULL */
};

/* Open `path`, in the form that its contents have. The caller closes the model also after an
 * error. */
enum mics_status mics_disk_model_open(const char *path, struct mics_diagnostics *diagnostics,
                                      struct mics_disk_model *out, struct mics_err *err);
void mics_disk_model_close(struct mics_disk_model *model); /* all zeros is fine */

/* Read config.json if there is one: without it the model of Hugging Face files is not known. */
enum mics_status mics_disk_model_config(struct mics_disk_model *out, struct mics_err *err);

/* The model: of the checkpoint's manifest, or of config.json. NULL: not known. */
const struct mics_model *mics_disk_model_of(const struct mics_disk_model *model);

/* States of each parameter: 1 for Hugging Face files. */
uint32_t mics_disk_model_states(const struct mics_disk_model *model);

/* *store = the files' numbers, with the vectors of `model`, which must be the model on disk:
 * MICS_ERR_FORMAT if a tensor is missing or differs. Messages call it `model_name`. */
enum mics_status mics_disk_model_match(struct mics_disk_model *disk, const struct mics_model *model,
                                       const char *model_name, struct mics_diagnostics *diagnostics,
                                       const struct mics_store **store, struct mics_err *err);

/* MICS_ERR_FORMAT, naming the first difference, unless two models compute the same. */
enum mics_status mics_models_match(const struct mics_model *a, const char *a_name,
                                   const struct mics_model *b, const char *b_name,
                                   struct mics_err *err);

#endif
