/* SPDX-License-Identifier: Apache-2.0 */
#include "report/metrics_log.h"

#include "doc/cursor.h"
#include "doc/doc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BAD_BEGIN 8 /* lines that cannot be read before a file is not taken for metrics */

const char *const mics_metrics_field_names[MICS_METRICS_FIELDS] = {
    "loss",
    "lr",
    "grad_norm",
    "step_ms",
    "tokens_per_s",
    "compute_ms",
    "comm_ms",
    "exposed_ms",
    "hidden_ms",
    "sync_bytes",
    "exact_sync_bytes",
    "aux_loss",
    "z_loss",
    "router_entropy",
    "expert_load",
    "rank_load",
    "dropped_share",
    "idle_experts",
};

bool mics_metrics_recognize(const char *data, size_t size)
{
    struct mics_lines lines = mics_lines_begin(data, size);
    json_t *line = NULL;
    bool is_metrics;

    while (mics_lines_next(&lines, &line, NULL) == MICS_ERR_FORMAT)
        if (lines.number >= MAX_BAD_BEGIN)
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

static void read_step(const struct mics_cursor *line, struct mics_metrics_log *log)
{
    struct mics_metrics_values step = {.step = mics_cursor_get_u64(line, "step", 0, INT64_MAX)};
    struct mics_metrics_values *grown;

    for (uint32_t i = 0; i < MICS_METRICS_FIELDS; i++)
        step.values[i] =
            mics_cursor_opt_double(line, mics_metrics_field_names[i], -INFINITY, INFINITY, NAN);
    if (!mics_cursor_ok(line))
        return;
    while (log->step_count > 0 && log->steps[log->step_count - 1].step >= step.step)
        log->step_count--;
    grown = grow(log->steps, log->step_count, sizeof *log->steps);
    if (!grown) {
        mics_cursor_nomem(line);
        return;
    }
    log->steps = grown;
    log->steps[log->step_count++] = step;
}

static void read_val(const struct mics_cursor *line, struct mics_metrics_log *log)
{
    struct mics_metrics_validation val = {.step = mics_cursor_get_u64(line, "step", 0, INT64_MAX)};
    struct mics_metrics_validation *grown;

    val.loss = mics_cursor_opt_double(line, "loss", -INFINITY, INFINITY, NAN);
    if (!mics_cursor_ok(line))
        return;
    while (log->val_count > 0 && log->vals[log->val_count - 1].step >= val.step)
        log->val_count--;
    grown = grow(log->vals, log->val_count, sizeof *log->vals);
    if (!grown) {
        mics_cursor_nomem(line);
        return;
    }
    log->vals = grown;
    log->vals[log->val_count++] = val;
}

static void keep_event(json_t **event, const struct mics_cursor *line)
{
    json_decref(*event);
    *event = json_incref((json_t *)(uintptr_t)line->value);
}

/* A member of an event, a new reference; null if it is of another type or missing. */
static json_t *member_of(const json_t *event, const char *key, json_type type)
{
    json_t *value = json_object_get(event, key);

    return value && json_typeof(value) == type ? json_incref(value) : json_null();
}

static enum mics_status read_start(const struct mics_cursor *line, struct mics_metrics_log *log,
                                   struct mics_err *err)
{
    const json_t *event = line->value;
    const size_t steps = log->step_count;
    json_t *last = steps > 0 ? json_integer((json_int_t)log->steps[steps - 1].step) : json_null();
    json_t *start = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "state_from",
                              member_of(event, "state_from", JSON_STRING), "time",
                              member_of(event, "time", JSON_INTEGER), "after_step",
                              member_of(event, "after_step", JSON_INTEGER), "restart",
                              member_of(event, "restart", JSON_INTEGER), "restart_reason",
                              member_of(event, "restart_reason", JSON_STRING), "ended",
                              member_of(log->end, "reason", JSON_STRING), "last_step", last);

    if (!log->starts)
        log->starts = json_array();
    return json_array_append_new(log->starts, start) == 0 ? MICS_OK : mics_err_nomem(err);
}

/* A rank that was slow. */
static enum mics_status read_slow(const struct mics_cursor *line, struct mics_metrics_log *log,
                                  struct mics_err *err)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)line->value);

    json_object_del(copy, "event");
    if (!log->slow)
        log->slow = json_array();
    return json_array_append_new(log->slow, copy) == 0 ? MICS_OK : mics_err_nomem(err);
}

static enum mics_status read_line(const json_t *value, struct mics_metrics_log *log,
                                  struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor line = mics_cursor_begin(value, &reading);
    const char *event = mics_cursor_get_string(&line, "event");

    if (strcmp(event, "step") == 0) {
        read_step(&line, log);
    } else if (strcmp(event, "val") == 0) {
        read_val(&line, log);
    } else if (strcmp(event, "run") == 0) {
        log->runs++;
        reading.status = read_start(&line, log, err);
        keep_event(&log->run, &line);
        json_decref(log->end);
        log->end = NULL; /* of the run before */
    } else if (strcmp(event, "checkpoint") == 0) {
        log->checkpoints++;
        keep_event(&log->checkpoint, &line);
    } else if (strcmp(event, "slow") == 0) {
        reading.status = read_slow(&line, log, err);
    } else if (strcmp(event, "end") == 0) {
        log->ends++;
        keep_event(&log->end, &line);
    }
    return reading.status;
}

void mics_metrics_log_fini(struct mics_metrics_log *log)
{
    free(log->steps);
    free(log->vals);
    json_decref(log->run);
    json_decref(log->checkpoint);
    json_decref(log->end);
    json_decref(log->starts);
    json_decref(log->slow);
    *log = (struct mics_metrics_log){0};
}

enum mics_status mics_metrics_log_read(const char *data, size_t size, struct mics_metrics_log *out,
                                       struct mics_err *err)
{
    struct mics_lines lines = mics_lines_begin(data, size);
    struct mics_metrics_log log = {0};
    enum mics_status status;
    json_t *line = NULL;

    while ((status = mics_lines_next(&lines, &line, err)) == MICS_ERR_FORMAT ||
           (status == MICS_OK && line)) {
        if (status == MICS_OK) {
            status = read_line(line, &log, err);
            json_decref(line);
        }
        if (status == MICS_ERR_FORMAT && log.bad_lines++ == 0)
            log.first_bad_line = lines.number;
        else if (status != MICS_OK && status != MICS_ERR_FORMAT)
            break;
    }
    if (status != MICS_OK) {
        mics_metrics_log_fini(&log);
        return status;
    }
    log.last_line_truncated = lines.truncated;
    *out = log;
    return MICS_OK;
}
