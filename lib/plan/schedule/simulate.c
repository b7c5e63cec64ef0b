/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simulate.c - executor "simulate": a virtual clock over the operations of a schedule.
 *
 * Streams run side by side, each in order. An operation starts when its stream is free and what it
 * waits for is complete, and takes the time that op_costs.h gives it. Steps are run one after
 * another until their periods repeat: mostly each is like the last, but without clipping, where
 * nothing divides steps, a few may alternate. With an interval, that many steps are one cycle, in
 * which operations that are idle take no time.
 *
 * Approximations: all ranks are alike, so that rank 0 represents all. Where ranks share cores, the
 * last one reaches an exchange later than the mean, by what was measured for the time since
 * computation last waited for an exchange among the same ranks; all ranks compute meanwhile.
 * Communicators of one kind that share a node's card divide it according to the cost model
 * (`sharing`). Exchanges of different streams over the same links (all cards, or all links inside
 * nodes) divide these in equal parts while they transfer; their latencies do not add. Computation
 * runs slower while communication uses the same device; an exchange that has a part of its links
 * takes only that part of what it takes alone. Copies between host memory and the device go both
 * ways at full rate beside everything else; over PCIe they divide it with exchanges inside nodes.
 * The host always issues in time, also where it waits for the rows of experts that a GPU has
 * counted: the GPU computes the first round meanwhile.
 */
#include "plan/schedule/timeline.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where the same few periods do not repeat, the mean of the last is taken. A period is that of as
 * many steps as the interval has. */
enum { MAX_PERIODS = 16, MAX_CYCLE = 4, MEAN_PERIODS = 8 };

/* Periods are the same if they differ by no more than this fraction. */
#define STEADY 1e-6

/* What the operations that use it divide among themselves. */
enum resource {
    RESOURCE_NONE,
    RESOURCE_COMPUTE,
    RESOURCE_NODE,
    RESOURCE_COPIES, /* of the host, over the links inside nodes: each way has a direction */
    RESOURCE_NET,
    RESOURCE_COUNT
};

struct op_cost {
    double latency_s, transfer_s; /* of computation: all in transfer_s */
    double slowdown;              /* of computation, while this runs alone on its links */
    double stretch;               /* times that this takes longer while computation runs */
    enum resource resource;
};

/* Phases of an operation, one after another. */
enum phase {
    PHASE_STRAGGLER, /* waiting for the last rank, while others compute */
    PHASE_LATENCY,
    PHASE_TRANSFER,
    PHASE_COUNT
};

/* A stream: its operations in order, the next of them, and the step that it is in. */
struct stream_state {
    uint32_t *ops;
    uint32_t count, next, step;
    bool running;
    const struct op_cost *cost; /* of the running operation */
    double left[PHASE_COUNT];   /* seconds at full speed */
    double speed;               /* until the next event */
};

struct sim {
    const struct mics_schedule *schedule;
    struct stream_state stream_states[MICS_STREAM_COUNT]; /* those that have operations */
    int stream_count;
    uint32_t most_steps;   /* in progress at a time, as in the engine */
    uint32_t steps_done;   /* complete on every stream */
    uint32_t *ops;         /* backs the stream_states */
    uint32_t *done;        /* [op_count] steps in which it has completed */
    struct op_cost *costs; /* [op_count] */
    double *start, *end;   /* [2][op_count], by the parity of the step */
    double now;

    /* Stragglers: when computation last waited for an exchange among the ranks of each kind. */
    bool has_stragglers;
    const struct mics_op_costs *op_costs;
    double met[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    uint32_t levels[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
};

static struct op_cost collective_cost(struct mics_op_costs *costs,
                                      const struct mics_plan_choice *choice,
                                      const struct mics_op *op, uint64_t bytes)
{
    const struct mics_collective_price cost = mics_op_costs_collective(
        costs, &choice->shapes[op->groups], op->collective, op->comm, bytes);

    return (struct op_cost){.latency_s = cost.latency_s,
                            .transfer_s = cost.transfer_s,
                            .slowdown = cost.slowdown,
                            .stretch = cost.stretch,
                            .resource = cost.between_nodes ? RESOURCE_NET : RESOURCE_NODE};
}

/* The last of coalesced operations has the cost of all. On a host, what other streams convert and
 * add takes the cores from computation; a GPU has room for it. */
static void set_costs(struct sim *sim, const struct mics_plan_choice *choice,
                      struct mics_op_costs *costs)
{
    const bool host = mics_topology_is_host(mics_op_costs_topology(costs));
    uint64_t coalesced = 0; /* bytes */

    for (uint32_t i = 0; i < sim->schedule->op_count; i++) {
        const struct mics_op *op = &sim->schedule->ops[i];

        if (op->kind == MICS_OP_LOAD || op->kind == MICS_OP_STORE) {
            const struct mics_copy_price price = mics_op_costs_copy(costs, choice, op);

            sim->costs[i] =
                (struct op_cost){.latency_s = price.latency_s,
                                 .transfer_s = price.transfer_s,
                                 .stretch = 1,
                                 .resource = price.shares_links ? RESOURCE_COPIES : RESOURCE_NONE};
            continue;
        }
        if (!mics_op_is_comm(op->kind)) {
            sim->costs[i].transfer_s = mics_op_costs_compute(costs, choice, op);
            sim->costs[i].resource =
                op->stream == MICS_STREAM_COMPUTE || host ? RESOURCE_COMPUTE : RESOURCE_NONE;
            continue;
        }
        if (op->surplus) {
            sim->costs[i] = (struct op_cost){.stretch = 1, .resource = RESOURCE_NONE};
            continue;
        }
        coalesced += op->bytes;
        if (op->coalesce_next)
            continue;
        sim->costs[i] = collective_cost(costs, choice, op, coalesced);
        sim->costs[i].latency_s += mics_op_costs_read_back(costs, choice, op);
        coalesced = 0;
    }
}

static void set_stragglers(struct sim *sim, const struct mics_plan_choice *choice,
                           const struct mics_op_costs *costs)
{
    sim->has_stragglers = mics_op_costs_topology(costs)->straggler_count > 0;
    sim->op_costs = costs;
    for (int g = 0; g < MICS_UNIT_KIND_COUNT; g++)
        for (int k = 0; k < MICS_COMM_KIND_COUNT; k++)
            sim->levels[g][k] = mics_shape_levels(&choice->shapes[g], (enum mics_comm_kind)k);
}

static enum mics_status sim_open(struct sim *sim, const struct mics_schedule *schedule,
                                 struct mics_err *err)
{
    uint32_t n = schedule->op_count, next = 0;

    *sim = (struct sim){.schedule = schedule};
    sim->ops = calloc(n, sizeof *sim->ops);
    sim->done = calloc(n, sizeof *sim->done);
    sim->costs = calloc(n, sizeof *sim->costs);
    sim->start = calloc(2 * (size_t)n, sizeof *sim->start);
    sim->end = calloc(2 * (size_t)n, sizeof *sim->end);
    if (!sim->ops || !sim->done || !sim->costs || !sim->start || !sim->end)
        return mics_err_nomem(err);
    for (int s = 0; s < MICS_STREAM_COUNT; s++) {
        struct stream_state *stream_state = &sim->stream_states[sim->stream_count];

        stream_state->ops = sim->ops + next;
        for (uint32_t i = 0; i < n; i++)
            if (schedule->ops[i].stream == (enum mics_stream_kind)s)
                sim->ops[next++] = i;
        stream_state->count = (uint32_t)(sim->ops + next - stream_state->ops);
        sim->stream_count += stream_state->count > 0;
    }
    return MICS_OK;
}

static void sim_close(struct sim *sim)
{
    free(sim->ops);
    free(sim->done);
    free(sim->costs);
    free(sim->start);
    free(sim->end);
}

static bool may_start(const struct sim *sim, const struct stream_state *stream_state)
{
    uint32_t index = stream_state->ops[stream_state->next];
    const struct mics_op *op = &sim->schedule->ops[index];

    if (stream_state->step >= sim->steps_done + sim->most_steps)
        return false;
    for (uint32_t i = op->dep_begin; i < op->dep_begin + op->dep_count; i++) {
        uint32_t dep = sim->schedule->deps[i];

        if (sim->done[dep] < stream_state->step + (dep < index))
            return false;
    }
    return true;
}

static double *time_of(const struct sim *sim, double *times,
                       const struct stream_state *stream_state, uint32_t op)
{
    return &times[(stream_state->step % 2) * sim->schedule->op_count + op];
}

/* An operation that comes later in a step is that of the step before: there was none before the
 * first, and its time is lost once it has completed in the step after this one. */
static bool has_end_of_dep(const struct sim *sim, const struct stream_state *stream_state,
                           uint32_t index, uint32_t dep)
{
    return dep < index || (stream_state->step > 0 && sim->done[dep] < stream_state->step + 2);
}

/* When operation `dep`, which `stream_state` at operation `index` waits for, ended. */
static double end_of_dep(const struct sim *sim, const struct stream_state *stream_state,
                         uint32_t index, uint32_t dep)
{
    const uint32_t step = dep < index ? stream_state->step : stream_state->step - 1;

    return sim->end[(step % 2) * sim->schedule->op_count + dep];
}

/* Ranks that have waited for an exchange have met in all kinds among these ranks; whether they have
 * in groups of another shape is known of all ranks only. */
static void meet(struct sim *sim, const struct mics_op *exchange, double when)
{
    for (int g = 0; g < MICS_UNIT_KIND_COUNT; g++)
        for (int k = 0; k < MICS_COMM_KIND_COUNT; k++)
            if ((g == (int)exchange->groups || exchange->comm == MICS_COMM_WORLD) &&
                (sim->levels[g][k] & ~sim->levels[g][exchange->comm]) == 0)
                sim->met[g][k] = fmax(sim->met[g][k], when);
}

/* A conversion is done by each rank, but waits for what its exchange waits for. */
static bool is_exchange(const struct mics_op *op)
{
    return mics_op_is_comm(op->kind) || op->kind == MICS_OP_CONVERT ||
           op->kind == MICS_OP_OUTER_DELTA || op->kind == MICS_OP_OUTER_UPDATE;
}

/* The delay by stragglers of the operation that `stream_state` is about to start: computation notes
 * the exchanges that it waited for; an exchange gets the seconds until the last rank has computed
 * what it waits for. */
static double straggler_delay(struct sim *sim, const struct stream_state *stream_state)
{
    const uint32_t index = stream_state->ops[stream_state->next];
    const struct mics_op *op = &sim->schedule->ops[index];
    double ready = 0;

    for (uint32_t i = op->dep_begin; i < op->dep_begin + op->dep_count; i++) {
        const uint32_t dep = sim->schedule->deps[i];
        const struct mics_op *before = &sim->schedule->ops[dep];

        if (!has_end_of_dep(sim, stream_state, index, dep))
            continue;
        const double end = end_of_dep(sim, stream_state, index, dep);
        if (!is_exchange(op) && is_exchange(before))
            meet(sim, before, end);
        else if (is_exchange(op) && !is_exchange(before) && sim->levels[op->groups][op->comm] != 0)
            ready = fmax(ready, end + mics_op_costs_straggler_delay(
                                          sim->op_costs, end - sim->met[op->groups][op->comm]));
    }
    return fmax(0, ready - sim->now);
}

static uint32_t interval_of(const struct sim *sim)
{
    return sim->schedule->interval > 1 ? sim->schedule->interval : 1;
}

/* Is the operation that `stream_state` is about to start idle? */
static bool is_idle(const struct sim *sim, const struct stream_state *stream_state)
{
    return mics_op_is_idle(&sim->schedule->ops[stream_state->ops[stream_state->next]],
                           stream_state->step % interval_of(sim));
}

static void start_ready(struct sim *sim)
{
    static const struct op_cost nothing = {.stretch = 1, .resource = RESOURCE_NONE};

    for (int s = 0; s < sim->stream_count; s++) {
        struct stream_state *stream_state = &sim->stream_states[s];

        if (stream_state->running || !may_start(sim, stream_state))
            continue;
        stream_state->running = true;
        const bool idle = is_idle(sim, stream_state);
        stream_state->cost = idle ? &nothing : &sim->costs[stream_state->ops[stream_state->next]];
        stream_state->left[PHASE_STRAGGLER] =
            sim->has_stragglers && !idle ? straggler_delay(sim, stream_state) : 0;
        stream_state->left[PHASE_LATENCY] = stream_state->cost->latency_s;
        stream_state->left[PHASE_TRANSFER] = stream_state->cost->transfer_s;
        *time_of(sim, sim->start, stream_state, stream_state->ops[stream_state->next]) = sim->now;
    }
}

/* Coalesced operations complete with the last of them, which has the cost of all. */
static void complete(struct sim *sim, struct stream_state *stream_state)
{
    const struct mics_op *ops = sim->schedule->ops;
    const uint32_t last = stream_state->ops[stream_state->next];

    for (uint32_t i = last; !ops[last].coalesce_next; i--) {
        *time_of(sim, sim->end, stream_state, i) = sim->now;
        sim->done[i] = stream_state->step + 1;
        if (i == 0 || !ops[i - 1].coalesce_next)
            break;
    }
    stream_state->running = false;
    if (++stream_state->next < stream_state->count)
        return;
    stream_state->next = 0;
    stream_state->step++;
    sim->steps_done = stream_state->step;
    for (int s = 0; s < sim->stream_count; s++)
        if (sim->stream_states[s].step < sim->steps_done)
            sim->steps_done = sim->stream_states[s].step;
}

/* The phase that a running operation is in; when none is left, the last. */
static enum phase phase_of(const struct stream_state *stream_state)
{
    if (stream_state->left[PHASE_STRAGGLER] > 0)
        return PHASE_STRAGGLER;
    return stream_state->left[PHASE_LATENCY] > 0 ? PHASE_LATENCY : PHASE_TRANSFER;
}

/* The last rank has all cores as soon as the others wait for it, and is then no later than all
 * would be in step. */
static void let_last_catch_up(struct sim *sim)
{
    for (int s = 0; s < sim->stream_count; s++)
        if (sim->stream_states[s].running &&
            sim->stream_states[s].cost->resource == RESOURCE_COMPUTE)
            return;
    for (int s = 0; s < sim->stream_count; s++)
        sim->stream_states[s].left[PHASE_STRAGGLER] = 0;
}

/* How many transfers share each resource. An exchange inside nodes uses both directions of the
 * links, of copies of the host a load one and a store the other: both together are one more. */
static void count_users(const struct sim *sim, uint32_t users[RESOURCE_COUNT])
{
    memset(users, 0, RESOURCE_COUNT * sizeof *users);
    for (int s = 0; s < sim->stream_count; s++)
        if (sim->stream_states[s].running && phase_of(&sim->stream_states[s]) == PHASE_TRANSFER)
            users[sim->stream_states[s].cost->resource]++;
    users[RESOURCE_NODE] += users[RESOURCE_COPIES] > 0;
    users[RESOURCE_COPIES] = users[RESOURCE_NODE];
}

/* The speed of each running operation until the next event: its share of its resource. */
static void set_speeds(struct sim *sim)
{
    static const double shares[MICS_STREAM_COUNT + 1] = {
        0, 1, 1. / 2, 1. / 3, 1. / 4, 1. / 5, 1. / 6, 1. / 7, 1. / 8, 1. / 9, 1. / 10};
    uint32_t users[RESOURCE_COUNT];
    double slowdown = 0;

    count_users(sim, users);
    for (int s = 0; s < sim->stream_count; s++) {
        struct stream_state *stream_state = &sim->stream_states[s];

        if (!stream_state->running)
            continue;
        stream_state->speed = phase_of(stream_state) != PHASE_TRANSFER ||
                                      stream_state->cost->resource == RESOURCE_NONE
                                  ? 1
                                  : shares[users[stream_state->cost->resource]];
        if (phase_of(stream_state) == PHASE_STRAGGLER)
            continue;
        slowdown += stream_state->speed * stream_state->cost->slowdown;
        if (users[RESOURCE_COMPUTE] > 0 && stream_state->cost->stretch > 1)
            stream_state->speed /= stream_state->cost->stretch;
    }
    for (int s = 0; s < sim->stream_count; s++)
        if (sim->stream_states[s].running &&
            sim->stream_states[s].cost->resource == RESOURCE_COMPUTE)
            sim->stream_states[s].speed *= fmax(1 - slowdown, MICS_LEAST_COMPUTE_SPEED);
}

/* Advance the clock until the first of the running operations completes or enters its next phase.
 * At least one always runs, since waits point backwards. Returns whether one completed. */
static bool advance(struct sim *sim)
{
    double least = DBL_MAX;
    bool completed = false;

    let_last_catch_up(sim);
    set_speeds(sim);
    for (int s = 0; s < sim->stream_count; s++) {
        const struct stream_state *stream_state = &sim->stream_states[s];
        const double left = stream_state->left[phase_of(stream_state)];

        if (stream_state->running && left < least * stream_state->speed)
            least = left / stream_state->speed;
    }
    assert(least < DBL_MAX);
    sim->now += least;
    for (int s = 0; s < sim->stream_count; s++) {
        struct stream_state *stream_state = &sim->stream_states[s];
        double *left = &stream_state->left[phase_of(stream_state)];

        if (!stream_state->running)
            continue;
        *left = *left <= least * stream_state->speed * (1 + 1e-12)
                    ? 0
                    : *left - least * stream_state->speed;
        if (stream_state->left[phase_of(stream_state)] == 0) {
            complete(sim, stream_state);
            completed = true;
        }
    }
    return completed;
}

/* Run until `step` is complete; returns the time of its last end. */
static double run_step(struct sim *sim, uint32_t step)
{
    while (sim->steps_done <= step) {
        start_ready(sim);
        while (!advance(sim))
            continue;
    }
    return sim->now;
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

/* Do the last `cycle` periods repeat those before? ends[i] is the end of period i - 1, ends[0] 0.
 */
static bool is_cycle(const double *ends, uint32_t periods, uint32_t cycle)
{
    if (periods < 2 * cycle + 1) /* the first is not like the others */
        return false;
    for (uint32_t i = periods; i > periods - cycle; i--) {
        const double period = ends[i] - ends[i - 1], before = ends[i - cycle] - ends[i - cycle - 1];

        if (fabs(period - before) > STEADY * period)
            return false;
    }
    return true;
}

/* The number of periods after which they repeat; 0: not yet. */
static uint32_t cycle_of(const double *ends, uint32_t periods)
{
    for (uint32_t cycle = 1; cycle <= MAX_CYCLE; cycle++)
        if (is_cycle(ends, periods, cycle))
            return cycle;
    return 0;
}

/* Run steps until their periods repeat. Returns their number; *step_s: the mean of a step. */
static uint32_t run_to_cycle(struct sim *sim, double *step_s)
{
    const uint32_t interval = interval_of(sim);
    double ends[MAX_PERIODS + 1] = {0};
    uint32_t periods = 0, cycle = 0;

    while (periods < MAX_PERIODS && cycle == 0) {
        ends[periods + 1] = run_step(sim, (periods + 1) * interval - 1);
        cycle = cycle_of(ends, ++periods);
    }
    if (cycle == 0)
        cycle = MEAN_PERIODS;
    *step_s = (ends[periods] - ends[periods - cycle]) / (cycle * interval);
    return periods * interval;
}

static void no_visit(void *context)
{
    (void)context;
}

enum mics_status mics_simulate(const struct mics_schedule *schedule,
                               const struct mics_plan_choice *choice, struct mics_op_costs *costs,
                               struct mics_timeline *timeline, double *step_s, struct mics_err *err)
{
    return mics_simulate_turns(schedule, choice, costs, no_visit, NULL, timeline, step_s, err);
}

enum mics_status mics_simulate_turns(const struct mics_schedule *schedule,
                                     const struct mics_plan_choice *choice,
                                     struct mics_op_costs *costs, void (*visit)(void *context),
                                     void *context, struct mics_timeline *timeline, double *step_s,
                                     struct mics_err *err)
{
    struct sim sim;
    enum mics_status status = sim_open(&sim, schedule, err);

    if (status == MICS_OK) {
        sim.most_steps = mics_choice_checks_carried(choice) ? 1 : 2;
        set_costs(&sim, choice, costs);
        set_stragglers(&sim, choice, costs);
        uint32_t steps = run_to_cycle(&sim, step_s);
        double before = sim.now;

        timeline->turn = (steps - 1) % interval_of(&sim);
        copy_timeline(&sim, steps - 1, timeline);
        timeline->period_s = *step_s;
        if (interval_of(&sim) == 1)
            visit(context);
        for (uint32_t i = 0; i < interval_of(&sim) && interval_of(&sim) > 1; i++, steps++) {
            const double end = run_step(&sim, steps);

            copy_timeline(&sim, steps, timeline);
            timeline->turn = steps % interval_of(&sim);
            timeline->period_s = end - before;
            before = end;
            visit(context);
        }
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
    const char *hint = "both need the same layers, groups, micro-steps, prefetch, segments and "
                       "offloading";

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
                                          const struct mics_plan *plan, double **out,
                                          struct mics_err *err)
{
    struct mics_op_costs *costs = NULL;
    double *seconds = calloc(schedule->op_count, sizeof *seconds);
    enum mics_status status =
        seconds ? mics_op_costs_new(plan->topology, plan->model, &costs, err) : mics_err_nomem(err);

    if (status != MICS_OK) {
        free(seconds);
        return status;
    }
    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];

        if (!mics_op_is_comm(op->kind))
            seconds[i] = mics_op_costs_compute(costs, &plan->choice, op);
    }
    mics_op_costs_free(costs);
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
        status = compute_durations(paced_schedule, paced_by, out, err);
    mics_schedule_free(run_schedule);
    mics_schedule_free(paced_schedule);
    return status;
}
