/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simulate.c - executor "simulate": a virtual clock over the operations of a schedule.
 *
 * Streams run side by side, each in order. An operation starts when its stream is free and what it
 * waits for is complete, and takes the time that cost.h gives it. Steps are run one after another
 * until their period no longer changes.
 *
 * Approximations: all ranks are alike, so that rank 0 represents all and there are no stragglers.
 * Communicators of one kind that share a node's card divide it according to the cost model
 * (`sharing`); exchanges of different streams over the same links (all cards, or all links inside
 * nodes) slow each other in proportion, including their latency. Communication takes nothing from
 * computation. The host always issues in time.
 */
#include "plan/schedule/timeline.h"

#include "topology/cost.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { MAX_STEPS = 8 };

/* The period is steady when it changes by no more than this fraction. */
#define STEADY 1e-6

enum medium { MEDIUM_NONE, MEDIUM_NODE, MEDIUM_NET, MEDIUM_COUNT };

/* A stream: its operations in order, the next of them, and the step that it is in. */
struct lane {
    uint32_t *ops;
    uint32_t count, next, step;
    bool running;
    double left; /* seconds at full speed */
};

struct sim {
    const struct mics_schedule *schedule;
    struct lane lanes[MICS_STREAM_COUNT];
    uint32_t *ops;       /* backs the lanes */
    uint32_t *done;      /* [op_count] steps in which it has completed */
    double *cost;        /* [op_count] seconds at full speed */
    uint8_t *medium;     /* [op_count] */
    double *start, *end; /* [2][op_count], by the parity of the step */
    double now;
};

static void set_costs(struct sim *sim, const struct mics_plan_choice *choice,
                      const struct mics_topology *topology)
{
    struct mics_group_position positions[MICS_COMM_KIND_COUNT];
    uint64_t coalesced = 0; /* bytes */

    for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++)
        mics_shape_position(&choice->shape, (enum mics_comm_kind)kind, 0, &positions[kind]);
    for (uint32_t i = 0; i < sim->schedule->op_count; i++) {
        const struct mics_op *op = &sim->schedule->ops[i];
        const struct mics_group_position *position = &positions[op->comm];
        struct mics_span span = {position->nodes, position->per_node, position->sharing};

        if (!mics_op_is_comm(op->kind)) {
            sim->cost[i] = mics_cost_compute(topology, op->flops, op->memory_bytes);
            continue;
        }
        sim->medium[i] = position->nodes > 1 ? MEDIUM_NET : MEDIUM_NODE;
        coalesced += op->bytes;
        if (op->coalesce_next)
            continue;
        sim->cost[i] = mics_cost_collective(topology, op->collective, span, coalesced);
        coalesced = 0;
    }
}

static enum mics_status sim_open(struct sim *sim, const struct mics_schedule *schedule,
                                 struct mics_err *err)
{
    uint32_t n = schedule->op_count, next = 0;

    *sim = (struct sim){.schedule = schedule};
    sim->ops = calloc(n, sizeof *sim->ops);
    sim->done = calloc(n, sizeof *sim->done);
    sim->cost = calloc(n, sizeof *sim->cost);
    sim->medium = calloc(n, sizeof *sim->medium);
    sim->start = calloc(2 * (size_t)n, sizeof *sim->start);
    sim->end = calloc(2 * (size_t)n, sizeof *sim->end);
    if (!sim->ops || !sim->done || !sim->cost || !sim->medium || !sim->start || !sim->end)
        return mics_err_nomem(err);
    for (int s = 0; s < MICS_STREAM_COUNT; s++) {
        sim->lanes[s].ops = sim->ops + next;
        for (uint32_t i = 0; i < n; i++)
            if (schedule->ops[i].stream == (enum mics_stream_kind)s)
                sim->ops[next++] = i;
        sim->lanes[s].count = (uint32_t)(sim->ops + next - sim->lanes[s].ops);
    }
    return MICS_OK;
}

static void sim_close(struct sim *sim)
{
    free(sim->ops);
    free(sim->done);
    free(sim->cost);
    free(sim->medium);
    free(sim->start);
    free(sim->end);
}

/* Steps that are complete on every stream. */
static uint32_t steps_done(const struct sim *sim)
{
    uint32_t least = UINT32_MAX;

    for (int s = 0; s < MICS_STREAM_COUNT; s++)
        if (sim->lanes[s].count > 0 && sim->lanes[s].step < least)
            least = sim->lanes[s].step;
    return least;
}

/* At most two steps are in progress, as in the engine. */
static bool may_start(const struct sim *sim, const struct lane *lane, uint32_t complete_steps)
{
    uint32_t index = lane->ops[lane->next];
    const struct mics_op *op = &sim->schedule->ops[index];

    if (lane->step >= complete_steps + 2)
        return false;
    for (uint32_t i = op->dep_begin; i < op->dep_begin + op->dep_count; i++) {
        uint32_t dep = sim->schedule->deps[i];

        if (sim->done[dep] < lane->step + (dep < index))
            return false;
    }
    return true;
}

static double *time_of(const struct sim *sim, double *times, const struct lane *lane, uint32_t op)
{
    return &times[(lane->step % 2) * sim->schedule->op_count + op];
}

static void start_ready(struct sim *sim)
{
    const uint32_t complete_steps = steps_done(sim);

    for (int s = 0; s < MICS_STREAM_COUNT; s++) {
        struct lane *lane = &sim->lanes[s];

        if (lane->running || lane->count == 0 || !may_start(sim, lane, complete_steps))
            continue;
        lane->running = true;
        lane->left = sim->cost[lane->ops[lane->next]];
        *time_of(sim, sim->start, lane, lane->ops[lane->next]) = sim->now;
    }
}

/* Coalesced operations complete with the last of them, which has the cost of all. */
static void complete(struct sim *sim, struct lane *lane)
{
    const struct mics_op *ops = sim->schedule->ops;
    const uint32_t last = lane->ops[lane->next];

    for (uint32_t i = last; !ops[last].coalesce_next; i--) {
        *time_of(sim, sim->end, lane, i) = sim->now;
        sim->done[i] = lane->step + 1;
        if (i == 0 || !ops[i - 1].coalesce_next)
            break;
    }
    lane->running = false;
    if (++lane->next == lane->count) {
        lane->next = 0;
        lane->step++;
    }
}

/* Advance the clock until the first of the running operations completes. At least one always runs,
 * since waits point backwards. */
static void advance(struct sim *sim)
{
    uint32_t users[MEDIUM_COUNT] = {0};
    double least = DBL_MAX;

    for (int s = 0; s < MICS_STREAM_COUNT; s++)
        if (sim->lanes[s].running)
            users[sim->medium[sim->lanes[s].ops[sim->lanes[s].next]]]++;
    users[MEDIUM_NONE] = 1;
    for (int s = 0; s < MICS_STREAM_COUNT; s++) {
        struct lane *lane = &sim->lanes[s];

        if (lane->running && lane->left * users[sim->medium[lane->ops[lane->next]]] < least)
            least = lane->left * users[sim->medium[lane->ops[lane->next]]];
    }
    assert(least < DBL_MAX);
    sim->now += least;
    for (int s = 0; s < MICS_STREAM_COUNT; s++) {
        struct lane *lane = &sim->lanes[s];
        double users_here = lane->running ? users[sim->medium[lane->ops[lane->next]]] : 1;

        if (!lane->running)
            continue;
        if (lane->left * users_here <= least * (1 + 1e-12))
            complete(sim, lane);
        else
            lane->left -= least / users_here;
    }
}

/* Run until `step` is complete; returns the time of its last end. */
static double run_step(struct sim *sim, uint32_t step)
{
    const double *end = sim->end + (step % 2) * sim->schedule->op_count;
    double last = 0;

    while (steps_done(sim) <= step) {
        start_ready(sim);
        advance(sim);
    }
    for (uint32_t i = 0; i < sim->schedule->op_count; i++)
        last = end[i] > last ? end[i] : last;
    return last;
}

static void copy_timeline(const struct sim *sim, uint32_t step, struct mics_timeline *out)
{
    uint32_t n = sim->schedule->op_count;
    const double *start = sim->start + (step % 2) * n, *end = sim->end + (step % 2) * n;
    double begin = DBL_MAX;

    for (uint32_t i = 0; i < n; i++)
        begin = start[i] < begin ? start[i] : begin;
    for (uint32_t i = 0; i < n; i++) {
        out->start[i] = start[i] - begin;
        out->end[i] = end[i] - begin;
    }
    out->op_count = n;
}

enum mics_status mics_simulate(const struct mics_schedule *schedule,
                               const struct mics_plan_choice *choice,
                               const struct mics_topology *topology, struct mics_timeline *timeline,
                               double *step_s, struct mics_err *err)
{
    struct sim sim;
    enum mics_status status = sim_open(&sim, schedule, err);
    double before = 0, period = 0, change = DBL_MAX;

    if (status == MICS_OK) {
        uint32_t step = 0;

        set_costs(&sim, choice, topology);
        while (step < MAX_STEPS && (step < 3 || fabs(change) > STEADY * period)) {
            double now = run_step(&sim, step++);

            change = now - before - period;
            period = now - before;
            before = now;
        }
        copy_timeline(&sim, step - 1, timeline);
        *step_s = period;
    }
    sim_close(&sim);
    return status;
}

static bool is_same_op(const struct mics_op *a, const struct mics_op *b)
{
    return a->kind == b->kind && a->stream == b->stream && a->unit == b->unit &&
           a->stage == b->stage && a->micro_step == b->micro_step && a->segment == b->segment;
}

static enum mics_status expect_same_ops(const struct mics_schedule *run,
                                        const struct mics_schedule *paced_by, struct mics_err *err)
{
    const char *hint = "both need the same layers, groups, micro-steps, prefetch and segments";

    if (run->op_count != paced_by->op_count)
        return mics_err_set(err, MICS_ERR_ARG,
                            "its step has %u operations, that of this plan has %u: %s",
                            paced_by->op_count, run->op_count, hint);
    for (uint32_t i = 0; i < run->op_count; i++)
        if (!is_same_op(&run->ops[i], &paced_by->ops[i]))
            return mics_err_set(err, MICS_ERR_ARG,
                                "operation %u of its step is %s, that of this plan is %s: %s", i,
                                mics_op_kind_name(paced_by->ops[i].kind),
                                mics_op_kind_name(run->ops[i].kind), hint);
    return MICS_OK;
}

static enum mics_status compute_durations(const struct mics_schedule *schedule,
                                          const struct mics_topology *topology, double **out,
                                          struct mics_err *err)
{
    double *seconds = calloc(schedule->op_count, sizeof *seconds);

    if (!seconds)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];

        if (!mics_op_is_comm(op->kind))
            seconds[i] = mics_cost_compute(topology, op->flops, op->memory_bytes);
    }
    *out = seconds;
    return MICS_OK;
}

enum mics_status mics_op_durations_new(const struct mics_plan *run,
                                       const struct mics_plan *paced_by, double **out,
                                       struct mics_err *err)
{
    struct mics_schedule *run_schedule = NULL, *paced_schedule = NULL;
    enum mics_status status = mics_schedule_new(run->model, &run->choice, true, &run_schedule, err);

    if (status == MICS_OK)
        status = mics_schedule_new(paced_by->model, &paced_by->choice, true, &paced_schedule, err);
    if (status == MICS_OK)
        status = expect_same_ops(run_schedule, paced_schedule, err);
    if (status == MICS_OK)
        status = compute_durations(paced_schedule, paced_by->topology, out, err);
    mics_schedule_free(run_schedule);
    mics_schedule_free(paced_schedule);
    return status;
}
