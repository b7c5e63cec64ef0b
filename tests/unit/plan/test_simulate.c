/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_simulate.c - small hand-made schedules of computations of given durations, on a cluster
 * where gathering a byte by two ranks of a node or by two nodes takes half a second.
 */
#include "plan/schedule/timeline.h"
#include "tap.h"

#include <stdlib.h>

#include "plan_fake.h"

enum { MAX_OPS = 8 };

/* Two groups share a node's card. */
#define HOSTS                                                                                      \
    .nodes = 2, .per_node = 2, .device = "host", .flops = 1, .memory_bandwidth = 1e9,              \
    .node_link = {.bandwidth_bytes = 1}, .net_link = {.bandwidth_bytes = 2}

static const struct mics_topology slow = {HOSTS};

/* Where a message takes 3 seconds. */
static const struct mics_topology late = {
    .nodes = 2,
    .per_node = 2,
    .device = "host",
    .flops = 1,
    .memory_bandwidth = 1e9,
    .node_link = {.latency_s = 3, .bandwidth_bytes = 1},
    .net_link = {.bandwidth_bytes = 2},
};

/* Where NCCL's kernels take one of 108 multiprocessors. */
static const struct mics_topology gpus = {
    .device = "NVIDIA A100 80GB",
    .nodes = 2,
    .per_node = 2,
    .flops = 1,
    .memory_bandwidth = 1e9,
    .node_link = {.bandwidth_bytes = 1},
    .net_link = {.bandwidth_bytes = 2},
};

/* Where a gather inside a node takes twice as long while ranks compute, which takes a quarter of
 * the computation's speed. */
static struct mics_collective_cost measured = {.collective = MICS_ALL_GATHER,
                                               .nodes = 1,
                                               .per_node = 2,
                                               .cost = {.bandwidth_bytes = 2},
                                               .overlap_count = 1,
                                               .overlap = {{20, 10, 20, .25}}};
static const struct mics_topology shared = {
    HOSTS,
    .cost_count = 1,
    .costs = &measured,
};

/* Where zeroing memory was measured to take twice as long as its bandwidth says. */
static struct mics_kernel_rates zeroing = {
    .kernel = MICS_K_ZERO, .count = 1, .points = {{1e9, 1, 1, 2}}};
static const struct mics_topology rated = {
    HOSTS,
    .kernel_rate_count = 1,
    .kernel_rates = &zeroing,
};

/* Where the last of ranks that have computed for 4 seconds is 2 seconds behind. */
static const struct mics_topology uneven = {
    HOSTS,
    .straggler_count = 1,
    .stragglers = {{4, 2}},
};

/* Where exchanges inside nodes and copies of the host share links. */
static const struct mics_topology cards = {
    .device = "card",
    .nodes = 2,
    .per_node = 2,
    .flops = 1,
    .memory_bandwidth = 1e9,
    .node_link = {.bandwidth_bytes = 1},
    .net_link = {.bandwidth_bytes = 2},
};

static const struct mics_topology *topology = &slow;

/* Each computation is a stage of its own, which zeroes memory for so long. */
static double seconds_of_stage[MAX_OPS];

static void zero_memory(const struct mics_pass *pass, uint32_t stage)
{
    mics_launch_zero(pass->stream,
                     &(struct mics_args_zero){
                         .bytes = (uint64_t)(seconds_of_stage[stage] * slow.memory_bandwidth)});
}

static const struct mics_model_ops zero_ops = {.forward = zero_memory, .backward = zero_memory};
static struct fake_model stages;

static struct mics_plan_choice choice;
static struct mics_op ops[MAX_OPS];
static uint32_t deps[MAX_OPS], op_count, dep_count;
static double start[MAX_OPS], end[MAX_OPS], step_s;
static struct mics_schedule schedule;
static struct mics_timeline timeline;

static void begin(void)
{
    choice = fake_choice(2, 2, 2, 2, 2);
    memset(ops, 0, sizeof ops);
    memset(seconds_of_stage, 0, sizeof seconds_of_stage);
    op_count = dep_count = 0;
}

static void compute(double seconds)
{
    seconds_of_stage[op_count] = seconds;
    ops[op_count] = (struct mics_op){.kind = MICS_OP_FORWARD,
                                     .stream = MICS_STREAM_COMPUTE,
                                     .stage = op_count,
                                     .dep_begin = dep_count};
    op_count++;
}

static void exchange(enum mics_op_kind kind, enum mics_stream_kind stream, enum mics_comm_kind comm,
                     uint64_t seconds)
{
    ops[op_count++] = (struct mics_op){.kind = kind,
                                       .stream = stream,
                                       .comm = comm,
                                       .collective = MICS_ALL_GATHER,
                                       .bytes = 2 * seconds,
                                       .dep_begin = dep_count};
}

static void gather(uint64_t seconds)
{
    exchange(MICS_OP_GATHER, MICS_STREAM_GATHER_NODE, MICS_COMM_GATHER, seconds);
}

/* A load or a store of optimizer states, at the rate that is assumed. */
static void copy(enum mics_op_kind kind, double seconds)
{
    ops[op_count++] =
        (struct mics_op){.kind = kind,
                         .stream = kind == MICS_OP_LOAD ? MICS_STREAM_LOAD : MICS_STREAM_STORE,
                         .bytes = (uint64_t)(seconds * MICS_HOST_COPY_RATE),
                         .dep_begin = dep_count};
}

/* The newest operation waits for `dep`. */
static void wait_for(uint32_t dep)
{
    deps[dep_count++] = dep;
    ops[op_count - 1].dep_count++;
}

static void simulate(void)
{
    struct mics_err err = {""};
    struct mics_op_costs *costs = NULL;

    fake_model_init(&stages, MAX_OPS - 2, 1, 1, false);
    stages.model.ops = &zero_ops;
    for (uint32_t u = 0; u < stages.model.unit_count; u++)
        stages.units[u].count = u + 1; /* no stage is like another */
    CHECK_INT(mics_op_costs_new(topology, &stages.model, &costs, &err), MICS_OK);
    schedule = (struct mics_schedule){
        .ops = ops, .op_count = op_count, .deps = deps, .dep_total = dep_count};
    timeline = (struct mics_timeline){.start = start, .end = end};
    CHECK_INT(mics_simulate(&schedule, &choice, costs, &timeline, &step_s, &err), MICS_OK);
    mics_op_costs_free(costs);
    CHECK_INT(timeline.op_count, op_count);
}

static void coalesced_operations_complete_together(void)
{
    begin();
    gather(2);
    ops[0].coalesce_next = true;
    gather(3);
    compute(1);
    wait_for(0);
    simulate();
    CHECK_NEAR(start[0], 0, 1e-9);
    CHECK_NEAR(end[0], 5, 1e-6);
    CHECK_NEAR(end[1], 5, 1e-6);
    CHECK_NEAR(start[2], 5, 1e-6);
}

static void operations_of_one_stream_follow_each_other(void)
{
    begin();
    compute(2);
    compute(3);
    simulate();
    CHECK_NEAR(step_s, 5, 1e-9);
    CHECK_NEAR(start[1], 2, 1e-9);
    CHECK_NEAR(end[1], 5, 1e-9);
}

static void streams_run_side_by_side_and_steps_overlap(void)
{
    begin();
    gather(3);
    compute(5);
    simulate();
    CHECK_NEAR(step_s, 5, 1e-9);
}

/* In fp16 with an interval the host waits for a step before it enqueues the next. */
static void a_step_that_checks_what_units_carry_begins_after_the_one_before(void)
{
    begin();
    choice.dtype = MICS_F16;
    compute(4);
    exchange(MICS_OP_REDUCE, MICS_STREAM_REDUCE_NODE, MICS_COMM_REDUCE, 3);
    wait_for(0);
    simulate();
    CHECK_NEAR(step_s, 4, 1e-9);
    choice.sync_interval = 2;
    simulate();
    CHECK_NEAR(step_s, 7, 1e-9);
    choice.dtype = MICS_BF16;
    simulate();
    CHECK_NEAR(step_s, 4, 1e-9);
}

static void an_operation_waits_for_another_of_the_same_step(void)
{
    begin();
    gather(3);
    compute(5);
    wait_for(0);
    simulate();
    CHECK_NEAR(start[1] - end[0], 2,
               1e-9); /* gathered during the computation of the previous step */
    CHECK_NEAR(step_s, 5, 1e-9);
}

static void an_operation_waits_for_another_of_the_previous_step(void)
{
    begin();
    gather(3);
    wait_for(1);
    compute(5);
    wait_for(0);
    simulate();
    CHECK_NEAR(step_s, 8, 1e-9);
    CHECK_NEAR(start[1], 3, 1e-9);
}

static void exchanges_over_the_same_links_slow_each_other(void)
{
    begin();
    gather(4);
    wait_for(2);
    exchange(MICS_OP_REDUCE, MICS_STREAM_REDUCE_NODE, MICS_COMM_REDUCE, 4);
    wait_for(2);
    compute(1);
    wait_for(0);
    wait_for(1);
    simulate();
    CHECK_NEAR(end[0], 8, 1e-9);
    CHECK_NEAR(step_s, 9, 1e-9);
}

static void their_latencies_overlap(void)
{
    topology = &late;
    begin();
    gather(4);
    wait_for(2);
    exchange(MICS_OP_REDUCE, MICS_STREAM_REDUCE_NODE, MICS_COMM_REDUCE, 4);
    wait_for(2);
    compute(1);
    wait_for(0);
    wait_for(1);
    simulate();
    topology = &slow;
    CHECK_NEAR(end[0], 3 + 8, 1e-9);
    CHECK_NEAR(step_s, 12, 1e-9);
}

static void exchanges_over_different_links_do_not(void)
{
    begin();
    gather(4);
    wait_for(2);
    exchange(MICS_OP_SYNC, MICS_STREAM_REDUCE_NET, MICS_COMM_REPLICA, 4);
    wait_for(2);
    compute(1);
    wait_for(0);
    wait_for(1);
    simulate();
    CHECK_NEAR(step_s, 5, 1e-9);
}

static void copies_of_the_host_have_a_direction_each(void)
{
    topology = &cards;
    begin();
    copy(MICS_OP_LOAD, 4);
    simulate();
    CHECK_NEAR(step_s, 4, 1e-3);
    copy(MICS_OP_STORE, 3);
    simulate();
    CHECK_NEAR(end[0] - start[0], 4, 1e-3);
    CHECK_NEAR(end[1] - start[1], 3, 1e-3);
    topology = &slow;
}

static void they_divide_the_links_with_exchanges_inside_nodes(void)
{
    topology = &cards;
    begin();
    copy(MICS_OP_LOAD, 4);
    wait_for(3);
    copy(MICS_OP_STORE, 4);
    wait_for(3);
    gather(4);
    wait_for(3);
    compute(1);
    wait_for(0);
    wait_for(1);
    wait_for(2);
    simulate();
    for (int i = 0; i < 3; i++)
        CHECK_NEAR(end[i] - start[i], 8, 1e-3);
    topology = &slow;
}

static void communication_slows_the_computation_beside_it(void)
{
    topology = &gpus;
    begin();
    gather(20);
    wait_for(2);
    compute(5);
    compute(3);
    wait_for(0);
    simulate();
    topology = &slow;
    CHECK(end[0] - start[0] > 10);
    /* A launch takes some microseconds. */
    CHECK_NEAR(end[1] - start[1], 5 / (1 - 1. / 108), 1e-5);
    CHECK_NEAR(end[2] - start[2], 3, 1e-5); /* after the gather */
}

static void shared_cores_slow_both_as_long_as_both_run(void)
{
    topology = &shared;
    begin();
    gather(10);
    wait_for(2);
    compute(6);
    compute(3);
    wait_for(0);
    simulate();
    topology = &slow;
    CHECK_NEAR(end[1] - start[1], 8, 1e-6);
    CHECK_NEAR(end[0] - start[0], 14, 1e-6); /* a half of its speed for 8 seconds */
    CHECK_NEAR(end[2] - start[2], 3, 1e-6);
}

/* What another stream computes for 2 s beside 6 s of computation. */
static void compute_on_another_stream(void)
{
    begin();
    compute(2);
    ops[0].stream = MICS_STREAM_REDUCE_NODE;
    compute(6);
    simulate();
}

static void what_other_streams_compute_takes_the_cores_of_a_host_but_not_a_gpu(void)
{
    compute_on_another_stream();
    CHECK_NEAR(end[0] - start[0], 4, 1e-6); /* at a half of its speed, as the other */
    CHECK_NEAR(end[1] - start[1], 8, 1e-6);
    topology = &gpus;
    compute_on_another_stream();
    topology = &slow;
    CHECK_NEAR(end[0] - start[0], 2, 1e-5);
    CHECK_NEAR(end[1] - start[1], 6, 1e-5);
}

static void an_exchange_begins_when_the_last_rank_has_computed_what_it_waits_for(void)
{
    topology = &uneven;
    begin();
    compute(3);
    gather(2);
    wait_for(0);
    compute(6);
    compute(1);
    wait_for(1);
    simulate();
    topology = &slow;
    CHECK_NEAR(step_s, 10, 1e-6);
    /* Ranks met at the end of the previous gather, 5 s before it is to begin. */
    CHECK_NEAR(end[1] - start[1], 2 + 2, 1e-6);
}

static void an_exchange_in_a_node_does_not_hold_nodes_together(void)
{
    topology = &uneven;
    begin();
    compute(2);
    gather(2);
    wait_for(0);
    compute(3);
    wait_for(1);
    exchange(MICS_OP_SYNC, MICS_STREAM_REDUCE_NET, MICS_COMM_REPLICA, 1);
    wait_for(2);
    compute(6);
    compute(1);
    wait_for(3);
    simulate();
    topology = &slow;
    /* Nodes met in the step before; the ranks of a node at the gather, 3 s before: 1.5 s. */
    CHECK_NEAR(end[3] - start[3], 1 + 2, 1e-6);
}

/* As before, but the exchange follows a conversion, which waits in its place. */
static void a_conversion_waits_for_the_last_rank(void)
{
    topology = &uneven;
    begin();
    compute(2);
    gather(2);
    wait_for(0);
    compute(3);
    wait_for(1);
    exchange(MICS_OP_CONVERT, MICS_STREAM_REDUCE_NET, MICS_COMM_REPLICA, 0);
    wait_for(2);
    exchange(MICS_OP_SYNC, MICS_STREAM_REDUCE_NET, MICS_COMM_REPLICA, 1);
    exchange(MICS_OP_CONVERT, MICS_STREAM_REDUCE_NET, MICS_COMM_REPLICA, 0);
    compute(6);
    compute(1);
    wait_for(5);
    simulate();
    topology = &slow;
    CHECK_NEAR(end[3] - start[3], 2, 1e-4);
    CHECK_NEAR(end[4] - start[4], 1, 1e-4);
    CHECK_NEAR(end[5] - start[3], 1 + 2, 1e-4);
}

static void ranks_that_wait_let_the_last_catch_up(void)
{
    topology = &uneven;
    begin();
    compute(4);
    gather(2);
    wait_for(0);
    compute(1);
    wait_for(1);
    simulate();
    topology = &slow;
    CHECK_NEAR(step_s, 7, 1e-6);
}

static void a_launch_takes_its_measured_time(void)
{
    mics_kernel_rates_fit(&zeroing);
    topology = &rated;
    begin();
    compute(5);
    simulate();
    topology = &slow;
    CHECK_NEAR(step_s, 10, 1e-6);
}

static struct mics_overlap overlap(void)
{
    struct mics_overlap out = {0};

    CHECK_INT(mics_timeline_overlap(&schedule, &timeline, &out, NULL), MICS_OK);
    return out;
}

static void set_times(uint32_t op, double from, double to)
{
    start[op] = from;
    end[op] = to;
}

static void exposed_communication_is_what_no_computation_covers(void)
{
    begin();
    gather(1);
    compute(1);
    gather(1);
    compute(1);
    exchange(MICS_OP_REDUCE, MICS_STREAM_REDUCE_NODE, MICS_COMM_REDUCE, 4);
    simulate();
    timeline.period_s = 0;
    set_times(0, 0, 2);   /* alone until 1 */
    set_times(1, 1, 4);   /* computes */
    set_times(2, 3, 6);   /* alone from 4 to 5 */
    set_times(3, 5, 7);   /* computes */
    set_times(4, 5.5, 9); /* alone from 7 on */
    CHECK_NEAR(overlap().span_s, 9, 1e-9);
    CHECK_NEAR(overlap().compute_s, 5, 1e-9);
    CHECK_NEAR(overlap().comm_s, 8, 1e-9);
    CHECK_NEAR(overlap().exposed_s, 4, 1e-9);
}

static void an_exchange_that_the_next_step_covers_is_not_exposed(void)
{
    begin();
    compute(1);
    exchange(MICS_OP_REDUCE, MICS_STREAM_REDUCE_NODE, MICS_COMM_REDUCE, 4);
    simulate();
    set_times(0, 0, 5);
    set_times(1, 4, 8);
    timeline.period_s = 6; /* the next step computes from 6 on: only 5 to 6 is exposed */
    CHECK_NEAR(overlap().span_s, 8, 1e-9);
    CHECK_NEAR(overlap().compute_s, 5, 1e-9);
    CHECK_NEAR(overlap().comm_s, 4, 1e-9);
    CHECK_NEAR(overlap().exposed_s, 1, 1e-9);
    timeline.period_s = 4; /* shorter than the computation */
    CHECK_NEAR(overlap().compute_s, 5, 1e-9);
    CHECK_NEAR(overlap().exposed_s, 0, 1e-9);
    timeline.period_s = 20;
    CHECK_NEAR(overlap().exposed_s, 3, 1e-9);
    timeline.period_s = 0;
    CHECK_NEAR(overlap().exposed_s, 3, 1e-9);
}

/* For every plan with a step of its own; the rest is idle time. */
static void computation_and_exposed_communication_fit_the_period(void)
{
    begin();
    compute(3);
    gather(1);
    compute(2);
    exchange(MICS_OP_REDUCE, MICS_STREAM_REDUCE_NODE, MICS_COMM_REDUCE, 4);
    simulate();
    CHECK_NEAR(timeline.period_s, step_s, 1e-12);
    CHECK(overlap().compute_s + overlap().exposed_s <= step_s + 1e-9);
}

static void a_timeline_of_another_length_is_refused(void)
{
    struct mics_overlap out;

    begin();
    compute(1);
    simulate();
    timeline.op_count = 2;
    CHECK_INT(mics_timeline_overlap(&schedule, &timeline, &out, NULL), MICS_ERR_ARG);
}

/* Lower and upper bound of a real schedule; the upper one has no overlap. */
static void a_step_takes_no_less_than_its_computation_and_no_more_than_all_operations(void)
{
    struct fake_model fake;
    struct mics_schedule *real = NULL;
    double computing = 0, all = 0, from[512], to[512];
    struct mics_timeline times = {.start = from, .end = to};
    struct mics_op_costs *costs = NULL;

    fake_model_init(&fake, 4, 10000, 7001, true);
    choice = fake_choice(2, 2, 4, 4, 4);
    CHECK_INT(mics_schedule_new(&fake.model, &choice, true, &real, NULL), MICS_OK);
    if (!real || real->op_count > 512)
        return;
    CHECK_INT(mics_op_costs_new(&slow, &stages.model, &costs, NULL), MICS_OK);
    CHECK_INT(mics_simulate(real, &choice, costs, &times, &step_s, NULL), MICS_OK);
    mics_op_costs_free(costs);
    for (uint32_t i = 0; i < real->op_count; i++) {
        all += to[i] - from[i];
        computing += real->ops[i].stream == MICS_STREAM_COMPUTE ? to[i] - from[i] : 0;
        for (uint32_t j = real->ops[i].dep_begin;
             j < real->ops[i].dep_begin + real->ops[i].dep_count; j++)
            CHECK(real->deps[j] >= i || to[real->deps[j]] <= from[i] + 1e-9);
    }
    CHECK(step_s >= computing * (1 - 1e-9) && step_s <= all);
    mics_schedule_free(real);
}

int main(void)
{
    TAP_RUN(operations_of_one_stream_follow_each_other);
    TAP_RUN(coalesced_operations_complete_together);
    TAP_RUN(streams_run_side_by_side_and_steps_overlap);
    TAP_RUN(a_step_that_checks_what_units_carry_begins_after_the_one_before);
    TAP_RUN(an_operation_waits_for_another_of_the_same_step);
    TAP_RUN(an_operation_waits_for_another_of_the_previous_step);
    TAP_RUN(exchanges_over_the_same_links_slow_each_other);
    TAP_RUN(their_latencies_overlap);
    TAP_RUN(exchanges_over_different_links_do_not);
    TAP_RUN(copies_of_the_host_have_a_direction_each);
    TAP_RUN(they_divide_the_links_with_exchanges_inside_nodes);
    TAP_RUN(communication_slows_the_computation_beside_it);
    TAP_RUN(shared_cores_slow_both_as_long_as_both_run);
    TAP_RUN(what_other_streams_compute_takes_the_cores_of_a_host_but_not_a_gpu);
    TAP_RUN(an_exchange_begins_when_the_last_rank_has_computed_what_it_waits_for);
    TAP_RUN(an_exchange_in_a_node_does_not_hold_nodes_together);
    TAP_RUN(a_conversion_waits_for_the_last_rank);
    TAP_RUN(ranks_that_wait_let_the_last_catch_up);
    TAP_RUN(a_launch_takes_its_measured_time);
    TAP_RUN(exposed_communication_is_what_no_computation_covers);
    TAP_RUN(an_exchange_that_the_next_step_covers_is_not_exposed);
    TAP_RUN(computation_and_exposed_communication_fit_the_period);
    TAP_RUN(a_timeline_of_another_length_is_refused);
    TAP_RUN(a_step_takes_no_less_than_its_computation_and_no_more_than_all_operations);
    return tap_done();
}
