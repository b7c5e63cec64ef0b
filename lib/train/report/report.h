/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h - a training run as text for people.
 */
#ifndef MICS_TRAIN_REPORT_REPORT_H
#define MICS_TRAIN_REPORT_REPORT_H

#include "train/run.h"

#include <stdio.h>

/* Model, groups, data, the device of rank 0 with its communicator, and the memory table. `threads` of each rank. */
enum mics_status mics_report_begin(FILE *out, const struct mics_run *run,
                                   const struct mics_device *device, const struct mics_comm *comm,
                                   unsigned threads, struct mics_err *err);
/* One line a step: step, train loss, lr, grad norm, ms, tokens/s; `first` puts the names above it. */
void mics_report_step(FILE *out, const struct mics_step_record *record, bool first);
/* How it went: steps, mean loss, communication exposed and hidden, the checkpoint's path. */
void mics_report_end(FILE *out, const struct mics_run *run);

#endif
