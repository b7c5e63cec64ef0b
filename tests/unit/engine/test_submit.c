/* SPDX-License-Identifier: Apache-2.0 */
/* What the host does while a step is enqueued: it must not wait for the device, nor ask it for
 * memory. */
#include "tap.h"

#include "engine/engine.h"

#include <stdlib.h>

enum { STEPS = 4 };

static const struct mics_device_ops *real;
static struct mics_device_ops counting;
static int waits, allocations;

static enum mics_status count_stream_sync(struct mics_stream *stream, struct mics_err *err)
{
    waits++;
    return real->stream_sync(stream, err);
}

static enum mics_status count_event_sync(struct mics_event *event, struct mics_err *err)
{
    waits++;
    return real->event_sync(event, err);
}

static enum mics_status count_alloc(struct mics_device *device, size_t bytes, void **out,
                                    struct mics_err *err)
{
    allocations++;
    return real->alloc(device, bytes, out, err);
}

static enum mics_status count_host_alloc(struct mics_device *device, size_t bytes, void **out,
                                         struct mics_err *err)
{
    allocations++;
    return real->host_alloc(device, bytes, out, err);
}

static struct mics_device *open_device(void)
{
    struct mics_device *device = NULL;

    CHECK_INT(mics_device_new_host(1, &device, NULL), MICS_OK);
    real = device->ops;
    counting = *real;
    counting.stream_sync = count_stream_sync;
    counting.event_sync = count_event_sync;
    counting.alloc = count_alloc;
    counting.host_alloc = count_host_alloc;
    device->ops = &counting;
    return device;
}

static void fill(void *context, uint32_t micro_step, int32_t *tokens, int32_t *targets)
{
    (void)context;
    for (int i = 0; i < 16; i++)
        tokens[i] = targets[i] = (int32_t)(i + (int)micro_step);
}

static struct mics_engine *open_engine(struct mics_world *world, const struct mics_model *model,
                                       struct mics_device *device, enum mics_dtype dtype)
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
        .seq = 16,
        .optimizer = MICS_OPT_ADAMW,
        .dtype = dtype,
        .grad_dtype = dtype,
        .clip = true};
    const struct mics_engine_options options = {
        .model = model,
        .choice = &choice,
        .world = world,
        .device = device,
        .optimizer = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .clip = 1},
        .loss_scale = {.initial = 1024, .step = 2, .min = 1, .max = 1024, .hysteresis = 1}};
    struct mics_engine *engine = NULL;

    CHECK_INT(mics_engine_new(&options, &engine, NULL), MICS_OK);
    CHECK_INT(mics_engine_init(engine, 1, NULL), MICS_OK);
    return engine;
}

/* Every step is submitted while the one before is still to be collected, as in training. */
static void run_steps(struct mics_engine *engine)
{
    struct mics_step_result result;

    for (uint32_t step = 1; step <= STEPS; step++) {
        const struct mics_step_input input = {.step = step, .lr = 1e-3f, .fill = fill};

        waits = allocations = 0;
        CHECK_INT(mics_engine_submit(engine, &input, NULL), MICS_OK);
        CHECK_INT(waits, 0);
        CHECK_INT(allocations, 0);
        if (step > 1)
            CHECK_INT(mics_engine_collect(engine, &result, NULL), MICS_OK);
        CHECK_INT(allocations, 0);
    }
    CHECK_INT(mics_engine_collect(engine, &result, NULL), MICS_OK);
    CHECK(waits > 0); /* or nothing was counted */
}

static void a_step_is_enqueued_without_waiting_or_allocating(void)
{
    static const enum mics_dtype dtypes[] = {MICS_F32, MICS_BF16, MICS_F16};
    struct mics_comm *self = NULL;
    struct mics_world *world = NULL;
    struct mics_model *model = NULL;
    struct mics_device *device = open_device();

    CHECK_INT(mics_comm_new_self(&self, NULL), MICS_OK);
    CHECK_INT(mics_world_open_over(self, 1, &world, NULL), MICS_OK);
    CHECK_INT(mics_model_open("gpt2-nano", &model, NULL), MICS_OK);
    for (int i = 0; i < 3; i++) {
        struct mics_engine *engine = open_engine(world, model, device, dtypes[i]);

        run_steps(engine);
        mics_engine_free(engine);
    }
    mics_model_free(model);
    mics_world_close(world);
    real->free(device);
}

int main(void)
{
    TAP_RUN(a_step_is_enqueued_without_waiting_or_allocating);
    return tap_done();
}
