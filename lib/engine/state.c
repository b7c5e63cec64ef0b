/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.c - parameters and optimizer state in and out of the arena.
 */
#include "base/num.h"
#include "comm/agree.h"
#include "engine/engine_internal.h"
#include "host/numbers.h"
#include "host/pool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Elements generated on the host at a time. */
#define INIT_CHUNK (1u << 18)

static struct mics_stream *compute(const struct mics_engine *engine)
{
    return engine->executor.streams[MICS_STREAM_COMPUTE];
}

static void zero(struct mics_engine *engine, float *data, uint64_t count)
{
    mics_launch_zero(compute(engine),
                     &(struct mics_args_zero){.dst = data, .bytes = count * sizeof *data});
}

/* Initial values of a range of a unit, for `dst` as `dtype`. */
struct fill {
    uint32_t unit;
    uint64_t first, count, seed;
    void *dst;
    enum mics_dtype dtype;
    struct mics_comm *sharing; /* ranks that need the same values, and make a part each; or NULL */
    float *host;               /* [2 * room] scratch */
    uint64_t room;             /* INIT_CHUNK, and the last part of `sharing`, rounded up */
    struct mics_pool *pool;
};

/* Elements of the range, from `begin` on, to fill->host. */
static enum mics_status make_values(struct mics_engine *engine, const struct fill *fill,
                                    uint64_t begin, uint64_t count, struct mics_err *err)
{
    struct mics_comm *sharing = fill->sharing;
    uint64_t part = count, first = 0;
    float *values = fill->host;

    if (sharing) {
        part = mics_ceil_div(count, (uint64_t)sharing->size);
        first = mics_min_u64(count, part * (uint64_t)sharing->rank);
        values += fill->room;
    }
    mics_model_init_range_parallel(fill->pool, engine->model, fill->unit,
                                   fill->first + begin + first, mics_min_u64(part, count - first),
                                   fill->seed, values);
    return sharing
               ? mics_comm_all_gather_now(sharing, values, fill->host, part * sizeof *values, err)
               : MICS_OK;
}

static enum mics_status fill_range(struct mics_engine *engine, const struct fill *fill,
                                   struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (uint64_t done = 0; status == MICS_OK && done < fill->count; done += INIT_CHUNK) {
        const uint64_t count = mics_min_u64(INIT_CHUNK, fill->count - done);
        const void *src = fill->host;

        status = make_values(engine, fill, done, count, err);
        if (status != MICS_OK)
            return status;
        if (mics_dtype_is_half(fill->dtype)) {
            mics_numbers_from_f32(fill->dtype == MICS_F16 ? MICS_STORAGE_F16 : MICS_STORAGE_BF16,
                                  fill->host, fill->host + fill->room, count);
            src = fill->host + fill->room;
        }
        mics_launch_copy(compute(engine),
                         &(struct mics_args_copy){.dst = mics_element(fill->dst, done, fill->dtype),
                                                  .src = src,
                                                  .bytes = count * mics_dtype_bytes(fill->dtype)});
        status = engine->device->ops->stream_sync(compute(engine), err);
    }
    return status;
}

/* Round elements of the master to the parameters: of segment `t`, from `begin` on. One that is in
 * host memory comes to the device first. */
static void round_elements(struct mics_engine *engine, struct mics_stream *stream, uint32_t unit,
                           uint32_t t, uint64_t begin, uint64_t count)
{
    const struct unit_memory *memory = &engine->units[unit];
    const float *master = memory->master + t * memory->layout->optim_piece + begin;
    const enum mics_dtype dtype = engine->choice.dtype;

    if (engine->offload) {
        float *slot = mics_engine_piece_slot(engine, 0, 0);

        mics_launch_copy(stream, &(struct mics_args_copy){
                                     .dst = slot, .src = master, .bytes = count * sizeof *slot});
        master = slot;
    }
    mics_launch_cast(
        stream, &(struct mics_args_cast){
                    .dst = mics_element(mics_engine_updated_piece(engine, unit, t), begin, dtype),
                    .src = master,
                    .count = count,
                    .dst_dtype = dtype,
                    .src_dtype = MICS_F32});
}

static void round_master(struct mics_engine *engine, struct mics_stream *stream, uint32_t unit)
{
    const struct unit_memory *memory = &engine->units[unit];
    const uint64_t piece = memory->layout->optim_piece;
    const uint64_t most = engine->offload ? engine->piece_slot_count : piece;

    for (uint32_t t = 0; memory->master && t < memory->layout->segments; t++)
        for (uint64_t begin = 0; begin < piece; begin += most)
            round_elements(engine, stream, unit, t, begin, mics_min_u64(most, piece - begin));
}

/* The parameter shard and the master. Values are generated only once if both hold the same
 * elements. */
static enum mics_status init_unit(struct mics_engine *engine, struct fill *fill,
                                  struct mics_err *err)
{
    const struct unit_memory *unit = &engine->units[fill->unit];
    const struct mics_layout *layout = unit->layout;
    const bool once = unit->master && layout->optim_piece == layout->param_piece;
    struct mics_comm *node = engine->options.world->node_comm;
    enum mics_status status = MICS_OK;

    for (uint32_t t = 0; status == MICS_OK && !once && t < layout->segments; t++) {
        fill->first = mics_layout_piece_offset(layout, t, layout->param_piece,
                                               mics_engine_groups(engine, fill->unit)->index.param);
        fill->count = layout->param_piece;
        fill->dtype = engine->choice.dtype;
        fill->dst = mics_element(unit->param, t * layout->param_piece, fill->dtype);
        fill->sharing = mics_engine_groups(engine, fill->unit)->shape.p_param == 1 ? node : NULL;
        status = fill_range(engine, fill, err);
    }
    for (uint32_t t = 0; status == MICS_OK && unit->master && t < layout->segments; t++) {
        fill->first = mics_layout_piece_offset(layout, t, layout->optim_piece,
                                               mics_engine_groups(engine, fill->unit)->index.optim);
        fill->count = layout->optim_piece;
        fill->dtype = MICS_F32;
        fill->dst = unit->master + t * layout->optim_piece;
        fill->sharing = NULL;
        status = fill_range(engine, fill, err);
    }
    if (once)
        round_master(engine, compute(engine), fill->unit);
    return status;
}

/* Generating normal variates is slow on one core, so all threads take part. */
static struct mics_pool *new_pool(const struct mics_engine *engine)
{
    const unsigned threads = mics_threads_per_rank(mics_world_host_ranks(engine->options.world));

    return mics_pool_new(threads ? threads : 1);
}

void mics_engine_enqueue_outer_start(struct mics_engine *engine)
{
    engine->merges = false;
    for (uint32_t i = 0; i < engine->model->unit_count && engine->choice.outer_steps > 0; i++) {
        const struct mics_layout *layout = engine->units[i].layout;

        for (uint32_t segment = 0; segment < layout->segments; segment++) {
            const struct outer_piece at = mics_engine_outer_piece(engine, i, segment);

            mics_launch_copy(compute(engine),
                             &(struct mics_args_copy){.dst = at.anchor,
                                                      .src = at.param,
                                                      .bytes = at.count * sizeof *at.param});
        }
        zero(engine, engine->units[i].outer_momentum, mics_layout_optim_shard(layout));
    }
}

enum mics_status mics_engine_start_outer(struct mics_engine *engine, struct mics_err *err)
{
    mics_engine_enqueue_outer_start(engine);
    return engine->device->ops->stream_sync(compute(engine), err);
}

static void put_loss_scale(struct mics_engine *engine, const struct mics_loss_scale_state *state)
{
    struct mics_loss_scale *host = engine->host_loss_scale[2];

    *host =
        (struct mics_loss_scale){.factor = state->scale / mics_choice_loss_divisor(&engine->choice),
                                 .clean = state->clean,
                                 .patience = state->patience,
                                 .overflows = state->overflows};
    mics_launch_copy(
        compute(engine),
        &(struct mics_args_copy){.dst = engine->loss_scale, .src = host, .bytes = sizeof *host});
}

void mics_engine_scale_carried(struct mics_engine *engine, double by)
{
    for (uint32_t i = 0; i < engine->model->unit_count && by != 1; i++) {
        float *grad = engine->units[i].grad;

        if (engine->carried[engine->train.schedule->turns[i]].steps > 0)
            mics_launch_difference(compute(engine),
                                   &(struct mics_args_difference){
                                       .dst = grad,
                                       .a = grad,
                                       .count = mics_layout_grad_shard(engine->units[i].layout),
                                       .scale = (float)by});
    }
}

static void reset_loss_scale(struct mics_engine *engine)
{
    const struct mics_loss_scale_settings *with = &engine->options.loss_scale;

    if (engine->loss_scale)
        put_loss_scale(engine, &(struct mics_loss_scale_state){.scale = with->initial,
                                                               .patience = with->hysteresis});
}

static void zero_state(struct mics_engine *engine)
{
    memset(engine->carried, 0, sizeof engine->carried);
    for (uint32_t i = 0; i < engine->model->unit_count; i++) {
        const struct unit_memory *unit = &engine->units[i];
        const uint64_t shard = mics_layout_optim_shard(unit->layout);

        zero(engine, unit->grad, mics_layout_grad_shard(unit->layout));
        for (uint32_t s = 0; s < mics_optimizer_states(engine->choice.optimizer); s++)
            if (engine->offload)
                memset(unit->state[s], 0, shard * sizeof *unit->state[s]);
            else
                zero(engine, unit->state[s], shard);
    }
    mics_engine_enqueue_outer_start(engine);
    reset_loss_scale(engine);
}

enum mics_status mics_engine_set_loss_scale(struct mics_engine *engine,
                                            const struct mics_loss_scale_state *state,
                                            struct mics_err *err)
{
    struct mics_loss_scale_state now;
    const enum mics_status status = mics_engine_get_loss_scale(engine, &now, err);

    if (status != MICS_OK)
        return status;
    if (now.scale > 0)
        mics_engine_scale_carried(engine, state->scale / now.scale);
    put_loss_scale(engine, state);
    return engine->device->ops->stream_sync(compute(engine), err);
}

enum mics_status mics_engine_get_loss_scale(struct mics_engine *engine,
                                            struct mics_loss_scale_state *out, struct mics_err *err)
{
    struct mics_loss_scale *host = engine->host_loss_scale[2];
    enum mics_status status = mics_engine_check_idle(engine, err);

    if (status != MICS_OK)
        return status;
    mics_launch_copy(
        compute(engine),
        &(struct mics_args_copy){.dst = host, .src = engine->loss_scale, .bytes = sizeof *host});
    status = engine->device->ops->stream_sync(compute(engine), err);
    *out = (struct mics_loss_scale_state){.scale = host->factor *
                                                   mics_choice_loss_divisor(&engine->choice),
                                          .clean = host->clean,
                                          .patience = host->patience,
                                          .overflows = host->overflows};
    return status;
}

enum mics_status mics_engine_zero_state(struct mics_engine *engine, struct mics_err *err)
{
    zero_state(engine);
    return engine->device->ops->stream_sync(compute(engine), err);
}

enum mics_status mics_engine_init(struct mics_engine *engine, uint64_t seed, struct mics_err *err)
{
    struct fill fill = {.seed = seed,
                        .room = INIT_CHUNK + engine->options.world->local_size,
                        .pool = new_pool(engine)};

    fill.host = malloc(2 * fill.room * sizeof *fill.host);
    enum mics_status status = fill.host && fill.pool ? MICS_OK : mics_err_nomem(err);

    for (uint32_t i = 0; status == MICS_OK && i < engine->model->unit_count; i++) {
        fill.unit = i;
        status = init_unit(engine, &fill, err);
    }
    if (status == MICS_OK)
        zero_state(engine);
    mics_pool_free(fill.pool);
    free(fill.host);
    return status == MICS_OK ? engine->device->ops->stream_sync(compute(engine), err) : status;
}

uint64_t mics_engine_shard_count(const struct mics_engine *engine, uint32_t unit)
{
    return mics_layout_optim_shard(engine->units[unit].layout);
}

/* States of the engine's shards besides the parameters (enum mics_state). */
static uint32_t state_count(const struct mics_engine *engine)
{
    return mics_choice_states(&engine->choice);
}

/* Where segment `segment` of a state's shard is in the arena. */
static float *state_piece(const struct mics_engine *engine, uint32_t unit, enum mics_state state,
                          uint32_t segment)
{
    const struct unit_memory *memory = &engine->units[unit];
    const struct mics_layout *layout = memory->layout;

    if (state == MICS_STATE_PARAM)
        return memory->master ? memory->master + segment * layout->optim_piece
                              : mics_engine_updated_piece(engine, unit, segment);
    const uint32_t inner = mics_optimizer_states(engine->choice.optimizer);
    const uint32_t index = state - MICS_STATE_M;
    float *shard = index < inner    ? memory->state[index]
                   : index == inner ? memory->anchor
                                    : memory->outer_momentum;

    return shard + segment * layout->optim_piece;
}

/* A copy of elements of a state's shard to or from the host. */
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
    const struct unit_memory *memory = &engine->units[what->unit];
    const uint64_t piece = memory->layout->optim_piece;
    const bool in_host = engine->offload && (what->state != MICS_STATE_PARAM || memory->master);
    uint64_t run;

    if ((uint32_t)what->state > state_count(engine))
        return mics_err_set(err, MICS_ERR_ARG, "%s has no state %d",
                            mics_optimizer_get(engine->choice.optimizer)->title, (int)what->state);
    if (mics_engine_uncollected(engine) > 0)
        return mics_err_set(err, MICS_ERR_ARG, "a step is not collected yet");
    for (uint64_t done = 0; done < what->count; done += run) {
        const uint64_t at = what->first + done;
        float *place =
            state_piece(engine, what->unit, what->state, (uint32_t)(at / piece)) + at % piece;

        run = mics_min_u64(what->count - done, piece - at % piece);
        const struct mics_args_copy copy = {.dst = what->dst ? what->dst + done : place,
                                            .src = what->dst ? place : what->src + done,
                                            .bytes = run * sizeof *place};
        if (in_host)
            memcpy(copy.dst, copy.src, copy.bytes);
        else
            mics_launch_copy(compute(engine), &copy);
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

/* Put the pieces of shard `index` in their places in a unit. */
static void place_shard(const struct mics_layout *layout, uint32_t index, const float *shard,
                        float *out)
{
    for (uint32_t segment = 0; segment < layout->segments; segment++) {
        const uint64_t at = mics_layout_piece_offset(layout, segment, layout->optim_piece, index);

        if (at < layout->count)
            memcpy(out + at, shard + segment * layout->optim_piece,
                   mics_min_u64(layout->optim_piece, layout->count - at) * sizeof *out);
    }
}

enum mics_status mics_engine_collect_unit(struct mics_engine *engine, uint32_t unit, float *out,
                                          struct mics_err *err)
{
    const struct mics_layout *layout = engine->units[unit].layout;
    const struct mics_shape *shape = &mics_engine_groups(engine, unit)->shape;
    struct mics_comm *comm = engine->options.world->comm;
    const uint64_t count = mics_engine_shard_count(engine, unit), bytes = count * sizeof(float);
    float *shard = malloc(bytes);
    enum mics_status status;

    if (!shard)
        return mics_err_nomem(err);
    status = mics_engine_export(engine, unit, MICS_STATE_PARAM, 0, count, shard, err);
    if (status == MICS_OK && comm->rank == 0)
        place_shard(layout, mics_shape_index(shape, 0).optim, shard, out);
    /* The first optimizer group holds each shard once. */
    for (uint32_t from = 1; status == MICS_OK && from < shape->p_optim; from++) {
        const bool receives = comm->rank == 0, sends = comm->rank == (int)from;

        status = mics_comm_sendrecv_now(comm, shard, sends ? bytes : 0, sends ? 0 : -1, shard,
                                        receives ? bytes : 0, receives ? (int)from : -1, 0, err);
        if (status == MICS_OK && receives)
            place_shard(layout, mics_shape_index(shape, from).optim, shard, out);
    }
    free(shard);
    return status;
}

enum mics_status mics_engine_publish(struct mics_engine *engine, struct mics_err *err)
{
    struct mics_stream *stream = engine->executor.streams[MICS_STREAM_GATHER_NET];
    const struct mics_schedule *schedule = engine->train.schedule;
    struct issue issue = {.schedule = schedule, .stream = stream};

    for (uint32_t i = 0; i < engine->model->unit_count; i++)
        round_master(engine, stream, i);
    /* As a step does; without such operations each rank updates its whole shard. */
    for (uint32_t i = 0; i < schedule->op_count; i++) {
        issue.op = &schedule->ops[i];
        if (issue.op->kind == MICS_OP_PUBLISH)
            mics_engine_issue(engine, &issue);
    }
    return engine->device->ops->stream_sync(stream, err);
}

/* Averaging ---------------------------------------------------------------------------------- */

/* Replace `count` elements by their mean over the replicas. */
static void average(struct mics_engine *engine, uint32_t unit, struct mics_stream *stream,
                    float *values, uint64_t count)
{
    const float scale = 1.0f / (float)mics_choice_replicas(&engine->choice);
    const enum mics_unit_kind groups =
        mics_choice_groups(&engine->choice, engine->model->units[unit].kind);
    struct mics_comm *comm = engine->executor.groups[groups].comms[MICS_COMM_REPLICA];

    mics_comm_all_reduce(comm, stream, values, count, MICS_F32);
    mics_launch_difference(stream, &(struct mics_args_difference){
                                       .dst = values, .a = values, .count = count, .scale = scale});
}

static void average_params(struct mics_engine *engine, struct mics_stream *stream, bool keep)
{
    for (uint32_t unit = 0; unit < engine->model->unit_count; unit++)
        for (uint32_t t = 0; t < engine->units[unit].layout->segments; t++) {
            const struct outer_piece at = mics_engine_outer_piece(engine, unit, t);

            if (keep)
                mics_launch_copy(stream,
                                 &(struct mics_args_copy){.dst = at.grad,
                                                          .src = at.param,
                                                          .bytes = at.count * sizeof *at.param});
            average(engine, unit, stream, at.param, at.count);
        }
}

/* Segment by segment, as much at a time as in a step. */
static void average_states(struct mics_engine *engine, struct mics_stream *stream)
{
    for (uint32_t unit = 0; unit < engine->model->unit_count; unit++)
        for (uint32_t s = 0; s < mics_optimizer_states(engine->choice.optimizer); s++) {
            const struct mics_layout *layout = engine->units[unit].layout;

            for (uint32_t t = 0; t < layout->segments; t++)
                average(engine, unit, stream,
                        engine->units[unit].state[s] + t * layout->optim_piece,
                        layout->optim_piece);
        }
}

/* Do replicas hold parameters of their own? */
static bool have_diverged(const struct mics_engine *engine)
{
    return engine->choice.outer_steps > 0 && engine->diverged &&
           (engine->choice.outer_overlap || engine->last_step % engine->choice.outer_steps != 0);
}

/* Set the loss scales of all replicas to the smallest one, which may rise when the last of them
 * may. If a rank has failed before, with `status`, all ranks fail. */
static enum mics_status join_loss_scales(struct mics_engine *engine, enum mics_status status,
                                         struct mics_err *err)
{
    struct mics_comm *comm = engine->options.world->comm;
    struct mics_loss_scale_state own = {.scale = 0}, joined, *all = NULL;

    if (!engine->loss_scale)
        return status;
    if (status == MICS_OK)
        status = mics_engine_get_loss_scale(engine, &own, err);
    status = mics_agree(comm, status, err);
    if (status == MICS_OK)
        all = mics_all_gather(comm, &own, sizeof own, &status, err);
    joined = own;
    for (int i = 0; status == MICS_OK && i < comm->size; i++) {
        joined.scale = fmin(joined.scale, all[i].scale);
        joined.clean = (uint32_t)mics_min_u64(joined.clean, all[i].clean);
        joined.patience = (uint32_t)mics_min_u64(joined.patience, all[i].patience);
        joined.overflows = mics_max_u64(joined.overflows, all[i].overflows);
    }
    free(all);
    return status == MICS_OK ? mics_engine_set_loss_scale(engine, &joined, err) : status;
}

enum mics_status mics_engine_average(struct mics_engine *engine, struct mics_err *err)
{
    struct mics_stream *stream = engine->executor.streams[MICS_STREAM_REDUCE_NET];
    const bool merges = engine->merges, params = have_diverged(engine);
    enum mics_status status = mics_engine_check_idle(engine, err);

    if (status != MICS_OK || engine->choice.outer_steps == 0)
        return status;
    if (mics_choice_warms_up(&engine->choice, engine->last_step))
        return mics_engine_start_outer(engine, err);
    if (!engine->diverged)
        return MICS_OK;
    if (merges)
        status = mics_engine_complete_meeting(engine, err);
    if (status != MICS_OK)
        return status;
    if (params && !merges)
        average_params(engine, stream, false);
    average_states(engine, stream);
    engine->diverged = false;
    status = join_loss_scales(engine, engine->device->ops->stream_sync(stream, err), err);
    return status == MICS_OK && params ? mics_engine_publish(engine, err) : status;
}

enum mics_status mics_engine_show_average(struct mics_engine *engine, bool *shown,
                                          struct mics_err *err)
{
    struct mics_stream *stream = engine->executor.streams[MICS_STREAM_REDUCE_NET];
    enum mics_status status = mics_engine_check_idle(engine, err);

    *shown = status == MICS_OK && have_diverged(engine);
    if (!*shown)
        return status;
    average_params(engine, stream, true);
    status = engine->device->ops->stream_sync(stream, err);
    return status == MICS_OK ? mics_engine_publish(engine, err) : status;
}

enum mics_status mics_engine_hide_average(struct mics_engine *engine, struct mics_err *err)
{
    struct mics_stream *stream = compute(engine);
    enum mics_status status;

    for (uint32_t unit = 0; unit < engine->model->unit_count; unit++)
        for (uint32_t t = 0; t < engine->units[unit].layout->segments; t++) {
            const struct outer_piece at = mics_engine_outer_piece(engine, unit, t);

            mics_launch_copy(
                stream, &(struct mics_args_copy){
                            .dst = at.param, .src = at.grad, .bytes = at.count * sizeof *at.param});
        }
    status = engine->device->ops->stream_sync(stream, err);
    return status == MICS_OK ? mics_engine_publish(engine, err) : status;
}
