/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics_summary.c - a run in one document: for each field its first, last, least, greatest and middle
 * value, and a curve of at most CURVE means over equal stretches of steps.
 */
#include "doc/doc.h"
#include "train/report/metrics_read.h"

#include <math.h>
#include <stdlib.h>

enum { CURVE = 10, LAST = 50 };

/* null of what is not finite, since documents hold finite numbers only. */
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* Mean of a field over steps [begin, end), of those that have it; NaN if none has. */
static double mean_of(const struct mics_metrics_log *log, uint32_t field, size_t begin, size_t end)
{
    double sum = 0;
    size_t count = 0;

    for (size_t i = begin; i < end; i++) {
        const double value = log->steps[i].values[field];

        if (!isnan(value)) {
            sum += value;
            count++;
        }
    }
    return count ? sum / (double)count : NAN;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The values that are there, in order of steps; returns their number. */
static size_t collect(const struct mics_metrics_log *log, uint32_t field, double *values)
{
    size_t count = 0;

    for (size_t i = 0; i < log->step_count; i++)
        if (!isnan(log->steps[i].values[field]))
            values[count++] = log->steps[i].values[field];
    return count;
}

/* `values` is room for step_count numbers. NULL: out of memory. */
static json_t *describe_field(const struct mics_metrics_log *log, uint32_t field, double *values)
{
    const size_t count = collect(log, field, values);
    const size_t recent = log->step_count > LAST ? log->step_count - LAST : 0;
    const double first = count ? values[0] : NAN;
    const double last = count ? values[count - 1] : NAN;

    qsort(values, count, sizeof *values, compare);
    return json_pack("{s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "name",
                     mics_metrics_field_name(field), "count", (json_int_t)count, "first",
                     number(first), "last", number(last), "min", number(count ? values[0] : NAN),
                     "median", number(count ? values[count / 2] : NAN), "max",
                     number(count ? values[count - 1] : NAN), "last_50",
                     number(mean_of(log, field, recent, log->step_count)));
}

static json_t *describe_fields(const struct mics_metrics_log *log)
{
    double *values = calloc(log->step_count + 1, sizeof *values);
    json_t *fields = json_array();

    for (uint32_t i = 0; i < MICS_METRICS_FIELDS && values && fields; i++) {
        if (json_array_append_new(fields, describe_field(log, i, values)) != 0) {
            json_decref(fields);
            fields = NULL;
        }
    }
    if (!values) {
        json_decref(fields);
        fields = NULL;
    }
    free(values);
    return fields;
}

/* The last validation loss among steps first..last, or NaN. */
static double val_loss_in(const struct mics_metrics_log *log, uint64_t first, uint64_t last)
{
    double loss = NAN;

    for (size_t i = 0; i < log->val_count; i++)
        if (log->vals[i].step >= first && log->vals[i].step <= last)
            loss = log->vals[i].loss;
    return loss;
}

/* Means over steps [begin, end), at least one. */
static json_t *describe_stretch(const struct mics_metrics_log *log, size_t begin, size_t end)
{
    const uint64_t first = log->steps[begin].step, last = log->steps[end - 1].step;
    json_t *point = json_pack("{s:I, s:I, s:o}", "first", (json_int_t)first, "last",
                              (json_int_t)last, "val_loss", number(val_loss_in(log, first, last)));

    for (uint32_t i = 0; i < MICS_METRICS_FIELDS; i++) {
        if (json_object_set_new(point, mics_metrics_field_name(i),
                                number(mean_of(log, i, begin, end))) != 0) {
            json_decref(point);
            return NULL;
        }
    }
    return point;
}

static json_t *describe_curve(const struct mics_metrics_log *log)
{
    const size_t points = log->step_count < CURVE ? log->step_count : CURVE;
    json_t *curve = json_array();

    for (size_t i = 0; i < points && curve; i++) {
        json_t *point =
            describe_stretch(log, i * log->step_count / points, (i + 1) * log->step_count / points);

        if (json_array_append_new(curve, point) != 0) {
            json_decref(curve);
            return NULL;
        }
    }
    return curve;
}

/* The lowest and the last validation loss. */
static json_t *describe_validation(const struct mics_metrics_log *log)
{
    struct mics_metrics_val best = {.loss = NAN}, last = {.loss = NAN};

    for (size_t i = 0; i < log->val_count; i++) {
        last = log->vals[i];
        if (isnan(best.loss) || last.loss < best.loss)
            best = last;
    }
    return json_pack("{s:I, s:I, s:o, s:I, s:o}", "count", (json_int_t)log->val_count, "best_step",
                     (json_int_t)best.step, "best_loss", number(best.loss), "last_step",
                     (json_int_t)last.step, "last_loss", number(last.loss));
}

/* An event without its name; a copy. */
static json_t *describe_event(const json_t *event)
{
    json_t *copy;

    if (!event)
        return json_null();
    copy = json_copy((json_t *)(uintptr_t)event);
    if (copy)
        json_object_del(copy, "event");
    return copy;
}

enum mics_status mics_metrics_to_doc(const struct mics_metrics_log *log, json_t **out,
                                     struct mics_err *err)
{
    json_t *doc = mics_doc_new(MICS_METRICS_KIND, MICS_METRICS_VERSION);
    const struct {
        const char *key;
        json_t *value;
    } members[] = {
        {"runs", json_integer((json_int_t)log->runs)},
        {"steps", json_integer((json_int_t)log->step_count)},
        {"last_line_cut", json_boolean(log->cut)},
        {"fields", describe_fields(log)},
        {"curve", describe_curve(log)},
        {"validation", describe_validation(log)},
        {"checkpoints", json_integer((json_int_t)log->checkpoints)},
        {"checkpoint", describe_event(log->checkpoint)},
        {"run", describe_event(log->run)},
        {"end", describe_event(log->end)},
    };
    bool failed = doc == NULL;

    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        failed |= json_object_set_new(doc, members[i].key, members[i].value) != 0;
    if (failed) {
        json_decref(doc);
        return mics_err_nomem(err);
    }
    *out = doc;
    return MICS_OK;
}
