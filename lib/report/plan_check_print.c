/* SPDX-License-Identifier: Apache-2.0 */
/* plan_check_print.c - a comparison of prediction and measurement as tables, or as a document. */
#include "base/units.h"
#include "doc/doc.h"
#include "doc/table.h"
#include "report/plan_check.h"

#include <inttypes.h>
#include <math.h>

/* An overlap, not a rate, is off if the time in use agrees so well. */
#define SAME_BUSY 0.05

enum quantity { FLOPS, BYTES_PER_S, SECONDS };

static const struct {
    const char *key, *words;
    enum quantity quantity;
} names[MICS_ASSUME_COUNT] = {
    [MICS_ASSUME_COMPUTE] = {"compute", "rate of forward and backward", FLOPS},
    [MICS_ASSUME_UPDATE] = {"update", "memory bandwidth of updates", BYTES_PER_S},
    [MICS_ASSUME_NET] = {"net", "network bandwidth of a node", BYTES_PER_S},
    [MICS_ASSUME_NODE] = {"node", "bandwidth of a rank inside nodes", BYTES_PER_S},
    [MICS_ASSUME_OFFLOAD] = {"offload", "copies of states in host memory", BYTES_PER_S},
    [MICS_ASSUME_SCALARS] = {"scalars", "sums of loss and norm", SECONDS},
    [MICS_ASSUME_OTHER] = {"other", "time in which nothing runs", SECONDS},
};

enum { TEXT = 48 };

/* "48 GFLOP/s", "19 MB/s", "3.1 ms" */
static const char *format(enum quantity quantity, double value, char text[TEXT])
{
    char number[TEXT];

    if (quantity == FLOPS)
        snprintf(text, TEXT, "%.40sFLOP/s", mics_format_count(value, number, sizeof number));
    else if (quantity == BYTES_PER_S)
        snprintf(text, TEXT, "%.40sB/s", mics_format_count(value, number, sizeof number));
    else
        mics_format_time(value, text, TEXT);
    return text;
}

static void put_ratio(struct mics_table *table, double predicted, double measured)
{
    if (predicted > 0)
        mics_table_cell(table, "%.3g", measured / predicted);
    else
        mics_table_cell(table, "-");
}

static enum mics_status print_summary(FILE *out, const struct mics_plan_check *check, int tsv,
                                      struct mics_err *err)
{
    const struct mics_prediction *predicted = &check->plan->predicted;
    struct mics_table *table = mics_table_new(tsv ? "quantity|predicted|measured|ratio"
                                                  : "<of a step|>predicted|>measured|>ratio");

    mics_table_cell(table, tsv ? "step_s" : "time");
    mics_table_time(table, tsv, predicted->step_s);
    mics_table_time(table, tsv, check->measured.step_s);
    put_ratio(table, predicted->step_s, check->measured.step_s);
    mics_table_cell(table, tsv ? "tokens_per_s" : "tokens/s");
    mics_table_count(table, tsv, predicted->tokens_per_s);
    mics_table_count(table, tsv, check->tokens_per_s);
    put_ratio(table, predicted->tokens_per_s, check->tokens_per_s);
    mics_table_cell(table, tsv ? "memory_bytes" : "memory of a rank");
    mics_table_bytes(table, tsv, check->predicted_bytes);
    mics_table_bytes(table, tsv, check->memory_bytes);
    put_ratio(table, (double)check->predicted_bytes, (double)check->memory_bytes);
    return mics_table_finish(table, out, tsv, err);
}

static enum mics_status print_classes(FILE *out, const struct mics_plan_check *check, int tsv,
                                      struct mics_err *err)
{
    const struct mics_class_times *p = &check->predicted.classes, *m = &check->measured.classes;
    struct mics_table *table = mics_table_new(
        tsv ? "class|predicted_s|measured_s|ratio|predicted_exposed_s|measured_exposed_s"
            : "<operations|>predicted|>measured|>ratio|>pred. exposed|>meas. exposed");

    for (int c = 0; c < MICS_CLASS_COUNT; c++) {
        if (p->busy_s[c] <= 0 && m->busy_s[c] <= 0)
            continue;
        mics_table_cell(table, "%s", mics_op_class_name((enum mics_op_class)c));
        mics_table_time(table, tsv, p->busy_s[c]);
        mics_table_time(table, tsv, m->busy_s[c]);
        put_ratio(table, p->busy_s[c], m->busy_s[c]);
        if (!tsv && (1u << c & MICS_CLASSES_COMPUTE)) {
            mics_table_cell(table, "-");
            mics_table_cell(table, "-");
        } else {
            mics_table_time(table, tsv, p->exposed_s[c]);
            mics_table_time(table, tsv, m->exposed_s[c]);
        }
    }
    return mics_table_finish(table, out, tsv, err);
}

static enum mics_status print_assumptions(FILE *out, const struct mics_plan_check *check, int tsv,
                                          struct mics_err *err)
{
    struct mics_table *table =
        mics_table_new(tsv ? "assumption|predicted|measured|ratio|added_s"
                           : "<assumption|>predicted|>measured|>ratio|>adds");

    for (int i = 0; i < MICS_ASSUME_COUNT; i++) {
        const struct mics_assumption_check *each = &check->assumptions[i];
        const enum quantity quantity = names[i].quantity;
        char text[TEXT];

        if (each->predicted <= 0 && each->measured <= 0)
            continue;
        mics_table_cell(table, "%s", tsv ? names[i].key : names[i].words);
        if (tsv) {
            mics_table_cell(table, "%.12g", each->predicted);
            mics_table_cell(table, "%.12g", each->measured);
        } else {
            mics_table_cell(table, "%s", format(quantity, each->predicted, text));
            mics_table_cell(table, "%s", format(quantity, each->measured, text));
        }
        put_ratio(table, each->predicted, each->measured);
        mics_table_time(table, tsv, each->added_s);
    }
    return mics_table_finish(table, out, tsv, err);
}

static const char *const verdicts[MICS_RANGE_VERDICT_COUNT] = {
    [MICS_RANGE_UNKNOWN] = "unknown",
    [MICS_RANGE_INSIDE] = "inside",
    [MICS_RANGE_SHORTER] = "shorter",
    [MICS_RANGE_LONGER] = "longer",
};

/* "The step is inside the predicted range: 36.5 ms, 25 to 38." */
static void print_range(FILE *out, const struct mics_plan_check *check)
{
    const struct mics_step_range *range = &check->plan->range;
    const enum mics_range_verdict verdict = mics_plan_check_range(check);
    char text[64];

    if (verdict == MICS_RANGE_UNKNOWN)
        return;
    mics_format_time_range(check->measured.step_s, range->low_s, range->high_s, text, sizeof text);
    fprintf(out, "The step is %s the predicted range: %s.\n",
            verdict == MICS_RANGE_INSIDE    ? "inside"
            : verdict == MICS_RANGE_SHORTER ? "shorter than"
                                            : "longer than",
            text);
}

/* "network bandwidth: predicted 24 MB/s, measured 19 MB/s" */
static void print_worst(FILE *out, const struct mics_plan_check *check)
{
    const enum mics_assumption worst = mics_plan_check_worst(check);
    char texts[3][TEXT];

    if (worst == MICS_ASSUME_COUNT) {
        fprintf(out, "No assumption changes a step by more than 2 %%.\n");
        return;
    }
    const struct mics_assumption_check *each = &check->assumptions[worst];
    const char *direction = each->added_s > 0 ? "longer" : "shorter";

    mics_format_time(fabs(each->added_s), texts[2], TEXT);
    if (names[worst].quantity == BYTES_PER_S && worst != MICS_ASSUME_UPDATE &&
        worst != MICS_ASSUME_OFFLOAD && fabs(each->busy_ratio - 1) < SAME_BUSY) {
        fprintf(out, "Off most: overlap of exchanges %s with computation.\n",
                worst == MICS_ASSUME_NET ? "over the network" : "inside nodes");
    } else {
        fprintf(out, "Off most: %s.\nPredicted %s, measured %s.\n", names[worst].words,
                format(names[worst].quantity, each->predicted, texts[0]),
                format(names[worst].quantity, each->measured, texts[1]));
    }
    const double more_s = check->measured.step_s - check->predicted.step_s;

    fprintf(out, "Alone it would make a step %s %s;\n", texts[2], direction);
    fprintf(out, "with the others, a step is %s %s than predicted.\n",
            mics_format_time(fabs(more_s), texts[0], TEXT), more_s > 0 ? "longer" : "shorter");
}

/* NULL: out of memory. */
static json_t *step_to_json(const struct mics_step_times *times, double tokens_per_s,
                            uint64_t memory_bytes)
{
    return json_pack("{s:f, s:f, s:I, s:o}", "step_s", times->step_s, "tokens_per_s", tokens_per_s,
                     "memory_bytes", (json_int_t)memory_bytes, "operations",
                     mics_class_times_to_json(&times->classes));
}

/* NULL: out of memory. */
static json_t *assumptions_to_json(const struct mics_plan_check *check)
{
    json_t *object = json_object();

    for (int i = 0; i < MICS_ASSUME_COUNT; i++) {
        const struct mics_assumption_check *each = &check->assumptions[i];

        if (each->predicted <= 0 && each->measured <= 0)
            continue;
        if (json_object_set_new(object, names[i].key,
                                json_pack("{s:f, s:f, s:f}", "predicted", each->predicted,
                                          "measured", each->measured, "added_s", each->added_s)) !=
            0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

enum mics_status mics_plan_check_to_doc(const struct mics_plan_check *check, json_t **out,
                                        struct mics_err *err)
{
    const enum mics_assumption worst = mics_plan_check_worst(check);
    json_t *doc = mics_doc_new("mics.plan_check", MICS_PLAN_CHECK_VERSION);
    const struct mics_step_range *range = &check->plan->range;
    json_t *members = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o*, s:s?}", "metrics", check->metrics, "state",
        check->state, "first_step", (json_int_t)check->first, "last_step", (json_int_t)check->last,
        "sampled_steps", (json_int_t)check->samples, "predicted",
        step_to_json(&check->predicted, check->plan->predicted.tokens_per_s,
                     check->predicted_bytes),
        "measured", step_to_json(&check->measured, check->tokens_per_s, check->memory_bytes),
        "assumptions", assumptions_to_json(check), "range",
        mics_plan_check_range(check) == MICS_RANGE_UNKNOWN
            ? NULL
            : json_pack("{s:f, s:f, s:s}", "step_low_s", range->low_s, "step_high_s", range->high_s,
                        "verdict", verdicts[mics_plan_check_range(check)]),
        "worst", worst == MICS_ASSUME_COUNT ? NULL : names[worst].key);
    const bool complete = doc && members && json_object_update(doc, members) == 0;

    json_decref(members);
    if (!complete) {
        json_decref(doc);
        return mics_err_nomem(err);
    }
    *out = doc;
    return MICS_OK;
}

enum mics_status mics_plan_check_print_brief(FILE *out, const struct mics_plan_check *check,
                                             struct mics_err *err)
{
    enum mics_status status;

    fprintf(out, "\nPredicted and measured, medians of steps %" PRIu64 " to %" PRIu64 ":\n\n",
            check->first, check->last);
    status = print_summary(out, check, 0, err);
    if (status == MICS_OK) {
        fputc('\n', out);
        status = print_classes(out, check, 0, err);
    }
    if (status != MICS_OK)
        return status;
    fputc('\n', out);
    print_range(out, check);
    print_worst(out, check);
    return MICS_OK;
}

enum mics_status mics_plan_check_print(FILE *out, const struct mics_plan_check *check, int tsv,
                                       struct mics_err *err)
{
    static enum mics_status (*const tables[])(FILE *, const struct mics_plan_check *, int,
                                              struct mics_err *) = {print_summary, print_classes,
                                                                    print_assumptions};
    enum mics_status status = MICS_OK;

    if (!tsv)
        fprintf(out,
                "%s: %s, steps %" PRIu64 " to %" PRIu64 "; medians, of %" PRIu64
                " steps by operation\n\n",
                check->metrics, check->state, check->first, check->last, check->samples);
    for (size_t i = 0; i < sizeof tables / sizeof *tables && status == MICS_OK; i++) {
        status = tables[i](out, check, tsv, err);
        if (status == MICS_OK)
            fputc('\n', out);
    }
    if (status == MICS_OK && !tsv)
        print_range(out, check);
    if (status == MICS_OK && tsv && mics_plan_check_range(check) != MICS_RANGE_UNKNOWN)
        fprintf(out, "range\t%.12g\t%.12g\t%s\n", check->plan->range.low_s,
                check->plan->range.high_s, verdicts[mics_plan_check_range(check)]);
    if (status == MICS_OK && tsv)
        fprintf(out, "worst\t%s\n",
                mics_plan_check_worst(check) == MICS_ASSUME_COUNT
                    ? "none"
                    : names[mics_plan_check_worst(check)].key);
    else if (status == MICS_OK)
        print_worst(out, check);
    return status;
}
