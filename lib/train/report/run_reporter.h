/* SPDX-License-Identifier: Apache-2.0 */
/* run_reporter.h - what rank 0 prints for people and writes to the metrics during a run. */
#ifndef MICS_TRAIN_REPORT_RUN_REPORTER_H
#define MICS_TRAIN_REPORT_RUN_REPORTER_H

#include "report/plan_check.h"
#include "train/job.h"
#include "train/report/outputs.h"

#include <limits.h>
#include <stdio.h>

/* The caller sets run, out, is_terminal, verbose, log_every and warn; the rest is zero. */
struct mics_run_reporter {
    const struct mics_run *run;
    FILE *out;                      /* text for people; NULL: none */
    bool is_terminal;               /* and a person reads it */
    bool verbose;                   /* also print the CPU time of communication */
    uint64_t log_every;             /* steps between printed lines; 0: by time. The first and the
                                     * last step are always printed */
    void (*warn)(const char *text); /* of files that cannot be written; may be NULL */
    struct mics_plan *plan;
    struct mics_outputs outputs;
    struct mics_measured measured;
    bool header_printed; /* of the table of steps */
    double first_end_s, step_end_s, printed_s;
    double mean_step_s; /* of the last steps, with what is between them */
    char folder[PATH_MAX], metrics_path[MICS_PATH_MAX];
};

/* Where to write what; outlives the reporter. */
struct mics_run_reporter_paths {
    const char *metrics;     /* NULL: MICS_METRICS_NAME in the run's folder, and beside it the plan;
                              * "": none */
    const char *tensorboard; /* folder; NULL: none */
    const char *prometheus;  /* file; NULL: none */
};

/* Open the files and report the beginning: model, groups, data, device and memory. A resumed run
 * appends to its metrics. A file that cannot be written is no failure (outputs.h). */
enum mics_status mics_run_reporter_open(struct mics_run_reporter *reporter,
                                        const struct mics_job *job,
                                        const struct mics_run_reporter_paths *paths,
                                        struct mics_err *err);
/* Report the end: steps, mean loss, communication exposed and hidden, the checkpoint's path, and
 * what was predicted of a step and measured. */
enum mics_status mics_run_reporter_end(struct mics_run_reporter *reporter, enum mics_run_end end,
                                       struct mics_err *err);
/* All zeros is fine. */
void mics_run_reporter_close(struct mics_run_reporter *reporter);

/* The observer that reports steps, validations and checkpoints. `reporter` must outlive the run. */
struct mics_run_observer mics_run_reporter_observer(struct mics_run_reporter *reporter);

#endif
