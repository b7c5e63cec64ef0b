/* SPDX-License-Identifier: Apache-2.0 */
/* job_pace.h - the times that a paced job keeps. */
#ifndef MICS_TRAIN_JOB_PACE_H
#define MICS_TRAIN_JOB_PACE_H

#include "train/job.h"

/* Fill in job->pace, of the plan that options->pace names or of the job's own. Nothing is done unless
 * options->paced. The plan and the control communicator must be there. Collective. */
enum mics_status mics_job_open_pace(struct mics_job *job, struct mics_err *err);

#endif
