/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bound.c - costs in closed form: the busiest resource of a step, and the choice of exchanges.
 *
 * Three resources are used by one operation at a time: the compute stream, the links inside nodes,
 * the network cards. A step cannot be shorter than the load of any of them.
 */
#include "base/num.h"
#include "plan/memory.h"
#include "plan/schedule/schedule.h"
#include "plan/search/internal.h"
#include "topology/cost.h"

#include <math.h>

/* Seconds for which links inside nodes and network cards are busy. */
struct load {
    double node_s, net_s;
};

/* Rank 0 represents all. */
struct cost_context {
    const struct mics_topology *topology;
    const struct mics_model *model;
    const struct mics_plan_choice *choice;
};

/* Gathers are of parameters, all other collectives of gradients. */
static size_t element_bytes(const struct cost_context *context, enum mics_collective collective)
{
    return mics_dtype_bytes(collective == MICS_ALL_GATHER ? context->choice->dtype
                                                          : context->choice->grad_dtype);
}

/* One unit's part of the time of a collective of `units` such units, coalesced. */
static double hop_seconds(const struct cost_context *context, const struct mics_hop *hop,
                          enum mics_collective collective, uint64_t segment_count, uint32_t units,
                          struct mics_group_position *position)
{
    mics_shape_position(&context->choice->shape, hop->comm, 0, position);
    return mics_cost_collective(
               context->topology, collective,
               (struct mics_span){position->nodes, position->per_node, position->sharing},
               units * (segment_count / hop->divisor * element_bytes(context, collective))) /
           units;
}

/* Units of one collective; publish is never coalesced. */
static uint32_t coalesced_units(const struct cost_context *context,
                                const struct mics_exchange *exchange)
{
    const bool is_publish = exchange->hop_count > 0 && exchange->hops[0].comm == MICS_COMM_PUBLISH;

    return is_publish ? 1 : context->choice->coalesced + 1;
}

/* Load of exchanging one unit once. */
static struct load exchange_load(const struct cost_context *context,
                                 const struct mics_exchange *exchange,
                                 enum mics_collective collective, uint32_t unit)
{
    struct mics_layout layout = mics_choice_layout(context->model, context->choice, unit);
    struct load load = {0, 0};

    for (uint32_t i = 0; i < exchange->hop_count; i++) {
        struct mics_group_position position;
        double seconds = layout.segments *
                         hop_seconds(context, &exchange->hops[i], collective, layout.segment_count,
                                     coalesced_units(context, exchange), &position);

        *(position.nodes > 1 ? &load.net_s : &load.node_s) += seconds;
    }
    return load;
}

/* The measured time of an exchange on such a group; false: it was not measured. A flat exchange is
 * one collective per segment. */
static bool measured_seconds(const struct cost_context *context,
                             const struct mics_exchange *exchange, enum mics_collective collective,
                             uint32_t unit, double *seconds)
{
    const enum mics_comm_kind group =
        collective == MICS_ALL_GATHER ? MICS_COMM_GATHER : MICS_COMM_REDUCE;
    const struct mics_layout layout = mics_choice_layout(context->model, context->choice, unit);
    const double bytes = (double)(layout.padded * element_bytes(context, collective));
    const double parts = layout.segments;
    const struct mics_algorithm_timing *timing;
    struct mics_group_position position;

    mics_shape_position(&context->choice->shape, group, 0, &position);
    timing = mics_algorithm_timing_find(context->topology, collective, position.nodes,
                                        position.per_node, layout.segments);
    if (!timing || exchange->hop_count == 0)
        return false;
    *seconds = exchange->hop_count == 2 ? mics_algorithm_timing_hierarchical(timing, bytes)
                                        : parts * mics_algorithm_timing_flat(timing, bytes / parts);
    return true;
}

/* Time to exchange one unit, measured if available: its hops overlap from segment to segment. */
static double exchange_seconds(const struct cost_context *context,
                               const struct mics_exchange *exchange,
                               enum mics_collective collective, uint32_t unit)
{
    double measured;

    if (measured_seconds(context, exchange, collective, unit, &measured))
        return measured;
    struct load load = exchange_load(context, exchange, collective, unit);
    uint32_t segments = mics_choice_layout(context->model, context->choice, unit).segments;

    return fmax(load.node_s, load.net_s) + fmin(load.node_s, load.net_s) / segments;
}

/* Is the unit read in the forward pass only? */
static bool is_read_once(const struct mics_model *model, uint32_t unit)
{
    for (uint32_t i = 0; i < model->stage_count; i++)
        if (model->stages[i].unit == unit && model->stages[i].backward_needs_params)
            return false;
    return true;
}

/* One micro-step: each unit is gathered for the forward and for the backward that reads it, and
 * reduced once. */
static double gathers_seconds(const struct cost_context *context)
{
    struct mics_routes routes = mics_choice_routes(context->choice);
    double seconds = 0;

    for (uint32_t u = 0; u < context->model->unit_count; u++)
        seconds += (is_read_once(context->model, u) ? 1 : 2) *
                   exchange_seconds(context, &routes.gather, MICS_ALL_GATHER, u);
    return seconds;
}

static double reduces_seconds(const struct cost_context *context)
{
    struct mics_routes routes = mics_choice_routes(context->choice);
    double seconds = 0;

    for (uint32_t u = 0; u < context->model->unit_count; u++)
        seconds += exchange_seconds(context, &routes.reduce, MICS_REDUCE_SCATTER, u);
    return seconds;
}

/* A hierarchy and more segments must each save at least 1 %. */
void mics_choose_exchanges(const struct mics_topology *topology, const struct mics_model *model,
                           struct mics_plan_choice *choice)
{
    static const uint32_t counts[] = {1, 2, 4};
    struct mics_plan_choice trial = *choice;
    struct cost_context context = {topology, model, &trial};
    double best = INFINITY;

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        double gather, reduce, hierarchical;

        trial.segments = counts[i];
        trial.hierarchical_gather = trial.hierarchical_reduce = false;
        gather = gathers_seconds(&context);
        reduce = reduces_seconds(&context);
        trial.hierarchical_gather = trial.hierarchical_reduce = true;
        hierarchical = gathers_seconds(&context);
        trial.hierarchical_gather = hierarchical < 0.99 * gather;
        gather = fmin(gather, hierarchical);
        hierarchical = reduces_seconds(&context);
        trial.hierarchical_reduce = hierarchical < 0.99 * reduce;
        reduce = fmin(reduce, hierarchical);
        if (gather + reduce >= 0.99 * best)
            continue;
        best = gather + reduce;
        choice->segments = trial.segments;
        choice->hierarchical_gather = trial.hierarchical_gather;
        choice->hierarchical_reduce = trial.hierarchical_reduce;
    }
    if (isinf(best)) /* one rank: no exchange takes time */
        choice->segments = 1;
}

/* The fraction of the time of an exchange of `units` coalesced units that does not grow with the
 * bytes; of its worst hop. */
static double latency_share(const struct cost_context *context,
                            const struct mics_exchange *exchange, enum mics_collective collective,
                            uint32_t units)
{
    const struct mics_layout layout =
        mics_choice_layout(context->model, context->choice, context->model->unit_count / 2);
    double worst = 0;

    for (uint32_t i = 0; i < exchange->hop_count; i++) {
        const struct mics_hop *hop = &exchange->hops[i];
        struct mics_group_position position;
        const double one =
            hop_seconds(context, hop, collective, layout.segment_count, 1, &position);
        const double two =
            2 * hop_seconds(context, hop, collective, layout.segment_count, 2, &position);
        const double latency = fmax(0, 2 * one - two);

        worst = fmax(worst, latency / (latency + units * (one - latency)));
    }
    return worst;
}

uint32_t mics_choose_coalesced(const struct mics_topology *topology, const struct mics_model *model,
                               const struct mics_plan_choice *choice)
{
    static const uint32_t counts[] = {0, 1, 3, MICS_COALESCED_MAX};
    const struct cost_context context = {topology, model, choice};
    const struct mics_routes routes = mics_choice_routes(choice);
    uint32_t coalesced = 0;

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const uint32_t units = counts[i] + 1;

        if (i > 0 && 2 * units > model->unit_count)
            break;
        coalesced = counts[i];
        if (latency_share(&context, &routes.gather, MICS_ALL_GATHER, units) <= 0.1 &&
            latency_share(&context, &routes.reduce, MICS_REDUCE_SCATTER, units) <= 0.1 &&
            latency_share(&context, &routes.sync, MICS_ALL_REDUCE, units) <= 0.1)
            break;
    }
    return coalesced;
}

static double compute_seconds(const struct cost_context *context)
{
    struct mics_batch batch = mics_choice_batch(context->choice, true);
    uint32_t states = mics_optimizer_states(context->choice->optimizer);
    double micro_step = 0, update = 0;

    for (uint32_t i = 0; i < context->model->stage_count; i++) {
        struct mics_stage_cost work;

        context->model->ops->stage_cost(context->model, &batch, i, &work);
        micro_step += mics_cost_compute(context->topology, work.forward_flops + work.backward_flops,
                                        work.forward_bytes + work.backward_bytes);
    }
    for (uint32_t u = 0; u < context->model->unit_count; u++) {
        struct mics_layout layout = mics_choice_layout(context->model, context->choice, u);
        double count = (double)mics_layout_optim_shard(&layout);
        double copy = context->choice->dtype == MICS_F32 ? 0 : sizeof(uint16_t);

        update += mics_cost_compute(context->topology, 0,
                                    count * (sizeof(float) * (4 + 2 * states) + copy));
    }
    return micro_step * context->choice->micro_steps + update;
}

static void add_load(struct load *total, struct load load, double times)
{
    total->node_s += times * load.node_s;
    total->net_s += times * load.net_s;
}

/* Gathers of a unit in a step. Forward and backward go through the units that are not resident in
 * opposite directions, and each finds gathered, one per slot, those that were used last before it
 * turned: at the head before a backward, at the embedding before a forward. A unit that only the
 * forward reads stays if there are slots for all. */
static double gather_times(const struct cost_context *context, uint32_t unit)
{
    const struct mics_unit *units = context->model->units;
    const uint32_t slots = context->choice->prefetch + 1, steps = context->choice->micro_steps;
    uint32_t before = 0, after = 0;

    if (units[unit].resident)
        return 1;
    for (uint32_t u = 0; u < context->model->unit_count; u++) {
        before += u < unit && !units[u].resident;
        after += u > unit && !units[u].resident;
    }
    if (is_read_once(context->model, unit))
        return after >= slots ? steps : 1;
    return 1 + (after >= slots ? steps : 0) + (before >= slots ? steps - 1 : 0);
}

double mics_step_bound(const struct mics_topology *topology, const struct mics_model *model,
                       const struct mics_plan_choice *choice)
{
    struct cost_context context = {topology, model, choice};
    struct mics_routes routes = mics_choice_routes(choice);
    struct load total = {0, 0};

    for (uint32_t u = 0; u < model->unit_count; u++) {
        add_load(&total, exchange_load(&context, &routes.gather, MICS_ALL_GATHER, u),
                 gather_times(&context, u));
        add_load(&total, exchange_load(&context, &routes.reduce, MICS_REDUCE_SCATTER, u),
                 choice->micro_steps);
        add_load(&total, exchange_load(&context, &routes.scatter, MICS_REDUCE_SCATTER, u), 1);
        add_load(&total, exchange_load(&context, &routes.sync, MICS_ALL_REDUCE, u), 1);
        add_load(&total, exchange_load(&context, &routes.publish, MICS_ALL_GATHER, u), 1);
    }
    return fmax(compute_seconds(&context), fmax(total.node_s, total.net_s));
}
