/* SPDX-License-Identifier: Apache-2.0 */
/*
 * experts.c - the best plan with gathered experts, as the search finds it, or that with resident
 * ones.
 *
 * Resident experts are tried in the plan with gathered ones, of which all else is kept, only with
 * smaller micro-batches where tokens that are sent do not fit; and, where exchanges are exact, in
 * all other groups. How uneven loads are decides what resident experts cost: all ranks wait for the
 * busiest, and what does not fit into a round takes another one. Gathered experts compute the rows
 * of a rank's own tokens, which are as many whatever the router chooses.
 */
#include "base/units.h"
#include "plan/memory.h"
#include "plan/search/search_internal.h"

#include <math.h>

/* The best plan with resident experts. */
struct resident {
    bool found;
    struct mics_plan_choice choice;
    struct mics_memory memory;
    struct mics_prediction predicted;
    struct mics_class_times classes;
};

/* The load of a rank to which all ranks send whatever they can. */
static double worst_load(const struct mics_model *model, const struct mics_plan_choice *choice)
{
    struct mics_batch batch = mics_choice_batch(choice, MICS_UNIT_EXPERT, true);

    batch.expert_load = 1;
    const double mean = mics_model_dispatch(model, &batch).rows;
    batch.expert_load = (float)batch.expert_ranks;
    return fmax(1, mics_model_dispatch(model, &batch).rows / mean);
}

double mics_search_expert_load(const struct mics_model *model,
                               const struct mics_search_options *options,
                               const struct mics_plan_choice *choice)
{
    const double expected = options->expert_load > 0 ? options->expert_load
                            : model->config.balance.kind == MICS_BALANCE_NONE
                                ? MICS_EXPERT_LOAD_FREE
                                : MICS_EXPERT_LOAD_BALANCED;

    return fmin(expected, worst_load(model, choice));
}

static enum mics_status check_memory(const struct mics_topology *topology,
                                     const struct mics_plan *plan, const struct resident *resident,
                                     struct mics_err *err)
{
    const uint64_t total = mics_memory_total(&resident->memory, topology);
    char more[32];

    if (total <= plan->memory_limit)
        return MICS_OK;
    mics_format_bytes(total - plan->memory_limit, more, sizeof more);
    return mics_err_set(
        err, MICS_ERR_INFEASIBLE,
        "resident experts need %s more than the plan's memory limit, for tokens "
        "that are sent%s",
        more, resident->choice.micro_batch > 1 ? "; a smaller --micro-batch needs less" : "");
}

/* The next smaller micro-batch that divides this one, in as many more micro-steps. */
static bool shrink_micro_batch(const struct mics_search_options *options,
                               struct mics_plan_choice *choice)
{
    const uint64_t share = (uint64_t)choice->micro_batch * choice->micro_steps;
    const uint64_t most = options->micro_steps ? options->micro_steps : MICS_MICRO_STEPS_MAX;

    if (options->micro_batch)
        return false;
    for (uint32_t smaller = choice->micro_batch / 2; smaller > 0; smaller--)
        if (choice->micro_batch % smaller == 0 && share / smaller <= most) {
            choice->micro_batch = smaller;
            choice->micro_steps = (uint32_t)(share / smaller);
            return true;
        }
    return false;
}

/* MICS_ERR_ARG, MICS_ERR_INFEASIBLE: this plan cannot have resident experts; the reason. */
static enum mics_status make_resident(const struct mics_topology *topology,
                                      const struct mics_model *model,
                                      const struct mics_search_options *options,
                                      const struct mics_plan *plan, struct resident *out,
                                      struct mics_err *err)
{
    enum mics_status status;

    out->choice = plan->choice;
    out->choice.dispatches = true;
    if (mics_choice_expert_ranks(&out->choice, MICS_UNIT_EXPERT) == 0)
        return mics_err_set(err, MICS_ERR_ARG,
                            "resident experts: strategy %s does not cut parameters, so that each "
                            "rank has all experts",
                            plan->choice.strategy);
    do {
        status = mics_memory_compute_on(topology, model, &out->choice, &out->memory, err);
        if (status == MICS_OK)
            status = check_memory(topology, plan, out, err);
    } while (status == MICS_ERR_INFEASIBLE && shrink_micro_batch(options, &out->choice));
    return status;
}

/* With gathers and reductions; the second hop is the same for both ways. */
static double param_exchanges_s(const struct mics_class_times *times)
{
    return times->busy_s[MICS_CLASS_GATHER_NET] + times->busy_s[MICS_CLASS_GATHER_NODE] +
           times->busy_s[MICS_CLASS_REDUCE_NET] + times->busy_s[MICS_CLASS_REDUCE_NODE];
}

/* What gathered experts have of these, and resident ones do not. */
static double gathered_exchanges_s(const struct mics_class_times *gathered,
                                   const struct mics_class_times *resident)
{
    return fmax(0, param_exchanges_s(gathered) - param_exchanges_s(resident));
}

/* Seconds of a step at a load. */
struct loads {
    struct mics_op_costs *costs;
    const struct mics_model *model;
    struct mics_plan_choice choice;
};

static enum mics_status step_at(struct loads *loads, double load, double *out, struct mics_err *err)
{
    struct mics_prediction predicted;
    enum mics_status status;

    loads->choice.expert_load = load;
    status = mics_plan_predict(loads->costs, loads->model, &loads->choice, &predicted, err);
    *out = status == MICS_OK ? predicted.step_s : 0;
    return status;
}

/* Steps grow with the load; where they are as long as with gathered experts, within 1 %. */
static enum mics_status find_crossing(struct loads *loads, struct mics_expert_ways *ways,
                                      struct mics_err *err)
{
    double faster = 1, slower = ways->worst_load;

    ways->crossing_load = ways->worst_step_s <= ways->gathered_step_s  ? slower
                          : ways->even_step_s <= ways->gathered_step_s ? faster
                                                                       : 0;
    if (ways->crossing_load != faster)
        return MICS_OK;
    while (slower > 1.01 * faster) {
        const double middle = sqrt(faster * slower);
        double step_s;
        const enum mics_status status = step_at(loads, middle, &step_s, err);

        if (status != MICS_OK)
            return status;
        *(step_s <= ways->gathered_step_s ? &faster : &slower) = middle;
    }
    ways->crossing_load = faster;
    return MICS_OK;
}

/* What both ways exchange with the micro-batches of `choice`: gathers and reductions are as many as
 * its micro-steps. */
static enum mics_status compare_exchanges(struct mics_op_costs *costs,
                                          const struct mics_model *model,
                                          const struct mics_plan_choice *choice, double load,
                                          struct mics_expert_ways *out, struct mics_err *err)
{
    struct mics_plan_choice ways[2] = {*choice, *choice}; /* gathered, resident */
    struct mics_class_times classes[2];
    enum mics_status status = MICS_OK;

    for (int i = 0; i < 2 && status == MICS_OK; i++) {
        ways[i].dispatches = i == 1;
        ways[i].expert_load = load;
        status = mics_plan_predict_classes(costs, model, &ways[i], &classes[i], err);
    }
    if (status != MICS_OK)
        return status;
    out->gathered_s = gathered_exchanges_s(&classes[0], &classes[1]);
    out->resident_s =
        classes[1].busy_s[MICS_CLASS_DISPATCH_NET] + classes[1].busy_s[MICS_CLASS_DISPATCH_NODE];
    return MICS_OK;
}

static enum mics_status compare(struct mics_op_costs *costs, const struct mics_model *model,
                                const struct mics_plan *plan, const struct resident *resident,
                                struct mics_expert_ways *out, struct mics_err *err)
{
    struct loads loads = {.costs = costs, .model = model, .choice = resident->choice};
    enum mics_status status;

    *out = (struct mics_expert_ways){
        .gathered_step_s = plan->predicted.step_s,
        .resident_step_s = resident->predicted.step_s,
        .load = mics_choice_expert_load(&resident->choice),
        .worst_load = worst_load(model, &resident->choice),
    };
    status = step_at(&loads, 1, &out->even_step_s, err);
    if (status == MICS_OK)
        status = step_at(&loads, out->worst_load, &out->worst_step_s, err);
    return status == MICS_OK ? find_crossing(&loads, out, err) : status;
}

/* The plan is that with resident experts, and so is its row among the alternatives. */
static void replace_plan(const struct mics_topology *topology, const struct resident *resident,
                         struct mics_plan *plan)
{
    plan->choice = resident->choice;
    plan->memory = resident->memory;
    plan->predicted = resident->predicted;
    plan->classes = resident->classes;
    for (uint32_t i = 0; i < plan->alternative_count; i++) {
        struct mics_alternative *row = &plan->alternatives[i];

        if (!row->fits || row->why[0])
            continue;
        row->choice = plan->choice;
        row->total_bytes = mics_memory_total(&plan->memory, topology);
        row->predicted = plan->predicted;
    }
}

/* In other groups, levels of recomputation and micro-batches than those of the plan, if that is
 * faster than best_s, or there is nothing in `out`. Where no plan fits with gathered experts, *plan
 * is that plan. */
static enum mics_status search_resident(const struct mics_topology *topology,
                                        const struct mics_model *model,
                                        const struct mics_search_options *options, double best_s,
                                        struct resident *out, struct mics_plan **plan,
                                        struct mics_err *err)
{
    struct mics_search search;
    enum mics_status status = mics_search_init(&search, topology, model, options, err);

    if (status == MICS_OK) {
        struct mics_search_alternative *added = &search.alternatives[search.count];

        status = mics_search_resident(&search, best_s, !out->found, added, err);
        if (status == MICS_OK && added->simulated &&
            (!out->found ||
             added->predicted.step_s < (1 - MICS_STEP_TIE) * out->predicted.step_s)) {
            out->found = true;
            out->choice = added->best.choice;
            out->predicted = added->predicted;
            status = mics_memory_compute_on(topology, model, &out->choice, &out->memory, err);
            search.count++;
            if (status == MICS_OK && !*plan)
                status = mics_search_make_plan(&search, added, plan, err);
        }
    }
    mics_search_fini(&search);
    return status;
}

/* The plan's groups, or where they are not possible, those of the resident experts: how long both
 * ways exchange what experts need. */
static struct mics_plan_choice compared_choice(const struct mics_model *model,
                                               const struct mics_plan_choice *gathered,
                                               const struct mics_plan_choice *resident)
{
    struct mics_plan_choice choice = *gathered;

    choice.dispatches = true;
    if (mics_choice_expert_ranks(&choice, MICS_UNIT_EXPERT) > 0 &&
        mics_choice_check(model, &choice, NULL) == MICS_OK)
        return *gathered;
    choice = *resident;
    choice.micro_batch = gathered->micro_batch;
    choice.micro_steps = gathered->micro_steps;
    choice.recompute = gathered->recompute;
    return choice;
}

/* Which of both the plan has, and how they compare. */
static enum mics_status decide(struct mics_op_costs *costs, const struct mics_topology *topology,
                               const struct mics_model *model, enum mics_expert_way way,
                               struct resident *resident, struct mics_plan *plan,
                               struct mics_err *err)
{
    const bool wins = way == MICS_EXPERTS_RESIDENT ||
                      resident->predicted.step_s < (1 - MICS_STEP_TIE) * plan->predicted.step_s;
    const struct mics_plan_choice exchanged =
        wins ? resident->choice : compared_choice(model, &plan->choice, &resident->choice);
    enum mics_status status =
        mics_plan_predict_classes(costs, model, &resident->choice, &resident->classes, err);

    if (status == MICS_OK)
        status = compare(costs, model, plan, resident, &plan->experts, err);
    if (status == MICS_OK)
        status = compare_exchanges(costs, model, &exchanged, resident->choice.expert_load,
                                   &plan->experts, err);
    if (status == MICS_OK && wins)
        replace_plan(topology, resident, plan);
    return status;
}

enum mics_status mics_search_experts(const struct mics_topology *topology,
                                     const struct mics_model *model,
                                     const struct mics_search_options *options,
                                     struct mics_plan **plan, struct mics_err *err)
{
    const enum mics_expert_way way = options->experts;
    const bool fits = *plan != NULL;
    struct mics_op_costs *costs = NULL;
    struct resident resident = {.found = false};
    struct mics_err why, failure;
    enum mics_status refused = MICS_ERR_INFEASIBLE, status;

    if (model->config.n_expert == 0)
        return !fits ? MICS_ERR_INFEASIBLE
                     : mics_err_set(err, MICS_ERR_ARG,
                                    "resident experts: the model '%s' has no experts",
                                    model->config.name);
    status = mics_op_costs_new(topology, model, &costs, &failure);
    if (status == MICS_OK && fits)
        refused = make_resident(topology, model, options, *plan, &resident, &why);
    if (status == MICS_OK && refused == MICS_OK) {
        resident.found = true;
        resident.choice.expert_load = mics_search_expert_load(model, options, &resident.choice);
        status = mics_plan_predict(costs, model, &resident.choice, &resident.predicted, &failure);
    } else if (status == MICS_OK && refused != MICS_ERR_ARG && refused != MICS_ERR_INFEASIBLE) {
        status = refused;
        failure = why;
    }
    double best_s = resident.found ? resident.predicted.step_s : INFINITY;
    if (fits && way == MICS_EXPERTS_AUTO)
        best_s = fmin(best_s, (*plan)->predicted.step_s);
    if (status == MICS_OK)
        status = search_resident(topology, model, options, best_s, &resident, plan, &failure);
    if (status == MICS_OK && resident.found && fits)
        status = decide(costs, topology, model, way, &resident, *plan, &failure);
    mics_op_costs_free(costs);
    if (status != MICS_OK) {
        *err = failure;
        return status;
    }
    if (resident.found || (fits && way == MICS_EXPERTS_AUTO))
        return MICS_OK;
    if (fits)
        *err = why;
    return refused;
}
