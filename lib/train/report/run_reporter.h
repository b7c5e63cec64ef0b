/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_reporter.h - where rank 0 tells of a run: lines for people, lines of metrics.
 */
#ifndef MICS_TRAIN_REPORT_RUN_REPORTER_H
#define MICS_TRAIN_REPORT_RUN_REPORTER_H

#include "train/job.h"

#include <stdio.h>

struct mics_desk {
    const struct mics_run *run;
    FILE *out; /* for people; NULL: nothing */
    struct mics_metrics *metrics;
    uint64_t log_every; /* steps between lines; the first and the last always have one */
    bool named;         /* the columns */
};

/* Open the metrics (path NULL: none; appended to when the run was resumed), and tell how the run
 * begins. run, out and log_every are set by the caller. */
enum mics_status mics_desk_open(struct mics_desk *desk, const struct mics_job *job,
                                const char *metrics, struct mics_err *err);
/* How it ended. */
enum mics_status mics_desk_end(struct mics_desk *desk, enum mics_run_end end, struct mics_err *err);
/* Of zeros is fine. */
enum mics_status mics_desk_close(struct mics_desk *desk, struct mics_err *err);

/* The observer that tells the rest; `desk` must stay. */
struct mics_run_observer mics_desk_observer(struct mics_desk *desk);

#endif
