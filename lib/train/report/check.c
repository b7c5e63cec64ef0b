/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.c - reads the metrics and the plan of a run and compares them.
 *
 * Medians are taken member by member, so that a step that was disturbed counts no more than others.
 * An assumption is judged by what it adds to a step: computation by its time, exchanges by the part
 * that computation does not hide.
 */
#include "train/report/check.h"

#include "base/file.h"
#include "doc/doc.h"
#include "plan/memory.h"
#include "plan/schedule/timeline.h"
#include "plan/search/search.h"
#include "train/report/metrics.h"
#include "train/report/run_reporter.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_METRICS_BYTES ((size_t)1 << 30)
#define NOTICEABLE        0.02 /* of a step */

struct sample {
    uint64_t step;
    struct mics_step_times times; /* of a line "step" only step_s */
};

struct samples {
    struct sample *items;
    size_t count, capacity;
};

/* The last start in the metrics. */
struct log {
    struct samples steps, sampled; /* lines "step" and "operations" */
    json_t *run;                   /* its line "run"; NULL: there is none yet */
    uint64_t peak_rss_bytes;
    const char *state;
};

static enum mics_status append(struct samples *samples, const struct sample *sample,
                               struct mics_err *err)
{
    /* Of a step that was repeated only the last counts. */
    while (samples->count > 0 && samples->items[samples->count - 1].step >= sample->step)
        samples->count--;
    if (samples->count == samples->capacity) {
        const size_t capacity = samples->capacity ? 2 * samples->capacity : 64;
        struct sample *grown = realloc(samples->items, capacity * sizeof *grown);

        if (!grown)
            return mics_err_nomem(err);
        samples->items = grown;
        samples->capacity = capacity;
    }
    samples->items[samples->count++] = *sample;
    return MICS_OK;
}

static void log_fini(struct log *log)
{
    free(log->steps.items);
    free(log->sampled.items);
    json_decref(log->run);
}

static void note_memory(struct log *log, uint64_t bytes)
{
    if (bytes > log->peak_rss_bytes)
        log->peak_rss_bytes = bytes;
}

static void begin_run(struct log *log, const struct mics_cursor *line)
{
    json_decref(log->run);
    log->run = json_incref((json_t *)(uintptr_t)line->value);
    log->steps.count = log->sampled.count = 0;
    log->peak_rss_bytes = 0;
    log->state = "not ended";
}

static enum mics_status read_step(const struct mics_cursor *line, struct log *log,
                                  bool with_operations, struct mics_err *err)
{
    struct sample sample = {0};
    double step_ms = 0;
    uint64_t rss = 0;
    enum mics_status status = mics_cursor_u64(line, "step", 1, INT64_MAX, &sample.step, err);

    if (status == MICS_OK)
        status = mics_cursor_double(line, "step_ms", 1e-9, 1e18, &step_ms, err);
    sample.times.step_s = 1e-3 * step_ms;
    if (status == MICS_OK && with_operations)
        status = mics_class_times_read(line, "operations", &sample.times.classes, err);
    if (status == MICS_OK && with_operations)
        status = mics_cursor_u64(line, "peak_rss_bytes", 0, INT64_MAX, &rss, err);
    note_memory(log, rss);
    if (status != MICS_OK)
        return status;
    return append(with_operations ? &log->sampled : &log->steps, &sample, err);
}

static enum mics_status read_end(const struct mics_cursor *line, struct log *log,
                                 struct mics_err *err)
{
    const char *reason;
    uint64_t rss = 0;
    enum mics_status status = mics_cursor_string(line, "reason", &reason, err);

    if (status == MICS_OK && mics_cursor_has(line, "peak_rss_bytes"))
        status = mics_cursor_u64(line, "peak_rss_bytes", 0, INT64_MAX, &rss, err);
    if (status != MICS_OK)
        return status;
    note_memory(log, rss);
    log->state = strcmp(reason, "done") == 0 ? "done" : "stopped";
    return MICS_OK;
}

static enum mics_status read_line(const struct mics_cursor *line, struct log *log,
                                  struct mics_err *err)
{
    const char *event;
    enum mics_status status = mics_cursor_string(line, "event", &event, err);

    if (status != MICS_OK)
        return status;
    if (strcmp(event, "run") == 0) {
        begin_run(log, line);
        return MICS_OK;
    }
    if (!log->run)
        return mics_cursor_fail(line, "event", err, "'%s' before the first 'run'", event);
    if (strcmp(event, "step") == 0)
        return read_step(line, log, false, err);
    if (strcmp(event, "operations") == 0)
        return read_step(line, log, true, err);
    if (strcmp(event, "end") == 0)
        return read_end(line, log, err);
    return MICS_OK;
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
        const struct mics_cursor root = mics_cursor_root(line);

        status = read_line(&root, log, err);
        json_decref(line);
        if (status != MICS_OK) {
            mics_err_prefix(err, "line %zu", lines.number);
            break;
        }
    }
    free(data);
    if (status == MICS_OK && !log->run)
        status = mics_err_set(err, MICS_ERR_FORMAT, "no metrics of a run");
    else if (status == MICS_OK && log->steps.count == 0)
        status = mics_err_set(err, MICS_ERR_INFEASIBLE, "no step is complete yet");
    else if (status == MICS_OK && log->sampled.count == 0)
        status = mics_err_set(err, MICS_ERR_FORMAT,
                              "no times of operations: written by an older mics-train");
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
        if (status == MICS_OK)
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

static enum mics_status read_plan(const char *path, struct mics_plan **out, struct mics_err *err)
{
    json_t *doc = NULL;
    enum mics_status status = mics_doc_read_file(path, &doc, err);

    if (status != MICS_OK)
        return status;
    status = mics_plan_from_doc(doc, out, err);
    json_decref(doc);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", strcmp(path, "-") == 0 ? "standard input" : path);
    else if (!(*out)->has_classes)
        status = mics_plan_predict_classes(*out, err);
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
        {"nodes", choice->shape.nodes},
        {"per_node", choice->shape.per_node},
        {"p_param", choice->shape.p_param},
        {"p_grad", choice->shape.p_grad},
        {"p_optim", choice->shape.p_optim},
        {"micro_batch", choice->micro_batch},
        {"micro_steps", choice->micro_steps},
        {"seq", choice->seq},
        {"arena_bytes", plan->memory.arena_bytes},
    };
    const struct mics_cursor run = mics_cursor_root(log->run);
    enum mics_status status = MICS_OK;

    for (size_t i = 0; i < sizeof members / sizeof *members && status == MICS_OK; i++) {
        uint64_t value = 0;

        status = mics_cursor_u64(&run, members[i].key, 0, INT64_MAX, &value, err);
        if (status == MICS_OK && value != members[i].value)
            status = mics_err_set(err, MICS_ERR_FORMAT,
                                  "of another plan: its %s is %" PRIu64 ", the plan's %" PRIu64,
                                  members[i].key, value, members[i].value);
    }
    return status;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median of each member, over items [first, count), at least one. */
static enum mics_status take_medians(const struct samples *samples, size_t first,
                                     struct mics_step_times *out, struct mics_err *err)
{
    const size_t count = samples->count - first;
    double *values = malloc(count * sizeof *values);

    if (!values)
        return mics_err_nomem(err);
    for (size_t member = 0; member < sizeof *out / sizeof(double); member++) {
        for (size_t i = 0; i < count; i++)
            values[i] = ((const double *)&samples->items[first + i].times)[member];
        qsort(values, count, sizeof *values, compare);
        ((double *)out)[member] = (values[(count - 1) / 2] + values[count / 2]) / 2;
    }
    free(values);
    return MICS_OK;
}

/* The first step includes the start: connections, first touches of memory. */
static size_t skip_first(const struct samples *samples, uint64_t first)
{
    return samples->count > 1 && samples->items[0].step == first;
}

static enum mics_status measure(const struct log *log, struct mics_check *check,
                                struct mics_err *err)
{
    const struct samples *steps = &log->steps;
    const size_t skipped = skip_first(steps, steps->items[0].step);
    const size_t skipped_samples = skip_first(&log->sampled, steps->items[0].step);
    struct mics_step_times all;
    enum mics_status status = take_medians(&log->sampled, skipped_samples, &check->measured, err);

    if (status == MICS_OK)
        status = take_medians(steps, skipped, &all, err);
    if (status != MICS_OK)
        return status;
    check->measured.step_s = all.step_s;
    check->first = steps->items[skipped].step;
    check->last = steps->items[steps->count - 1].step;
    check->samples = log->sampled.count - skipped_samples;
    check->state = log->state;
    check->tokens_per_s = (double)check->plan->global_batch * check->plan->choice.seq / all.step_s;
    return MICS_OK;
}

static void compare_memory(const struct log *log, struct mics_check *check)
{
    const struct mics_memory *memory = &check->plan->memory;
    const json_t *comm = json_object_get(log->run, "comm_bytes");

    if (strcmp(check->plan->topology->device, "host") == 0) {
        check->predicted_bytes = mics_memory_total(memory, check->plan->topology);
        check->memory_bytes = log->peak_rss_bytes;
    } else {
        check->predicted_bytes = memory->arena_bytes + memory->communicator_bytes;
        check->memory_bytes = memory->arena_bytes + (uint64_t)json_integer_value(comm);
    }
}

/* Work of one step on one rank; net_bytes of one node. */
struct work {
    double flops, update_bytes, net_bytes, node_bytes;
};

static enum mics_status count_work(const struct mics_plan *plan, uint32_t micro_steps,
                                   struct work *out, struct mics_err *err)
{
    struct mics_plan_choice choice = plan->choice;
    struct mics_schedule *schedule = NULL;
    uint64_t calls[MICS_COMM_KIND_COUNT], sent[MICS_COMM_KIND_COUNT];
    enum mics_status status;

    choice.micro_steps = micro_steps;
    *out = (struct work){0};
    status = mics_schedule_new(plan->model, &choice, true, &schedule, err);
    if (status != MICS_OK)
        return status;
    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];
        const enum mics_op_class op_class = mics_op_class(op);

        if (op_class == MICS_CLASS_FORWARD || op_class == MICS_CLASS_BACKWARD)
            out->flops += op->flops;
        else if (op_class == MICS_CLASS_UPDATE)
            out->update_bytes += op->memory_bytes;
    }
    mics_schedule_counts(schedule, &choice.shape, 0, calls, sent);
    for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++) {
        struct mics_group_position position;

        mics_shape_position(&choice.shape, (enum mics_comm_kind)kind, 0, &position);
        if (position.nodes > 1)
            out->net_bytes += (double)sent[kind] * position.sharing;
        else
            out->node_bytes += (double)sent[kind];
    }
    mics_schedule_free(schedule);
    return MICS_OK;
}

/* Steps of many micro-steps are extrapolated: those after the second are alike. */
static enum mics_status step_work(const struct mics_plan *plan, struct work *out,
                                  struct mics_err *err)
{
    const uint32_t s = plan->choice.micro_steps;
    struct work shorter;
    enum mics_status status = count_work(plan, s < 3 ? s : 3, out, err);

    if (status != MICS_OK || s <= 3)
        return status;
    status = count_work(plan, 2, &shorter, err);
    if (status != MICS_OK)
        return status;
    out->flops += (s - 3) * (out->flops - shorter.flops);
    out->update_bytes += (s - 3) * (out->update_bytes - shorter.update_bytes);
    out->net_bytes += (s - 3) * (out->net_bytes - shorter.net_bytes);
    out->node_bytes += (s - 3) * (out->node_bytes - shorter.node_bytes);
    return MICS_OK;
}

static double passes_s(const struct mics_class_times *times)
{
    return times->busy_s[MICS_CLASS_FORWARD] + times->busy_s[MICS_CLASS_BACKWARD];
}

/* What is left of a step: nothing runs. */
static double other_s(const struct mics_step_times *times)
{
    const struct mics_class_times *classes = &times->classes;

    return fmax(0, times->step_s - passes_s(classes) - classes->busy_s[MICS_CLASS_UPDATE] -
                       classes->net_exposed_s - classes->node_exposed_s -
                       classes->exposed_s[MICS_CLASS_SCALARS]);
}

/* Rates of the same amount of work in two times. */
static struct mics_assumption_check compare_rates(double work, double predicted_s,
                                                  double measured_s, double added_s)
{
    const bool both = work > 0 && predicted_s > 0 && measured_s > 0;

    return (struct mics_assumption_check){
        .predicted = both ? work / predicted_s : 0,
        .measured = both ? work / measured_s : 0,
        .added_s = added_s,
        .busy_ratio = both ? measured_s / predicted_s : NAN,
    };
}

static struct mics_assumption_check compare_seconds(double predicted_s, double measured_s,
                                                    double added_s)
{
    return (struct mics_assumption_check){
        .predicted = predicted_s,
        .measured = measured_s,
        .added_s = added_s,
        .busy_ratio = predicted_s > 0 ? measured_s / predicted_s : NAN,
    };
}

static enum mics_status compare_assumptions(struct mics_check *check, struct mics_err *err)
{
    const struct mics_class_times *p = &check->predicted.classes, *m = &check->measured.classes;
    const double scalars[] = {p->busy_s[MICS_CLASS_SCALARS], m->busy_s[MICS_CLASS_SCALARS]};
    const double updates[] = {p->busy_s[MICS_CLASS_UPDATE], m->busy_s[MICS_CLASS_UPDATE]};
    const double other[] = {other_s(&check->predicted), other_s(&check->measured)};
    struct mics_assumption_check *out = check->assumptions;
    struct work work;
    enum mics_status status = step_work(check->plan, &work, err);

    if (status != MICS_OK)
        return status;
    out[MICS_ASSUME_COMPUTE] =
        compare_rates(work.flops, passes_s(p), passes_s(m), passes_s(m) - passes_s(p));
    out[MICS_ASSUME_UPDATE] =
        compare_rates(work.update_bytes, updates[0], updates[1], updates[1] - updates[0]);
    out[MICS_ASSUME_NET] =
        compare_rates(work.net_bytes, p->net_s, m->net_s, m->net_exposed_s - p->net_exposed_s);
    out[MICS_ASSUME_NODE] =
        compare_rates(work.node_bytes, p->node_s, m->node_s, m->node_exposed_s - p->node_exposed_s);
    out[MICS_ASSUME_SCALARS] =
        compare_seconds(scalars[0], scalars[1],
                        m->exposed_s[MICS_CLASS_SCALARS] - p->exposed_s[MICS_CLASS_SCALARS]);
    out[MICS_ASSUME_OTHER] = compare_seconds(other[0], other[1], other[1] - other[0]);
    return MICS_OK;
}

enum mics_status mics_check_run(const char *path, const char *plan_path, struct mics_check *out,
                                struct mics_err *err)
{
    struct log log = {0};
    char plan[MICS_PATH_MAX];
    enum mics_status status;

    *out = (struct mics_check){0};
    status = find_files(path, plan_path, out->metrics, plan, err);
    if (status == MICS_OK)
        status = read_log(out->metrics, &log, err);
    if (status == MICS_OK)
        status = read_plan(plan, &out->plan, err);
    if (status == MICS_OK) {
        status = expect_plan(&log, out->plan, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "%s", out->metrics);
    }
    if (status == MICS_OK)
        status = measure(&log, out, err);
    if (status == MICS_OK) {
        out->predicted = (struct mics_step_times){.step_s = out->plan->predicted.step_s,
                                                  .classes = out->plan->classes};
        compare_memory(&log, out);
        status = compare_assumptions(out, err);
    }
    log_fini(&log);
    if (status != MICS_OK)
        mics_check_fini(out);
    return status;
}

void mics_check_fini(struct mics_check *check)
{
    mics_plan_free(check->plan);
    check->plan = NULL;
}

enum mics_assumption mics_check_worst(const struct mics_check *check)
{
    enum mics_assumption worst = MICS_ASSUME_COUNT;
    double most = NOTICEABLE * check->predicted.step_s;

    for (int i = 0; i < MICS_ASSUME_COUNT; i++) {
        if (fabs(check->assumptions[i].added_s) <= most)
            continue;
        most = fabs(check->assumptions[i].added_s);
        worst = (enum mics_assumption)i;
    }
    return worst;
}
