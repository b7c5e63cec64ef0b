/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics_read.h - the metrics of a run (metrics.h tells their lines), read back and summed up.
 */
#ifndef MICS_TRAIN_REPORT_METRICS_READ_H
#define MICS_TRAIN_REPORT_METRICS_READ_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

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
