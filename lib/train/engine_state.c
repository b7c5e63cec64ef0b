/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_state.c - parameters and optimizer state in and out of the arena.
 */
#include "base/num.h"
#include "train/engine_internal.h"

#include <stdlib.h>

/* Elements made on the host at a time. */
#define INIT_CHUNK (1u << 18)

static struct mics_stream *compute(const struct mics_engine *engine)
{
    return engine->streams[MICS_STREAM_COMPUTE];
}

static void zero(struct mics_engine *engine, float *data, uint64_t count)
{
    mics_launch_zero(compute(engine),
                     &(struct mics_op_zero){.dst = data, .bytes = count * sizeof *data});
}

static enum mics_status init_piece(struct mics_engine *engine, uint32_t unit, uint64_t first,
                                   float *dst, uint64_t seed, float *host, struct mics_err *err)
{
    const uint64_t piece = engine->units[unit].layout->param_piece;

    for (uint64_t done = 0; done < piece; done += INIT_CHUNK) {
        const uint64_t count = mics_min_u64(INIT_CHUNK, piece - done);
        enum mics_status status;

        mics_model_init_range(engine->model, unit, first + done, count, seed, host);
        mics_launch_copy(
            compute(engine),
            &(struct mics_op_copy){.dst = dst + done, .src = host, .bytes = count * sizeof *host});
        status = engine->device->ops->stream_sync(compute(engine), err);
        if (status != MICS_OK)
            return status;
    }
    return MICS_OK;
}

enum mics_status mics_engine_init(struct mics_engine *engine, uint64_t seed, struct mics_err *err)
{
    float *host = malloc(INIT_CHUNK * sizeof *host);
    enum mics_status status = host ? MICS_OK : mics_err_nomem(err);

    for (uint32_t i = 0; status == MICS_OK && i < engine->model->unit_count; i++) {
        const struct unit_memory *unit = &engine->units[i];
        const struct mics_layout *layout = unit->layout;

        for (uint32_t t = 0; status == MICS_OK && t < layout->segments; t++)
            status = init_piece(
                engine, i,
                mics_layout_piece_offset(layout, t, layout->param_piece, engine->index.param),
                unit->param + t * layout->param_piece, seed, host, err);
        zero(engine, unit->grad, mics_layout_grad_shard(layout));
        zero(engine, unit->m, mics_layout_optim_shard(layout));
        if (unit->v)
            zero(engine, unit->v, mics_layout_optim_shard(layout));
    }
    free(host);
    return status == MICS_OK ? engine->device->ops->stream_sync(compute(engine), err) : status;
}

uint64_t mics_engine_shard_count(const struct mics_engine *engine, uint32_t unit)
{
    return mics_layout_optim_shard(engine->units[unit].layout);
}

bool mics_engine_has_state(const struct mics_engine *engine, enum mics_state state)
{
    return state != MICS_STATE_V || engine->choice.optimizer == MICS_OPT_ADAMW;
}

/* Where segment `segment` of a state's shard is in the arena. */
static float *piece_of(const struct mics_engine *engine, uint32_t unit, enum mics_state state,
                       uint32_t segment)
{
    const struct unit_memory *memory = &engine->units[unit];
    const struct mics_layout *layout = memory->layout;

    if (state == MICS_STATE_PARAM)
        return memory->param + segment * layout->param_piece +
               mics_engine_optim_in_param(engine, layout);
    return (state == MICS_STATE_M ? memory->m : memory->v) + segment * layout->optim_piece;
}

/* Elements of a state's shard to or from the host. */
struct move {
    uint32_t unit;
    enum mics_state state;
    uint64_t first, count;
    float *dst; /* NULL: into the arena */
    const float *src;
};

static enum mics_status move(struct mics_engine *engine, const struct move *what,
                             struct mics_err *err)
{
    const uint64_t piece = engine->units[what->unit].layout->optim_piece;
    uint64_t run;

    if (!mics_engine_has_state(engine, what->state))
        return mics_err_set(err, MICS_ERR_ARG, "the optimizer has no second moment");
    if (mics_engine_uncollected(engine) > 0)
        return mics_err_set(err, MICS_ERR_ARG, "a step still waits to be collected");
    for (uint64_t done = 0; done < what->count; done += run) {
        const uint64_t at = what->first + done;
        float *device =
            piece_of(engine, what->unit, what->state, (uint32_t)(at / piece)) + at % piece;

        run = mics_min_u64(what->count - done, piece - at % piece);
        mics_launch_copy(compute(engine),
                         &(struct mics_op_copy){.dst = what->dst ? what->dst + done : device,
                                                .src = what->dst ? device : what->src + done,
                                                .bytes = run * sizeof *device});
    }
    return engine->device->ops->stream_sync(compute(engine), err);
}

enum mics_status mics_engine_export(struct mics_engine *engine, uint32_t unit,
                                    enum mics_state state, uint64_t first, uint64_t count,
                                    float *dst, struct mics_err *err)
{
    const struct move what = {unit, state, first, count, dst, NULL};

    return move(engine, &what, err);
}

enum mics_status mics_engine_import(struct mics_engine *engine, uint32_t unit,
                                    enum mics_state state, uint64_t first, uint64_t count,
                                    const float *src, struct mics_err *err)
{
    const struct move what = {unit, state, first, count, NULL, src};

    return move(engine, &what, err);
}

enum mics_status mics_engine_publish(struct mics_engine *engine, struct mics_err *err)
{
    struct mics_comm *comm = engine->comms[MICS_COMM_PUBLISH];
    struct mics_stream *stream = engine->streams[MICS_STREAM_GATHER_NET];

    if (!comm)
        return MICS_OK; /* every rank updates all that it holds */
    for (uint32_t i = 0; i < engine->model->unit_count; i++) {
        const struct unit_memory *unit = &engine->units[i];
        const struct mics_layout *layout = unit->layout;

        for (uint32_t t = 0; t < layout->segments; t++)
            comm->ops->all_gather(comm, stream, piece_of(engine, i, MICS_STATE_PARAM, t),
                                  unit->param + t * layout->param_piece, layout->optim_piece,
                                  MICS_F32);
    }
    return engine->device->ops->stream_sync(stream, err);
}
