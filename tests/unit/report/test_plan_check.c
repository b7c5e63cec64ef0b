/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_plan_check.c - prediction against measurement: metrics that are the prediction itself but
 * for one class, so that it is known which assumption is off.
 */
#include "base/file.h"
#include "doc/doc.h"
#include "missing.h"
#include "plan/search/search.h"
#include "report/metrics.h"
#include "report/plan_check.h"
#include "tap.h"
#include "train/report/metrics_writer.h"

#include <stdlib.h>

static struct mics_err err;
static char folder[64], plan_path[96], metrics_path[96];
static struct mics_plan *plan;

static void make_plan(void)
{
    const struct mics_search_options options = {.strategy = "mics:16",
                                                .global_batch = 64,
                                                .seq = 128,
                                                .recompute = MICS_AUTO,
                                                .prefetch = MICS_AUTO,
                                                .dtype = MICS_AUTO,
                                                .grad_dtype = MICS_AUTO,
                                                .clip = true};
    struct mics_topology *topology = NULL;
    struct mics_model *model = NULL;
    struct mics_file_writer *file = NULL;
    json_t *doc = NULL;

    CHECK_INT(mics_topology_parse("node:8 gpu:4 flops:1T net:10gbit", &topology, &err), MICS_OK);
    CHECK_INT(mics_model_open("gpt2-nano", &model, &err), MICS_OK);
    CHECK_INT(mics_plan_search(topology, model, &options, &plan, &err), MICS_OK);
    CHECK_INT(mics_plan_to_doc(plan, &doc, &err), MICS_OK);
    CHECK_INT(mics_file_create(plan_path, &file, &err), MICS_OK);
    CHECK_INT(mics_doc_write(mics_file_stream(file), doc, MICS_DOC_MSGPACK, &err), MICS_OK);
    CHECK_INT(mics_file_commit(file, &err), MICS_OK);
    json_decref(doc);
}

static FILE *metrics;

static void put_line(json_t *line)
{
    json_dumpf(line, metrics, JSON_COMPACT | JSON_REAL_PRECISION(17));
    putc('\n', metrics);
    json_decref(line);
}

static void begin_run(void)
{
    const struct mics_plan_choice *choice = &plan->choice;

    put_line(json_pack(
        "{s:s,s:I,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:I,s:i}", "event", "run", "parameters",
        (json_int_t)plan->model->param_count, "nodes", (int)mics_choice_nodes(choice), "per_node",
        (int)mics_choice_per_node(choice), "p_param", (int)choice->shapes[MICS_UNIT_DENSE].p_param,
        "p_grad", (int)choice->shapes[MICS_UNIT_DENSE].p_grad, "p_optim",
        (int)choice->shapes[MICS_UNIT_DENSE].p_optim, "micro_batch", (int)choice->micro_batch,
        "micro_steps", (int)choice->micro_steps, "seq", (int)choice->seq, "arena_bytes",
        (json_int_t)plan->memory.arena_bytes, "comm_bytes", 1000));
}

static void put_step(int step, double step_s, const struct mics_class_times *times)
{
    put_line(json_pack("{s:s,s:i,s:f}", "event", "step", "step", step, "step_ms", 1e3 * step_s));
    if (times)
        put_line(json_pack("{s:s,s:i,s:f,s:i,s:o}", "event", "operations", "step", step, "step_ms",
                           1e3 * step_s, "peak_rss_bytes", 4096, "operations",
                           mics_class_times_to_json(times)));
}

static void open_metrics(void)
{
    metrics = fopen(metrics_path, "w");
    CHECK(metrics != NULL);
}

/* A run of six steps with these times, of which the first is slower by far. */
static void write_run(double step_s, const struct mics_class_times *times)
{
    open_metrics();
    begin_run();
    for (int step = 1; step <= 6; step++)
        put_step(step, step == 1 ? 50 * step_s : step_s, times);
    put_line(json_pack("{s:s,s:i,s:s,s:i}", "event", "end", "step", 6, "reason", "done",
                       "peak_rss_bytes", 8192));
    fclose(metrics);
}

/* What is off in these times. */
static enum mics_assumption worst_of(double step_s, const struct mics_class_times *times)
{
    struct mics_plan_check check;
    enum mics_assumption worst;

    write_run(step_s, times);
    CHECK_INT(mics_plan_check_run(folder, NULL, &check, &err), MICS_OK);
    worst = mics_plan_check_worst(&check);
    mics_plan_check_fini(&check);
    return worst;
}

static const char *print(int tsv)
{
    static char text[1 << 14];
    FILE *out = fmemopen(text, sizeof text, "w");
    struct mics_plan_check check;

    memset(text, 0, sizeof text);
    CHECK_INT(mics_plan_check_run(folder, NULL, &check, &err), MICS_OK);
    CHECK_INT(mics_plan_check_print(out, &check, tsv, &err), MICS_OK);
    mics_plan_check_fini(&check);
    fclose(out);
    return text;
}

static void a_run_as_predicted_has_nothing_off(void)
{
    struct mics_plan_check check;

    write_run(plan->predicted.step_s, &plan->classes);
    CHECK_INT(mics_plan_check_run(folder, NULL, &check, &err), MICS_OK);
    CHECK_INT(mics_plan_check_worst(&check), MICS_ASSUME_COUNT);
    CHECK_NEAR(check.measured.step_s / check.predicted.step_s, 1, 1e-9);
    CHECK_NEAR(check.tokens_per_s / plan->predicted.tokens_per_s, 1, 1e-9);
    CHECK_STR(check.state, "done");
    CHECK_INT(check.first, 2);
    CHECK_INT(check.last, 6);
    CHECK_INT(check.samples, 5);
    CHECK_INT(check.memory_bytes, plan->memory.arena_bytes + 1000);
    for (int i = 0; i < MICS_ASSUME_COUNT; i++)
        CHECK_NEAR(check.assumptions[i].added_s, 0, 1e-9);
    mics_plan_check_fini(&check);
    CHECK(strstr(print(0), "No assumption changes a step by more than 2 %.") != NULL);
    CHECK(strstr(print(1), "worst\tnone\n") != NULL);
}

static void the_assumption_that_is_off_is_named(void)
{
    const double step_s = plan->predicted.step_s, more = 0.2 * step_s;
    struct mics_class_times times = plan->classes;

    times.busy_s[MICS_CLASS_BACKWARD] += more;
    CHECK_INT(worst_of(step_s + more, &times), MICS_ASSUME_COMPUTE);
    CHECK(strstr(print(0), "Off most: rate of forward and backward.\nPredicted ") != NULL);
    CHECK(strstr(print(0), " longer than predicted.") != NULL);
    times = plan->classes;
    times.busy_s[MICS_CLASS_UPDATE] += more;
    CHECK_INT(worst_of(step_s + more, &times), MICS_ASSUME_UPDATE);
    times = plan->classes;
    times.net_s *= 1.5;
    times.net_exposed_s += more;
    CHECK_INT(worst_of(step_s + more, &times), MICS_ASSUME_NET);
    CHECK(strstr(print(0), "Off most: network bandwidth of a node.\nPredicted ") != NULL);
    CHECK(strstr(print(1), "worst\tnet\n") != NULL);
    times.net_s = plan->classes.net_s;
    CHECK_INT(worst_of(step_s + more, &times), MICS_ASSUME_NET);
    CHECK(strstr(print(0), "Off most: overlap of exchanges over the network with") != NULL);
    times = plan->classes;
    times.node_s *= 1.5;
    times.node_exposed_s += more;
    CHECK_INT(worst_of(step_s + more, &times), MICS_ASSUME_NODE);
    times = plan->classes;
    times.exposed_s[MICS_CLASS_SCALARS] += more;
    CHECK_INT(worst_of(step_s + more, &times), MICS_ASSUME_SCALARS);
    CHECK_INT(worst_of(step_s + more, &plan->classes), MICS_ASSUME_OTHER);
    times = plan->classes;
    times.busy_s[MICS_CLASS_FORWARD] *= 0.5;
    CHECK_INT(worst_of(step_s - times.busy_s[MICS_CLASS_FORWARD], &times), MICS_ASSUME_COMPUTE);
    CHECK(strstr(print(0), " shorter than predicted.") != NULL);
}

/* Nothing of the first start counts, and the last line is incomplete. */
static void only_the_last_start_counts_and_it_may_be_running(void)
{
    struct mics_plan_check check;

    open_metrics();
    begin_run();
    for (int step = 1; step <= 9; step++)
        put_step(step, 77, &plan->classes);
    begin_run();
    for (int step = 5; step <= 8; step++)
        put_step(step, 2, step == 6 ? &plan->classes : NULL);
    fputs("{\"event\":\"step\",\"st", metrics);
    fclose(metrics);
    CHECK_INT(mics_plan_check_run(metrics_path, plan_path, &check, &err), MICS_OK);
    CHECK_STR(check.state, "not ended");
    CHECK_NEAR(check.measured.step_s, 2, 1e-12);
    CHECK_INT(check.first, 6);
    CHECK_INT(check.last, 8);
    CHECK_INT(check.samples, 1);
    mics_plan_check_fini(&check);
}

static void expect_refusal(int status, const char *words)
{
    struct mics_plan_check check;

    fclose(metrics);
    CHECK_INT(mics_plan_check_run(folder, NULL, &check, &err), status);
    CHECK(strncmp(err.text, metrics_path, strlen(metrics_path)) == 0);
    CHECK(strstr(err.text, words) != NULL);
    if (!strstr(err.text, words))
        printf("# %s\n", err.text);
}

static void damaged_metrics_are_refused_with_the_line(void)
{
    struct mics_class_times times = plan->classes;

    open_metrics();
    expect_refusal(MICS_ERR_FORMAT, "no metrics of a run");
    open_metrics();
    put_step(1, 1, NULL);
    expect_refusal(MICS_ERR_FORMAT, "line 1: event: 'step' before the first 'run'");
    open_metrics();
    begin_run();
    expect_refusal(MICS_ERR_INFEASIBLE, "no step is complete yet");
    open_metrics();
    begin_run();
    put_step(1, 1, NULL);
    expect_refusal(MICS_ERR_FORMAT, "no times of operations");
    open_metrics();
    begin_run();
    put_step(1, -1, NULL);
    expect_refusal(MICS_ERR_FORMAT, "line 2: step_ms");
    open_metrics();
    begin_run();
    fputs("{\"event\":\"step\",\"step\":1,\"step_ms\":\"fast\"}\n", metrics);
    expect_refusal(MICS_ERR_FORMAT, "line 2: step_ms: expected a number, found a string");
    open_metrics();
    begin_run();
    fputs("{\"event\":\"step\",\n", metrics);
    put_step(1, 1, NULL);
    expect_refusal(MICS_ERR_FORMAT, "line 2");
    open_metrics();
    begin_run();
    times.net_s = -1;
    put_step(1, 1, &times);
    expect_refusal(MICS_ERR_FORMAT, "line 3: operations.net_s");
}

static void metrics_of_another_plan_are_refused(void)
{
    plan->choice.shapes[MICS_UNIT_DENSE].p_param = 8;
    open_metrics();
    begin_run();
    plan->choice.shapes[MICS_UNIT_DENSE].p_param = 16;
    put_step(1, 1, &plan->classes);
    expect_refusal(MICS_ERR_FORMAT, "of another plan: its p_param is 8, the plan's 16");
}

static void missing_files_are_named(void)
{
    struct mics_plan_check check;

    const char *missing = missing_path("run");
    CHECK_INT(mics_plan_check_run(missing, NULL, &check, &err), MICS_ERR_IO);
    CHECK(strncmp(err.text, missing, strlen(missing)) == 0);
    write_run(1, &plan->classes);
    remove(plan_path);
    CHECK_INT(mics_plan_check_run(folder, NULL, &check, &err), MICS_ERR_IO);
    CHECK(strstr(err.text, "plan.mp: there is no plan; give it as the operand") != NULL);
    remove(metrics_path);
    CHECK_INT(mics_plan_check_run(folder, "plan", &check, &err), MICS_ERR_IO);
    CHECK(strstr(err.text, "metrics.jsonl") != NULL);
}

/* A killed run left the beginning of a line; the next run appends to complete lines only. */
static void appending_removes_an_incomplete_last_line(void)
{
    static const char *const before[] = {"", "{\"a\":1}\n", "{\"a\":1}\n{\"b\"", "{\"b\""};
    static const size_t kept[] = {0, 8, 8, 0};
    const struct mics_step_record record = {.step = 7};

    for (int i = 0; i < 4; i++) {
        struct mics_metrics *out = NULL;
        char *data = NULL;
        size_t size = 0;

        open_metrics();
        fputs(before[i], metrics);
        fclose(metrics);
        CHECK_INT(mics_metrics_open(metrics_path, true, &out, &err), MICS_OK);
        CHECK_INT(mics_metrics_step(out, &record, &err), MICS_OK);
        CHECK_INT(mics_metrics_close(out, &err), MICS_OK);
        CHECK_INT(mics_file_read(metrics_path, 4096, &data, &size, &err), MICS_OK);
        CHECK(size > kept[i] && strncmp(data, before[i], kept[i]) == 0);
        CHECK(strncmp(data + kept[i], "{\"event\":\"step\",\"step\":7", 24) == 0);
        free(data);
    }
}

int main(void)
{
    const char *base = getenv("TMPDIR");

    snprintf(folder, sizeof folder, "%s/check-XXXXXX", base && strlen(base) < 40 ? base : "/tmp");
    if (!mkdtemp(folder))
        return 1;
    snprintf(plan_path, sizeof plan_path, "%s/plan.mp", folder);
    snprintf(metrics_path, sizeof metrics_path, "%s/metrics.jsonl", folder);
    make_plan();
    TAP_RUN(a_run_as_predicted_has_nothing_off);
    TAP_RUN(the_assumption_that_is_off_is_named);
    TAP_RUN(only_the_last_start_counts_and_it_may_be_running);
    TAP_RUN(damaged_metrics_are_refused_with_the_line);
    TAP_RUN(metrics_of_another_plan_are_refused);
    TAP_RUN(appending_removes_an_incomplete_last_line);
    TAP_RUN(missing_files_are_named);
    mics_plan_free(plan);
    mics_file_remove_tree(folder, NULL);
    return tap_done();
}
