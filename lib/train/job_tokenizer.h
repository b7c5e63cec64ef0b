/* SPDX-License-Identifier: Apache-2.0 */
/* job_tokenizer.h - which tokenizer a job has, and whether it is that of what the job continues. */
#ifndef MICS_TRAIN_JOB_TOKENIZER_H
#define MICS_TRAIN_JOB_TOKENIZER_H

#include "train/job.h"

/* Open the tokenizer of the command line; else that of the checkpoint to resume, or of the model to
 * evaluate, if it has one. Collective. */
enum mics_status mics_job_open_tokenizer(struct mics_job *job, struct mics_err *err);

/* Once the data are open: set job->tokenizer, if the data, the checkpoint or the initial model say
 * which it is, and job->tokenizer_doc. MICS_ERR_FORMAT: it is not that of the checkpoint to resume,
 * or its ids are not those of the model to begin with. Collective. */
enum mics_status mics_job_match_tokenizer(struct mics_job *job, struct mics_err *err);

#endif
