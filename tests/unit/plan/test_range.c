/* SPDX-License-Identifier: Apache-2.0 */
/* test_range.c - errors of costs by class, and the range of a step that they add up to. */
#include "plan/search/range.h"
#include "plan/search/search.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>

static struct mics_plan *plan_on(const char *cluster, const char *model, uint32_t batch)
{
    const struct mics_search_options options = {.strategy = "zero3",
                                                .global_batch = batch,
                                                .recompute = MICS_AUTO,
                                                .prefetch = MICS_AUTO,
                                                .dtype = MICS_AUTO,
                                                .grad_dtype = MICS_AUTO,
                                                .clip = true};
    struct mics_topology *topology = NULL;
    struct mics_model *opened = NULL;
    struct mics_plan *plan = NULL;

    CHECK_INT(mics_topology_parse(cluster, &topology, NULL), MICS_OK);
    CHECK_INT(mics_model_open(model, &opened, NULL), MICS_OK);
    CHECK_INT(mics_plan_search(topology, opened, &options, &plan, NULL), MICS_OK);
    return plan;
}

static double scaled(const struct mics_plan *plan, double compute, double node, double net)
{
    double step_s = 0;

    CHECK_INT(mics_plan_predict_scaled(plan, (double[]){compute, node, net}, &step_s, NULL),
              MICS_OK);
    return step_s;
}

static void costs_as_they_are_give_the_predicted_step(void)
{
    struct mics_plan *plan = plan_on("p4d:2", "gpt2", 64);

    CHECK_NEAR(scaled(plan, 1, 1, 1), plan->predicted.step_s, 1e-9 * plan->predicted.step_s);
    CHECK_NEAR(scaled(plan, 2, 2, 2), 2 * plan->predicted.step_s, 0.02 * plan->predicted.step_s);
    mics_plan_free(plan);
}

/* One GPU only computes: the range is the error of computation. */
static void the_range_of_one_rank_is_the_error_of_computation(void)
{
    struct mics_plan *plan = plan_on("node:1 gpu:1", "gpt2", 8);
    const struct mics_step_range *range = &plan->range;

    CHECK_INT(mics_plan_predict_range(plan, NULL), MICS_OK);
    CHECK_INT(range->errors[MICS_COST_COMPUTE].source, MICS_ERROR_ASSUMED);
    CHECK_INT(range->errors[MICS_COST_NODE].source, MICS_ERROR_NONE);
    CHECK_INT(range->errors[MICS_COST_NET].source, MICS_ERROR_NONE);
    CHECK_NEAR(range->low_s / plan->predicted.step_s, range->errors[MICS_COST_COMPUTE].low, 1e-3);
    CHECK_NEAR(range->high_s / plan->predicted.step_s, range->errors[MICS_COST_COMPUTE].high, 1e-3);
    mics_plan_free(plan);
}

static void squares_of_what_each_class_adds_are_added(void)
{
    struct mics_plan *plan = plan_on("p4d:2", "gpt2", 64);
    const struct mics_step_range *range = &plan->range;
    const double step_s = plan->predicted.step_s;
    double less = 0, more = 0;

    CHECK_INT(mics_plan_predict_range(plan, NULL), MICS_OK);
    for (int c = 0; c < MICS_COST_CLASS_COUNT; c++) {
        double times[2][MICS_COST_CLASS_COUNT] = {{1, 1, 1}, {1, 1, 1}};

        CHECK(range->errors[c].low < 1 && range->errors[c].high > 1);
        times[0][c] = range->errors[c].low;
        times[1][c] = range->errors[c].high;
        less += pow(step_s - scaled(plan, times[0][0], times[0][1], times[0][2]), 2);
        more += pow(scaled(plan, times[1][0], times[1][1], times[1][2]) - step_s, 2);
    }
    CHECK_NEAR(range->low_s, step_s - sqrt(less), 1e-6 * step_s);
    CHECK_NEAR(range->high_s, step_s + sqrt(more), 1e-6 * step_s);
    /* Less than if all errors came together. */
    CHECK(range->high_s <
          scaled(plan, range->errors[0].high, range->errors[1].high, range->errors[2].high));
    mics_plan_free(plan);
}

/* The same error of the network widens the range where the step waits for the network, and hardly
 * where computation hides it. */
static void what_is_hidden_hardly_widens_the_range(void)
{
    struct mics_plan *slow = plan_on("node:2 gpu:4 net:1gbit,10us", "gpt2", 64);
    struct mics_plan *fast = plan_on("node:2 gpu:4 net:3200gbit,10us", "gpt2", 64);
    const double high = mics_cost_error_of(slow->topology, MICS_COST_NET).high;

    CHECK_NEAR(mics_cost_error_of(fast->topology, MICS_COST_NET).high, high, 1e-9);
    CHECK(scaled(slow, 1, 1, high) / slow->predicted.step_s > 1 + 0.8 * (high - 1));
    CHECK(scaled(fast, 1, 1, high) / fast->predicted.step_s < 1 + 0.2 * (high - 1));
    mics_plan_free(slow);
    mics_plan_free(fast);
}

static void errors_follow_from_what_is_known(void)
{
    struct mics_topology *gpus = NULL, *hosts = NULL;

    CHECK_INT(mics_topology_parse("p4d:2", &gpus, NULL), MICS_OK);
    CHECK_INT(mics_topology_parse("node:2 gpu:2 flops:50G mem:4G membw:10GB/s link:5GB/s,2us "
                                  "net:1gbit,50us",
                                  &hosts, NULL),
              MICS_OK);
    const double inside = mics_cost_error_of(gpus, MICS_COST_NODE).high;
    const double kernels = mics_cost_error_of(gpus, MICS_COST_COMPUTE).high;

    CHECK(mics_cost_error_of(gpus, MICS_COST_NET).high > inside);
    gpus->profile = MICS_PROFILE_PYTORCH;
    CHECK(mics_cost_error_of(gpus, MICS_COST_COMPUTE).high > kernels);

    /* Collectives that were measured: the wider, the more their times spread. */
    struct mics_collective_cost costs[] = {
        {.collective = MICS_ALL_GATHER, .nodes = 1, .per_node = 2, .cost = {1e-5, 1e9, 100, 0.01}},
        {.collective = MICS_ALL_GATHER, .nodes = 2, .per_node = 1, .cost = {1e-5, 1e8, 100, 0.2}}};

    snprintf(hosts->device, sizeof hosts->device, "host");
    CHECK_INT(mics_cost_error_of(hosts, MICS_COST_COMPUTE).source, MICS_ERROR_ASSUMED);
    CHECK_INT(mics_cost_error_of(hosts, MICS_COST_NET).source, MICS_ERROR_ASSUMED);
    hosts->costs = costs;
    hosts->cost_count = 2;
    const struct mics_cost_error node = mics_cost_error_of(hosts, MICS_COST_NODE);
    const struct mics_cost_error net = mics_cost_error_of(hosts, MICS_COST_NET);
    CHECK_INT(node.source, MICS_ERROR_MEASURED);
    CHECK_INT(net.source, MICS_ERROR_MEASURED);
    CHECK(net.high > 1.3 * node.high && net.low < node.low);

    /* Products that were measured twice: the wider, the more both differ. */
    struct mics_kernel_rates rates = {.kernel = MICS_K_MATMUL, .dtype = MICS_F32, .count = 1};

    rates.points[0] = (struct mics_kernel_point){100, 100, 100, 1};
    hosts->kernel_rates = &rates;
    hosts->kernel_rate_count = 1;
    const struct mics_cost_error steady = mics_cost_error_of(hosts, MICS_COST_COMPUTE);
    hosts->drift = 0.25;
    const struct mics_cost_error drifting = mics_cost_error_of(hosts, MICS_COST_COMPUTE);
    CHECK_INT(steady.source, MICS_ERROR_MEASURED);
    CHECK(drifting.high > 1.25 * steady.high && drifting.low < steady.low / 1.25);
    hosts->kernel_rates = NULL;
    hosts->kernel_rate_count = 0;
    hosts->costs = NULL;
    hosts->cost_count = 0;
    mics_topology_free(gpus);
    mics_topology_free(hosts);
}

int main(void)
{
    TAP_RUN(costs_as_they_are_give_the_predicted_step);
    TAP_RUN(the_range_of_one_rank_is_the_error_of_computation);
    TAP_RUN(squares_of_what_each_class_adds_are_added);
    TAP_RUN(what_is_hidden_hardly_widens_the_range);
    TAP_RUN(errors_follow_from_what_is_known);
    return tap_done();
}
