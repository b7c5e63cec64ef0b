/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.c - what an engine is at, as seen from another thread.
 *
 * Looked up in the events that the streams wait for anyhow, so watching costs a step nothing. A look while
 * operations come and go may be a little old; when nothing moves any more it is exact.
 */
#include "engine/internal.h"

const struct mics_op *mics_engine_op(const struct mics_engine *engine, bool evaluating, uint32_t op)
{
    const struct mics_schedule *schedule =
        evaluating ? engine->eval.schedule : engine->train.schedule;

    return op < schedule->op_count ? &schedule->ops[op] : NULL;
}

/* The first operation that has begun and not ended; if there is none, the first that has not ended. */
static void look(const struct mics_engine *engine, const struct replay *replay, uint32_t parity,
                 struct mics_engine_doing *doing)
{
    const struct mics_device_ops *device = engine->device->ops;
    uint32_t waiting = MICS_NONE, running = MICS_NONE;

    for (uint32_t i = 0; i < replay->schedule->op_count; i++) {
        if (device->event_reached(replay->end[parity][i])) {
            doing->progress++;
            continue;
        }
        if (waiting == MICS_NONE)
            waiting = i;
        if (running == MICS_NONE && device->event_reached(replay->begin[parity][i]))
            running = i;
    }
    doing->op = running != MICS_NONE ? running : waiting;
    doing->is = mics_engine_op(engine, doing->evaluating, doing->op);
}

void mics_engine_watch(const struct mics_engine *engine, struct mics_engine_doing *out)
{
    const uint32_t collected = engine->collected, submitted = engine->submitted;
    const uint64_t steps = (uint64_t)collected + submitted;

    *out = (struct mics_engine_doing){.progress = steps << 32, .op = MICS_NONE};
    out->evaluating = engine->evaluating;
    if (submitted != collected)
        out->step = engine->flights[collected & 1].step;
    if (!engine->device->ops->event_reached)
        return;
    if (submitted != collected)
        look(engine, &engine->train, collected & 1, out);
    else if (out->evaluating)
        look(engine, &engine->eval, 0, out);
}

enum mics_status mics_engine_check(const struct mics_engine *engine, struct mics_err *err)
{
    for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++) {
        struct mics_comm *comm = engine->comms[kind];
        const enum mics_status status =
            comm && comm->health ? comm->health->check(comm, err) : MICS_OK;

        if (status == MICS_OK)
            continue;
        mics_err_prefix(err, "communicator %s", mics_comm_kind_name(kind));
        return status;
    }
    return MICS_OK;
}
