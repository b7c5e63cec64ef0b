/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bound.c - the busiest resource of a step, in closed form, and flat or hierarchical exchanges.
 *
 * Three resources do work one piece at a time: the compute stream, the links inside nodes, the network cards.
 * A step cannot be shorter than the work of any of them.
 */
#include "base/num.h"
#include "plan/memory.h"
#include "plan/schedule/routes.h"
#include "plan/search/candidate.h"
#include "topology/algorithm_times.h"
#include "topology/cost.h"

#include <math.h>

/* Seconds of work on links inside nodes and on network cards. */
struct load {
    double node_s, net_s;
};

/* Rank 0 stands for all. */
struct scene {
    const struct mics_topology *topology;
    const struct mics_model *model;
    const struct mics_plan_choice *choice;
};

/* Gathers are of parameters, all else is of gradients. */
static size_t element_bytes(const struct scene *scene, enum mics_collective collective)
{
    return mics_dtype_bytes(collective == MICS_ALL_GATHER ? scene->choice->dtype
                                                          : scene->choice->grad_dtype);
}

/* Of one unit's part of a collective that `units` units like it make together. */
static double hop_seconds(const struct scene *scene, const struct mics_hop *hop,
                          enum mics_collective collective, uint64_t segment_count, uint32_t units,
                          struct mics_member *member)
{
    mics_shape_member(&scene->choice->shape, hop->comm, 0, member);
    return mics_cost_collective(
               scene->topology, collective,
               (struct mics_span){member->nodes, member->per_node, member->sharing},
               units * (segment_count / hop->divisor * element_bytes(scene, collective))) /
           units;
}

/* Units that a collective carries; what is published travels alone. */
static uint32_t units_together(const struct scene *scene, const struct mics_exchange *exchange)
{
    const bool published = exchange->hop_count > 0 && exchange->hops[0].comm == MICS_COMM_PUBLISH;

    return published ? 1 : scene->choice->joined + 1;
}

/* Work of exchanging one unit, once. */
static struct load exchange_load(const struct scene *scene, const struct mics_exchange *exchange,
                                 enum mics_collective collective, uint32_t unit)
{
    struct mics_layout layout = mics_choice_layout(scene->model, scene->choice, unit);
    struct load load = {0, 0};

    for (uint32_t i = 0; i < exchange->hop_count; i++) {
        struct mics_member member;
        double seconds = layout.segments * hop_seconds(scene, &exchange->hops[i], collective,
                                                       layout.segment_count,
                                                       units_together(scene, exchange), &member);

        *(member.nodes > 1 ? &load.net_s : &load.node_s) += seconds;
    }
    return load;
}

/* The time that was measured of both ways on such a group, of which this is one; false: it was not. A flat exchange is
 * one collective for each segment. */
static bool measured_seconds(const struct scene *scene, const struct mics_exchange *exchange,
                             enum mics_collective collective, uint32_t unit, double *seconds)
{
    const enum mics_comm_kind group =
        collective == MICS_ALL_GATHER ? MICS_COMM_GATHER : MICS_COMM_REDUCE;
    const struct mics_layout layout = mics_choice_layout(scene->model, scene->choice, unit);
    const double bytes = (double)(layout.padded * element_bytes(scene, collective));
    const double parts = layout.segments;
    const struct mics_race *race;
    struct mics_member member;

    mics_shape_member(&scene->choice->shape, group, 0, &member);
    race =
        mics_race_find(scene->topology, collective, member.nodes, member.per_node, layout.segments);
    if (!race || exchange->hop_count == 0)
        return false;
    *seconds = exchange->hop_count == 2 ? mics_race_staged(race, bytes)
                                        : parts * mics_race_flat(race, bytes / parts);
    return true;
}

/* Time to exchange one unit, measured if it was: its hops overlap from segment to segment. */
static double exchange_seconds(const struct scene *scene, const struct mics_exchange *exchange,
                               enum mics_collective collective, uint32_t unit)
{
    double measured;

    if (measured_seconds(scene, exchange, collective, unit, &measured))
        return measured;
    struct load load = exchange_load(scene, exchange, collective, unit);
    uint32_t segments = mics_choice_layout(scene->model, scene->choice, unit).segments;

    return fmax(load.node_s, load.net_s) + fmin(load.node_s, load.net_s) / segments;
}

/* Is the unit read in the forward pass only? Such a one has one stage. */
static bool is_read_once(const struct mics_model *model, uint32_t unit)
{
    for (uint32_t i = 0; i < model->stage_count; i++)
        if (model->stages[i].unit == unit && model->stages[i].backward_needs_params)
            return false;
    return true;
}

/* Gathered for the forward and for the backward that reads it, reduced once: a micro-step. */
static double gathers_seconds(const struct scene *scene)
{
    struct mics_wiring wiring = mics_wiring_of(scene->choice);
    double seconds = 0;

    for (uint32_t u = 0; u < scene->model->unit_count; u++)
        seconds += (is_read_once(scene->model, u) ? 1 : 2) *
                   exchange_seconds(scene, &wiring.gather, MICS_ALL_GATHER, u);
    return seconds;
}

static double reduces_seconds(const struct scene *scene)
{
    struct mics_wiring wiring = mics_wiring_of(scene->choice);
    double seconds = 0;

    for (uint32_t u = 0; u < scene->model->unit_count; u++)
        seconds += exchange_seconds(scene, &wiring.reduce, MICS_REDUCE_SCATTER, u);
    return seconds;
}

/* A hierarchy and more segments must each gain one in a hundred. */
void mics_choose_exchanges(const struct mics_topology *topology, const struct mics_model *model,
                           struct mics_plan_choice *choice)
{
    static const uint32_t counts[] = {1, 2, 4};
    struct mics_plan_choice trial = *choice;
    struct scene scene = {topology, model, &trial};
    double best = INFINITY;

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        double gather, reduce, staged;

        trial.segments = counts[i];
        trial.hierarchical_gather = trial.hierarchical_reduce = false;
        gather = gathers_seconds(&scene);
        reduce = reduces_seconds(&scene);
        trial.hierarchical_gather = trial.hierarchical_reduce = true;
        staged = gathers_seconds(&scene);
        trial.hierarchical_gather = staged < 0.99 * gather;
        gather = fmin(gather, staged);
        staged = reduces_seconds(&scene);
        trial.hierarchical_reduce = staged < 0.99 * reduce;
        reduce = fmin(reduce, staged);
        if (gather + reduce >= 0.99 * best)
            continue;
        best = gather + reduce;
        choice->segments = trial.segments;
        choice->hierarchical_gather = trial.hierarchical_gather;
        choice->hierarchical_reduce = trial.hierarchical_reduce;
    }
    if (isinf(best)) /* costs nothing: one rank */
        choice->segments = 1;
}

/* The part of an exchange's time that does not grow with the bytes, when `units` units make it together; of its worst
 * hop. */
static double latency_share(const struct scene *scene, const struct mics_exchange *exchange,
                            enum mics_collective collective, uint32_t units)
{
    const struct mics_layout layout =
        mics_choice_layout(scene->model, scene->choice, scene->model->unit_count / 2);
    double worst = 0;

    for (uint32_t i = 0; i < exchange->hop_count; i++) {
        const struct mics_hop *hop = &exchange->hops[i];
        struct mics_member member;
        const double one = hop_seconds(scene, hop, collective, layout.segment_count, 1, &member);
        const double two =
            2 * hop_seconds(scene, hop, collective, layout.segment_count, 2, &member);
        const double latency = fmax(0, 2 * one - two);

        worst = fmax(worst, latency / (latency + units * (one - latency)));
    }
    return worst;
}

uint32_t mics_choose_joined(const struct mics_topology *topology, const struct mics_model *model,
                            const struct mics_plan_choice *choice)
{
    static const uint32_t counts[] = {0, 1, 3, MICS_JOINED_MAX};
    const struct scene scene = {topology, model, choice};
    const struct mics_wiring wiring = mics_wiring_of(choice);
    uint32_t joined = 0;

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const uint32_t units = counts[i] + 1;

        if (i > 0 && 2 * units > model->unit_count)
            break;
        joined = counts[i];
        if (latency_share(&scene, &wiring.gather, MICS_ALL_GATHER, units) <= 0.1 &&
            latency_share(&scene, &wiring.reduce, MICS_REDUCE_SCATTER, units) <= 0.1 &&
            latency_share(&scene, &wiring.sync, MICS_ALL_REDUCE, units) <= 0.1)
            break;
    }
    return joined;
}

static double compute_seconds(const struct scene *scene)
{
    struct mics_batch batch = mics_choice_batch(scene->choice, true);
    uint32_t states = mics_optimizer_states(scene->choice->optimizer);
    double micro_step = 0, update = 0;

    for (uint32_t i = 0; i < scene->model->stage_count; i++) {
        struct mics_stage_cost work;

        scene->model->ops->stage_cost(scene->model, &batch, i, &work);
        micro_step += mics_cost_compute(scene->topology, work.forward_flops + work.backward_flops,
                                        work.forward_bytes + work.backward_bytes);
    }
    for (uint32_t u = 0; u < scene->model->unit_count; u++) {
        struct mics_layout layout = mics_choice_layout(scene->model, scene->choice, u);
        double count = (double)mics_layout_optim_shard(&layout);
        double copy = scene->choice->dtype == MICS_F32 ? 0 : sizeof(uint16_t);

        update += mics_cost_compute(scene->topology, 0,
                                    count * (sizeof(float) * (4 + 2 * states) + copy));
    }
    return micro_step * scene->choice->micro_steps + update;
}

static void add_load(struct load *total, struct load load, double times)
{
    total->node_s += times * load.node_s;
    total->net_s += times * load.net_s;
}

/* Gathers of a unit in a step. The passes go to and fro over the units that are not resident, and each finds
 * those there that were used last before the turn, one for each slot: at the head before a backward, at
 * the embedding before a forward. What only the forward reads stays if there is room for all. */
static double gather_times(const struct scene *scene, uint32_t unit)
{
    const struct mics_unit *units = scene->model->units;
    const uint32_t slots = scene->choice->prefetch + 1, steps = scene->choice->micro_steps;
    uint32_t before = 0, after = 0;

    if (units[unit].resident)
        return 1;
    for (uint32_t u = 0; u < scene->model->unit_count; u++) {
        before += u < unit && !units[u].resident;
        after += u > unit && !units[u].resident;
    }
    if (is_read_once(scene->model, unit))
        return after >= slots ? steps : 1;
    return 1 + (after >= slots ? steps : 0) + (before >= slots ? steps - 1 : 0);
}

double mics_step_bound(const struct mics_topology *topology, const struct mics_model *model,
                       const struct mics_plan_choice *choice)
{
    struct scene scene = {topology, model, choice};
    struct mics_wiring wiring = mics_wiring_of(choice);
    struct load total = {0, 0};

    for (uint32_t u = 0; u < model->unit_count; u++) {
        add_load(&total, exchange_load(&scene, &wiring.gather, MICS_ALL_GATHER, u),
                 gather_times(&scene, u));
        add_load(&total, exchange_load(&scene, &wiring.reduce, MICS_REDUCE_SCATTER, u),
                 choice->micro_steps);
        add_load(&total, exchange_load(&scene, &wiring.scatter, MICS_REDUCE_SCATTER, u), 1);
        add_load(&total, exchange_load(&scene, &wiring.sync, MICS_ALL_REDUCE, u), 1);
        add_load(&total, exchange_load(&scene, &wiring.publish, MICS_ALL_GATHER, u), 1);
    }
    return fmax(compute_seconds(&scene), fmax(total.node_s, total.net_s));
}
