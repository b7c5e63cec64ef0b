/* SPDX-License-Identifier: Apache-2.0 */
/* job_folder.h - the parts of opening a job that concern its shape and its output folder. */
#ifndef MICS_TRAIN_JOB_FOLDER_H
#define MICS_TRAIN_JOB_FOLDER_H

#include "train/job.h"

/* job->out, without trailing slashes. */
enum mics_status mics_job_name_folder(struct mics_job *job, struct mics_err *err);

/* MICS_ERR_FORMAT, with both shapes, unless the plan is for the ranks that there are. */
enum mics_status mics_job_check_shape(const struct mics_job *job, struct mics_err *err);

/* Make and lock the folder on rank 0; refuse one with checkpoints for a new run; check that all ranks see
 * it. Collective. */
enum mics_status mics_job_open_folder(struct mics_job *job, struct mics_err *err);

#endif
