/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simulate.c - executor "simulate": a virtual clock over the operations of a schedule.
 *
 * Streams run side by side, each in order; an operation starts when its stream is free and what it waits
 * for is over, and takes the time that cost.h gives it. Steps are run after each other until the
 * distance between two of them changes no more.
 *
 * Approximations. All ranks are alike, so that one stands for all and nobody waits for stragglers.
 * Communicators of one kind that share a node's card have their share of it from the cost model
 * (`sharing`); exchanges of different streams over the same links (all cards, or all links inside
 * nodes) slow each other in proportion, latency and all. Communication takes nothing from computation.
 * The host is never late.
 */
#include "plan/schedule/timeline.h"

#include "topology/cost.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { MAX_STEPS = 8 };

/* A step that differs from the one before by no more than this part of it is like all that follow. */
#define STEADY 1e-6

enum medium { MEDIUM_NONE, MEDIUM_NODE, MEDIUM_NET, MEDIUM_COUNT };

struct lane {
    uint32_t *ops; /* of this stream, in order */
    uint32_t count, next, step;
    bool running;
    double left; /* seconds of work at full speed */
};

struct sim {
    const struct mics_schedule *schedule;
    struct lane lanes[MICS_STREAM_COUNT];
    uint32_t *ops;       /* backs the lanes */
    uint32_t *done;      /* [op_count] steps in which it is over */
    double *cost;        /* [op_count] seconds alone */
    uint8_t *medium;     /* [op_count] */
    double *start, *end; /* [2][op_count], by the parity of the step */
    double now;
};

static void price(struct sim *sim, const struct mics_plan_choice *choice,
                  const struct mics_topology *topology)
{
    struct mics_member members[MICS_COMM_KIND_COUNT];
    uint64_t joined = 0; /* bytes that travel together */

    for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++)
        mics_shape_member(&choice->shape, (enum mics_comm_kind)kind, 0, &members[kind]);
    for (uint32_t i = 0; i < sim->schedule->op_count; i++) {
        const struct mics_op *op = &sim->schedule->ops[i];
        const struct mics_member *member = &members[op->comm];
        struct mics_span span = {member->nodes, member->per_node, member->sharing};

        if (!mics_op_is_comm(op->kind)) {
            sim->cost[i] = mics_cost_compute(topology, op->flops, op->memory_bytes);
            continue;
        }
        sim->medium[i] = member->nodes > 1 ? MEDIUM_NET : MEDIUM_NODE;
        joined += op->bytes;
        if (op->joins)
            continue;
        sim->cost[i] = mics_cost_collective(topology, op->collective, span, joined);
        joined = 0;
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

/* Steps that are over on every stream. */
static uint32_t steps_done(const struct sim *sim)
{
    uint32_t least = UINT32_MAX;

    for (int s = 0; s < MICS_STREAM_COUNT; s++)
        if (sim->lanes[s].count > 0 && sim->lanes[s].step < least)
            least = sim->lanes[s].step;
    return least;
}

/* At most two steps are under way, as in the trainer. */
static bool may_start(const struct sim *sim, const struct lane *lane, uint32_t over)
{
    uint32_t index = lane->ops[lane->next];
    const struct mics_op *op = &sim->schedule->ops[index];

    if (lane->step >= over + 2)
        return false;
    for (uint32_t i = op->dep_begin; i < op->dep_begin + op->dep_count; i++) {
        uint32_t dep = sim->schedule->deps[i];

        if (sim->done[dep] < lane->step + (dep < index))
            return false;
    }
    return true;
}

static double *slot_of(const struct sim *sim, double *times, const struct lane *lane, uint32_t op)
{
    return &times[(lane->step % 2) * sim->schedule->op_count + op];
}

static void start_what_can(struct sim *sim)
{
    uint32_t over = steps_done(sim);

    for (int s = 0; s < MICS_STREAM_COUNT; s++) {
        struct lane *lane = &sim->lanes[s];

        if (lane->running || lane->count == 0 || !may_start(sim, lane, over))
            continue;
        lane->running = true;
        lane->left = sim->cost[lane->ops[lane->next]];
        *slot_of(sim, sim->start, lane, lane->ops[lane->next]) = sim->now;
    }
}

/* Operations that join are over with the last of them, which has the cost of all. */
static void finish(struct sim *sim, struct lane *lane)
{
    const struct mics_op *ops = sim->schedule->ops;
    const uint32_t last = lane->ops[lane->next];

    for (uint32_t i = last; !ops[last].joins; i--) {
        *slot_of(sim, sim->end, lane, i) = sim->now;
        sim->done[i] = lane->step + 1;
        if (i == 0 || !ops[i - 1].joins)
            break;
    }
    lane->running = false;
    if (++lane->next == lane->count) {
        lane->next = 0;
        lane->step++;
    }
}

/* Let what runs run until the first of it is over. Something always runs: waits point backwards. */
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
            finish(sim, lane);
        else
            lane->left -= least / users_here;
    }
}

/* Run step `step` to its end; when that is. */
static double run_step(struct sim *sim, uint32_t step)
{
    const double *end = sim->end + (step % 2) * sim->schedule->op_count;
    double last = 0;

    while (steps_done(sim) <= step) {
        start_what_can(sim);
        advance(sim);
    }
    for (uint32_t i = 0; i < sim->schedule->op_count; i++)
        last = end[i] > last ? end[i] : last;
    return last;
}

static void copy_out(const struct sim *sim, uint32_t step, struct mics_timeline *out)
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

        price(&sim, choice, topology);
        while (step < MAX_STEPS && (step < 3 || fabs(change) > STEADY * period)) {
            double now = run_step(&sim, step++);

            change = now - before - period;
            period = now - before;
            before = now;
        }
        copy_out(&sim, step - 1, timeline);
        *step_s = period;
    }
    sim_close(&sim);
    return status;
}

static bool is_alike(const struct mics_op *a, const struct mics_op *b)
{
    return a->kind == b->kind && a->stream == b->stream && a->unit == b->unit &&
           a->stage == b->stage && a->micro_step == b->micro_step && a->segment == b->segment;
}

static enum mics_status compare(const struct mics_schedule *run, const struct mics_schedule *pace,
                                struct mics_err *err)
{
    const char *hint = "both need the same layers, groups, micro-steps, prefetch and segments";

    if (run->op_count != pace->op_count)
        return mics_err_set(err, MICS_ERR_ARG,
                            "a step of it has %u operations, and this plan's has %u: %s",
                            pace->op_count, run->op_count, hint);
    for (uint32_t i = 0; i < run->op_count; i++)
        if (!is_alike(&run->ops[i], &pace->ops[i]))
            return mics_err_set(err, MICS_ERR_ARG, "operation %u is %s there and %s here: %s", i,
                                mics_op_kind_name(pace->ops[i].kind),
                                mics_op_kind_name(run->ops[i].kind), hint);
    return MICS_OK;
}

static enum mics_status price_compute(const struct mics_schedule *schedule,
                              const struct mics_topology *topology, double **out,
                              struct mics_err *err)
{
    double *seconds = calloc(schedule->op_count, sizeof *seconds);

    if (!seconds)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < schedule->op_count; i++)
        if (!mics_op_is_comm(schedule->ops[i].kind))
            seconds[i] =
                mics_cost_compute(topology, schedule->ops[i].flops, schedule->ops[i].memory_bytes);
    *out = seconds;
    return MICS_OK;
}

enum mics_status mics_pace_make(const struct mics_plan *run, const struct mics_plan *pace,
                                double **out, struct mics_err *err)
{
    struct mics_schedule *mine = NULL, *theirs = NULL;
    enum mics_status status = mics_schedule_new(run->model, &run->choice, true, &mine, err);

    if (status == MICS_OK)
        status = mics_schedule_new(pace->model, &pace->choice, true, &theirs, err);
    if (status == MICS_OK)
        status = compare(mine, theirs, err);
    if (status == MICS_OK)
        status = price_compute(theirs, pace->topology, out, err);
    mics_schedule_free(mine);
    mics_schedule_free(theirs);
    return status;
}
