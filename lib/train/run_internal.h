/* SPDX-License-Identifier: Apache-2.0 */
/* run_internal.h - the parts of a run: run.c has the loop. */
#ifndef MICS_TRAIN_RUN_INTERNAL_H
#define MICS_TRAIN_RUN_INTERNAL_H

#include "train/run.h"

/* Allocate what saving needs. Collective. */
enum mics_status mics_run_open_saver(struct mics_run *run, struct mics_err *err);

/* Begin a checkpoint of the present step, unless there is one; the one before it is finished first. Steps
 * must be collected. Collective; *told as in run.c. */
enum mics_status mics_run_save(struct mics_run *run, enum mics_status *told, struct mics_err *err);
/* Lead the save under way to its next stage, when no rank is busy with this one. Collective. */
enum mics_status mics_run_advance_save(struct mics_run *run, enum mics_status *told,
                                       struct mics_err *err);
/* Wait for it, if there is one, and agree on *told. Collective. */
enum mics_status mics_run_finish_save(struct mics_run *run, enum mics_status *told,
                                      struct mics_err *err);

/* Put the parameters of options->init in the place of the initial ones. Collective. */
enum mics_status mics_run_load_init(struct mics_run *run, struct mics_err *err);

/* What this run saves of its data and settings. */
json_t *mics_run_training_json(const struct mics_run *run);

#endif
