/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights.h - the parameters of a model on disk, all of them in memory in fp32: of a checkpoint of
 * any plan, or of a Hugging Face folder.
 */
#ifndef MICS_SAMPLE_WEIGHTS_H
#define MICS_SAMPLE_WEIGHTS_H

#include "ckpt/convert/disk_model.h"

/* [unit_count] flat vectors of zeros in fp32. MICS_ERR_NOMEM: with the bytes that the model
 * takes. */
enum mics_status mics_params_new(const struct mics_model *model, float ***out,
                                 struct mics_err *err);
void mics_params_free(const struct mics_model *model, float **params); /* NULL is fine */

/* Must not be moved. Callers only read. */
struct mics_weights {
    struct mics_disk_model disk;
    const struct mics_model *model; /* the disk's */
    float **params;                 /* [unit_count] flat vectors */
    char folder[MICS_PATH_MAX]; /* of the model's files: of a run, that of its latest checkpoint */
    char note[512];             /* for the user, about the files that were read; or empty */
};

/* Read all parameters, by as many threads as there are cores, after the sums of the files of a
 * checkpoint have been compared. MICS_ERR_FORMAT: one line for the first problem; a Hugging Face
 * folder without config.json. MICS_ERR_NOMEM: with the bytes that the model takes. The caller frees
 * also after an error. */
enum mics_status mics_weights_load(const char *path, struct mics_weights *out,
                                   struct mics_err *err);
void mics_weights_free(struct mics_weights *weights); /* all zeros is fine */

#endif
