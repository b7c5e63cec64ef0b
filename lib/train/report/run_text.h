/* SPDX-License-Identifier: Apache-2.0 */
/* run_text.h - what rank 0 prints of a run for people. */
#ifndef MICS_TRAIN_REPORT_RUN_TEXT_H
#define MICS_TRAIN_REPORT_RUN_TEXT_H

#include "report/plan_check.h"
#include "train/run.h"

#include <stdio.h>

/* Model, data, ranks, strategy, device and memory. */
enum mics_status mics_run_text_begin(FILE *out, const struct mics_run *run,
                                     const struct mics_device *device, const struct mics_comm *comm,
                                     unsigned threads, struct mics_err *err);

/* The table of steps: at most 79 columns, and of models with experts four more columns of numbers.
 * `remaining_s`: to the last step; NAN: not known. */
void mics_run_text_step_header(FILE *out, const struct mics_step_record *record);
void mics_run_text_step(FILE *out, const struct mics_step_record *record, double epoch,
                        double remaining_s);

/* Steps, mean loss, communication exposed and hidden (`verbose`: and its CPU time), the
 * checkpoint's path. */
void mics_run_text_end(FILE *out, const struct mics_run *run, bool verbose);

#endif
