/* SPDX-License-Identifier: Apache-2.0 */
/* job_memory.h - a job's state in the memory of its nodes: found, loaded, kept and removed. */
#ifndef MICS_TRAIN_JOB_MEMORY_H
#define MICS_TRAIN_JOB_MEMORY_H

#include "train/job.h"

/* Find the state that the start before has left, unless the newest checkpoint is newer. If there is
 * one, its manifest becomes the job's checkpoint_doc. Collective. */
enum mics_status mics_job_find_memory(struct mics_job *job, struct mics_err *err);

/* Load the state that was found. Collective. */
enum mics_status mics_job_resume_memory(struct mics_job *job, struct mics_run *run,
                                        struct mics_err *err);

/* Remove what is not valid any more, and, if the run is to keep state, prepare that. Too little
 * memory is no error: nothing is kept then, and a note says why. Collective. */
enum mics_status mics_job_open_memory(struct mics_job *job, struct mics_run *run,
                                      struct mics_err *err);

/* The run has ended, and its state is on disk: remove that in memory. Collective. */
void mics_job_remove_memory(struct mics_job *job);

/* Free what was opened; the state stays. */
void mics_job_close_memory(struct mics_job *job);

#endif
