/* SPDX-License-Identifier: Apache-2.0 */
/* job_memory.h - a job's state in the memory of its nodes: found, loaded, kept and removed. */
#ifndef MICS_TRAIN_JOB_MEMORY_H
#define MICS_TRAIN_JOB_MEMORY_H

#include "train/job.h"

/* Find the in-memory checkpoint of the previous start, unless the newest checkpoint on disk is
 * newer. If there is one, its manifest becomes the job's checkpoint_doc. Collective. */
enum mics_status mics_job_find_memory(struct mics_job *job, struct mics_err *err);

/* Load the state that was found. Collective. */
enum mics_status mics_job_resume_memory(struct mics_job *job, struct mics_run *run,
                                        struct mics_err *err);

/* Remove in-memory checkpoints that are no longer valid, and prepare new ones if the run is to
 * write them. Too little memory is not an error: none is written then, and a note says why.
 * Collective. */
enum mics_status mics_job_open_memory(struct mics_job *job, struct mics_run *run,
                                      struct mics_err *err);

/* The run has ended, and its state is on disk: remove that in memory. Collective. */
void mics_job_remove_memory(struct mics_job *job);

/* Free what was opened; the state stays. */
void mics_job_close_memory(struct mics_job *job);

#endif
