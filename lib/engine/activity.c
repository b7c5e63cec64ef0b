/* SPDX-License-Identifier: Apache-2.0 */
/*
 * activity.c - what an engine is doing, and what it did last.
 *
 * Both look at the events that the streams wait for anyway, so that watching costs a step nothing.
 * An answer may be slightly old while operations progress; it is exact when nothing moves any more.
 */
#include "base/clock.h"
#include "engine/engine_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct mics_op *mics_engine_op(const struct mics_engine *engine, bool evaluating, uint32_t op)
{
    const struct mics_schedule *schedule =
        evaluating ? engine->eval.schedule : engine->train.schedule;

    return op < schedule->op_count ? &schedule->ops[op] : NULL;
}

/* The first operation that has begun and not ended; if there is none, the first that has not
 * ended. */
static void find_activity(const struct mics_engine *engine, const struct replay *replay,
                          uint32_t parity, struct mics_engine_activity *activity)
{
    const struct mics_device_ops *device = engine->device->ops;
    uint32_t waiting = MICS_NONE, running = MICS_NONE;

    for (uint32_t i = 0; i < replay->schedule->op_count; i++) {
        if (device->event_reached(replay->end[parity][i])) {
            activity->progress++;
            continue;
        }
        if (waiting == MICS_NONE)
            waiting = i;
        if (running == MICS_NONE && device->event_reached(replay->begin[parity][i]))
            running = i;
    }
    activity->op = running != MICS_NONE ? running : waiting;
}

void mics_engine_watch(const struct mics_engine *engine, struct mics_engine_activity *out)
{
    const uint32_t collected = engine->collected, submitted = engine->submitted;
    const uint64_t steps = (uint64_t)collected + submitted;

    *out = (struct mics_engine_activity){.progress = steps << 32, .op = MICS_NONE};
    out->evaluating = engine->evaluating;
    if (submitted != collected)
        out->step = engine->flights[collected & 1].step;
    if (!engine->device->ops->event_reached)
        return;
    if (submitted != collected && engine->draining) {
        find_activity(engine, &engine->drain, collected & 1, out);
        out->op = MICS_NONE; /* it is not one of a step */
    } else if (submitted != collected) {
        find_activity(engine, &engine->train, collected & 1, out);
    } else if (out->evaluating) {
        find_activity(engine, &engine->eval, 0, out);
    }
}

void mics_engine_note_begin(struct mics_engine *engine, struct flight *flight,
                            enum mics_replay_kind kind, uint32_t step)
{
    flight->number = 0; /* what its events tell is of neither replay, for a while */
    flight->step = step;
    flight->kind = kind;
    flight->begin_ns = (uint64_t)(mics_now_s() * 1e9);
    flight->number = ++engine->replays;
}

static const struct replay *replay_of(const struct mics_engine *engine, enum mics_replay_kind kind)
{
    if (kind == MICS_REPLAY_EVAL)
        return &engine->eval;
    return kind == MICS_REPLAY_UPDATE ? &engine->drain : &engine->train;
}

/* One replay, as its events tell it. */
struct look {
    const struct mics_engine *engine;
    const struct flight *flight;
    const struct replay *replay;
    uint32_t parity;
    double failed_s; /* when the device failed; INFINITY: it has not */
};

/* When operation `i` began, and ended; INFINITY: it has not. An event that was not recorded since
 * the replay began tells a time before it. */
static void read_op(const struct look *look, uint32_t i, double *begin_s, double *end_s)
{
    const struct mics_device_ops *device = look->engine->device->ops;
    struct mics_event *begin = look->replay->begin[look->parity][i];
    struct mics_event *end = look->replay->end[look->parity][i];
    const double first_s = (double)look->flight->begin_ns * 1e-9;

    *begin_s = *end_s = INFINITY;
    if (device->event_reached(begin) && device->event_time(begin) >= first_s &&
        device->event_time(begin) <= look->failed_s)
        *begin_s = device->event_time(begin);
    if (device->event_reached(end) && device->event_time(end) >= *begin_s &&
        device->event_time(end) <= look->failed_s)
        *end_s = device->event_time(end);
}

static struct mics_engine_op_times describe(const struct look *look, uint32_t i,
                                            enum mics_op_state state, double begin_s, double end_s)
{
    return (struct mics_engine_op_times){
        .kind = look->flight->kind,
        .number = look->flight->number,
        .step = look->flight->step,
        .index = i,
        .state = state,
        .op = &look->replay->schedule->ops[i],
        .schedule = look->replay->schedule,
        .begin_s = begin_s,
        .end_s = end_s,
    };
}

/* Append the operations that have begun. */
static size_t add_begun(const struct look *look, struct mics_engine_op_times *out)
{
    size_t count = 0;

    for (uint32_t i = 0; i < look->replay->schedule->op_count; i++) {
        double begin_s, end_s;

        read_op(look, i, &begin_s, &end_s);
        if (!isinf(begin_s))
            out[count++] =
                describe(look, i, isinf(end_s) ? MICS_OP_RUNNING : MICS_OP_ENDED, begin_s, end_s);
    }
    return count;
}

/* When all that operation `i` waits for had ended; INFINITY: it has not. `previous`: the one before
 * it on its stream, or MICS_NONE. What an earlier replay had to do is over. */
static double due_since(const struct look *look, uint32_t i, uint32_t previous)
{
    const struct mics_schedule *schedule = look->replay->schedule;
    const struct mics_op *op = &schedule->ops[i];
    double since_s = (double)look->flight->begin_ns * 1e-9, begin_s, end_s;

    if (previous != MICS_NONE) {
        read_op(look, previous, &begin_s, &end_s);
        since_s = fmax(since_s, end_s);
    }
    for (uint32_t d = op->dep_begin; d < op->dep_begin + op->dep_count; d++)
        if (schedule->deps[d] < i) {
            read_op(look, schedule->deps[d], &begin_s, &end_s);
            since_s = fmax(since_s, end_s);
        }
    return since_s;
}

/* Append what is due: of each stream at most the first operation that has not begun. */
static size_t add_due(const struct look *look, struct mics_engine_op_times *out)
{
    const struct mics_schedule *schedule = look->replay->schedule;
    uint32_t previous[MICS_STREAM_COUNT];
    bool seen[MICS_STREAM_COUNT] = {false};
    size_t count = 0;

    memset(previous, 0xff, sizeof previous); /* MICS_NONE */
    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const enum mics_stream_kind stream = schedule->ops[i].stream;
        double begin_s, end_s;

        read_op(look, i, &begin_s, &end_s);
        if (isinf(begin_s) && !seen[stream]) {
            const double since_s = due_since(look, i, previous[stream]);

            seen[stream] = true;
            if (!isinf(since_s))
                out[count++] = describe(look, i, MICS_OP_DUE, since_s, INFINITY);
        }
        previous[stream] = i;
    }
    return count;
}

static int compare_ops(const void *left, const void *right)
{
    const struct mics_engine_op_times *a = left, *b = right;

    if (a->state != b->state)
        return a->state < b->state ? -1 : 1;
    if (a->begin_s != b->begin_s)
        return a->begin_s < b->begin_s ? -1 : 1;
    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* What is known of one replay, unless its events became those of another meanwhile. */
static size_t add_replay(const struct mics_engine *engine, const struct flight *flight,
                         uint32_t parity, double failed_s, bool in_flight,
                         struct mics_engine_op_times *out)
{
    const uint64_t number = flight->number;
    const struct look look = {engine, flight, replay_of(engine, flight->kind), parity, failed_s};
    size_t count;

    if (number == 0)
        return 0;
    count = add_begun(&look, out);
    if (in_flight)
        count += add_due(&look, out + count);
    return flight->number == number ? count : 0;
}

enum mics_status mics_engine_last_ops(const struct mics_engine *engine,
                                      struct mics_engine_op_times *out, size_t capacity,
                                      size_t *count, struct mics_err *err)
{
    const struct mics_device_ops *device = engine->device->ops;
    const uint32_t drained = engine->drain.schedule ? engine->drain.schedule->op_count : 0;
    const size_t most = 2 * ((size_t)engine->train.schedule->op_count + drained) +
                        engine->eval.schedule->op_count + MICS_STREAM_COUNT;
    const uint32_t collected = engine->collected;
    const bool stepping = engine->submitted != collected;
    double failed_s = INFINITY;
    size_t found = 0;

    *count = 0;
    if (!device->event_reached)
        return MICS_OK;
    if (device->failed_at && mics_engine_has_failed(engine))
        failed_s = device->failed_at(engine->device);
    struct mics_engine_op_times *all = calloc(most, sizeof *all);
    if (!all)
        return mics_err_nomem(err);
    for (uint32_t parity = 0; parity < 2; parity++)
        found += add_replay(engine, &engine->flights[parity], parity, failed_s,
                            stepping && parity == (collected & 1), all + found);
    found += add_replay(engine, &engine->eval_flight, 0, failed_s, !stepping && engine->evaluating,
                        all + found);
    if (!device->failed_at && mics_engine_has_failed(engine))
        found = 0; /* every event counts as reached, at no time that means anything */
    qsort(all, found, sizeof *all, compare_ops);
    *count = found < capacity ? found : capacity;
    memcpy(out, all + found - *count, *count * sizeof *out);
    free(all);
    return MICS_OK;
}
