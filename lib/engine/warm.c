/* SPDX-License-Identifier: Apache-2.0 */
/*
 * warm.c - each kind of collective once, before the first step.
 *
 * Libraries of communication connect ranks, and take memory of the device, when an algorithm is used for the first time. Here that
 * happens where nobody counts the time yet, where what they take can be measured, and where a lack of it ends the job at
 * once instead of in a step. What is exchanged is whatever the arena holds: it is filled only afterwards.
 */
#include "base/clock.h"
#include "base/num.h"
#include "base/units.h"
#include "engine/internal.h"

static const double look_s = 1e-3; /* between looks */
static const uint64_t scarce_bytes = (uint64_t)1
                                     << 28; /* less than this may be what a library lacked */

uint64_t mics_engine_memory_left(const struct mics_engine *engine)
{
    struct mics_device *device = engine->device;
    uint64_t left = 0;

    if (device->on_host || !device->ops->memory_left ||
        device->ops->memory_left(device, &left, NULL) != MICS_OK)
        return 0;
    return left;
}

static bool is_like(const struct mics_op *a, const struct mics_op *b)
{
    return a->kind == b->kind && a->comm == b->comm && a->stream == b->stream &&
           a->count == b->count && a->dtype == b->dtype;
}

/* The first of its kind that goes over a communicator of several ranks. */
static bool is_new(const struct mics_engine *engine, const struct mics_schedule *schedule,
                   uint32_t index)
{
    const struct mics_op *op = &schedule->ops[index];

    if (!mics_op_is_comm(op->kind) || engine->comms[op->comm]->size == 1)
        return false;
    for (uint32_t i = 0; i < index; i++)
        if (is_like(&schedule->ops[i], op))
            return false;
    return true;
}

/* Each on its own stream, which may need a thread or memory for it, but after the one before, for
 * they share memory. `end` marks the end of the newest. */
static void enqueue(struct mics_engine *engine, const struct mics_schedule *schedule,
                    struct mics_event *end)
{
    const struct mics_device_ops *device = engine->device->ops;
    struct issue issue = {.schedule = schedule};

    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];

        if (!is_new(engine, schedule, i))
            continue;
        issue.op = op;
        issue.stream = engine->streams[op->stream];
        device->event_wait(issue.stream, end);
        mics_engine_issue(engine, &issue);
        device->event_record(end, issue.stream);
    }
}

/* A collective that another rank does not come to never ends, and no stream says so. */
static enum mics_status wait(struct mics_engine *engine, struct mics_event *end,
                             struct mics_err *err)
{
    struct mics_device *device = engine->device;
    enum mics_status status = MICS_OK;

    while (status == MICS_OK && !device->ops->event_reached(end)) {
        mics_sleep_s(look_s);
        status = mics_engine_check(engine, err);
    }
    return status == MICS_OK ? device->ops->event_sync(end, err) : status;
}

static enum mics_status run(struct mics_engine *engine, struct mics_err *err)
{
    struct mics_device *device = engine->device;
    struct mics_event *end = NULL;
    enum mics_status status = device->ops->event_open(device, &end, err);

    if (status != MICS_OK)
        return status;
    device->ops->event_record(end, engine->streams[MICS_STREAM_COMPUTE]);
    enqueue(engine, engine->train.schedule, end);
    enqueue(engine, engine->eval.schedule, end);
    status = wait(engine, end, err);
    device->ops->event_close(end);
    return status;
}

static void say_what_is_left(const struct mics_engine *engine, struct mics_err *err)
{
    const uint64_t left = mics_engine_memory_left(engine);
    char buf[2][32];

    if (left < scarce_bytes)
        mics_err_prefix(err, "the plan's arena of %s leaves %s to the communicators",
                        mics_format_bytes(engine->memory.arena_bytes, buf[0], sizeof buf[0]),
                        mics_format_bytes(left, buf[1], sizeof buf[1]));
}

enum mics_status mics_engine_warm_up(struct mics_engine *engine, struct mics_err *err)
{
    const uint64_t before = mics_engine_memory_left(engine);

    if (engine->device->on_host || engine->options.world->size == 1)
        return MICS_OK;
    const enum mics_status status = run(engine, err);
    if (status != MICS_OK) {
        say_what_is_left(engine, err);
        return status;
    }
    engine->comm_bytes += before - mics_min_u64(before, mics_engine_memory_left(engine));
    for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++)
        if (engine->comms[kind])
            engine->comms[kind]->counts = (struct mics_comm_counts){0};
    return MICS_OK;
}
