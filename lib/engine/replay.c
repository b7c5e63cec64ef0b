/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - replay a step's schedule on the engine's memory, with the times of its operations.
 *
 * Every operation has two pairs of events, one for each parity of steps. Later operations wait for
 * the end; begin and end together are the timeline. A dependency on an operation that stands later
 * in the array is one on that operation in the step before.
 */
#include "engine/engine_internal.h"

#include <stdlib.h>

static enum mics_status open_events(struct mics_device *device, uint32_t count,
                                    struct mics_event ***out, struct mics_err *err)
{
    struct mics_event **events = calloc(count ? count : 1, sizeof(struct mics_event *));

    if (!events)
        return mics_err_nomem(err);
    *out = events;
    for (uint32_t i = 0; i < count; i++) {
        enum mics_status status = device->ops->event_open(device, &events[i], err);
        if (status != MICS_OK)
            return status;
    }
    return MICS_OK;
}

static enum mics_status open_parity(struct mics_engine *engine, struct replay *replay,
                                    uint32_t parity, struct mics_err *err)
{
    struct mics_device *device = engine->device;
    const uint32_t count = replay->schedule->op_count;
    enum mics_status status;

    status = open_events(device, count, &replay->begin[parity], err);
    if (status == MICS_OK)
        status = open_events(device, count, &replay->end[parity], err);
    if (status == MICS_OK)
        status = device->ops->event_open(device, &replay->input[parity], err);
    for (int stream = 0; status == MICS_OK && stream < MICS_STREAM_COUNT; stream++)
        status = device->ops->event_open(device, &replay->idle[parity][stream], err);
    return status;
}

enum mics_status mics_replay_open(struct mics_engine *engine, const struct mics_schedule *schedule,
                                  struct replay *replay, struct mics_err *err)
{
    replay->schedule = schedule;
    for (uint32_t parity = 0; parity < 2; parity++) {
        enum mics_status status = open_parity(engine, replay, parity, err);
        if (status != MICS_OK)
            return status;
    }
    return MICS_OK;
}

static void close_events(struct mics_device *device, struct mics_event **events, uint32_t count)
{
    for (uint32_t i = 0; events && i < count; i++)
        device->ops->event_close(events[i]);
    free(events);
}

void mics_replay_close(struct mics_engine *engine, struct replay *replay)
{
    struct mics_device *device = engine->device;

    if (!replay->schedule)
        return;
    for (uint32_t parity = 0; parity < 2; parity++) {
        close_events(device, replay->begin[parity], replay->schedule->op_count);
        close_events(device, replay->end[parity], replay->schedule->op_count);
        device->ops->event_close(replay->input[parity]);
        for (int stream = 0; stream < MICS_STREAM_COUNT; stream++)
            device->ops->event_close(replay->idle[parity][stream]);
    }
}

void mics_replay_send_batch(struct mics_engine *engine, struct replay *replay, uint32_t parity,
                            uint64_t tokens)
{
    struct mics_stream *stream = engine->input;
    const uint64_t bytes = tokens * sizeof(int32_t);

    if (bytes > 0) {
        mics_launch_copy(stream, &(struct mics_args_copy){.dst = engine->tokens[parity],
                                                          .src = engine->host_tokens[parity],
                                                          .bytes = bytes});
        mics_launch_copy(stream, &(struct mics_args_copy){.dst = engine->targets[parity],
                                                          .src = engine->host_targets[parity],
                                                          .bytes = bytes});
    }
    mics_launch_copy(stream, &(struct mics_args_copy){
                                 .dst = engine->scalars[parity],
                                 .src = engine->host_scalars[parity],
                                 .bytes = mics_scalars_bytes(engine->model, true),
                             });
    engine->device->ops->event_record(replay->input[parity], stream);
}

static void call_hook(void *context)
{
    const struct hook *hook = context;
    const struct mics_engine_options *options = &hook->engine->options;

    options->before_op(options->context, hook->op);
}

/* What one replay needs to know of each operation. */
struct replay_context {
    struct mics_engine *engine;
    const struct replay *replay;
    struct issue *issue;
};

/* Call the hook of an operation: before a collective begins, and as a part of any other
 * operation. */
static void enqueue_hook(const struct replay_context *c, uint32_t index, struct mics_stream *stream)
{
    if (c->engine->hooks && c->replay == &c->engine->train)
        mics_launch_call(
            stream, &(struct mics_args_call){.fn = call_hook, .context = &c->engine->hooks[index]});
}

static void enter_op(void *context, uint32_t index, struct mics_stream *stream)
{
    const struct replay_context *c = context;

    if (c->replay->schedule->ops[index].kind == MICS_OP_TARGET_COUNT)
        /* It reads the input, but not on the compute stream. */
        c->engine->device->ops->event_wait(stream, c->replay->input[c->issue->parity]);
    if (mics_op_is_comm(c->replay->schedule->ops[index].kind))
        enqueue_hook(c, index, stream);
}

static bool is_idle(void *context, uint32_t index)
{
    const struct replay_context *c = context;
    const struct mics_op *op = &c->replay->schedule->ops[index];

    if (op->turn == MICS_TURN_WARMUP)
        return !c->issue->warmup;
    if (op->kind == MICS_OP_NORM && c->issue->tail &&
        mics_choice_checks_carried(&c->engine->choice))
        return !mics_engine_has_turn(c->issue, op->unit);
    if (op->turn != MICS_NONE)
        return !(c->issue->turns >> op->turn & 1);
    if (!c->issue->tail)
        return mics_engine_round_is_empty(c->engine, c->issue, op);
    return op->kind != MICS_OP_TARGET_COUNT && op->kind != MICS_OP_LOSS_NORM_REDUCE &&
           op->kind != MICS_OP_READ;
}

static void issue_op(void *context, uint32_t index, struct mics_stream *stream)
{
    const struct replay_context *c = context;

    c->issue->op = &c->replay->schedule->ops[index];
    c->issue->stream = stream;
    if (!mics_op_is_comm(c->issue->op->kind))
        enqueue_hook(c, index, stream);
    mics_engine_issue(c->engine, c->issue);
}

void mics_replay_run(struct mics_engine *engine, struct replay *replay, struct issue *issue)
{
    const struct mics_device_ops *device = engine->device->ops;
    const uint32_t parity = issue->parity;
    struct replay_context context = {engine, replay, issue};

    issue->schedule = replay->schedule;
    if (replay == &engine->eval)
        engine->evaluating = true;
    device->event_wait(engine->executor.streams[MICS_STREAM_COMPUTE], replay->input[parity]);
    mics_executor_replay(&engine->executor,
                         &(struct mics_replay){.schedule = replay->schedule,
                                               .streams = engine->executor.streams,
                                               .begin = replay->begin[parity],
                                               .end = replay->end[parity],
                                               .end_before = replay->end[parity ^ 1],
                                               .is_idle = is_idle,
                                               .enter = enter_op,
                                               .issue = issue_op,
                                               .context = &context});
    for (int stream = 0; stream < MICS_STREAM_COUNT; stream++)
        if (engine->executor.streams[stream])
            device->event_record(replay->idle[parity][stream], engine->executor.streams[stream]);
}

enum mics_status mics_replay_wait(struct mics_engine *engine, struct replay *replay,
                                  uint32_t parity, struct mics_err *err)
{
    for (int stream = 0; stream < MICS_STREAM_COUNT; stream++) {
        enum mics_status status = MICS_OK;

        if (engine->executor.streams[stream])
            status = engine->device->ops->event_sync(replay->idle[parity][stream], err);
        if (status != MICS_OK)
            return status;
    }
    if (replay == &engine->eval)
        engine->evaluating = false;
    return MICS_OK;
}
