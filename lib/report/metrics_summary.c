/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics_summary.c - sums up the metrics of a run in a document.
 *
 * The summary has the first, last, least, greatest and median value of each field, and a curve of
 * at most `curve_points` means over equal ranges of steps.
 */
#include "report/metrics.h"
#include "report/metrics_log.h"

#include "base/num.h"
#include "doc/doc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RECENT_STEPS = 50 };

json_t *mics_metrics_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* Mean of a field over those of the steps [begin, end) that have it; NaN if none has. */
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

/* The values of a field, in the order of the steps. Returns their number. */
static size_t collect(const struct mics_metrics_log *log, uint32_t field, double *values)
{
    size_t count = 0;

    for (size_t i = 0; i < log->step_count; i++)
        if (!isnan(log->steps[i].values[field]))
            values[count++] = log->steps[i].values[field];
    return count;
}

/* `values` is scratch space for step_count numbers. NULL: out of memory, here and below. */
static json_t *describe_field(const struct mics_metrics_log *log, uint32_t field, double *values)
{
    const size_t count = collect(log, field, values);
    const size_t recent = log->step_count > RECENT_STEPS ? log->step_count - RECENT_STEPS : 0;
    const double first = count ? values[0] : NAN;
    const double last = count ? values[count - 1] : NAN;

    qsort(values, count, sizeof *values, compare);
    return json_pack("{s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "name",
                     mics_metrics_field_names[field], "count", (json_int_t)count, "first",
                     mics_metrics_number(first), "last", mics_metrics_number(last), "min",
                     mics_metrics_number(count ? values[0] : NAN), "median",
                     mics_metrics_number(count ? values[count / 2] : NAN), "max",
                     mics_metrics_number(count ? values[count - 1] : NAN), "last_50",
                     mics_metrics_number(mean_of(log, field, recent, log->step_count)));
}

/* Is it a field of this run? */
static bool has_field(const struct mics_metrics_log *log, uint32_t field)
{
    return field < MICS_METRICS_SYNC_BYTES || !isnan(mean_of(log, field, 0, log->step_count));
}

static json_t *describe_fields(const struct mics_metrics_log *log)
{
    double *values = calloc(log->step_count + 1, sizeof *values);
    json_t *fields = json_array();

    for (uint32_t i = 0; i < MICS_METRICS_FIELDS && values && fields; i++) {
        if (has_field(log, i) &&
            json_array_append_new(fields, describe_field(log, i, values)) != 0) {
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
static json_t *describe_range(const struct mics_metrics_log *log, size_t begin, size_t end)
{
    const uint64_t first = log->steps[begin].step, last = log->steps[end - 1].step;
    json_t *point =
        json_pack("{s:I, s:I, s:o}", "first", (json_int_t)first, "last", (json_int_t)last,
                  "val_loss", mics_metrics_number(val_loss_in(log, first, last)));

    for (uint32_t i = 0; i < MICS_METRICS_FIELDS; i++) {
        if (has_field(log, i) &&
            json_object_set_new(point, mics_metrics_field_names[i],
                                mics_metrics_number(mean_of(log, i, begin, end))) != 0) {
            json_decref(point);
            return NULL;
        }
    }
    return point;
}

static json_t *describe_curve(const struct mics_metrics_log *log, size_t curve_points)
{
    const size_t points = mics_min_u64(log->step_count, curve_points);
    json_t *curve = json_array();

    for (size_t i = 0; i < points && curve; i++) {
        json_t *point =
            describe_range(log, i * log->step_count / points, (i + 1) * log->step_count / points);

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
    struct mics_metrics_validation best = {.loss = NAN}, last = {.loss = NAN};

    for (size_t i = 0; i < log->val_count; i++) {
        last = log->vals[i];
        if (isnan(best.loss) || last.loss < best.loss)
            best = last;
    }
    return json_pack("{s:I, s:I, s:o, s:I, s:o}", "count", (json_int_t)log->val_count, "best_step",
                     (json_int_t)best.step, "best_loss", mics_metrics_number(best.loss),
                     "last_step", (json_int_t)last.step, "last_loss",
                     mics_metrics_number(last.loss));
}

/* A copy of the event without its name. */
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

static enum mics_status log_to_doc(const struct mics_metrics_log *log, size_t curve_points,
                                   json_t **out, struct mics_err *err)
{
    json_t *doc = mics_doc_new(MICS_METRICS_KIND, MICS_METRICS_VERSION);
    const struct {
        const char *key;
        json_t *value;
    } members[] = {
        {"runs", json_integer((json_int_t)log->runs)},
        {"ends", json_integer((json_int_t)log->ends)},
        {"steps", json_integer((json_int_t)log->step_count)},
        {"bad_lines", json_integer((json_int_t)log->bad_lines)},
        {"first_bad_line", json_integer((json_int_t)log->first_bad_line)},
        {"last_line_cut", json_boolean(log->last_line_truncated)},
        {"fields", describe_fields(log)},
        {"curve", describe_curve(log, curve_points)},
        {"validation", describe_validation(log)},
        {"checkpoints", json_integer((json_int_t)log->checkpoints)},
        {"checkpoint", describe_event(log->checkpoint)},
        {"run", describe_event(log->run)},
        {"end", describe_event(log->end)},
        {"starts", log->starts ? json_incref(log->starts) : json_array()},
        {"slow", log->slow ? json_incref(log->slow) : json_array()},
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

enum mics_status mics_metrics_summarize(const char *data, size_t size, size_t curve_points,
                                        json_t **out, struct mics_err *err)
{
    struct mics_metrics_log log;
    enum mics_status status = mics_metrics_log_read(data, size, &log, err);

    if (status != MICS_OK)
        return status;
    status = log_to_doc(&log, curve_points, out, err);
    mics_metrics_log_fini(&log);
    return status;
}
