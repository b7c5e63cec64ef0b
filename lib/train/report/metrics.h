/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics.h - what happened in a run, as JSON lines: one object a line, flushed.
 *
 *     {"event":"run", ...}   once, first
 *     {"event":"step","step":1,"loss":...,"lr":...,"grad_norm":...,"step_ms":...,"tokens_per_s":..., ...}
 *     {"event":"val","step":...,"loss":...,"tokens":...,"ms":...}
 *     {"event":"checkpoint","step":...,"path":...,"bytes":...,"ms":...}
 *     {"event":"end","step":...,"reason":"done", ...}
 *
 * A number that is not finite is null.
 */
#ifndef MICS_TRAIN_REPORT_METRICS_H
#define MICS_TRAIN_REPORT_METRICS_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* One step, as the run tells it. */
struct mics_step_record {
    uint64_t step;
    double loss, lr, grad_norm;
    double seconds, tokens_per_s;
    double compute_s, comm_s, exposed_s; /* of rank 0's timeline */
};

struct mics_metrics;

/* Write over the file, or append to it. NULL path: *out is NULL, and all calls do nothing. Errors
 * begin with the path. */
enum mics_status mics_metrics_open(const char *path, bool append, struct mics_metrics **out,
                                   struct mics_err *err);
enum mics_status mics_metrics_close(struct mics_metrics *metrics, struct mics_err *err);

/* Allocates nothing. */
enum mics_status mics_metrics_step(struct mics_metrics *metrics,
                                   const struct mics_step_record *record, struct mics_err *err);
/* Write an object of any event; the reference is taken, NULL means out of memory. */
enum mics_status mics_metrics_event(struct mics_metrics *metrics, json_t *event,
                                    struct mics_err *err);

/*
 * metrics_read.h - the metrics of a run (metrics.h tells their lines), read back and summed up.
 */

#define MICS_METRICS_KIND    "mics.metrics"
#define MICS_METRICS_VERSION 1

/* What a step's line has besides its number; "loss", "grad_norm", ... */
#define MICS_METRICS_FIELDS 9
const char *mics_metrics_field_name(uint32_t field);

/* NaN where the line has null, or no such member. */
struct mics_metrics_step {
    uint64_t step;
    double values[MICS_METRICS_FIELDS];
};

struct mics_metrics_val {
    uint64_t step;
    double loss; /* NaN: null */
};

/* Of all runs that were appended to the file, in order; a step that was done again after a resume is there
 * once, as it went last. */
struct mics_metrics_log {
    struct mics_metrics_step *steps;
    size_t step_count;
    struct mics_metrics_val *vals;
    size_t val_count;
    uint64_t runs, checkpoints;
    json_t *run, *checkpoint, *end; /* the last of each, or NULL */
    bool cut;                       /* the last line is not whole */
};

/* Is it metrics: a JSON object with an "event" and no "kind" on the first line? */
bool mics_metrics_recognise(const char *data, size_t size);

/* Events of other names are passed over: newer programs may write them. */
enum mics_status mics_metrics_read(const char *data, size_t size, struct mics_metrics_log *out,
                                   struct mics_err *err);
void mics_metrics_log_fini(struct mics_metrics_log *log); /* of zeros is fine */

/* Sum up in a document mics.metrics, the caller's. */
enum mics_status mics_metrics_to_doc(const struct mics_metrics_log *log, json_t **out,
                                     struct mics_err *err);

/* The document as tables. */
enum mics_status mics_metrics_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err);

#endif
