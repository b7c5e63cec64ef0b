/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics_summary.c - reads the metrics of a run, sums them up in a document, and prints that
 * document.
 *
 * The summary has the first, last, least, greatest and median value of each field, and a curve of
 * at most CURVE_POINTS means over equal ranges of steps.
 */
#include "train/report/metrics.h"

#include "doc/cursor.h"
#include "doc/doc.h"
#include "doc/table.h"
#include "doc/tree_print.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CURVE_POINTS = 10, RECENT_STEPS = 50 };

/* The numbers of a step's line. */
static const char *const field_names[] = {
    "loss",       "lr",      "grad_norm",  "step_ms",   "tokens_per_s",
    "compute_ms", "comm_ms", "exposed_ms", "hidden_ms",
};

enum { FIELD_COUNT = sizeof field_names / sizeof *field_names };

/* A value is NaN if the line has null or no such member. */
struct step {
    uint64_t step;
    double values[FIELD_COUNT];
};

struct validation {
    uint64_t step;
    double loss; /* NaN: null */
};

/* All runs that were appended to the file, in order. Of a step that was repeated after a resume
 * only the last repetition is kept. */
struct log {
    struct step *steps;
    size_t step_count;
    struct validation *vals;
    size_t val_count;
    uint64_t runs, checkpoints;
    json_t *run, *checkpoint, *end; /* the last event of each kind, or NULL */
    bool last_line_truncated;
};

bool mics_metrics_recognize(const char *data, size_t size)
{
    struct mics_lines lines = mics_lines_begin(data, size);
    json_t *line = NULL;
    bool is_metrics;

    if (mics_lines_next(&lines, &line, NULL) != MICS_OK)
        return false;
    is_metrics = json_is_string(json_object_get(line, "event")) && !json_object_get(line, "kind");
    json_decref(line);
    return is_metrics;
}

/* Grow the array, whose capacity is a power of two, to hold one more item of `size` bytes. NULL:
 * out of memory; the array is unchanged. */
static void *grow(void *array, size_t count, size_t size)
{
    if (array && (count == 0 || (count & (count - 1))))
        return array;
    return realloc(array, (count ? 2 * count : 1) * size);
}

/* A number; NaN if it is null or missing. */
static enum mics_status read_number(const struct mics_cursor *line, const char *key, double *out,
                                    struct mics_err *err)
{
    *out = NAN;
    if (!mics_cursor_has(line, key))
        return MICS_OK;
    return mics_cursor_double(line, key, -INFINITY, INFINITY, out, err);
}

static enum mics_status read_step(const struct mics_cursor *line, struct log *log,
                                  struct mics_err *err)
{
    struct step step, *grown;
    enum mics_status status = mics_cursor_u64(line, "step", 0, INT64_MAX, &step.step, err);

    for (uint32_t i = 0; i < FIELD_COUNT && status == MICS_OK; i++)
        status = read_number(line, field_names[i], &step.values[i], err);
    if (status != MICS_OK)
        return status;
    while (log->step_count > 0 && log->steps[log->step_count - 1].step >= step.step)
        log->step_count--;
    grown = grow(log->steps, log->step_count, sizeof *log->steps);
    if (!grown)
        return mics_err_nomem(err);
    log->steps = grown;
    log->steps[log->step_count++] = step;
    return MICS_OK;
}

static enum mics_status read_val(const struct mics_cursor *line, struct log *log,
                                 struct mics_err *err)
{
    struct validation val, *grown;
    enum mics_status status = mics_cursor_u64(line, "step", 0, INT64_MAX, &val.step, err);

    if (status == MICS_OK)
        status = read_number(line, "loss", &val.loss, err);
    if (status != MICS_OK)
        return status;
    while (log->val_count > 0 && log->vals[log->val_count - 1].step >= val.step)
        log->val_count--;
    grown = grow(log->vals, log->val_count, sizeof *log->vals);
    if (!grown)
        return mics_err_nomem(err);
    log->vals = grown;
    log->vals[log->val_count++] = val;
    return MICS_OK;
}

static void keep_event(json_t **event, const struct mics_cursor *line)
{
    json_decref(*event);
    *event = json_incref((json_t *)(uintptr_t)line->value);
}

static enum mics_status read_line(const struct mics_cursor *line, struct log *log,
                                  struct mics_err *err)
{
    const char *event;
    const enum mics_status status = mics_cursor_string(line, "event", &event, err);

    if (status != MICS_OK)
        return status;
    if (strcmp(event, "step") == 0)
        return read_step(line, log, err);
    if (strcmp(event, "val") == 0)
        return read_val(line, log, err);
    if (strcmp(event, "run") == 0) {
        log->runs++;
        keep_event(&log->run, line);
    } else if (strcmp(event, "checkpoint") == 0) {
        log->checkpoints++;
        keep_event(&log->checkpoint, line);
    } else if (strcmp(event, "end") == 0) {
        keep_event(&log->end, line);
    }
    return MICS_OK;
}

static void log_fini(struct log *log)
{
    free(log->steps);
    free(log->vals);
    json_decref(log->run);
    json_decref(log->checkpoint);
    json_decref(log->end);
    *log = (struct log){0};
}

/* Events of other kinds are skipped: a newer program may have written them. */
static enum mics_status read_log(const char *data, size_t size, struct log *out,
                                 struct mics_err *err)
{
    struct mics_lines lines = mics_lines_begin(data, size);
    struct log log = {0};
    enum mics_status status;
    json_t *line = NULL;

    while ((status = mics_lines_next(&lines, &line, err)) == MICS_OK && line) {
        const struct mics_cursor root = mics_cursor_root(line);

        status = read_line(&root, &log, err);
        json_decref(line);
        if (status != MICS_OK) {
            mics_err_prefix(err, "line %zu", lines.number);
            break;
        }
    }
    if (status != MICS_OK) {
        log_fini(&log);
        return status;
    }
    log.last_line_truncated = lines.truncated;
    *out = log;
    return MICS_OK;
}

/* Mean of a field over those of the steps [begin, end) that have it; NaN if none has. */
static double mean_of(const struct log *log, uint32_t field, size_t begin, size_t end)
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
static size_t collect(const struct log *log, uint32_t field, double *values)
{
    size_t count = 0;

    for (size_t i = 0; i < log->step_count; i++)
        if (!isnan(log->steps[i].values[field]))
            values[count++] = log->steps[i].values[field];
    return count;
}

/* `values` is scratch space for step_count numbers. NULL: out of memory, here and below. */
static json_t *describe_field(const struct log *log, uint32_t field, double *values)
{
    const size_t count = collect(log, field, values);
    const size_t recent = log->step_count > RECENT_STEPS ? log->step_count - RECENT_STEPS : 0;
    const double first = count ? values[0] : NAN;
    const double last = count ? values[count - 1] : NAN;

    qsort(values, count, sizeof *values, compare);
    return json_pack("{s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "name", field_names[field],
                     "count", (json_int_t)count, "first", mics_metrics_number(first), "last",
                     mics_metrics_number(last), "min", mics_metrics_number(count ? values[0] : NAN),
                     "median", mics_metrics_number(count ? values[count / 2] : NAN), "max",
                     mics_metrics_number(count ? values[count - 1] : NAN), "last_50",
                     mics_metrics_number(mean_of(log, field, recent, log->step_count)));
}

static json_t *describe_fields(const struct log *log)
{
    double *values = calloc(log->step_count + 1, sizeof *values);
    json_t *fields = json_array();

    for (uint32_t i = 0; i < FIELD_COUNT && values && fields; i++) {
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
static double val_loss_in(const struct log *log, uint64_t first, uint64_t last)
{
    double loss = NAN;

    for (size_t i = 0; i < log->val_count; i++)
        if (log->vals[i].step >= first && log->vals[i].step <= last)
            loss = log->vals[i].loss;
    return loss;
}

/* Means over steps [begin, end), at least one. */
static json_t *describe_range(const struct log *log, size_t begin, size_t end)
{
    const uint64_t first = log->steps[begin].step, last = log->steps[end - 1].step;
    json_t *point =
        json_pack("{s:I, s:I, s:o}", "first", (json_int_t)first, "last", (json_int_t)last,
                  "val_loss", mics_metrics_number(val_loss_in(log, first, last)));

    for (uint32_t i = 0; i < FIELD_COUNT; i++) {
        if (json_object_set_new(point, field_names[i],
                                mics_metrics_number(mean_of(log, i, begin, end))) != 0) {
            json_decref(point);
            return NULL;
        }
    }
    return point;
}

static json_t *describe_curve(const struct log *log)
{
    const size_t points = log->step_count < CURVE_POINTS ? log->step_count : CURVE_POINTS;
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
static json_t *describe_validation(const struct log *log)
{
    struct validation best = {.loss = NAN}, last = {.loss = NAN};

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

static enum mics_status log_to_doc(const struct log *log, json_t **out, struct mics_err *err)
{
    json_t *doc = mics_doc_new(MICS_METRICS_KIND, MICS_METRICS_VERSION);
    const struct {
        const char *key;
        json_t *value;
    } members[] = {
        {"runs", json_integer((json_int_t)log->runs)},
        {"steps", json_integer((json_int_t)log->step_count)},
        {"last_line_cut", json_boolean(log->last_line_truncated)},
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

enum mics_status mics_metrics_summarize(const char *data, size_t size, json_t **out,
                                        struct mics_err *err)
{
    struct log log;
    enum mics_status status = read_log(data, size, &log, err);

    if (status != MICS_OK)
        return status;
    status = log_to_doc(&log, out, err);
    log_fini(&log);
    return status;
}

/* A number with six digits for people; "-" for null. */
static void put_value(struct mics_table *table, const json_t *value, int tsv)
{
    if (json_is_real(value) && !tsv)
        mics_table_cell(table, "%.6g", json_real_value(value));
    else
        mics_tree_print_cell(table, json_is_null(value) ? NULL : value);
}

/* One row for each item of the array `key`, one cell for each of the `count` members. */
static enum mics_status print_items(FILE *out, const struct mics_cursor *root, const char *key,
                                    struct mics_table *table, const char *const *members,
                                    size_t count, int tsv, struct mics_err *err)
{
    struct mics_cursor items, item;
    enum mics_status status = mics_cursor_array(root, key, 0, 1000, &items, err);

    for (size_t i = 0; status == MICS_OK && i < mics_cursor_count(&items); i++) {
        status = mics_cursor_item(&items, i, &item, err);
        for (size_t k = 0; status == MICS_OK && k < count; k++)
            put_value(table, json_object_get(item.value, members[k]), tsv);
    }
    if (status != MICS_OK) {
        mics_table_free(table);
        return status;
    }
    fputc('\n', out);
    return mics_table_finish(table, out, tsv, err);
}

static enum mics_status print_fields(FILE *out, const struct mics_cursor *root, int tsv,
                                     struct mics_err *err)
{
    static const char *const members[] = {"name",   "first", "last",   "min",
                                          "median", "max",   "last_50"};
    struct mics_table *table = mics_table_new(
        tsv ? "field|first|last|min|median|max|last_50"
            : "<of all steps|>first|>last|>least|>median|>greatest|>mean of last 50");

    return print_items(out, root, "fields", table, members, sizeof members / sizeof *members, tsv,
                       err);
}

static enum mics_status print_curve(FILE *out, const struct mics_cursor *root, int tsv,
                                    struct mics_err *err)
{
    static const char *const members[] = {"first", "last",      "loss",    "val_loss",
                                          "lr",    "grad_norm", "step_ms", "tokens_per_s"};
    struct mics_table *table = mics_table_new(
        tsv ? "first|last|loss|val_loss|lr|grad_norm|step_ms|tokens_per_s"
            : ">from step|>to step|>loss|>validation|>lr|>gradient norm|>ms per step|>tokens/s");

    return print_items(out, root, "curve", table, members, sizeof members / sizeof *members, tsv,
                       err);
}

/* The other members of the document. */
static enum mics_status print_members(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    static const char *const shown[] = {"steps",       "runs",       "last_line_cut", "validation",
                                        "checkpoints", "checkpoint", "run",           "end"};
    struct mics_table *table = mics_table_new("<|<");

    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        const json_t *value = json_object_get(doc, shown[i]);

        if (value && !json_is_null(value))
            mics_tree_print_rows(table, shown[i], value, tsv);
    }
    return mics_table_finish(table, out, tsv, err);
}

enum mics_status mics_metrics_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    const struct mics_cursor root = mics_cursor_root(doc);
    enum mics_status status = mics_doc_expect(doc, MICS_METRICS_KIND, MICS_METRICS_VERSION, err);

    if (status == MICS_OK)
        status = print_members(out, doc, tsv, err);
    if (status == MICS_OK)
        status = print_fields(out, &root, tsv, err);
    if (status == MICS_OK)
        status = print_curve(out, &root, tsv, err);
    return status;
}
