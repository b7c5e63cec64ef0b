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
#include <stdint.h>

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

#endif
