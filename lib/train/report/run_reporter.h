/* SPDX-License-Identifier: Apache-2.0 */
/* run_reporter.h - what rank 0 prints for people and writes to the metrics during a run. */
#ifndef MICS_TRAIN_REPORT_RUN_REPORTER_H
#define MICS_TRAIN_REPORT_RUN_REPORTER_H

#include "train/job.h"

#include <stdio.h>

/* The caller sets run, out and log_every. */
struct mics_run_reporter {
    const struct mics_run *run;
    FILE *out; /* text for people; NULL: none */
    struct mics_metrics *metrics;
    uint64_t
        log_every; /* steps between printed lines; the first and the last step are always printed */
    bool header_printed; /* of the table of steps */
};

/* The plan that a run was started with last, in its folder. */
#define MICS_RUN_PLAN_NAME "plan.mp"

/* Open the metrics and report the beginning: model, groups, data, device and memory. `metrics_path`
 * NULL: MICS_METRICS_NAME in the run's folder, and beside it the plan; "": none. A resumed run
 * appends to its metrics. */
enum mics_status mics_run_reporter_open(struct mics_run_reporter *reporter,
                                        const struct mics_job *job, const char *metrics_path,
                                        struct mics_err *err);
/* Report the end: steps, mean loss, communication exposed and hidden, the checkpoint's path. */
enum mics_status mics_run_reporter_end(struct mics_run_reporter *reporter, enum mics_run_end end,
                                       struct mics_err *err);
/* All zeros is fine. */
enum mics_status mics_run_reporter_close(struct mics_run_reporter *reporter, struct mics_err *err);

/* The observer that reports steps, validations and checkpoints. `reporter` must outlive the run. */
struct mics_run_observer mics_run_reporter_observer(struct mics_run_reporter *reporter);

#endif
