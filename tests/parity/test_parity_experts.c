/* SPDX-License-Identifier: Apache-2.0 */
/* test_parity_experts.c - mixtures of experts train as in one process, with groups of their own for
 * experts, gathered ones and resident ones. Tolerances: walk.h. */
#include "cases.h"
#include "one_core.h"
#include "unit/tap.h"
#include "walk.h"

#include <stdlib.h>

static struct mics_model *staged, *llama, *experts, *padded_experts;

static struct walk experts_walk(uint32_t micro_steps, uint32_t prefetch, uint32_t segments)
{
    return walk_with_tolerance(experts, micro_steps, prefetch, segments);
}

/* Every second unit of the blocks is one of experts. */
static void mark_experts(struct mics_model *model, enum mics_unit_kind kind)
{
    for (uint32_t u = 2; u + 1 < model->unit_count; u += 2)
        model->units[u].kind = kind;
}

static void dense_and_expert_units_may_be_cut_over_groups_of_other_sizes(void)
{
    mark_experts(staged, MICS_UNIT_EXPERT);
    for (int i = 0; i < 4; i++) {
        struct kinds_walk kinds = {.walk = walk_of(staged, 1 + (uint32_t)i % 2, (uint32_t)i, 1)};

        kinds.walk.base.hierarchical_gather = kinds.walk.base.hierarchical_reduce = i > 0;
        kinds.walk.base.coalesce = i == 1 ? 2 : 1;
        kinds.walk.base.segments = i == 2 ? 2 : 1;
        kinds.walk.base.clip = i == 2;
        kinds.walk.clip = i == 2 ? 0.05f : 0;
        if (i == 3)
            kinds.walk.base.dtype = kinds.walk.base.grad_dtype = MICS_BF16;
        kinds.walk.random_delay_us = i == 1 ? 300 : 0;
        walk_pairs(&kinds, 4);
    }
    mark_experts(staged, MICS_UNIT_DENSE);

    mark_experts(llama, MICS_UNIT_EXPERT);
    struct kinds_walk kinds = {.walk = walk_with_tolerance(llama, 2, 1, 1)};
    walk_pairs(&kinds, 4);
    mark_experts(llama, MICS_UNIT_DENSE);
}

/* Experts without a token in a micro-step have gradients of zero. */
static void experts_agree_for_every_cut_of_1_2_and_4_ranks(void)
{
    for (uint32_t s = 1; s <= 3; s += 2)
        for (uint32_t n = 1; n <= 4; n *= 2) {
            struct walk walk = experts_walk(s, s == 1 ? 0 : 2, s);

            walk.model = s == 1 ? padded_experts : experts;
            walk.base.recompute = s == 1 ? MICS_RECOMPUTE_FULL : MICS_RECOMPUTE_SELECTIVE;
            walk.base.clip = s == 3;
            walk.clip = s == 3 ? 0.5f : 0;
            walk_all(&walk, n);
        }
}

/* In fp16 the losses of balance are scaled with the rest. */
static void experts_agree_in_fp16_for_every_cut_of_4_ranks(void)
{
    struct walk walk = experts_walk(2, 2, 1);

    walk.tolerance = BF16_TOLERANCE / 4;
    walk.rounding = BF16_ROUNDING / 4;
    walk.base.dtype = walk.base.grad_dtype = MICS_F16;
    walk.base.clip = true;
    walk.clip = 0.5f;
    walk_all(&walk, 4);
    walk.base.dispatches = true;
    walk.base.grad_dtype = MICS_F32;
    walk_all(&walk, 2);
}

/* The groups of experts may be smaller or larger than those of the rest of a layer. */
static void experts_agree_in_groups_of_other_sizes(void)
{
    struct kinds_walk kinds = {.walk = experts_walk(2, 1, 1)};

    kinds.walk.base.clip = true;
    kinds.walk.clip = 0.5f;
    walk_pairs(&kinds, 4);
}

/* Tokens travel to their experts, in rounds: a router that has seen nothing loads them unevenly. */
static void resident_experts_agree_for_every_cut_of_2_and_4_ranks(void)
{
    for (uint32_t s = 1; s <= 3; s += 2)
        for (uint32_t n = 2; n <= 4; n *= 2) {
            struct walk walk = experts_walk(s, s == 1 ? 0 : 2, s);

            walk.model = s == 1 ? padded_experts : experts;
            walk.base.dispatches = true;
            walk.base.recompute = s == 1 ? MICS_RECOMPUTE_FULL : MICS_RECOMPUTE_NONE;
            walk.base.clip = s == 3;
            walk.clip = s == 3 ? 0.5f : 0;
            walk.base.coalesce = s == 3 ? 2 : 1;
            walk.random_delay_us = n == 2 ? 300 : 0;
            walk_all(&walk, n);
            CHECK(TAP_SANITIZED || walk.runs > (int)n);
        }
}

static void resident_experts_agree_whatever_the_load(void)
{
    for (uint32_t used = 1; used <= 4; used++) {
        struct mics_model_config config = experts->config;
        struct walk walk = experts_walk(2, 1, 1);
        struct mics_model *model = NULL;

        config.n_expert_used = used;
        CHECK_INT(mics_model_new(&config, &model, NULL), MICS_OK);
        if (!model)
            return;
        if (used % 2 == 1)
            cases_zero_routers(model);
        walk.model = model;
        walk.base.dispatches = true;
        walk.base.recompute = MICS_RECOMPUTE_SELECTIVE;
        walk_all(&walk, 4);
        CHECK(TAP_SANITIZED || walk.runs > 4);
        mics_model_free(model);
    }
}

/* Nothing is computed, also no loads. */
static void a_paced_step_with_resident_experts_sends_what_even_loads_need(void)
{
    struct parity_case c = {
        .model = experts,
        .choice = experts_walk(2, 1, 1).base,
        .steps = 2,
        .lr = 0.1f,
        .slow_op = MICS_NONE,
    };
    struct mics_schedule *schedule = NULL;
    struct parity_result *result = NULL;
    struct mics_err err = {""};

    mics_choice_set_shape(&c.choice, (struct mics_shape){2, 2, 4, 4, 4});
    c.choice.dispatches = true;
    CHECK_INT(mics_schedule_new(c.model, &c.choice, true, &schedule, NULL), MICS_OK);
    if (!schedule)
        return;
    double *durations = calloc(schedule->op_count, sizeof *durations);
    c.op_durations = durations;
    CHECK_INT(parity_run(&c, &result, &err), MICS_OK);
    CHECK_STR(err.text, "");
    if (result)
        walk_check_counts(&c, result);
    parity_result_free(result);
    free(durations);
    mics_schedule_free(schedule);
}

int main(void)
{
    use_one_core();
    staged = cases_staged_model(false);
    llama = cases_llama(true);
    experts = cases_experts(false);
    padded_experts = cases_experts(true);
    TAP_RUN(dense_and_expert_units_may_be_cut_over_groups_of_other_sizes);
    TAP_RUN(experts_agree_for_every_cut_of_1_2_and_4_ranks);
    TAP_RUN(experts_agree_in_fp16_for_every_cut_of_4_ranks);
    TAP_RUN(experts_agree_in_groups_of_other_sizes);
    TAP_RUN(resident_experts_agree_for_every_cut_of_2_and_4_ranks);
    TAP_RUN(resident_experts_agree_whatever_the_load);
    TAP_RUN(a_paced_step_with_resident_experts_sends_what_even_loads_need);
    mics_model_free(staged);
    mics_model_free(llama);
    mics_model_free(experts);
    mics_model_free(padded_experts);
    return tap_done();
}
