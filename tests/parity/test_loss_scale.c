/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_loss_scale.c - steps in fp16 that overflow change nothing on any rank, and the loss scale is
 * the same everywhere, also after it was saved and loaded.
 */
#include "cases.h"
#include "harness.h"
#include "tap.h"

#include "device/launch.h"
#include "host/numbers.h"

#include <math.h>
#include <stdlib.h>

/* Of parameters, three bits less than in bf16 (test_parity.c). */
#define ROUNDING 1.25e-4

static struct parity_case case_of(const struct mics_model *model, const struct mics_shape *shape)
{
    struct parity_case c = {
        .model = model, .choice = cases_choice(shape), .lr = 0.1f, .clip = 1, .slow_op = MICS_NONE};

    c.choice.clip = true;
    c.choice.dtype = c.choice.grad_dtype = MICS_F16;
    return c;
}

static struct parity_result *run_case(const struct parity_case *like,
                                      struct parity_injection *injection)
{
    struct parity_case c = *like;
    struct parity_result *result = NULL;
    struct mics_err err = {""};

    c.watch = injection ? parity_inject : NULL;
    c.watch_context = injection;
    CHECK_INT(parity_run(&c, &result, &err), MICS_OK);
    CHECK_STR(err.text, "");
    return result;
}

static struct parity_result *run(const struct mics_model *model, const struct mics_shape *shape,
                                 uint32_t steps, struct parity_injection *injection)
{
    struct parity_case c = case_of(model, shape);

    c.steps = steps;
    return run_case(&c, injection);
}

/* An overflow on one rank in the last step: parameters and states of all are those before it. */
static void all_ranks_skip_the_step_of_an_overflow_on_one(void)
{
    static const struct mics_shape shapes[] = {
        {1, 1, 1, 1, 1}, {1, 2, 2, 2, 2}, {2, 2, 2, 2, 2}, {2, 2, 1, 2, 4}, {2, 2, 4, 4, 4}};
    struct mics_model *model = cases_gpt2();

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        if (tap_leaves_out(3))
            continue;
        struct parity_injection never = {.at = UINT32_MAX};
        struct parity_result *two = run(model, &shapes[i], 2, &never);
        struct parity_injection late = {.at = never.seen};
        struct parity_result *three = run(model, &shapes[i], 3, &late);
        struct parity_result *plain = run(model, &shapes[i], 3, NULL);
        const struct parity_case c = {.model = model};

        CHECK_INT(2 * late.seen, 3 * never.seen);
        CHECK(three->replicas_agree);
        CHECK(parity_distance(&c, two, three) == 0);
        CHECK(parity_distance(&c, two, plain) > 0);
        CHECK(!isfinite(three->loss) && isfinite(plain->loss));
        parity_result_free(two);
        parity_result_free(three);
        parity_result_free(plain);
    }
    mics_model_free(model);
}

/* Blocks of the second hop with a number that is not finite are not finite. */
static void an_overflow_is_found_behind_a_second_hop_in_blocks(void)
{
    struct mics_model *model = cases_gpt2();
    struct parity_case c = case_of(model, &(struct mics_shape){2, 2, 2, 2, 2});
    struct parity_injection never = {.at = UINT32_MAX};
    struct parity_result *one, *two;

    c.choice.sync_dtype = c.choice.sync_down_dtype = MICS_INT8;
    c.steps = 1;
    one = run_case(&c, &never);
    c.steps = 2;
    struct parity_injection late = {.at = never.seen};
    two = run_case(&c, &late);
    CHECK(two->replicas_agree && parity_distance(&c, one, two) == 0);
    parity_result_free(one);
    parity_result_free(two);
    mics_model_free(model);
}

/* Experts in groups of their own size: what overflows in the gradients of one expert only is found,
 * and so is what overflows everywhere. */
static void overflows_of_experts_are_found(void)
{
    static const struct mics_shape dense[] = {{2, 2, 2, 2, 2}, {2, 2, 4, 4, 4}},
                                   of_experts[] = {{2, 2, 4, 4, 4}, {2, 2, 1, 1, 2}};
    struct mics_model *model = cases_experts(false);

    for (int i = 0; i < 4; i++) {
        struct parity_case c = case_of(model, &dense[i / 2]), plain;
        struct parity_injection never = {.at = UINT32_MAX, .in_experts = i % 2};
        struct parity_result *two, *three, *without;

        if (tap_leaves_out(3))
            continue;
        c.choice.shapes[MICS_UNIT_EXPERT] = of_experts[i / 2];
        c.steps = 2;
        two = run_case(&c, &never);
        c.steps = 3;
        plain = c;
        without = run_case(&plain, NULL);
        struct parity_injection late = {.at = never.seen, .in_experts = i % 2};
        three = run_case(&c, &late);
        CHECK(late.seen > late.at);
        CHECK(three->replicas_agree && isfinite(without->loss));
        CHECK(parity_distance(&c, two, three) == 0);
        CHECK(parity_distance(&c, two, without) > 0);
        CHECK(isinf(three->grad_norm) || isnan(three->grad_norm));
        parity_result_free(two);
        parity_result_free(three);
        parity_result_free(without);
    }
    mics_model_free(model);
}

/* As in one process with the same overflow in step 4 of 7: that step, and what units carry then, is
 * lost on all ranks, and nothing else. A run without the overflow is far away. */
static void an_overflow_drops_what_units_carry(void)
{
    static const struct mics_shape shapes[] = {{2, 1, 1, 1, 1}, {2, 2, 2, 2, 2}, {2, 2, 1, 2, 4}};
    struct mics_model *model = cases_gpt2();

    for (uint32_t i = 0; i < 3; i++) {
        struct parity_case c = case_of(model, &shapes[i]);
        struct parity_injection of_ranks, of_one;
        struct parity_result *result, *same, *without;

        if (tap_leaves_out(2))
            continue;
        c.choice.sync_interval = 2 + i % 2;
        c.choice.grad_dtype = i == 1 ? MICS_F32 : MICS_F16;
        c.steps = c.carried_every = 7;
        const struct parity_case one = parity_reference(&c);
        of_ranks = parity_injection_in(&c, 4);
        of_one = parity_injection_in(&one, 4);
        result = run_case(&c, &of_ranks);
        same = run_case(&one, &of_one);
        without = run_case(&one, NULL);
        CHECK(result->replicas_agree && isfinite(result->loss));
        CHECK(parity_distance(&c, same, result) <= ROUNDING);
        CHECK(parity_distance(&c, without, result) > 10 * ROUNDING);
        parity_result_free(result);
        parity_result_free(same);
        parity_result_free(without);
    }
    mics_model_free(model);
}

/* One process -------------------------------------------------------------------------------- */

enum { T = 16 };

struct job {
    struct mics_comm *self;
    struct mics_world *world;
    struct mics_model *model;
    struct mics_device *device;
    struct mics_engine *engine;
};

static void fill(void *context, uint32_t micro_step, int32_t *tokens, int32_t *targets)
{
    const uint32_t step = *(const uint32_t *)context;

    for (uint32_t i = 0; i < T; i++) {
        tokens[i] = (int32_t)((i * 7 + micro_step * 3 + step * 11) % 50);
        targets[i] = (int32_t)((i * 5 + step) % 50);
    }
}

static void open_job(struct job *job, enum mics_dtype grad_dtype, uint32_t interval)
{
    const struct mics_plan_choice choice = {
        .shapes =
            MICS_SAME_SHAPE({.nodes = 1, .per_node = 1, .p_param = 1, .p_grad = 1, .p_optim = 1}),
        .strategy = "ddp",
        .segments = 1,
        .coalesce = 1,
        .prefetch = 1,
        .grad_slots = 2,
        .micro_batch = 1,
        .micro_steps = 2,
        .sync_interval = interval,
        .seq = T,
        .optimizer = MICS_OPT_ADAMW,
        .dtype = MICS_F16,
        .grad_dtype = grad_dtype,
        .clip = true};

    *job = (struct job){0};
    CHECK_INT(mics_comm_new_self(&job->self, NULL), MICS_OK);
    CHECK_INT(mics_world_open_over(job->self, 1, &job->world, NULL), MICS_OK);
    CHECK_INT(mics_model_open("gpt2-nano", &job->model, NULL), MICS_OK);
    CHECK_INT(mics_device_new_host(1, &job->device, NULL), MICS_OK);
    const struct mics_engine_options options = {
        .model = job->model,
        .choice = &choice,
        .world = job->world,
        .device = job->device,
        .optimizer = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .clip = 1},
        .loss_scale = {
            .initial = 1024, .step = 2, .min = 1, .max = 0x1p48, .window = 3, .hysteresis = 1}};
    CHECK_INT(mics_engine_new(&options, &job->engine, NULL), MICS_OK);
    CHECK_INT(mics_engine_init(job->engine, 1, NULL), MICS_OK);
}

static void close_job(struct job *job)
{
    mics_engine_free(job->engine);
    job->device->ops->free(job->device);
    mics_model_free(job->model);
    mics_world_close(job->world);
}

static struct mics_step_result step(struct job *job, uint32_t number)
{
    const struct mics_step_input input = {
        .step = number, .lr = 1e-3f, .fill = fill, .fill_context = &number};
    struct mics_step_result result = {0};

    CHECK_INT(mics_engine_submit(job->engine, &input, NULL), MICS_OK);
    CHECK_INT(mics_engine_collect(job->engine, &result, NULL), MICS_OK);
    return result;
}

static void set_scale(struct job *job, double scale)
{
    struct mics_loss_scale_state state;

    CHECK_INT(mics_engine_get_loss_scale(job->engine, &state, NULL), MICS_OK);
    state.scale = scale;
    CHECK_INT(mics_engine_set_loss_scale(job->engine, &state, NULL), MICS_OK);
}

/* Steps 3 and 5 have a scale that overflows. The losses of all others are to the bit those of a run
 * that is never given these two. */
static void injected_overflows_skip_their_steps_only(void)
{
    struct job with, without;

    open_job(&with, MICS_F16, 1);
    open_job(&without, MICS_F16, 1);
    for (uint32_t i = 1; i <= 8; i++) {
        const bool injected = i == 3 || i == 5;

        set_scale(&with, injected ? 0x1p40 : 512);
        const struct mics_step_result got = step(&with, i);
        CHECK_INT(got.overflow, injected);
        CHECK(got.loss_scale == (injected ? 0x1p40 : 512));
        CHECK(got.next_loss_scale == (injected ? 0x1p39 : got.loss_scale) || i == 8);
        if (injected) {
            CHECK(isfinite(got.loss) && !isfinite(got.grad_norm));
            continue;
        }
        set_scale(&without, 512);
        const struct mics_step_result want = step(&without, i);
        CHECK(got.loss == want.loss && got.grad_norm == want.grad_norm);
    }
    close_job(&with);
    close_job(&without);
}

/* Nothing of a first step that overflows is left in what units carry: what follows is to the bit
 * the run that begins with the second. */
static void an_overflow_leaves_nothing_in_what_units_carry(void)
{
    struct job with, without;

    open_job(&with, MICS_F16, 3);
    open_job(&without, MICS_F16, 3);
    set_scale(&with, 0x1p40);
    CHECK(step(&with, 1).overflow);
    for (uint32_t i = 2; i <= 8; i++) {
        set_scale(&with, 512);
        set_scale(&without, 512);
        const struct mics_step_result got = step(&with, i), want = step(&without, i);

        CHECK(!got.overflow && got.loss == want.loss && got.grad_norm == want.grad_norm);
    }
    close_job(&with);
    close_job(&without);
}

/* The units of a later turn overflow: that is found in the step, and reported as the step's. */
static void an_overflow_is_found_before_the_turn_of_its_unit(void)
{
    struct job job;

    open_job(&job, MICS_F16, 8);
    for (uint32_t i = 1; i <= 8; i++) {
        set_scale(&job, i % 2 ? 0x1p40 : 512);
        CHECK(step(&job, i).overflow == i % 2);
    }
    close_job(&job);
}

/* The scale doubles after each third step. Gradients that units have carried from before double as
 * well: norms are those with a scale that stays. */
static void carried_gradients_follow_the_loss_scale(void)
{
    struct mics_step_result drained[2];
    struct job rises, stays;

    open_job(&rises, MICS_F32, 3);
    open_job(&stays, MICS_F32, 3);
    for (uint32_t i = 1; i <= 7; i++) {
        set_scale(&stays, 4096);
        const struct mics_step_result got = step(&rises, i), want = step(&stays, i);

        CHECK(got.loss_scale == 1024 << (i - 1) / 3);
        CHECK_NEAR(got.grad_norm, want.grad_norm, 0.02 * want.grad_norm);
        CHECK_NEAR(got.loss, want.loss, 1e-3 * want.loss);
    }
    CHECK_INT(mics_engine_update_carried(rises.engine, &drained[0], NULL), MICS_OK);
    CHECK_INT(mics_engine_update_carried(stays.engine, &drained[1], NULL), MICS_OK);
    CHECK(drained[1].grad_norm > 0 && drained[0].loss_scale == 4096);
    CHECK_NEAR(drained[0].grad_norm, drained[1].grad_norm, 0.02 * drained[1].grad_norm);
    close_job(&rises);
    close_job(&stays);
}

/* It rises after each third step, and falls once it is too large: the first time it overflows it
 * has its largest value, and half of that fits. */
static void the_scale_rises_until_it_overflows(void)
{
    if (TAP_SANITIZED)
        TAP_SKIP("the steps are those of other tests; other builds take all of them");
    struct job job;
    double scale = 1024, most = 0;
    uint32_t clean = 0;

    open_job(&job, MICS_F32, 1);
    for (uint32_t i = 1; i <= 120 && most == 0; i++) {
        const struct mics_step_result result = step(&job, i);

        CHECK(result.loss_scale == scale);
        clean = result.overflow ? 0 : clean + 1;
        most = result.overflow ? scale : 0;
        if (result.overflow)
            scale /= 2;
        else if (clean == 3) {
            scale *= 2;
            clean = 0;
        }
        CHECK(result.next_loss_scale == scale);
    }
    CHECK(most > 1024);
    CHECK(!step(&job, 121).overflow);
    close_job(&job);
}

static void a_scale_that_was_loaded_goes_on_as_the_saved_one(void)
{
    struct mics_loss_scale_state saved, loaded;
    struct job job;

    open_job(&job, MICS_F16, 1);
    step(&job, 1);
    step(&job, 2);
    set_scale(&job, 0x1p40);
    step(&job, 3);
    step(&job, 4);
    CHECK_INT(mics_engine_get_loss_scale(job.engine, &saved, NULL), MICS_OK);
    CHECK(saved.scale == 0x1p38 && saved.overflows == 2 && saved.clean == 0);
    CHECK_INT(mics_engine_zero_state(job.engine, NULL), MICS_OK);
    CHECK_INT(mics_engine_get_loss_scale(job.engine, &loaded, NULL), MICS_OK);
    CHECK(loaded.scale == 1024 && loaded.overflows == 0 && loaded.patience == 1);
    CHECK_INT(mics_engine_set_loss_scale(job.engine, &saved, NULL), MICS_OK);
    CHECK_INT(mics_engine_get_loss_scale(job.engine, &loaded, NULL), MICS_OK);
    CHECK(memcmp(&saved, &loaded, sizeof saved) == 0);
    close_job(&job);
}

int main(void)
{
    TAP_RUN(all_ranks_skip_the_step_of_an_overflow_on_one);
    TAP_RUN(an_overflow_is_found_behind_a_second_hop_in_blocks);
    TAP_RUN(overflows_of_experts_are_found);
    TAP_RUN(an_overflow_drops_what_units_carry);
    TAP_RUN(injected_overflows_skip_their_steps_only);
    TAP_RUN(an_overflow_leaves_nothing_in_what_units_carry);
    TAP_RUN(an_overflow_is_found_before_the_turn_of_its_unit);
    TAP_RUN(carried_gradients_follow_the_loss_scale);
    TAP_RUN(the_scale_rises_until_it_overflows);
    TAP_RUN(a_scale_that_was_loaded_goes_on_as_the_saved_one);
    return tap_done();
}
