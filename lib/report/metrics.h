/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics.h - the metrics of a run: JSON lines, one object a line, each flushed.
 *
 *     {"event":"run","time":..., ...,"after_step":...}
 *                            first, once for each start of the run, with Unix time; with "restart"
 *                            and "restart_reason" if mics-run started it again; "state_from" is
 *                            "memory", "disk" or "nothing"
 *     {"event":"step","step":1,"loss":...,"lr":...,"grad_norm":...,"step_ms":..., ...}
 *     {"event":"operations","step":1,"step_ms":...,"peak_rss_bytes":...,"operations":{...}}
 *                            of some steps, after their lines: times by class (plan/op_class.h)
 *     {"event":"val","step":...,"loss":...,"tokens":...,"ms":...}
 *     {"event":"checkpoint","step":...,"path":...,"bytes":...,"ms":...}
 *     {"event":"kept","step":...,"ms":...,"pause_ms":...,"copy_ms":...,"sent_bytes":...}
 *     {"event":"keep_failed","step":...,"error":...}
 *     {"event":"save_failed","step":...,"in_a_row":...,"error":...}
 *     {"event":"skipped","step":...,"in_a_row":...,"first_sample":...,"last_sample":...}
 *     {"event":"slow","step":...,"rank":...,"ranks":...,"host":...,"what":"computing","ms":...,
 *      "others_ms":...,"cost":...}
 *                            a rank, or several of a node, that all others have waited for; if
 *                            its network is slow "bytes_per_s" and "others_bytes_per_s" instead
 *     {"event":"end","step":...,"reason":"done", ...}
 *
 * A number that is not finite is null.
 */
#ifndef MICS_REPORT_METRICS_H
#define MICS_REPORT_METRICS_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Names of files in the folder of a run: its metrics, and the plan that it was started with
 * last. */
#define MICS_METRICS_NAME  "metrics.jsonl"
#define MICS_RUN_PLAN_NAME "plan.mp"

/* A number, or null if it is not finite. NULL: out of memory. */
json_t *mics_metrics_number(double value);

#define MICS_METRICS_KIND    "mics.metrics"
#define MICS_METRICS_VERSION 1

/* Are these bytes metrics: is the first line that can be read a JSON object with an "event" and no
 * "kind"? */
bool mics_metrics_recognize(const char *data, size_t size);

/* Sum up the lines in a document of the kind mics.metrics, which belongs to the caller. Lines that
 * cannot be read are counted in it and left out. `curve_points`: the most ranges of steps for which
 * it has means; a document has MICS_METRICS_CURVE, a picture more. */
enum { MICS_METRICS_CURVE = 10, MICS_METRICS_DRAWN = 2000 };
enum mics_status mics_metrics_summarize(const char *data, size_t size, size_t curve_points,
                                        json_t **out, struct mics_err *err);

/* Print that document as tables. */
enum mics_status mics_metrics_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err);

#endif
