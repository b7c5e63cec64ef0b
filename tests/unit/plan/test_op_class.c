/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_class.c - times of a step by class of operation, of timelines made by hand. */
#include "doc/doc.h"
#include "plan/schedule/timeline.h"
#include "plan/search/search.h"
#include "tap.h"

#include <stdlib.h>

static struct mics_err err;

enum { MAX_OPS = 8 };

static struct mics_op ops[MAX_OPS];
static double starts[MAX_OPS], ends[MAX_OPS];
static struct mics_schedule schedule = {.ops = ops};
static struct mics_timeline timeline = {.start = starts, .end = ends};

static void begin(void)
{
    memset(ops, 0, sizeof ops);
    schedule.op_count = timeline.op_count = 0;
}

static void add(enum mics_op_kind kind, enum mics_stream_kind stream, double from, double to)
{
    const uint32_t i = schedule.op_count++;

    ops[i] = (struct mics_op){.kind = kind, .stream = stream};
    starts[i] = from;
    ends[i] = to;
    timeline.op_count = schedule.op_count;
}

static void exchanges_of_the_net_and_node_streams_are_different_classes(void)
{
    static const struct {
        enum mics_op_kind kind;
        enum mics_stream_kind stream;
        const char *name;
    } rows[] = {
        {MICS_OP_FORWARD, MICS_STREAM_COMPUTE, "forward"},
        {MICS_OP_BACKWARD, MICS_STREAM_COMPUTE, "backward"},
        {MICS_OP_NORM, MICS_STREAM_COMPUTE, "update"},
        {MICS_OP_UPDATE, MICS_STREAM_COMPUTE, "update"},
        {MICS_OP_LOAD, MICS_STREAM_LOAD, "offload"},
        {MICS_OP_UPDATE, MICS_STREAM_UPDATE, "offload"},
        {MICS_OP_STORE, MICS_STREAM_STORE, "offload"},
        {MICS_OP_ACCUMULATE, MICS_STREAM_REDUCE_NODE, "accumulate"},
        {MICS_OP_CONVERT, MICS_STREAM_REDUCE_NET, "accumulate"},
        {MICS_OP_GATHER, MICS_STREAM_GATHER_NET, "gather_net"},
        {MICS_OP_GATHER, MICS_STREAM_GATHER_NODE, "gather_node"},
        {MICS_OP_REDUCE, MICS_STREAM_REDUCE_NET, "reduce_net"},
        {MICS_OP_REDUCE, MICS_STREAM_REDUCE_NODE, "reduce_node"},
        {MICS_OP_SCATTER, MICS_STREAM_REDUCE_NET, "sync_net"},
        {MICS_OP_SYNC, MICS_STREAM_REDUCE_NODE, "sync_node"},
        {MICS_OP_PUBLISH, MICS_STREAM_GATHER_NET, "publish_net"},
        {MICS_OP_PUBLISH, MICS_STREAM_GATHER_NODE, "publish_node"},
        {MICS_OP_TARGET_COUNT, MICS_STREAM_REDUCE_NET, "scalars"},
        {MICS_OP_LOSS_NORM_REDUCE, MICS_STREAM_REDUCE_NET, "scalars"},
        {MICS_OP_READ, MICS_STREAM_REDUCE_NET, "scalars"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct mics_op op = {.kind = rows[i].kind, .stream = rows[i].stream};

        CHECK_STR(mics_op_class_name(mics_op_class(&op)), rows[i].name);
    }
}

/* compute   |forward 0-4|      |backward 6-9|
 * net          gather 1-3, reduce 3.5-7     (another stream) reduce 5-8 */
static void exposed_time_is_what_computation_does_not_cover(void)
{
    struct mics_class_times times;

    begin();
    add(MICS_OP_FORWARD, MICS_STREAM_COMPUTE, 0, 4);
    add(MICS_OP_GATHER, MICS_STREAM_GATHER_NET, 1, 3);
    add(MICS_OP_REDUCE, MICS_STREAM_REDUCE_NET, 3.5, 7);
    add(MICS_OP_REDUCE, MICS_STREAM_REDUCE_NODE, 5, 8);
    add(MICS_OP_BACKWARD, MICS_STREAM_COMPUTE, 6, 9);
    CHECK_INT(mics_timeline_classes(&schedule, &timeline, &times, &err), MICS_OK);
    CHECK_NEAR(times.busy_s[MICS_CLASS_FORWARD], 4, 1e-12);
    CHECK_NEAR(times.busy_s[MICS_CLASS_BACKWARD], 3, 1e-12);
    CHECK_NEAR(times.exposed_s[MICS_CLASS_BACKWARD], 0, 1e-12);
    CHECK_NEAR(times.busy_s[MICS_CLASS_GATHER_NET], 2, 1e-12);
    CHECK_NEAR(times.exposed_s[MICS_CLASS_GATHER_NET], 0, 1e-12);
    CHECK_NEAR(times.exposed_s[MICS_CLASS_REDUCE_NET], 2, 1e-12);
    CHECK_NEAR(times.exposed_s[MICS_CLASS_REDUCE_NODE], 1, 1e-12);
    CHECK_NEAR(times.net_s, 5.5, 1e-12);
    CHECK_NEAR(times.net_exposed_s, 2, 1e-12);
    CHECK_NEAR(times.node_s, 3, 1e-12);
    CHECK_NEAR(times.node_exposed_s, 1, 1e-12);
    CHECK_NEAR(times.busy_s[MICS_CLASS_UPDATE], 0, 0);
}

static void coalesced_operations_count_once(void)
{
    struct mics_class_times times;

    begin();
    add(MICS_OP_GATHER, MICS_STREAM_GATHER_NODE, 2, 6);
    add(MICS_OP_GATHER, MICS_STREAM_GATHER_NODE, 3, 6);
    CHECK_INT(mics_timeline_classes(&schedule, &timeline, &times, &err), MICS_OK);
    CHECK_NEAR(times.busy_s[MICS_CLASS_GATHER_NODE], 4, 1e-12);
    CHECK_NEAR(times.exposed_s[MICS_CLASS_GATHER_NODE], 4, 1e-12);
}

static void a_timeline_of_another_schedule_is_refused(void)
{
    struct mics_class_times times;

    begin();
    add(MICS_OP_FORWARD, MICS_STREAM_COMPUTE, 0, 1);
    timeline.op_count++;
    CHECK_INT(mics_timeline_classes(&schedule, &timeline, &times, &err), MICS_ERR_ARG);
}

static void times_survive_a_document_and_damage_is_refused(void)
{
    struct mics_class_times times = {.net_s = 0.5, .node_exposed_s = 0.25}, back;
    json_t *doc = json_object(), *written;

    times.busy_s[MICS_CLASS_SYNC_NET] = 0.125;
    times.exposed_s[MICS_CLASS_SYNC_NET] = 0.0625;
    written = mics_class_times_to_json(&times);
    json_object_set_new(doc, "operations", written);
    struct mics_reading reading = {.err = &err};
    const struct mics_cursor root = mics_cursor_begin(doc, &reading);

    mics_class_times_read(&root, "operations", &back);
    CHECK_INT(reading.status, MICS_OK);
    CHECK(memcmp(&times, &back, sizeof times) == 0);
    CHECK_INT(json_object_size(json_object_get(written, "classes")), 1);
    json_object_set_new(written, "net_s", json_real(-1));
    mics_class_times_read(&root, "operations", &back);
    CHECK_INT(reading.status, MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "operations.net_s") != NULL);
    json_object_del(written, "net_s");
    reading.status = MICS_OK;
    mics_class_times_read(&root, "operations", &back);
    CHECK_INT(reading.status, MICS_ERR_FORMAT);
    json_decref(doc);
}

/* With 7 micro-steps the times are extrapolated; they must lie on the line through fewer. */
static void predicted_times_by_class_agree_with_the_prediction(void)
{
    static const uint64_t batches[] = {16, 16 * 9};

    for (int i = 0; i < 2; i++) {
        const struct mics_search_options options = {.strategy = "zero3",
                                                    .global_batch = batches[i],
                                                    .seq = 128,
                                                    .micro_batch = 1,
                                                    .recompute = MICS_RECOMPUTE_NONE,
                                                    .prefetch = 1,
                                                    .dtype = MICS_AUTO,
                                                    .grad_dtype = MICS_AUTO,
                                                    .clip = true};
        struct mics_topology *topology = NULL;
        struct mics_model *model = NULL;
        struct mics_plan *plan = NULL;

        CHECK_INT(mics_topology_parse("node:4 gpu:4 flops:1T net:10gbit", &topology, &err),
                  MICS_OK);
        CHECK_INT(mics_model_open("gpt2-nano", &model, &err), MICS_OK);
        CHECK_INT(mics_plan_search(topology, model, &options, &plan, &err), MICS_OK);
        if (!plan)
            return;
        const double *busy = plan->classes.busy_s;
        const double compute =
            busy[MICS_CLASS_FORWARD] + busy[MICS_CLASS_BACKWARD] + busy[MICS_CLASS_UPDATE];

        CHECK_NEAR(compute / plan->predicted.compute_s, 1, 1e-6);
        CHECK(plan->classes.net_s <= plan->predicted.comm_s * (1 + 1e-9));
        CHECK(plan->classes.net_exposed_s <= plan->predicted.exposed_s * (1 + 1e-9));
        CHECK(busy[MICS_CLASS_GATHER_NET] > 0 && busy[MICS_CLASS_SYNC_NET] == 0);
        mics_plan_free(plan);
    }
}

int main(void)
{
    TAP_RUN(exchanges_of_the_net_and_node_streams_are_different_classes);
    TAP_RUN(exposed_time_is_what_computation_does_not_cover);
    TAP_RUN(coalesced_operations_count_once);
    TAP_RUN(a_timeline_of_another_schedule_is_refused);
    TAP_RUN(times_survive_a_document_and_damage_is_refused);
    TAP_RUN(predicted_times_by_class_agree_with_the_prediction);
    return tap_done();
}
