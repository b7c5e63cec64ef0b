/* SPDX-License-Identifier: Apache-2.0 */
/* classes.c - the predicted times of a plan's step by class of operation. */
#include "plan/schedule/timeline.h"
#include "plan/search/search.h"

#include <math.h>

/* Steps of more micro-steps are extrapolated from a step of this many and one of one less. */
enum { DIRECT_MICRO_STEPS = 6 };

/* The times of a step with this number of micro-steps. */
static enum mics_status simulate_classes(struct mics_op_costs *costs, const struct mics_plan *plan,
                                         uint32_t micro_steps, struct mics_class_times *out,
                                         struct mics_err *err)
{
    struct mics_plan_choice choice = plan->choice;
    struct mics_schedule *schedule = NULL;
    struct mics_timeline timeline = {0};
    double step_s;
    enum mics_status status;

    choice.micro_steps = micro_steps;
    status = mics_schedule_new(plan->model, &choice, true, &schedule, err);
    if (status == MICS_OK)
        status = mics_timeline_init(schedule, &timeline, err);
    if (status == MICS_OK)
        status = mics_simulate(schedule, &choice, costs, &timeline, &step_s, err);
    if (status == MICS_OK)
        status = mics_timeline_classes(schedule, &timeline, out, err);
    mics_timeline_fini(&timeline);
    mics_schedule_free(schedule);
    return status;
}

/* Add to `longer` `times` times what it takes more than `shorter`. */
static void extrapolate(struct mics_class_times *longer, const struct mics_class_times *shorter,
                        double times)
{
    const struct mics_class_times before = *longer;

    mics_class_times_add(longer, &before, times);
    mics_class_times_add(longer, shorter, -times);
    for (int c = 0; c < MICS_CLASS_COUNT; c++)
        longer->exposed_s[c] = fmax(0, longer->exposed_s[c]);
    longer->net_exposed_s = fmax(0, longer->net_exposed_s);
    longer->node_exposed_s = fmax(0, longer->node_exposed_s);
}

enum mics_status mics_plan_predict_classes(struct mics_plan *plan, struct mics_err *err)
{
    const uint32_t s = plan->choice.micro_steps;
    struct mics_class_times shorter;
    struct mics_op_costs *costs = NULL;
    enum mics_status status = mics_op_costs_new(plan->topology, plan->model, &costs, err);

    if (status == MICS_OK)
        status = simulate_classes(costs, plan, s < DIRECT_MICRO_STEPS ? s : DIRECT_MICRO_STEPS,
                                  &plan->classes, err);
    if (status == MICS_OK && s > DIRECT_MICRO_STEPS) {
        status = simulate_classes(costs, plan, DIRECT_MICRO_STEPS - 1, &shorter, err);
        if (status == MICS_OK)
            extrapolate(&plan->classes, &shorter, s - DIRECT_MICRO_STEPS);
    }
    mics_op_costs_free(costs);
    plan->has_classes = status == MICS_OK;
    return status;
}
