/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.c - making an engine, its steps, and what it tells about them.
 */
#include "engine/engine.h"

#include "base/clock.h"
#include "base/num.h"
#include "engine/internal.h"
#include "plan/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum mics_status check_shape(const struct mics_engine_options *options, struct mics_err *err)
{
    const struct mics_shape *shape = &options->choice->shape;
    const struct mics_world *world = options->world;

    if (!mics_world_is_even(world) || world->node_count != shape->nodes ||
        world->local_size != shape->per_node)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "the plan is for %u x %u ranks (nodes x ranks per node), this job has "
                            "%u ranks on %u nodes",
                            shape->nodes, shape->per_node, world->size, world->node_count);
    if (options->choice->clip != (options->optimizer.clip > 0))
        return mics_err_set(
            err, MICS_ERR_ARG, "the plan was made %s gradient clipping; make one %s it",
            options->choice->clip ? "with" : "without", options->choice->clip ? "without" : "with");
    return mics_shape_check(shape, err);
}

static enum mics_status make_schedules(struct mics_engine *engine, struct mics_err *err)
{
    const struct mics_schedule *train = engine->options.schedule;
    enum mics_status status = MICS_OK;

    if (!train) {
        status = mics_schedule_new(engine->model, &engine->choice, true, &engine->owned_train, err);
        train = engine->owned_train;
    }
    if (status == MICS_OK)
        status = mics_schedule_new(engine->model, &engine->choice, false, &engine->owned_eval, err);
    if (status == MICS_OK)
        status = mics_replay_open(engine, train, &engine->train, err);
    if (status == MICS_OK)
        status = mics_replay_open(engine, engine->owned_eval, &engine->eval, err);
    return status;
}

static void mark_used(const struct mics_schedule *schedule, bool used[MICS_COMM_KIND_COUNT])
{
    for (uint32_t i = 0; i < schedule->op_count; i++)
        if (mics_op_is_comm(schedule->ops[i].kind))
            used[schedule->ops[i].comm] = true;
}

/* Every rank has the same schedules, so all split the same kinds in the same order. */
static enum mics_status make_communicators(struct mics_engine *engine, struct mics_err *err)
{
    struct mics_comm *world =
        engine->options.comm ? engine->options.comm : engine->options.world->comm;
    const uint64_t before = mics_engine_memory_left(engine);
    bool used[MICS_COMM_KIND_COUNT] = {false};

    mark_used(engine->train.schedule, used);
    mark_used(engine->eval.schedule, used);
    for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++) {
        struct mics_group_position *member = &engine->members[kind];

        mics_shape_position(&engine->choice.shape, kind, (uint32_t)world->rank, member);
        if (!used[kind])
            continue;
        enum mics_status status = world->ops->split(world, (int)member->color, (int)member->key,
                                                    (int)member->block, &engine->comms[kind], err);
        if (status != MICS_OK) {
            mics_err_prefix(err, "communicator %s", mics_comm_kind_name(kind));
            return status;
        }
    }
    engine->index = mics_shape_index(&engine->choice.shape, (uint32_t)world->rank);
    engine->comm_bytes = before - mics_min_u64(before, mics_engine_memory_left(engine));
    return MICS_OK;
}

static enum mics_status open_streams(struct mics_engine *engine, struct mics_err *err)
{
    for (int kind = 0; kind < MICS_STREAM_COUNT; kind++) {
        enum mics_status status = engine->device->ops->stream_open(
            engine->device, mics_stream_kind_name(kind), kind != MICS_STREAM_COMPUTE,
            &engine->streams[kind], err);
        if (status != MICS_OK)
            return status;
    }
    return engine->device->ops->stream_open(engine->device, "input", 1, &engine->input, err);
}

static enum mics_status make_reports(struct mics_engine *engine, struct mics_err *err)
{
    const uint32_t count = engine->train.schedule->op_count;

    engine->timeline.op_count = count;
    engine->timeline.start = calloc(count, sizeof(double));
    engine->timeline.end = calloc(count, sizeof(double));
    if (!engine->timeline.start || !engine->timeline.end)
        return mics_err_nomem(err);
    if (!engine->options.before_op)
        return MICS_OK;
    engine->hooks = calloc(count, sizeof *engine->hooks);
    if (!engine->hooks)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < count; i++)
        engine->hooks[i] = (struct hook){.engine = engine, .op = i};
    return MICS_OK;
}

enum mics_status mics_engine_new(const struct mics_engine_options *options,
                                 struct mics_engine **out, struct mics_err *err)
{
    enum mics_status status = check_shape(options, err);
    struct mics_engine *engine = NULL;

    if (status != MICS_OK)
        return status;
    engine = calloc(1, sizeof *engine);
    if (!engine)
        return mics_err_nomem(err);
    engine->options = *options;
    engine->model = options->model;
    engine->choice = *options->choice;
    engine->device = options->device;
    status = mics_memory_compute(engine->model, &engine->choice, &engine->memory, err);
    if (status == MICS_OK)
        status = open_streams(engine, err);
    if (status == MICS_OK)
        status = make_schedules(engine, err);
    if (status == MICS_OK)
        status = make_communicators(engine, err);
    if (status == MICS_OK)
        status = mics_engine_map_memory(engine, err);
    if (status == MICS_OK)
        status = make_reports(engine, err);
    if (status != MICS_OK) {
        mics_engine_free(engine);
        return status;
    }
    *out = engine;
    return MICS_OK;
}

void mics_engine_free(struct mics_engine *engine)
{
    if (!engine)
        return;
    for (int kind = 0; kind < MICS_STREAM_COUNT; kind++)
        if (engine->streams[kind])
            engine->device->ops->stream_close(engine->streams[kind]);
    engine->device->ops->stream_close(engine->input);
    for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++)
        if (engine->comms[kind])
            engine->comms[kind]->ops->free(engine->comms[kind]);
    mics_replay_close(engine, &engine->train);
    mics_replay_close(engine, &engine->eval);
    mics_engine_unmap_memory(engine);
    mics_schedule_free(engine->owned_train);
    mics_schedule_free(engine->owned_eval);
    free(engine->timeline.start);
    free(engine->timeline.end);
    free(engine->hooks);
    free(engine);
}

static uint64_t count_targets(const int32_t *targets, uint64_t count)
{
    uint64_t counted = 0;

    for (uint64_t i = 0; i < count; i++)
        counted += targets[i] >= 0;
    return counted;
}

void mics_engine_fill_batch(struct mics_engine *engine, uint32_t parity, uint32_t micro_steps,
                            mics_engine_fill *fill, void *context)
{
    const uint64_t each = mics_engine_micro_tokens(engine);

    for (uint32_t i = 0; i < micro_steps; i++)
        fill(context, i, engine->host_tokens[parity] + i * each,
             engine->host_targets[parity] + i * each);
    engine->host_scalars[parity] = (struct mics_op_scalars){
        .targets = (double)count_targets(engine->host_targets[parity], micro_steps * each)};
}

enum mics_status mics_engine_submit(struct mics_engine *engine, const struct mics_step_input *input,
                                    struct mics_err *err)
{
    const struct mics_plan_choice *choice = &engine->choice;
    const uint32_t parity = engine->submitted & 1;

    if (mics_engine_uncollected(engine) == 2)
        return mics_err_set(err, MICS_ERR_ARG, "two steps wait to be collected");
    if (engine->submitted == 0)
        engine->last_end_s = mics_now_s();
    mics_engine_fill_batch(engine, parity, choice->micro_steps, input->fill, input->fill_context);
    engine->flights[parity].step = input->step;
    mics_replay_send_batch(engine, &engine->train, parity,
                           choice->micro_steps * mics_engine_micro_tokens(engine));
    struct issue issue = {
        .batch = mics_choice_batch(choice, true),
        .parity = parity,
        .step = input->step,
        .lr = input->lr,
        .logits_row = MICS_NONE,
        .read = &engine->results[parity],
    };
    engine->submitted++;
    mics_replay_run(engine, &engine->train, &issue);
    return engine->device->ops->failure(engine->device, err);
}

/* Times of all operations, from the first beginning; that one and the last end, on the clock. */
static void read_timeline(struct mics_engine *engine, uint32_t parity, double *begin_s,
                          double *end_s)
{
    const struct mics_device_ops *device = engine->device->ops;
    struct mics_timeline *timeline = &engine->timeline;
    double first = INFINITY, last = 0;

    for (uint32_t i = 0; i < timeline->op_count; i++) {
        timeline->start[i] = device->event_time(engine->train.begin[parity][i]);
        timeline->end[i] = device->event_time(engine->train.end[parity][i]);
        first = fmin(first, timeline->start[i]);
        last = fmax(last, timeline->end[i]);
    }
    for (uint32_t i = 0; i < timeline->op_count; i++) {
        timeline->start[i] -= first;
        timeline->end[i] -= first;
    }
    *begin_s = first;
    *end_s = last;
}

enum mics_status mics_engine_collect(struct mics_engine *engine, struct mics_step_result *out,
                                     struct mics_err *err)
{
    const uint32_t parity = engine->collected & 1;
    const struct mics_op_scalars *scalars = &engine->results[parity];
    enum mics_status status;

    if (mics_engine_uncollected(engine) == 0)
        return mics_err_set(err, MICS_ERR_ARG, "no step waits to be collected");
    status = mics_replay_wait(engine, &engine->train, parity, err);
    if (status != MICS_OK)
        return status;
    engine->collected++;

    double begin, end;
    read_timeline(engine, parity, &begin, &end);
    *out = (struct mics_step_result){
        .step = engine->flights[parity].step,
        .loss = scalars->loss_sum / scalars->targets,
        .targets = scalars->targets,
        .grad_norm = sqrt(scalars->squared_norm) / scalars->targets,
        .seconds = end - engine->last_end_s,
        .begin_s = begin,
    };
    engine->last_end_s = end;
    return mics_timeline_overlap(engine->train.schedule, &engine->timeline, &out->overlap, err);
}

uint32_t mics_engine_uncollected(const struct mics_engine *engine)
{
    return engine->submitted - engine->collected;
}

const struct mics_schedule *mics_engine_schedule(const struct mics_engine *engine)
{
    return engine->train.schedule;
}

const struct mics_timeline *mics_engine_timeline(const struct mics_engine *engine)
{
    return &engine->timeline;
}

void mics_engine_counts(const struct mics_engine *engine,
                        struct mics_comm_counts counts[MICS_COMM_KIND_COUNT])
{
    for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++)
        counts[kind] =
            engine->comms[kind] ? engine->comms[kind]->counts : (struct mics_comm_counts){0};
}

uint64_t mics_engine_net_bytes(const struct mics_engine *engine)
{
    uint64_t bytes = 0;

    for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++)
        bytes += engine->comms[kind] ? engine->comms[kind]->counts.net_bytes : 0;
    return bytes;
}

uint64_t mics_engine_arena_bytes(const struct mics_engine *engine)
{
    return engine->memory.arena_bytes;
}

uint64_t mics_engine_comm_bytes(const struct mics_engine *engine)
{
    return engine->comm_bytes;
}

uint64_t mics_engine_high_water(const struct mics_engine *engine)
{
    return engine->handed_out;
}
