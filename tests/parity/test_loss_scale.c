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

/* Injection on rank 0 ------------------------------------------------------------------------ */

struct injection {
    uint32_t losses; /* computed so far */
    uint32_t at;     /* the one before which a logit becomes infinite */
    uint16_t *logit;
};

static void make_infinite(void *context)
{
    const struct injection *injection = context;

    *injection->logit = mics_f16_round(INFINITY);
}

static void inject(void *context, struct mics_stream *stream, enum mics_kernel kernel,
                   const void *args)
{
    const struct mics_args_cross_entropy *loss = args;
    struct injection *injection = context;

    if (kernel != MICS_K_CROSS_ENTROPY || !loss->grad || injection->losses++ != injection->at)
        return;
    injection->logit = loss->logits;
    mics_launch_call(stream, &(struct mics_args_call){.fn = make_infinite, .context = injection});
}

static struct parity_result *run(const struct mics_model *model, const struct mics_shape *shape,
                                 uint32_t steps, struct injection *injection)
{
    struct parity_case c = {.model = model,
                            .choice = cases_choice(shape),
                            .steps = steps,
                            .lr = 0.1f,
                            .clip = 1,
                            .slow_op = MICS_NONE,
                            .watch = injection ? inject : NULL,
                            .watch_context = injection};
    struct parity_result *result = NULL;
    struct mics_err err = {""};

    c.choice.clip = true;
    c.choice.dtype = c.choice.grad_dtype = MICS_F16;
    CHECK_INT(parity_run(&c, &result, &err), MICS_OK);
    CHECK_STR(err.text, "");
    return result;
}

/* An overflow on one rank in the last step: parameters and states of all are those before it. */
static void all_ranks_skip_the_step_of_an_overflow_on_one(void)
{
    static const struct mics_shape shapes[] = {
        {1, 1, 1, 1, 1}, {1, 2, 2, 2, 2}, {2, 2, 2, 2, 2}, {2, 2, 1, 2, 4}, {2, 2, 4, 4, 4}};
    struct mics_model *model = cases_gpt2();

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct injection never = {.at = UINT32_MAX};
        struct parity_result *two = run(model, &shapes[i], 2, &never);
        struct injection late = {.at = never.losses};
        struct parity_result *three = run(model, &shapes[i], 3, &late);
        struct parity_result *plain = run(model, &shapes[i], 3, NULL);
        const struct parity_case c = {.model = model};

        CHECK_INT(2 * late.losses, 3 * never.losses);
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

static void open_job(struct job *job, enum mics_dtype grad_dtype)
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

    open_job(&with, MICS_F16);
    open_job(&without, MICS_F16);
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

/* It rises after each third step, and falls once it is too large: the first time it overflows it
 * has its largest value, and half of that fits. */
static void the_scale_rises_until_it_overflows(void)
{
    struct job job;
    double scale = 1024, most = 0;
    uint32_t clean = 0;

    open_job(&job, MICS_F32);
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

    open_job(&job, MICS_F16);
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
    TAP_RUN(injected_overflows_skip_their_steps_only);
    TAP_RUN(the_scale_rises_until_it_overflows);
    TAP_RUN(a_scale_that_was_loaded_goes_on_as_the_saved_one);
    return tap_done();
}
