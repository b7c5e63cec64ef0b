/* SPDX-License-Identifier: Apache-2.0 */
/*
 * second_hop.c - which interval and which format the second hop has, where the options leave it
 * open: the search with each, and a comparison of the plans.
 */
#include "plan/search/search.h"

#include "plan/search/search_internal.h"

/* The shortest interval with which the second hop of this plan is hidden, and what is left of it.
 */
static enum mics_status find_interval(struct mics_topology *topology, struct mics_model *model,
                                      struct mics_plan_choice choice, uint32_t *interval,
                                      double *share, struct mics_err *err)
{
    struct mics_op_costs *costs = NULL;
    enum mics_status status = MICS_OK;

    *interval = 1;
    *share = 0;
    choice.sync_warmup = 0;
    if (mics_choice_has_second_hop(&choice))
        status = mics_op_costs_new(topology, model, &costs, err);
    for (uint32_t i = 1; costs && status == MICS_OK && i <= MICS_INTERVAL_AUTO_MAX; i++) {
        choice.sync_interval = *interval = i;
        status = mics_second_hop_share(costs, model, &choice, share, err);
        if (*share <= MICS_INTERVAL_HIDDEN)
            break;
    }
    mics_op_costs_free(costs);
    return status;
}

/* Another interval for a plan without topology and model. */
static enum mics_status set_interval(struct mics_topology *topology, struct mics_model *model,
                                     const struct mics_search_options *options, uint32_t interval,
                                     struct mics_plan *plan, struct mics_err *err)
{
    struct mics_op_costs *costs = NULL;
    enum mics_status status = mics_op_costs_new(topology, model, &costs, err);

    plan->choice.sync_interval = interval;
    plan->choice.sync_warmup = interval > 1 ? options->sync_warmup : 0;
    if (status == MICS_OK)
        status = mics_plan_predict(costs, model, &plan->choice, &plan->predicted, err);
    if (status == MICS_OK)
        status = mics_plan_predict_classes(costs, model, &plan->choice, &plan->classes, err);
    mics_op_costs_free(costs);
    return status;
}

/* The plan with a second hop in every step says which interval hides it. With that, another plan
 * may be faster, which may need another one. */
static enum mics_status search_interval(struct mics_topology *topology, struct mics_model *model,
                                        const struct mics_search_options *options,
                                        struct mics_plan **out, struct mics_err *err)
{
    struct mics_plan *plan = NULL;
    uint32_t interval = 1;
    double share = 0;
    enum mics_status status = mics_search_once(topology, model, options, 1, &plan, err);

    if (status == MICS_OK)
        status = find_interval(topology, model, plan->choice, &interval, &share, err);
    if (status == MICS_OK && interval > 1) {
        mics_plan_free(plan);
        plan = NULL;
        status = mics_search_once(topology, model, options, interval, &plan, err);
        if (status == MICS_OK)
            status = find_interval(topology, model, plan->choice, &interval, &share, err);
        if (status == MICS_OK && interval != mics_choice_interval(&plan->choice))
            status = set_interval(topology, model, options, interval, plan, err);
    }
    if (status != MICS_OK) {
        mics_plan_free(plan);
        return status;
    }
    plan->second_hop_share = share;
    *out = plan;
    return MICS_OK;
}

/* With the formats of the options. */
static enum mics_status search_format(struct mics_topology *topology, struct mics_model *model,
                                      const struct mics_search_options *options,
                                      struct mics_plan **out, struct mics_err *err)
{
    if (options->sync_interval == MICS_AUTO)
        return search_interval(topology, model, options, out, err);
    return mics_search_once(topology, model, options, options->sync_interval, out, err);
}

/* Take a stronger format only if a step becomes faster by more than a tie. */
static enum mics_status search_formats(struct mics_topology *topology, struct mics_model *model,
                                       const struct mics_search_options *options,
                                       struct mics_plan **out, struct mics_err *err)
{
    static const enum mics_dtype formats[][2] = {{MICS_INT8, MICS_INT8}, {MICS_INT4, MICS_INT8}};
    struct mics_search_options tried = *options;
    struct mics_plan *best = NULL;
    enum mics_status status;
    double exact_s;

    tried.sync_dtype = tried.sync_down_dtype = MICS_F32;
    status = search_format(topology, model, &tried, &best, err);
    if (status != MICS_OK)
        return status;
    exact_s = best->predicted.step_s;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        struct mics_plan *plan = NULL;

        tried.sync_dtype = formats[i][0];
        tried.sync_down_dtype = formats[i][1];
        status = search_format(topology, model, &tried, &plan, err);
        if (status == MICS_ERR_INFEASIBLE)
            continue;
        if (status != MICS_OK)
            break;
        const bool gains = mics_choice_compresses_sync(&plan->choice) &&
                           plan->predicted.step_s < (1 - MICS_STEP_TIE) * best->predicted.step_s;
        mics_plan_free(gains ? best : plan);
        if (gains)
            best = plan;
    }
    if (status != MICS_OK && status != MICS_ERR_INFEASIBLE) {
        mics_plan_free(best);
        return status;
    }
    best->exact_step_s = exact_s;
    *out = best;
    return MICS_OK;
}

/* What a step of the plan would take with the optimizer's states on the device. */
static enum mics_status predict_on_device(const struct mics_topology *topology,
                                          const struct mics_model *model, struct mics_plan *plan,
                                          struct mics_err *err)
{
    struct mics_plan_choice choice = plan->choice;
    struct mics_prediction predicted = {.step_s = 0};
    struct mics_op_costs *costs = NULL;
    enum mics_status status = mics_op_costs_new(topology, model, &costs, err);

    choice.offload_piece = 0;
    if (status == MICS_OK)
        status = mics_plan_predict(costs, model, &choice, &predicted, err);
    mics_op_costs_free(costs);
    plan->on_device_step_s = predicted.step_s;
    return status;
}

/* Offloading is decided. */
static enum mics_status search_decided(struct mics_topology *topology, struct mics_model *model,
                                       const struct mics_search_options *options,
                                       struct mics_plan **out, struct mics_err *err)
{
    struct mics_plan *plan = NULL;
    enum mics_status status = options->sync_auto
                                  ? search_formats(topology, model, options, &plan, err)
                                  : search_format(topology, model, options, &plan, err);

    if ((status == MICS_OK || status == MICS_ERR_INFEASIBLE) &&
        options->experts != MICS_EXPERTS_GATHERED)
        status = mics_search_experts(topology, model, options, &plan, err);
    if (status == MICS_OK && plan->choice.offload_piece > 0)
        status = predict_on_device(topology, model, plan, err);
    if (status != MICS_OK) {
        mics_plan_free(plan);
        return status;
    }
    *out = plan;
    return MICS_OK;
}

enum mics_status mics_plan_search(struct mics_topology *topology, struct mics_model *model,
                                  const struct mics_search_options *options, struct mics_plan **out,
                                  struct mics_err *err)
{
    const bool tries = options->offload == MICS_OFFLOAD_AUTO;
    struct mics_search_options decided = *options;
    struct mics_plan *plan = NULL;
    enum mics_status status;

    if (options->offload == MICS_OFFLOAD_OPTIMIZER && topology->integrated)
        return mics_err_set(err, MICS_ERR_ARG,
                            "--offload=optimizer: %s has one memory for CPU and GPU, so that "
                            "nothing is saved",
                            topology->device);
    if (tries)
        decided.offload = MICS_OFFLOAD_NONE;
    status = search_decided(topology, model, &decided, &plan, err);
    if (status == MICS_ERR_INFEASIBLE && tries && !topology->integrated) {
        decided.offload = MICS_OFFLOAD_OPTIMIZER;
        status = search_decided(topology, model, &decided, &plan, err);
    }
    if (status != MICS_OK)
        return status;
    plan->offload_auto = tries;
    plan->topology = topology;
    plan->model = model;
    *out = plan;
    return MICS_OK;
}
