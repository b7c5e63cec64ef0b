/* SPDX-License-Identifier: Apache-2.0 */
/* range.c - errors of costs by class, and what they add up to in a step. */
#include "plan/search/range.h"

#include "plan/search/search.h"
#include "topology/nccl_cost.h"

#include <math.h>

/* Measured over predicted seconds: the 5th and the 95th percentile. */
struct factors {
    double low, high;
};

/* Published runs (bench/results, 2026-11-24, as bench/plan/published and bench/nccl_curves print
 * them): 11 of trainers in C, 12 of PyTorch, 30 collectives inside nodes, 47 between nodes. */
static const struct factors published_compute[MICS_PROFILE_COUNT] = {
    [MICS_PROFILE_MICS] = {0.98, 1.18}, [MICS_PROFILE_PYTORCH] = {0.98, 1.33}};
static const struct factors published_node = {0.93, 1.25}, published_net = {0.91, 1.39};

/* Predictions from costs that were measured on the same machines (bench/plan/lab; of computation
 * bench/plan/ranges, where ranks share cores). */
static const struct factors measured = {0.90, 1.15}, measured_compute = {0.90, 1.20};

/* Where there is nothing to compare with. */
static const struct factors assumed = {0.70, 1.50};

/* Of a normal distribution: the 95th percentile in units of the median absolute deviation. */
#define NINE_IN_TEN 2.44
/* The same for the difference of a run and a measurement, in units of the expected difference of
 * two measurements. */
#define DRIFTS 2.06

static bool is_of_class(enum mics_cost_class cost_class, uint32_t nodes, uint32_t per_node)
{
    return cost_class == MICS_COST_NET ? nodes > 1 : nodes == 1 && per_node > 1;
}

/* Was a collective of the class measured? *spread is the mean over its groups. */
static bool collectives_are_measured(const struct mics_topology *topology,
                                     enum mics_cost_class cost_class, double *spread)
{
    bool found = false;
    double sum = 0;
    uint32_t count = 0;

    for (uint32_t i = 0; i < topology->cost_count; i++) {
        const struct mics_collective_cost *cost = &topology->costs[i];

        if (!is_of_class(cost_class, cost->nodes, cost->per_node))
            continue;
        found = true;
        count += cost->cost.samples > 0;
        sum += cost->cost.samples > 0 ? cost->cost.spread : 0;
    }
    for (uint32_t i = 0; i < topology->algorithm_timing_count; i++)
        found |= is_of_class(cost_class, topology->algorithm_timings[i].nodes,
                             topology->algorithm_timings[i].per_node);
    *spread = count > 0 ? sum / count : 0;
    return found;
}

/* `own`: the error of measurements, a logarithm; it and that of the model are independent, too. */
static struct mics_cost_error make_error(struct factors factors, double own,
                                         enum mics_error_source source)
{
    own = fmin(log(4), own);
    return (struct mics_cost_error){.low = exp(-hypot(log(factors.low), own)),
                                    .high = exp(hypot(log(factors.high), own)),
                                    .source = source};
}

static struct mics_cost_error compute_error(const struct mics_topology *topology)
{
    if (topology->rates.sms > 0 || mics_nccl_is_used(topology)) /* a GPU of the catalogue */
        return make_error(published_compute[topology->profile], 0, MICS_ERROR_PUBLISHED);
    if (mics_topology_is_host(topology) && topology->kernel_rate_count > 0)
        return make_error(measured_compute, DRIFTS * log1p(topology->drift), MICS_ERROR_MEASURED);
    return make_error(assumed, 0, MICS_ERROR_ASSUMED);
}

struct mics_cost_error mics_cost_error_of(const struct mics_topology *topology,
                                          enum mics_cost_class cost_class)
{
    const bool net = cost_class == MICS_COST_NET;
    const struct mics_link *link = net ? &topology->net_link : &topology->node_link;
    double spread;

    if (cost_class == MICS_COST_COMPUTE)
        return compute_error(topology);
    if (collectives_are_measured(topology, cost_class, &spread))
        return make_error(measured, NINE_IN_TEN * spread, MICS_ERROR_MEASURED);
    if (mics_nccl_is_used(topology))
        return make_error(net ? published_net : published_node, 0, MICS_ERROR_PUBLISHED);
    if (link->samples > 0)
        return make_error(assumed, NINE_IN_TEN * link->spread, MICS_ERROR_ASSUMED);
    return make_error(assumed, 0, MICS_ERROR_ASSUMED);
}

enum mics_status mics_plan_predict_scaled(const struct mics_plan *plan,
                                          const double times[MICS_COST_CLASS_COUNT], double *step_s,
                                          struct mics_err *err)
{
    struct mics_op_costs *costs = NULL;
    struct mics_prediction predicted;
    enum mics_status status = mics_op_costs_new(plan->topology, plan->model, &costs, err);

    if (status != MICS_OK)
        return status;
    mics_op_costs_scale(costs, times);
    status = mics_plan_predict(costs, plan->model, &plan->choice, &predicted, err);
    mics_op_costs_free(costs);
    if (status == MICS_OK)
        *step_s = predicted.step_s;
    return status;
}

static bool has_class(const struct mics_topology *topology, enum mics_cost_class cost_class)
{
    if (cost_class == MICS_COST_COMPUTE)
        return true;
    return cost_class == MICS_COST_NET ? topology->nodes > 1 : topology->per_node > 1;
}

/* The step with the costs of one class at either end of its error. */
static enum mics_status price_ends(const struct mics_plan *plan, enum mics_cost_class cost_class,
                                   const struct mics_cost_error *error, double *low_s,
                                   double *high_s, struct mics_err *err)
{
    double times[MICS_COST_CLASS_COUNT] = {1, 1, 1};

    times[cost_class] = error->low;
    const enum mics_status status = mics_plan_predict_scaled(plan, times, low_s, err);
    if (status != MICS_OK)
        return status;
    times[cost_class] = error->high;
    return mics_plan_predict_scaled(plan, times, high_s, err);
}

enum mics_status mics_plan_predict_range(struct mics_plan *plan, struct mics_err *err)
{
    const double step_s = plan->predicted.step_s;
    struct mics_step_range range = {0};
    double less = 0, more = 0; /* squares */

    for (int i = 0; i < MICS_COST_CLASS_COUNT; i++) {
        const enum mics_cost_class cost_class = (enum mics_cost_class)i;
        double low_s, high_s;

        range.errors[i] = (struct mics_cost_error){1, 1, MICS_ERROR_NONE};
        if (!has_class(plan->topology, cost_class))
            continue;
        range.errors[i] = mics_cost_error_of(plan->topology, cost_class);
        const enum mics_status status =
            price_ends(plan, cost_class, &range.errors[i], &low_s, &high_s, err);
        if (status != MICS_OK)
            return status;
        less += pow(fmax(0, step_s - low_s), 2);
        more += pow(fmax(0, high_s - step_s), 2);
    }
    /* Wide errors of several classes may add up to more than the step. */
    range.low_s = fmax(step_s - sqrt(less), 0.1 * step_s);
    range.high_s = step_s + sqrt(more);
    plan->range = range;
    return MICS_OK;
}
