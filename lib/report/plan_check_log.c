/* SPDX-License-Identifier: Apache-2.0 */
/* plan_check_log.c - reads the metrics and the plan of a run, to compare them. */
#include "report/plan_check.h"

#include "base/file.h"
#include "doc/doc.h"
#include "report/metrics.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_METRICS_BYTES ((size_t)1 << 30)

/* The last start in the metrics. */
struct log {
    struct mics_measured measured; /* lines "step" and "operations" */
    json_t *run;                   /* its line "run"; NULL: there is none yet */
};

static void log_fini(struct log *log)
{
    mics_measured_fini(&log->measured);
    json_decref(log->run);
}

static void note_memory(struct log *log, uint64_t bytes)
{
    if (bytes > log->measured.peak_rss_bytes)
        log->measured.peak_rss_bytes = bytes;
}

static void begin_run(struct log *log, const struct mics_cursor *line)
{
    json_decref(log->run);
    log->run = json_incref((json_t *)(uintptr_t)line->value);
    mics_measured_clear(&log->measured);
    log->measured.comm_bytes =
        (uint64_t)json_integer_value(json_object_get(log->run, "comm_bytes"));
}

static void read_step(const struct mics_cursor *line, struct log *log, bool with_operations)
{
    struct mics_class_times classes;
    struct mics_reading *reading = line->reading;
    const uint64_t step = mics_cursor_get_u64(line, "step", 1, INT64_MAX);
    const double step_ms = mics_cursor_get_double(line, "step_ms", 1e-9, 1e18);

    if (with_operations) {
        mics_class_times_read(line, "operations", &classes);
        note_memory(log, mics_cursor_get_u64(line, "peak_rss_bytes", 0, INT64_MAX));
    }
    if (mics_cursor_ok(line))
        reading->status = mics_measured_add(&log->measured, step, 1e-3 * step_ms,
                                            with_operations ? &classes : NULL, reading->err);
}

static void read_end(const struct mics_cursor *line, struct log *log)
{
    const char *reason = mics_cursor_get_string(line, "reason");

    note_memory(log, mics_cursor_get_u64(line, "peak_rss_bytes", 0, INT64_MAX));
    log->measured.state = strcmp(reason, "done") == 0 ? "done" : "stopped";
}

static enum mics_status read_line(const json_t *value, struct log *log, struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor line = mics_cursor_begin(value, &reading);
    const char *event = mics_cursor_get_string(&line, "event");

    if (reading.status != MICS_OK)
        return reading.status;
    if (strcmp(event, "run") == 0)
        begin_run(log, &line);
    else if (!log->run)
        mics_cursor_reject(&line, "event", "'%s' before the first 'run'", event);
    else if (strcmp(event, "step") == 0)
        read_step(&line, log, false);
    else if (strcmp(event, "operations") == 0)
        read_step(&line, log, true);
    else if (strcmp(event, "end") == 0)
        read_end(&line, log);
    return reading.status;
}

/* All zeros: an empty log. The caller calls log_fini(), also after a failure. */
static enum mics_status read_log(const char *path, struct log *log, struct mics_err *err)
{
    char *data = NULL;
    size_t size = 0;
    json_t *line = NULL;
    enum mics_status status = mics_file_read(path, MAX_METRICS_BYTES, &data, &size, err);

    if (status != MICS_OK)
        return status;
    struct mics_lines lines = mics_lines_begin(data, size);

    while ((status = mics_lines_next(&lines, &line, err)) == MICS_OK && line) {
        status = read_line(line, log, err);
        json_decref(line);
        if (status != MICS_OK) {
            mics_err_prefix(err, "line %zu", lines.number);
            break;
        }
    }
    free(data);
    if (status == MICS_OK && !log->run)
        status = mics_err_set(err, MICS_ERR_FORMAT, "no metrics of a run");
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", path);
    return status;
}

static enum mics_status find_files(const char *path, const char *plan_path, char *metrics,
                                   char *plan, struct mics_err *err)
{
    char folder[MICS_PATH_MAX];
    struct stat info;
    enum mics_status status;

    if (stat(path, &info) != 0)
        return mics_err_set_errno(err, "%s", path);
    if (S_ISDIR(info.st_mode)) {
        status = mics_path_format(folder, err, "%s", path);
        if (status != MICS_OK)
            return status;
        status = mics_path_format(metrics, err, "%s/%s", path, MICS_METRICS_NAME);
    } else {
        mics_path_parent(path, folder);
        status = mics_path_format(metrics, err, "%s", path);
    }
    if (status != MICS_OK)
        return status;
    if (plan_path)
        return mics_path_format(plan, err, "%s", plan_path);
    status = mics_path_format(plan, err, "%s/%s", folder, MICS_RUN_PLAN_NAME);
    if (status == MICS_OK && stat(plan, &info) != 0)
        return mics_err_set(err, MICS_ERR_IO, "%s: there is no plan; give it as the operand", plan);
    return status;
}

/* Was it this plan that the run executed? */
static enum mics_status expect_plan(const struct log *log, const struct mics_plan *plan,
                                    struct mics_err *err)
{
    const struct mics_plan_choice *choice = &plan->choice;
    const struct {
        const char *key;
        uint64_t value;
    } members[] = {
        {"parameters", plan->model->param_count},
        {"nodes", mics_choice_nodes(choice)},
        {"per_node", mics_choice_per_node(choice)},
        {"p_param", choice->shapes[MICS_UNIT_DENSE].p_param},
        {"p_grad", choice->shapes[MICS_UNIT_DENSE].p_grad},
        {"p_optim", choice->shapes[MICS_UNIT_DENSE].p_optim},
        {"micro_batch", choice->micro_batch},
        {"micro_steps", choice->micro_steps},
        {"seq", choice->seq},
        {"arena_bytes", plan->memory.arena_bytes},
    };
    struct mics_reading reading = {.err = err};
    const struct mics_cursor run = mics_cursor_begin(log->run, &reading);

    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const uint64_t value = mics_cursor_get_u64(&run, members[i].key, 0, INT64_MAX);

        if (value != members[i].value)
            mics_cursor_reject(&run, NULL,
                               "of another plan: its %s is %" PRIu64 ", the plan's %" PRIu64,
                               members[i].key, value, members[i].value);
    }
    return reading.status;
}

enum mics_status mics_plan_check_run(const char *path, const char *plan_path,
                                     struct mics_plan_check *out, struct mics_err *err)
{
    struct log log = {.run = NULL};
    struct mics_plan *plan = NULL;
    char metrics[MICS_PATH_MAX], plan_file[MICS_PATH_MAX];
    enum mics_status status = find_files(path, plan_path, metrics, plan_file, err);

    if (status != MICS_OK)
        return status;
    status = read_log(metrics, &log, err);
    if (status != MICS_OK)
        goto out;
    status = mics_plan_read_file(plan_file, &plan, err);
    if (status != MICS_OK)
        goto out;
    status = expect_plan(&log, plan, err);
    if (status == MICS_OK)
        status = mics_plan_check_measured(plan, &log.measured, out, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", metrics);
out:
    log_fini(&log);
    if (status != MICS_OK) {
        mics_plan_free(plan);
        return status;
    }
    memcpy(out->metrics, metrics, sizeof metrics);
    return MICS_OK;
}

void mics_plan_check_fini(struct mics_plan_check *check)
{
    mics_plan_free(check->plan);
    check->plan = NULL;
}
