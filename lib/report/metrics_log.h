/* SPDX-License-Identifier: Apache-2.0 */
/* metrics_log.h - the metrics of a run, read: every step and every validation. */
#ifndef MICS_REPORT_METRICS_LOG_H
#define MICS_REPORT_METRICS_LOG_H

#include "report/metrics.h"

/* The numbers of a step's line, and their names there. */
enum mics_metrics_field {
    MICS_METRICS_LOSS,
    MICS_METRICS_LR,
    MICS_METRICS_GRAD_NORM,
    MICS_METRICS_STEP_MS,
    MICS_METRICS_TOKENS_PER_S,
    MICS_METRICS_COMPUTE_MS,
    MICS_METRICS_COMM_MS,
    MICS_METRICS_EXPOSED_MS,
    MICS_METRICS_HIDDEN_MS,
    MICS_METRICS_SYNC_BYTES, /* this and the next: only of second hops that are not exact */
    MICS_METRICS_EXACT_SYNC_BYTES,
    MICS_METRICS_AUX_LOSS, /* this and the following: only of models with experts */
    MICS_METRICS_Z_LOSS,
    MICS_METRICS_ROUTER_ENTROPY,
    MICS_METRICS_EXPERT_LOAD,
    MICS_METRICS_RANK_LOAD,     /* where experts are cut over ranks */
    MICS_METRICS_DROPPED_SHARE, /* where experts have a capacity */
    MICS_METRICS_IDLE_EXPERTS,
    MICS_METRICS_FIELDS
};
extern const char *const mics_metrics_field_names[MICS_METRICS_FIELDS];

/* A value is NaN if the line has null or no such member. */
struct mics_metrics_values {
    uint64_t step;
    double values[MICS_METRICS_FIELDS];
};

struct mics_metrics_validation {
    uint64_t step;
    double loss; /* NaN: null */
};

/* All runs that were appended to the file, in order. Only the last repetition of a step that
 * was repeated after a resume is kept. */
struct mics_metrics_log {
    struct mics_metrics_values *steps;
    size_t step_count;
    struct mics_metrics_validation *vals;
    size_t val_count;
    uint64_t runs, ends, checkpoints; /* a run that was killed has no end */
    json_t *run, *checkpoint, *end;   /* the last event of each kind, or NULL */
    /* An object for each start: "time", "after_step", "state_from", "restart" and "restart_reason"
     * as in its event "run", and of the start before it "ended" (the reason in its event "end") and
     * "last_step"; null: not known. */
    json_t *starts;
    json_t *slow; /* the events of this name, without it; NULL: none */
    bool last_line_truncated;
    uint64_t bad_lines, first_bad_line; /* that cannot be read and are left out; 0: none */
};

/* Read the lines. Events of unknown kinds are skipped: a newer program may have written them. *out
 * is the caller's, to mics_metrics_log_fini(). */
enum mics_status mics_metrics_log_read(const char *data, size_t size, struct mics_metrics_log *out,
                                       struct mics_err *err);
void mics_metrics_log_fini(struct mics_metrics_log *log);

#endif
