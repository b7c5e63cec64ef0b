/* SPDX-License-Identifier: Apache-2.0 */
/* metrics_print.c - the summary of a run's metrics as tables. */
#include "report/metrics.h"

#include "base/units.h"
#include "doc/cursor.h"
#include "doc/doc.h"
#include "doc/table.h"
#include "doc/tree_print.h"
#include "report/metrics_log.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SHOWN_STARTS = 20, SHOWN_SLOW = 20 };

/* Names of fields for people. */
static const char *field_label(const char *name)
{
    static const char *const labels[MICS_METRICS_FIELDS] = {
        [MICS_METRICS_LOSS] = "loss",
        [MICS_METRICS_LR] = "learning rate",
        [MICS_METRICS_GRAD_NORM] = "gradient norm",
        [MICS_METRICS_STEP_MS] = "ms per step",
        [MICS_METRICS_TOKENS_PER_S] = "tokens/s",
        [MICS_METRICS_COMPUTE_MS] = "ms computing",
        [MICS_METRICS_COMM_MS] = "ms communicating",
        [MICS_METRICS_EXPOSED_MS] = "ms of it exposed",
        [MICS_METRICS_HIDDEN_MS] = "ms of it hidden",
        [MICS_METRICS_SYNC_BYTES] = "bytes of second hops",
        [MICS_METRICS_EXACT_SYNC_BYTES] = "bytes of exact ones",
        [MICS_METRICS_AUX_LOSS] = "auxiliary loss",
        [MICS_METRICS_Z_LOSS] = "z-loss",
        [MICS_METRICS_ROUTER_ENTROPY] = "entropy of routers",
        [MICS_METRICS_EXPERT_LOAD] = "load, largest/mean",
        [MICS_METRICS_IDLE_EXPERTS] = "experts without rows",
    };

    for (int i = 0; i < MICS_METRICS_FIELDS; i++)
        if (strcmp(name, mics_metrics_field_names[i]) == 0)
            return labels[i];
    return name;
}

/* A number with six digits for people; "-" for null. */
static void put_value(struct mics_table *table, const json_t *value, int tsv)
{
    if (json_is_real(value) && !tsv)
        mics_table_cell(table, "%.4g", json_real_value(value));
    else if (json_is_string(value) && !tsv)
        mics_table_cell(table, "%s", field_label(json_string_value(value)));
    else
        mics_tree_print_cell(table, json_is_null(value) ? NULL : value);
}

/* One row for each item of the array `key`, one cell for each of the `count` members. */
static enum mics_status print_items(FILE *out, const json_t *doc, const char *key,
                                    struct mics_table *table, const char *const *members,
                                    size_t count, int tsv, struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(doc, &reading);
    const struct mics_cursor items = mics_cursor_get_array(&root, key, 0, MICS_METRICS_DRAWN);

    for (size_t i = 0; i < mics_cursor_count(&items); i++) {
        const struct mics_cursor item = mics_cursor_get_item(&items, i);

        for (size_t k = 0; k < count; k++)
            put_value(table, json_object_get(item.value, members[k]), tsv);
    }
    if (reading.status != MICS_OK) {
        mics_table_free(table);
        return reading.status;
    }
    fputc('\n', out);
    return mics_table_finish(table, out, tsv, err);
}

static enum mics_status print_fields(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    static const char *const members[] = {"name",   "first", "last",   "min",
                                          "median", "max",   "last_50"};
    struct mics_table *table =
        mics_table_new(tsv ? "field|first|last|min|median|max|last_50"
                           : "<of all steps|>first|>last|>least|>median|>greatest|>last 50");

    return print_items(out, doc, "fields", table, members, sizeof members / sizeof *members, tsv,
                       err);
}

static enum mics_status print_curve(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    enum { ALWAYS = 8 };
    static const struct {
        const char *name, *label;
    } columns[] = {
        {"first", ">from"},
        {"last", ">to step"},
        {"loss", ">loss"},
        {"val_loss", ">validation"},
        {"lr", ">lr"},
        {"grad_norm", ">grad norm"},
        {"step_ms", ">ms/step"},
        {"tokens_per_s", ">tokens/s"},
        {"sync_bytes", ">second hop"},
        {"exact_sync_bytes", ">exact, bytes"},
        {"expert_load", ">load"},
        {"router_entropy", ">entropy"},
        {"aux_loss", ">aux loss"},
        {"z_loss", ">z-loss"},
        {"dropped_share", ">dropped"},
    };
    const json_t *point = json_array_get(json_object_get(doc, "curve"), 0);
    const char *members[sizeof columns / sizeof *columns];
    size_t count = 0, used = 0;
    char head[256];

    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        if (i >= ALWAYS && !json_object_get(point, columns[i].name))
            continue;
        used += (size_t)snprintf(head + used, sizeof head - used, "%s%s", count > 0 ? "|" : "",
                                 tsv ? columns[i].name : columns[i].label);
        members[count++] = columns[i].name;
    }
    return print_items(out, doc, "curve", mics_table_new(head), members, count, tsv, err);
}

/* A member's number; 0 if it has none. */
static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static uint64_t count_of(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "?";
}

static void tell_run(struct mics_table *table, const json_t *run)
{
    const uint64_t per_node = count_of(run, "per_node"), nodes = count_of(run, "nodes");
    char count[32];

    mics_table_cell(table, "model");
    mics_table_cell(table, "%s, %s parameters", text_of(run, "model"),
                    mics_format_count(number_of(run, "parameters"), count, sizeof count));
    mics_table_cell(table, "ranks");
    mics_table_cell(table,
                    "%" PRIu64 " node%s of %" PRIu64 ": %s, groups of %" PRIu64 ", %" PRIu64
                    ", %" PRIu64,
                    nodes, nodes == 1 ? "" : "s", per_node, text_of(run, "strategy"),
                    count_of(run, "p_param"), count_of(run, "p_grad"), count_of(run, "p_optim"));
    mics_table_cell(table, "device");
    mics_table_cell(table, "%s", text_of(run, "device"));
    mics_table_cell(table, "step");
    mics_table_cell(table, "%" PRIu64 " sequences of %" PRIu64, count_of(run, "global_batch"),
                    count_of(run, "seq"));
}

/* How far it got, and how it ended. */
static void tell_state(struct mics_table *table, const json_t *doc)
{
    const json_t *end = json_object_get(doc, "end"), *run = json_object_get(doc, "run");
    const uint64_t last = count_of(json_object_get(run, "settings"), "steps");
    const uint64_t starts = count_of(doc, "runs"), ends = count_of(doc, "ends");
    const uint64_t restarts = count_of(run, "restart"); /* the file may lack the first starts */
    const bool ended = json_is_object(end);
    const uint64_t killed = starts - ends - !ended; /* of those before the last */
    const json_t *curve = json_object_get(doc, "curve");
    const json_t *point = json_array_get(curve, json_array_size(curve) - 1);
    char of[32] = "";

    if (last > 0)
        snprintf(of, sizeof of, " of %" PRIu64, last);
    mics_table_cell(table, "state");
    mics_table_cell(table, "%s at step %" PRIu64 "%s",
                    ended ? text_of(end, "reason") : "running or killed",
                    ended ? count_of(end, "step") : count_of(point, "last"), of);
    if (starts < 2 && restarts == 0)
        return;
    mics_table_cell(table, "restarts");
    if (restarts >= starts)
        mics_table_cell(table, "%" PRIu64, restarts);
    else
        mics_table_cell(table, "%" PRIu64 ", %" PRIu64 " of them after a failure", starts - 1,
                        killed < starts ? killed : 0);
}

/* What second hops have sent, by the means of the curve, unless they are exact in each step. */
static void tell_sync(struct mics_table *table, const json_t *doc)
{
    const json_t *curve = json_object_get(doc, "curve");
    double sent = 0, exact = 0;
    char bytes[2][32];

    for (size_t i = 0; i < json_array_size(curve); i++) {
        const json_t *point = json_array_get(curve, i);
        const double steps = number_of(point, "last") - number_of(point, "first") + 1;

        sent += steps * number_of(point, "sync_bytes");
        exact += steps * number_of(point, "exact_sync_bytes");
    }
    if (!(exact > 0) || exact > 1e18 || !(sent >= 0) || sent > 1e18)
        return;
    mics_table_cell(table, "second hops");
    mics_table_cell(table, "%s sent, %.1f %% of the %s of exact ones in every step",
                    mics_format_bytes((uint64_t)sent, bytes[0], sizeof bytes[0]),
                    100 * sent / exact,
                    mics_format_bytes((uint64_t)exact, bytes[1], sizeof bytes[1]));
}

/* Why a start followed the one before it. */
static void tell_reason(struct mics_table *table, const json_t *start)
{
    const char *reason = json_string_value(json_object_get(start, "restart_reason"));
    const char *ended = json_string_value(json_object_get(start, "ended"));
    const json_t *last = json_object_get(start, "last_step");
    char after[48] = "";

    if (json_is_integer(last))
        snprintf(after, sizeof after, " after step %" PRIu64, count_of(start, "last_step"));
    if (reason && *reason)
        mics_table_cell(table, "%s", reason);
    else
        mics_table_cell(table, "%s%s", ended ? ended : "killed or failed", after);
}

/* A row for each start after the first, the last ones if there are many. */
static enum mics_status print_restarts(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    const json_t *starts = json_object_get(doc, "starts");
    const size_t count = json_array_size(starts);
    struct mics_table *table;
    size_t i = tsv || count <= SHOWN_STARTS ? 0 : count - SHOWN_STARTS;

    if (i == 0 && !json_is_integer(json_object_get(json_array_get(starts, 0), "restart")))
        i = 1;
    if (i >= count)
        return MICS_OK;
    table = mics_table_new(tsv ? "time|after_step|state_from|reason"
                               : "<restarted (UTC)|>from step|<in|<because");
    for (; i < count; i++) {
        const json_t *start = json_array_get(starts, i);
        const time_t when = (time_t)count_of(start, "time");
        const char *from = json_string_value(json_object_get(start, "state_from"));
        struct tm utc;
        char text[32] = "-";

        if (tsv && when)
            snprintf(text, sizeof text, "%lld", (long long)when);
        else if (when && gmtime_r(&when, &utc))
            strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &utc);
        mics_table_cell(table, "%s", text);
        put_value(table, json_object_get(start, "after_step"), tsv);
        mics_table_cell(table, "%s", from ? from : "-");
        tell_reason(table, start);
    }
    fputc('\n', out);
    return mics_table_finish(table, out, tsv, err);
}

/* How slow a rank is, or a link of its node. */
static void put_slowness(struct mics_table *table, const json_t *event, const char *ms_key,
                         const char *rate_key)
{
    char text[32];

    if (json_is_number(json_object_get(event, ms_key)))
        mics_format_time(number_of(event, ms_key) / 1e3, text, sizeof text);
    else if (json_is_number(json_object_get(event, rate_key)))
        mics_format_rate(number_of(event, rate_key), text, sizeof text);
    else
        snprintf(text, sizeof text, "-");
    mics_table_cell(table, "%s", text);
}

/* A row for each time that ranks were found to be slow, the last ones if there are many. */
static enum mics_status print_slow(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    static const char *const figures[] = {"ms", "others_ms", "bytes_per_s", "others_bytes_per_s",
                                          "cost"};
    const json_t *events = json_object_get(doc, "slow");
    const size_t count = json_array_size(events);
    struct mics_table *table;

    if (count == 0)
        return MICS_OK;
    table = mics_table_new(tsv ? "rank|ranks|host|step|what|ms|others_ms|bytes_per_s|"
                                 "others_bytes_per_s|cost"
                               : "<slow rank|<host|>from step|<in|>it|>others|>cost");
    for (size_t i = tsv || count <= SHOWN_SLOW ? 0 : count - SHOWN_SLOW; i < count; i++) {
        const json_t *event = json_array_get(events, i);
        const json_int_t ranks = json_integer_value(json_object_get(event, "ranks"));

        if (tsv || ranks < 2)
            put_value(table, json_object_get(event, "rank"), tsv);
        else
            mics_table_cell(table, "%" PRIu64 " and %lld more", count_of(event, "rank"),
                            (long long)ranks - 1);
        if (tsv)
            put_value(table, json_object_get(event, "ranks"), tsv);
        mics_table_cell(table, "%s", text_of(event, "host"));
        put_value(table, json_object_get(event, "step"), tsv);
        mics_table_cell(table, "%s", text_of(event, "what"));
        if (tsv) {
            for (size_t k = 0; k < sizeof figures / sizeof *figures; k++)
                put_value(table, json_object_get(event, figures[k]), tsv);
            continue;
        }
        put_slowness(table, event, "ms", "bytes_per_s");
        put_slowness(table, event, "others_ms", "others_bytes_per_s");
        mics_table_cell(table, "%.0f %%", 100 * number_of(event, "cost"));
    }
    fputc('\n', out);
    return mics_table_finish(table, out, tsv, err);
}

static void tell_results(struct mics_table *table, const json_t *doc)
{
    const json_t *val = json_object_get(doc, "validation");
    const json_t *checkpoint = json_object_get(doc, "checkpoint");
    char size[32];

    if (count_of(val, "count") > 0) {
        mics_table_cell(table, "validation");
        mics_table_cell(table, "loss %.4f at step %" PRIu64 "; lowest %.4f at step %" PRIu64,
                        number_of(val, "last_loss"), count_of(val, "last_step"),
                        number_of(val, "best_loss"), count_of(val, "best_step"));
    }
    if (json_is_object(checkpoint)) {
        mics_table_cell(table, "saved");
        mics_table_cell(table, "%" PRIu64 " time%s, last %s, %s", count_of(doc, "checkpoints"),
                        count_of(doc, "checkpoints") == 1 ? "" : "s", text_of(checkpoint, "path"),
                        mics_format_bytes(count_of(checkpoint, "bytes"), size, sizeof size));
    }
    if (count_of(doc, "bad_lines") > 0) {
        mics_table_cell(table, "note");
        mics_table_cell(table, "%" PRIu64 " lines could not be read, the first is line %" PRIu64,
                        count_of(doc, "bad_lines"), count_of(doc, "first_bad_line"));
    }
    if (json_is_true(json_object_get(doc, "last_line_cut"))) {
        mics_table_cell(table, "note");
        mics_table_cell(table, "the last line is cut: it is being written, or the run was killed");
    }
}

/* What happened, for people. */
static enum mics_status print_story(FILE *out, const json_t *doc, struct mics_err *err)
{
    const json_t *run = json_object_get(doc, "run");
    struct mics_table *table = mics_table_new("<|<");

    if (json_is_object(run))
        tell_run(table, run);
    tell_state(table, doc);
    tell_sync(table, doc);
    tell_results(table, doc);
    return mics_table_finish(table, out, 0, err);
}

/* The other members of the document, for scripts. */
static enum mics_status print_members(FILE *out, const json_t *doc, struct mics_err *err)
{
    static const char *const shown[] = {
        "steps",         "runs",       "bad_lines",   "first_bad_line",
        "last_line_cut", "validation", "checkpoints", "checkpoint",
        "run",           "end"};
    struct mics_table *table = mics_table_new("<|<");

    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        const json_t *value = json_object_get(doc, shown[i]);

        if (value && !json_is_null(value))
            mics_tree_print_rows(table, shown[i], value, 1);
    }
    return mics_table_finish(table, out, 1, err);
}

enum mics_status mics_metrics_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err)
{
    enum mics_status status = mics_doc_expect(doc, MICS_METRICS_KIND, MICS_METRICS_VERSION, err);

    if (status != MICS_OK)
        return status;
    status = tsv ? print_members(out, doc, err) : print_story(out, doc, err);
    if (status != MICS_OK)
        return status;
    status = print_restarts(out, doc, tsv, err);
    if (status != MICS_OK)
        return status;
    status = print_slow(out, doc, tsv, err);
    if (status != MICS_OK)
        return status;
    status = print_fields(out, doc, tsv, err);
    if (status != MICS_OK)
        return status;
    return print_curve(out, doc, tsv, err);
}
