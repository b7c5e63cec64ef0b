/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.c - create an engine, run its steps and evaluations, and report what it does.
 */
#include "engine/engine.h"

#include "base/clock.h"
#include "base/num.h"
#include "comm/agree.h"
#include "engine/engine_internal.h"
#include "plan/memory.h"

#include "host/numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum mics_status check_shape(const struct mics_engine_options *options, struct mics_err *err)
{
    const uint32_t nodes = mics_choice_nodes(options->choice);
    const uint32_t per_node = mics_choice_per_node(options->choice);
    const struct mics_world *world = options->world;

    if (!mics_world_is_even(world) || world->node_count != nodes || world->local_size != per_node)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "the plan is for %u x %u ranks (nodes x ranks per node), this job has "
                            "%u ranks on %u nodes",
                            nodes, per_node, world->size, world->node_count);
    if (options->choice->clip != (options->optimizer.clip > 0))
        return mics_err_set(
            err, MICS_ERR_ARG, "the plan was made %s gradient clipping; make one %s it",
            options->choice->clip ? "with" : "without", options->choice->clip ? "without" : "with");
    if (options->choice->dtype == MICS_BF16 && !options->device->on_host &&
        !options->device->has_bf16)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                            "the plan is in bf16, which this GPU (%s) does not multiply: plan with "
                            "--dtype=fp16 or f32",
                            options->device->description);
    return mics_choice_check_shapes(options->choice, err);
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
    if (status != MICS_OK || !mics_choice_has_drain(&engine->choice))
        return status;
    status = mics_schedule_new_drain(engine->model, &engine->choice, &engine->owned_drain, err);
    return status == MICS_OK ? mics_replay_open(engine, engine->owned_drain, &engine->drain, err)
                             : status;
}

static enum mics_status open_communicators(struct mics_engine *engine, struct mics_err *err)
{
    const uint64_t before = mics_engine_memory_left(engine);
    enum mics_status status =
        mics_executor_open_comms(&engine->executor, engine->train.schedule, err);

    if (status == MICS_OK)
        status = mics_executor_open_comms(&engine->executor, engine->eval.schedule, err);
    if (status == MICS_OK && engine->drain.schedule)
        status = mics_executor_open_comms(&engine->executor, engine->drain.schedule, err);
    engine->comm_bytes = before - mics_min_u64(before, mics_engine_memory_left(engine));
    return status;
}

static enum mics_status open_streams(struct mics_engine *engine, struct mics_err *err)
{
    const enum mics_status status = mics_executor_open_streams(&engine->executor, err);

    if (status != MICS_OK)
        return status;
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

/* What each rank opens alone. */
static enum mics_status open_rank(struct mics_engine *engine, struct mics_err *err)
{
    enum mics_status status =
        mics_memory_compute(engine->model, &engine->choice, &engine->memory, err);

    if (status == MICS_OK)
        status = open_streams(engine, err);
    if (status == MICS_OK)
        status = make_schedules(engine, err);
    return status == MICS_OK ? make_reports(engine, err) : status;
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
    mics_executor_init(&engine->executor, options->device,
                       options->comm ? options->comm : options->world->comm, engine->choice.shapes);
    status = mics_agree(engine->executor.comm, open_rank(engine, err), err);
    if (status == MICS_OK)
        status = open_communicators(engine, err);
    if (status == MICS_OK)
        status = mics_engine_map_memory(engine, err);
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
    engine->device->ops->stream_close(engine->input);
    mics_executor_fini(&engine->executor);
    mics_replay_close(engine, &engine->train);
    mics_replay_close(engine, &engine->eval);
    mics_replay_close(engine, &engine->drain);
    mics_engine_unmap_memory(engine);
    mics_schedule_free(engine->owned_train);
    mics_schedule_free(engine->owned_eval);
    mics_schedule_free(engine->owned_drain);
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

static void fill_batch(struct mics_engine *engine, uint32_t parity, uint32_t micro_steps,
                       mics_engine_fill *fill, void *context)
{
    const uint64_t each = mics_engine_micro_tokens(engine);

    for (uint32_t i = 0; i < micro_steps; i++)
        fill(context, i, engine->host_tokens[parity] + i * each,
             engine->host_targets[parity] + i * each);
    *engine->host_scalars[parity] = (struct mics_args_scalars){
        .targets = (double)count_targets(engine->host_targets[parity], micro_steps * each)};
}

/* A meeting is turn 0. If it overlaps, its update is turn 1, which is idle where no meeting was in
 * the step before, or another operation has completed it. */
static void set_outer_turns(struct mics_engine *engine, struct issue *issue)
{
    issue->steps = 1;
    issue->warmup = mics_choice_warms_up(&engine->choice, issue->step);
    if (issue->warmup)
        return;
    const bool meets = issue->step % engine->choice.outer_steps == 0;

    issue->turns = (uint64_t)meets | (uint64_t)engine->merges << 1;
    if (!meets && !engine->merges)
        engine->flights[issue->parity].turn = MICS_TURN_NEVER;
    engine->merges = meets && engine->choice.outer_overlap;
    engine->diverged = true;
}

/* Begin a step of these targets of this rank: the units whose turn it is take those of all steps
 * since their last update. */
static void set_turns(struct mics_engine *engine, struct issue *issue)
{
    struct mics_args_scalars *scalars = engine->host_scalars[issue->parity];
    const uint32_t interval = mics_choice_interval(&engine->choice);
    const uint32_t outer_steps = engine->choice.outer_steps, turn = issue->step % interval;
    const bool all = mics_choice_warms_up(&engine->choice, issue->step);

    if (outer_steps > 0) {
        set_outer_turns(engine, issue);
        return;
    }
    scalars->step_targets = scalars->targets;
    for (uint32_t i = 0; i < interval; i++) {
        engine->carried[i].steps++;
        engine->carried[i].targets += scalars->targets;
    }
    scalars->targets = engine->carried[turn].targets;
    issue->turns = all ? UINT64_MAX >> (MICS_INTERVAL_MAX - interval) : (uint64_t)1 << turn;
    issue->steps = engine->carried[turn].steps;
}

/* The units of these turns are updated. */
static void end_turns(struct mics_engine *engine, uint64_t turns)
{
    for (uint32_t i = 0; i < MICS_INTERVAL_MAX; i++)
        if (turns >> i & 1)
            engine->carried[i] = (struct carried){0};
}

/* What a step in fp16 leaves of the gradients that units carry: nothing after an overflow, of which
 * some are not finite on some rank; else those of the next step's loss scale. All ranks know the
 * same of it. */
static void follow_loss_scale(struct mics_engine *engine, const struct mics_loss_scale *after)
{
    if (after->overflow)
        memset(engine->carried, 0, sizeof engine->carried);
    else if (after->used > 0)
        mics_engine_scale_carried(engine, after->factor / after->used);
}

/* Wait for the last step, if what units carry depends on it. */
static enum mics_status settle_carried(struct mics_engine *engine, struct mics_err *err)
{
    const uint32_t parity = (engine->submitted - 1) & 1;
    enum mics_status status;

    if (!engine->unsettled)
        return MICS_OK;
    status = mics_replay_wait(engine, &engine->train, parity, err);
    if (status != MICS_OK)
        return status;
    engine->unsettled = false;
    follow_loss_scale(engine, engine->host_loss_scale[parity]);
    return engine->device->ops->stream_sync(engine->executor.streams[MICS_STREAM_COMPUTE], err);
}

enum mics_status mics_engine_submit(struct mics_engine *engine, const struct mics_step_input *input,
                                    struct mics_err *err)
{
    const struct mics_plan_choice *choice = &engine->choice;
    const uint32_t parity = engine->submitted & 1;

    if (mics_engine_uncollected(engine) == 2)
        return mics_err_set(err, MICS_ERR_ARG, "two steps are not collected yet");
    if (engine->submitted == 0)
        engine->last_end_s = mics_now_s();
    fill_batch(engine, parity, choice->micro_steps, input->fill, input->fill_context);
    const enum mics_status settled = settle_carried(engine, err);
    if (settled != MICS_OK)
        return settled;
    mics_engine_note_begin(engine, &engine->flights[parity], MICS_REPLAY_STEP, input->step);
    engine->last_lr = input->lr;
    struct issue issue = {
        .batch = mics_choice_batch(choice, MICS_UNIT_DENSE, true),
        .parity = parity,
        .step = input->step,
        .lr = input->lr,
        .read = engine->results[parity],
    };
    issue.batch.documents = engine->options.documents;
    engine->executor.rounding =
        (struct mics_rounding){choice->sync_stochastic, engine->options.seed, input->step};
    if (choice->outer_steps > 0 && choice->sync_warmup > 0 &&
        input->step == choice->sync_warmup + 1)
        mics_engine_enqueue_outer_start(engine);
    engine->flights[parity].turn = mics_schedule_turn(engine->train.schedule, choice, input->step);
    set_turns(engine, &issue);
    mics_replay_send_batch(engine, &engine->train, parity,
                           choice->micro_steps * mics_engine_micro_tokens(engine));
    engine->submitted++;
    engine->last_step = input->step;
    mics_replay_run(engine, &engine->train, &issue);
    end_turns(engine, issue.turns);
    engine->unsettled = mics_choice_checks_carried(choice);
    return engine->device->ops->failure(engine->device, err);
}

/* Times of all operations, relative to the first begin. *begin_s and *end_s: the first begin and
 * the last end on the clock of mics_now_s(). */
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

/* `skipped`: by replicas with outer steps (struct mics_args_loss_scale). */
static void report_loss_scale(const struct mics_engine *engine, const struct mics_loss_scale *after,
                              double skipped, struct mics_step_result *out)
{
    const double divisor = mics_choice_loss_divisor(&engine->choice);

    out->loss_scale = after->used * divisor;
    out->next_loss_scale = after->factor * divisor;
    out->overflow = after->overflow;
    out->at_minimum = after->at_minimum;
    if (engine->choice.outer_steps == 0)
        return;
    out->overflow = skipped > 0;
    out->at_minimum = isinf(skipped);
    if (out->at_minimum) /* perhaps of another replica */
        out->loss_scale = engine->options.loss_scale.min;
    out->skipped = isinf(skipped) ? 0 : (uint32_t)skipped;
}

enum mics_status mics_engine_collect(struct mics_engine *engine, struct mics_step_result *out,
                                     struct mics_err *err)
{
    const uint32_t parity = engine->collected & 1;
    struct mics_args_scalars *scalars = engine->results[parity];
    const uint32_t interval = mics_choice_interval(&engine->choice);
    /* That were added: with outer steps each replica has its own, of its own gradient. */
    const double norms = engine->choice.outer_steps > 0 ? mics_choice_replicas(&engine->choice) : 1;
    const struct mics_schedule *schedule = engine->train.schedule;
    enum mics_status status;

    if (mics_engine_uncollected(engine) == 0)
        return mics_err_set(err, MICS_ERR_ARG, "there is no step to collect");
    status = mics_replay_wait(engine, &engine->train, parity, err);
    if (status != MICS_OK)
        return status;
    engine->collected++;

    double begin, end;
    read_timeline(engine, parity, &begin, &end);
    *out = (struct mics_step_result){
        .step = engine->flights[parity].step,
        .targets = interval > 1 ? scalars->step_targets : scalars->targets,
        .seconds = end - engine->last_end_s,
        .begin_s = begin,
        .stats = mics_engine_stats(engine, scalars),
    };
    /* In the first steps the targets of each replica are those of all. */
    engine->timeline.turn = out->turn = engine->flights[parity].turn;
    if (engine->timeline.turn == MICS_TURN_WARMUP)
        out->targets /= norms;
    if (out->targets > 0)
        out->loss = scalars->loss_sum / out->targets;
    if (scalars->targets > 0)
        out->grad_norm = sqrt(scalars->squared_norm * norms) / scalars->targets;
    if (engine->loss_scale)
        report_loss_scale(engine, engine->host_loss_scale[parity], scalars->skipped, out);
    engine->timeline.period_s = out->seconds;
    engine->last_end_s = end;
    return mics_timeline_overlap(schedule, &engine->timeline, &out->overlap, err);
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
                        struct mics_comm_counts counts[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT])
{
    for (int groups = 0; groups < MICS_UNIT_KIND_COUNT; groups++)
        for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++) {
            const struct mics_comm *comm = engine->executor.groups[groups].comms[kind];

            counts[groups][kind] = comm ? comm->counts : (struct mics_comm_counts){0};
        }
}

uint64_t mics_engine_net_bytes(const struct mics_engine *engine)
{
    struct mics_comm_counts counts[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT];
    uint64_t bytes = 0;

    mics_engine_counts(engine, counts);
    for (int groups = 0; groups < MICS_UNIT_KIND_COUNT; groups++)
        for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++)
            bytes += counts[groups][kind].net_bytes;
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
    return engine->used_bytes;
}

enum mics_status mics_engine_check_idle(const struct mics_engine *engine, struct mics_err *err)
{
    if (mics_engine_uncollected(engine) > 0)
        return mics_err_set(err, MICS_ERR_ARG, "a step is not collected yet");
    return MICS_OK;
}

enum mics_status mics_engine_eval(struct mics_engine *engine, mics_engine_fill *fill, void *context,
                                  struct mics_eval_sums *sums, struct mics_err *err)
{
    struct mics_args_scalars *scalars = engine->results[RESULT_EVAL];
    enum mics_status status = mics_engine_check_idle(engine, err);

    if (status != MICS_OK)
        return status;
    fill_batch(engine, 0, 1, fill, context);
    mics_replay_send_batch(engine, &engine->eval, 0, mics_engine_micro_tokens(engine));
    struct issue issue = {
        .batch = mics_choice_batch(&engine->choice, MICS_UNIT_DENSE, false),
        .read = scalars,
    };
    issue.batch.documents = engine->options.documents;
    mics_engine_note_begin(engine, &engine->eval_flight, MICS_REPLAY_EVAL, engine->last_step);
    mics_replay_run(engine, &engine->eval, &issue);
    status = mics_replay_wait(engine, &engine->eval, 0, err);
    if (status != MICS_OK)
        return status;
    sums->loss += scalars->loss_sum;
    sums->targets += scalars->targets;
    sums->hits += scalars->hits;
    return MICS_OK;
}

/* The turns that have carried gradients for longest, all for as many steps. */
static uint64_t find_oldest(const struct mics_engine *engine, uint32_t *steps, double *targets)
{
    uint64_t turns = 0;

    *steps = 0;
    for (uint32_t i = 0; i < mics_choice_interval(&engine->choice); i++) {
        const struct carried *carried = &engine->carried[i];

        if (carried->steps > *steps) {
            *steps = carried->steps;
            *targets = carried->targets;
            turns = 0;
        }
        if (carried->steps == *steps)
            turns |= (uint64_t)1 << i;
    }
    return *steps ? turns : 0;
}

/* A step without forward and backward, of these targets of this rank; everything before it is
 * collected. */
static enum mics_status run_tail(struct mics_engine *engine, struct issue *issue, double targets,
                                 struct mics_err *err)
{
    struct replay *replay = engine->drain.schedule ? &engine->drain : &engine->train;
    enum mics_status status;

    issue->batch = mics_choice_batch(&engine->choice, MICS_UNIT_DENSE, true);
    issue->parity = engine->submitted & 1;
    issue->step = engine->last_step;
    issue->tail = true;
    issue->read = engine->results[issue->parity];
    mics_engine_note_begin(engine, &engine->flights[issue->parity],
                           replay == &engine->drain ? MICS_REPLAY_UPDATE : MICS_REPLAY_STEP,
                           issue->step);
    *engine->host_scalars[issue->parity] = (struct mics_args_scalars){.targets = targets};
    mics_replay_send_batch(engine, replay, issue->parity, 0);
    engine->draining = replay == &engine->drain;
    engine->submitted++;
    mics_replay_run(engine, replay, issue);
    status = mics_replay_wait(engine, replay, issue->parity, err);
    engine->collected++;
    engine->draining = false;
    return status;
}

enum mics_status mics_engine_complete_meeting(struct mics_engine *engine, struct mics_err *err)
{
    struct issue issue = {.turns = 1 << 1, .steps = 1};

    engine->merges = false;
    return run_tail(engine, &issue, 0, err);
}

enum mics_status mics_engine_update_carried(struct mics_engine *engine,
                                            struct mics_step_result *out, struct mics_err *err)
{
    enum mics_status status = mics_engine_check_idle(engine, err);
    uint64_t turns;
    uint32_t steps;
    double targets = 0;

    *out = (struct mics_step_result){0};
    if (status == MICS_OK)
        status = settle_carried(engine, err);
    while (status == MICS_OK && (turns = find_oldest(engine, &steps, &targets)) != 0) {
        struct issue issue = {.turns = turns, .steps = steps, .lr = engine->last_lr};

        status = run_tail(engine, &issue, targets, err);
        end_turns(engine, turns);

        const struct mics_args_scalars *result = issue.read;
        const double norm = result->targets > 0 ? sqrt(result->squared_norm) / result->targets : 0;
        out->grad_norm = norm > out->grad_norm || !isfinite(norm) ? norm : out->grad_norm;
        if (status == MICS_OK && engine->loss_scale) {
            const struct mics_loss_scale *after = engine->host_loss_scale[issue.parity];

            report_loss_scale(engine, after, 0, out);
            follow_loss_scale(engine, after);
        }
    }
    return status;
}

enum mics_status mics_engine_check(const struct mics_engine *engine, struct mics_err *err)
{
    for (int i = 0; i < MICS_UNIT_KIND_COUNT * MICS_COMM_KIND_COUNT; i++) {
        const int kind = i % MICS_COMM_KIND_COUNT;
        struct mics_comm *comm = engine->executor.groups[i / MICS_COMM_KIND_COUNT].comms[kind];
        const enum mics_status status =
            comm && comm->health ? comm->health->check(comm, err) : MICS_OK;

        if (status == MICS_OK)
            continue;
        mics_err_prefix(err, "communicator %s", mics_comm_kind_name(kind));
        return status;
    }
    return MICS_OK;
}

bool mics_engine_has_failed(const struct mics_engine *engine)
{
    struct mics_err failure;

    return engine->device->ops->failure(engine->device, &failure) != MICS_OK;
}
