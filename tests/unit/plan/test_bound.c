/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_bound.c - the closed-form bound by which plans are sorted: never above the simulated step
 * for any sizes of the units, and close to it where communication dominates.
 */
#include "plan/schedule/timeline.h"
#include "plan/search/internal.h"
#include "tap.h"

#include <stdlib.h>

/* Computation takes no time. */
#define SLOW_LINKS "node:1 gpu:4 flops:1000T membw:100TB/s link:1GB/s,1us"

static const struct mics_model_config blocks = {
    .family = "gpt2",
    .name = "blocks",
    .n_layer = 6,
    .n_embd = 64,
    .n_head = 2,
    .n_positions = 64,
    .vocab_size = 300,
    .n_inner = 256,
    .layer_norm_epsilon = 1e-5,
};

/* Embedding and head are units ten times as large as a block. */
static const struct mics_model_config wide_ends = {
    .family = "llama",
    .name = "ends",
    .n_layer = 6,
    .n_embd = 64,
    .n_head = 2,
    .n_positions = 64,
    .vocab_size = 6000,
    .n_inner = 128,
    .layer_norm_epsilon = 1e-5,
    .rope_theta = 1e4,
    .untied = true,
};

static struct mics_topology *topology;

static double simulated(const struct mics_model *model, const struct mics_plan_choice *choice)
{
    struct mics_schedule *schedule = NULL;
    struct mics_timeline timeline = {0};
    double step_s = 0;

    CHECK_INT(mics_schedule_new(model, choice, true, &schedule, NULL), MICS_OK);
    if (!schedule)
        return 0;
    timeline.op_count = schedule->op_count;
    timeline.start = calloc(schedule->op_count, sizeof *timeline.start);
    timeline.end = calloc(schedule->op_count, sizeof *timeline.end);
    CHECK_INT(mics_simulate(schedule, choice, topology, &timeline, &step_s, NULL), MICS_OK);
    free(timeline.start);
    free(timeline.end);
    mics_schedule_free(schedule);
    return step_s;
}

static void check_model(const struct mics_model_config *config)
{
    struct mics_model *model = NULL;
    double closest = 0;

    CHECK_INT(mics_model_new(config, &model, NULL), MICS_OK);
    for (uint32_t steps = 1; steps <= 8; steps *= 2)
        for (uint32_t prefetch = 0; prefetch < 10; prefetch++) {
            const struct mics_plan_choice choice = {
                .shape = {1, 4, 4, 4, 4},
                .strategy = "zero3",
                .segments = 1,
                .prefetch = prefetch,
                .grad_slots = 2,
                .micro_batch = 1,
                .micro_steps = steps,
                .seq = 8,
                .optimizer = MICS_OPT_ADAMW,
            };
            const double bound = mics_step_bound(topology, model, &choice);
            const double step = simulated(model, &choice);

            CHECK(bound > 0 && bound <= step * (1 + 1e-9));
            if (bound > step * (1 + 1e-9))
                printf("# prefetch %u, %u micro-steps: bound %g of %g s\n", prefetch, steps, bound,
                       step);
            closest = bound / step > closest ? bound / step : closest;
        }
    CHECK(closest > 0.9);
    mics_model_free(model);
}

static void the_bound_is_no_longer_than_a_simulated_step(void)
{
    check_model(&blocks);
}

static void the_bound_holds_with_ends_larger_than_the_blocks(void)
{
    check_model(&wide_ends);
}

int main(void)
{
    struct mics_err err = {""};

    if (mics_topology_parse(SLOW_LINKS, &topology, &err) != MICS_OK) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    TAP_RUN(the_bound_is_no_longer_than_a_simulated_step);
    TAP_RUN(the_bound_holds_with_ends_larger_than_the_blocks);
    mics_topology_free(topology);
    return tap_done();
}
