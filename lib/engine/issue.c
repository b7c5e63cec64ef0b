/* SPDX-License-Identifier: Apache-2.0 */
/*
 * issue.c - what each kind of operation does on the device. Exchanges are in executor.c.
 */
#include "base/clock.h"
#include "base/num.h"
#include "engine/engine_internal.h"

#include <math.h>
#include <sys/prctl.h>

static const struct mics_layout *layout_of(const struct issue *issue)
{
    return &issue->schedule->layouts[issue->op->unit];
}

static const void *param_buffer(const struct mics_engine *engine, const struct mics_op *op)
{
    if (!op->needs_params)
        return NULL;
    return op->param_slot == MICS_NONE ? engine->units[op->unit].param
                                       : engine->param_slots[op->param_slot];
}

static void *grad_buffer(const struct mics_engine *engine, const struct mics_op *op)
{
    return op->grad_slot == MICS_NONE ? engine->units[op->unit].grad
                                      : engine->grad_slots[op->grad_slot];
}

static void issue_count(struct mics_engine *engine, const struct issue *issue)
{
    struct mics_comm *comm = engine->executor.groups[issue->op->groups].comms[issue->op->comm];

    mics_comm_all_reduce(comm, issue->stream, &engine->scalars[issue->parity]->targets, 1,
                         MICS_F64);
}

/* Does the shard of the operation's unit have gradients of earlier steps, to which it adds? */
static bool adds_to_carried(const struct mics_engine *engine, const struct issue *issue)
{
    const struct mics_op *op = issue->op;
    const bool writes_shard = op->kind == MICS_OP_ACCUMULATE || op->grad_slot == MICS_NONE;

    return writes_shard && engine->carried[issue->schedule->turns[op->unit]].steps > 1;
}

/* Exchanges of a unit, which benchmarks run as well. */
static void issue_exchange(struct mics_engine *engine, const struct issue *issue)
{
    const struct mics_op *op = issue->op;
    const struct mics_layout *layout = layout_of(issue);
    const struct unit_memory *unit = &engine->units[op->unit];
    struct mics_op now = *op;
    struct mics_pieces buffers[MICS_BUFFER_COUNT] = {
        [MICS_BUFFER_PARAM_SHARD] = {unit->param, layout->param_piece},
        [MICS_BUFFER_GRAD_SHARD] = {unit->grad, layout->grad_piece},
        [MICS_BUFFER_OUTER_DELTA] = {unit->outer_delta, layout->optim_piece},
    };

    if (op->param_slot != MICS_NONE)
        buffers[MICS_BUFFER_PARAM_SLOT] =
            (struct mics_pieces){engine->param_slots[op->param_slot], layout->segment_count};
    if (op->grad_slot != MICS_NONE) {
        void *slot = engine->grad_slots[op->grad_slot];

        buffers[MICS_BUFFER_GRAD_SLOT] = (struct mics_pieces){slot, layout->segment_count};
        buffers[MICS_BUFFER_REDUCED] = mics_pieces_in_slot(
            slot, layout, layout->grad_piece, mics_engine_groups(engine, op->unit)->index.grad,
            engine->choice.grad_dtype);
    }
    for (int b = MICS_BUFFER_FIRST_STAGING; b < MICS_BUFFER_COUNT; b++)
        buffers[b].first = engine->staging[b - MICS_BUFFER_FIRST_STAGING];
    now.first = op->first && !adds_to_carried(engine, issue);
    mics_executor_issue(&engine->executor, &now, layout, issue->stream, buffers);
}

/* After the second hop all replicas hold the same gradients: only the first one adds its norm. With
 * outer steps each has its own, and so has a unit that waits for its turn, whose gradients need
 * only be finite. */
static void issue_norm(struct mics_engine *engine, const struct issue *issue)
{
    const struct mics_groups *groups = mics_engine_groups(engine, issue->op->unit);
    const struct mics_layout *layout = layout_of(issue);
    double *const sum = &engine->scalars[issue->parity]->squared_norm;

    if (mics_choice_checks_carried(&engine->choice) &&
        !mics_engine_has_turn(issue, issue->op->unit)) {
        mics_launch_squared_norm(issue->stream, &(struct mics_args_squared_norm){
                                                    .sum = sum,
                                                    .in = engine->units[issue->op->unit].grad,
                                                    .count = mics_layout_grad_shard(layout),
                                                    .check_only = true});
        return;
    }
    if (groups->members[MICS_COMM_REPLICA].block != 0 && engine->choice.outer_steps == 0)
        return;
    for (uint32_t segment = 0; segment < layout->segments; segment++)
        mics_launch_squared_norm(issue->stream, &(struct mics_args_squared_norm){
                                                    .sum = sum,
                                                    .in = engine->units[issue->op->unit].grad +
                                                          segment * layout->grad_piece +
                                                          mics_groups_optim_in_grad(groups, layout),
                                                    .count = layout->optim_piece});
}

/* One segment: how far the parameters have moved since the last meeting, in place of gradients. */
static void issue_outer_delta(struct mics_engine *engine, const struct issue *issue)
{
    const struct outer_piece at =
        mics_engine_outer_piece(engine, issue->op->unit, issue->op->segment);

    mics_launch_difference(
        issue->stream,
        &(struct mics_args_difference){
            .dst = at.delta, .a = at.anchor, .b = at.param, .count = at.count, .scale = 1});
}

static void issue_outer_update(struct mics_engine *engine, const struct issue *issue)
{
    const struct mics_plan_choice *choice = &engine->choice;
    const struct outer_piece at =
        mics_engine_outer_piece(engine, issue->op->unit, issue->op->segment);

    mics_launch_outer_update(issue->stream, &(struct mics_args_outer_update){
                                                .param = at.param,
                                                .anchor = at.anchor,
                                                .momentum = at.momentum,
                                                .copy = at.copy,
                                                .delta = at.delta,
                                                .count = at.count,
                                                .scale = 1.0f / (float)mics_choice_replicas(choice),
                                                .lr = (float)choice->outer_lr,
                                                .mu = (float)choice->outer_momentum,
                                                .copy_f16 = choice->dtype == MICS_F16});
}

/* After the sum over all ranks: every rank comes to the same loss scale. With outer steps the sum
 * is over one replica, and each has its own. */
static void issue_loss_scale(struct mics_engine *engine, const struct issue *issue)
{
    const struct mics_loss_scale_settings *with = &engine->options.loss_scale;
    const double divisor = mics_choice_loss_divisor(&engine->choice);

    mics_launch_loss_scale(issue->stream, &(struct mics_args_loss_scale){
                                              .state = engine->loss_scale,
                                              .scalars = engine->scalars[issue->parity],
                                              .step = with->step,
                                              .min = with->min / divisor,
                                              .max = with->max / divisor,
                                              .window = with->window,
                                              .hysteresis = with->hysteresis,
                                              .drains = issue->tail,
                                              .counts = engine->choice.outer_steps > 0,
                                          });
}

/* Targets, loss and norm of all replicas, from those of each. */
static void issue_replica_reduce(struct mics_engine *engine, const struct issue *issue)
{
    struct mics_comm *comm = engine->executor.groups[issue->op->groups].comms[issue->op->comm];

    mics_comm_all_reduce(comm, issue->stream, &engine->scalars[issue->parity]->targets,
                         issue->op->count, MICS_F64);
}

static void issue_total(struct mics_engine *engine, const struct issue *issue)
{
    struct mics_comm *comm = engine->executor.groups[issue->op->groups].comms[issue->op->comm];

    mics_comm_all_reduce(comm, issue->stream, &engine->scalars[issue->parity]->loss_sum,
                         issue->op->count, MICS_F64);
    if (engine->loss_scale && issue->schedule->train)
        issue_loss_scale(engine, issue);
}

/* Elements with weight decay among `count` elements of a unit, from `offset` on. */
static uint64_t decaying(const struct mics_unit *unit, uint64_t offset, uint64_t count)
{
    if (unit->decay_count <= offset)
        return 0;
    return mics_min_u64(unit->decay_count - offset, count);
}

/*
 * One update with the mean gradient of several steps, in the place of one in each of them.
 *
 * SGD moves parameters by the sum of the steps. AdamW and Lion decay their moments and the
 * parameters as in that many steps. They divide by the size of the gradient, which in a mean of k
 * steps is smaller by the square root of k where noise is most of it: with the rate multiplied by
 * that, progress and noise are those of k steps (Malladi et al. 2022, "On the SDEs and scaling
 * rules for adaptive gradient algorithms").
 */
static void stand_for_steps(struct mics_args_update *update, uint32_t steps)
{
    struct mics_optimizer_settings *settings = &update->settings;

    if (steps == 1)
        return;
    if (update->optimizer == MICS_OPT_SGD) {
        update->lr *= (float)steps;
        return;
    }
    update->step /= steps; /* beta1 and beta2 to this power are what they are after all steps */
    settings->beta1 = powf(settings->beta1, (float)steps);
    settings->beta2 = powf(settings->beta2, (float)steps);
    settings->weight_decay *= sqrtf((float)steps);
    update->lr *= sqrtf((float)steps);
}

/* What an update works on: all of a segment, or of states in host memory a piece of it. */
struct update_range {
    float *param, *state[MICS_OPTIMIZER_STATES_MAX];
    uint16_t *copy; /* of `param` where that is a master; or NULL */
    uint64_t at_grad, count, decay_count;
};

static void launch_update(struct mics_engine *engine, const struct issue *issue,
                          const struct update_range *range)
{
    struct mics_args_update update = {.optimizer = engine->choice.optimizer,
                                      .step = issue->step,
                                      .param = range->param,
                                      .copy = range->copy,
                                      .grad = engine->units[issue->op->unit].grad + range->at_grad,
                                      .scalars = engine->scalars[issue->parity],
                                      .count = range->count,
                                      .decay_count = range->decay_count,
                                      .lr = issue->lr,
                                      .settings = engine->options.optimizer,
                                      .copy_f16 = engine->choice.dtype == MICS_F16,
                                      .loss_scale = engine->loss_scale};

    for (uint32_t i = 0; i < mics_optimizer_states(engine->choice.optimizer); i++)
        update.state[i] = range->state[i];
    stand_for_steps(&update, issue->steps);
    mics_launch_update(issue->stream, &update);
}

/* `count` elements of a segment of this rank's shard, from `begin` on. */
static void update_elements(struct mics_engine *engine, const struct issue *issue, uint32_t segment,
                            uint64_t begin, uint64_t count)
{
    const struct mics_groups *groups = mics_engine_groups(engine, issue->op->unit);
    const struct mics_layout *layout = layout_of(issue);
    const struct unit_memory *memory = &engine->units[issue->op->unit];
    const bool offloads = engine->choice.offload_piece > 0;
    const uint64_t in_unit =
        mics_layout_piece_offset(layout, segment, layout->optim_piece, groups->index.optim);
    const uint64_t at = segment * layout->optim_piece + begin;
    void *param = mics_element(mics_engine_updated_piece(engine, issue->op->unit, segment), begin,
                               engine->choice.dtype);
    struct update_range range = {
        .param = param,
        .at_grad = segment * layout->grad_piece + mics_groups_optim_in_grad(groups, layout) + begin,
        .count = count,
        .decay_count = decaying(&engine->model->units[issue->op->unit], in_unit + begin, count)};
    uint32_t value = 0;

    if (memory->master) {
        range.copy = param;
        range.param = offloads ? mics_engine_piece_slot(engine, issue->op->piece, value++)
                               : memory->master + at;
    }
    for (uint32_t i = 0; i < mics_optimizer_states(engine->choice.optimizer); i++)
        range.state[i] = offloads ? mics_engine_piece_slot(engine, issue->op->piece, value++)
                                  : memory->state[i] + at;
    launch_update(engine, issue, &range);
}

static void issue_update(struct mics_engine *engine, const struct issue *issue)
{
    const struct mics_layout *layout = layout_of(issue);
    const struct mics_op *op = issue->op;

    if (engine->choice.offload_piece > 0)
        update_elements(engine, issue, op->segment, op->begin, op->count);
    else
        for (uint32_t segment = 0; segment < layout->segments; segment++)
            update_elements(engine, issue, segment, 0, layout->optim_piece);
}

/* Load or store a piece of what is in host memory. */
static void issue_piece(struct mics_engine *engine, const struct issue *issue)
{
    const struct mics_op *op = issue->op;
    const uint64_t at = op->segment * layout_of(issue)->optim_piece + op->begin;

    for (uint32_t i = 0; i < mics_choice_offload_values(&engine->choice); i++) {
        float *host = mics_engine_offloaded(engine, op->unit, i) + at;
        float *slot = mics_engine_piece_slot(engine, op->piece, i);

        mics_launch_copy(issue->stream,
                         &(struct mics_args_copy){.dst = op->kind == MICS_OP_LOAD ? slot : host,
                                                  .src = op->kind == MICS_OP_LOAD ? host : slot,
                                                  .bytes = op->count * sizeof *host});
    }
}

static void issue_read(struct mics_engine *engine, const struct issue *issue)
{
    mics_launch_copy(issue->stream,
                     &(struct mics_args_copy){
                         .dst = issue->read,
                         .src = engine->scalars[issue->parity],
                         .bytes = mics_scalars_bytes(engine->model, issue->schedule->train),
                     });
    if (engine->loss_scale && issue->schedule->train)
        mics_launch_copy(issue->stream,
                         &(struct mics_args_copy){.dst = engine->host_loss_scale[issue->parity],
                                                  .src = engine->loss_scale,
                                                  .bytes = sizeof *engine->loss_scale});
}

static struct mics_pass make_pass(struct mics_engine *engine, const struct issue *issue)
{
    const struct mics_op *op = issue->op;
    const struct stage_memory *memory = &engine->stages[op->stage];
    const uint64_t at = op->micro_step * mics_engine_micro_tokens(engine);
    struct mics_batch batch = issue->batch;

    const enum mics_unit_kind kind = mics_unit_kind_of(engine->model, op->unit);

    batch.grad_dtype = mics_choice_written_grads(&engine->choice, kind);
    batch.expert_ranks = mics_choice_expert_ranks(&engine->choice, kind);
    return (struct mics_pass){
        .model = engine->model,
        .stream = issue->stream,
        .batch = batch,
        .tokens = engine->tokens[issue->parity] + at,
        .targets = engine->targets[issue->parity] + at,
        .params = param_buffer(engine, op),
        .saved = memory->saved,
        .scratch = engine->scratch,
        .in = memory->in,
        .out = memory->out,
        .grad = engine->boundary_grads,
        .loss_sum = &engine->scalars[issue->parity]->loss_sum,
        .stats = batch.train ? mics_engine_stats(engine, engine->scalars[issue->parity]) : NULL,
        .hits = batch.train ? NULL : &engine->scalars[issue->parity]->hits,
        .grad_scale = engine->loss_scale ? &engine->loss_scale->factor : NULL,
        .micro_step = op->micro_step,
        .step = issue->step,
        .phase = op->phase,
        .round = op->round,
        .rank = engine->executor.groups[kind].members[MICS_COMM_DISPATCH].block,
    };
}

/* A backward pass adds to the gradients of parameters, so the buffer must be zero before the first
 * one, but for what that writes. */
static void start_gradient(struct mics_engine *engine, const struct issue *issue,
                           struct mics_pass *pass)
{
    if (issue->op->unit == MICS_NONE)
        return;
    const enum mics_dtype dtype = pass->batch.grad_dtype;
    uint64_t written;
    const uint64_t extent = mics_choice_grad_extent(
        &engine->choice, &engine->model->units[issue->op->unit], layout_of(issue), &written);

    pass->grads = grad_buffer(engine, issue->op);
    pass->first = issue->op->first && !adds_to_carried(engine, issue);
    if (pass->first)
        mics_launch_zero(issue->stream, &(struct mics_args_zero){
                                            .dst = mics_element(pass->grads, written, dtype),
                                            .bytes = (extent - written) * mics_dtype_bytes(dtype)});
}

static void issue_forward(struct mics_engine *engine, const struct issue *issue)
{
    const bool head = issue->op->stage + 1 == engine->model->stage_count;
    struct mics_pass pass = make_pass(engine, issue);

    if (head && issue->batch.train)
        start_gradient(engine, issue, &pass);
    engine->model->ops->forward(&pass, issue->op->stage);
}

static void issue_backward(struct mics_engine *engine, const struct issue *issue)
{
    struct mics_pass pass = make_pass(engine, issue);

    start_gradient(engine, issue, &pass);
    engine->model->ops->backward(&pass, issue->op->stage);
}

/* Does this step only take its predicted time? */
static bool is_paced_step(const struct mics_engine *engine, const struct issue *issue)
{
    return engine->options.op_durations && issue->schedule == engine->train.schedule;
}

/* Where it is 0, an exchange sends nothing. A paced step routes no tokens: what it sends is the
 * expected load. */
static const uint32_t *active_flag(const struct mics_engine *engine, const struct issue *issue,
                                   const struct mics_pass_exchange *exchange)
{
    static const uint32_t never = 0;

    if (!is_paced_step(engine, issue))
        return exchange->active;
    return issue->op->surplus ? &never : NULL;
}

static void copy_counts(struct mics_engine *engine, struct mics_stream *stream, const void *counts)
{
    mics_launch_copy(stream, &(struct mics_args_copy){
                                 .dst = engine->host_counts,
                                 .src = counts,
                                 .bytes = mics_choice_counts_bytes(engine->model, &engine->choice),
                             });
    engine->device->ops->event_record(engine->counted, stream);
}

/* A device that has failed does nothing more, in however many rounds. */
static uint32_t read_rounds(const struct mics_engine *engine)
{
    const struct mics_batch batch = mics_choice_batch(&engine->choice, MICS_UNIT_EXPERT, true);
    struct mics_err failure;

    return engine->device->ops->event_sync(engine->counted, &failure) == MICS_OK
               ? mics_model_dispatch_rounds(engine->model, &batch, engine->host_counts)
               : 1;
}

bool mics_engine_round_is_empty(struct mics_engine *engine, const struct issue *issue,
                                const struct mics_op *op)
{
    if (!engine->host_counts || op->round == 0)
        return false;
    if (engine->options.op_durations && issue->schedule == engine->train.schedule)
        return op->surplus;
    if (op->kind == MICS_OP_FORWARD && op->phase == MICS_PHASE_SEND && op->round == 1)
        engine->rounds[op->stage] = read_rounds(engine);
    return op->round >= engine->rounds[op->stage];
}

/* Tokens to their experts, or results back. */
static void issue_dispatch(struct mics_engine *engine, const struct issue *issue)
{
    const struct mics_op *op = issue->op;
    struct mics_comm *comm = engine->executor.groups[op->groups].comms[op->comm];
    const struct mics_pass pass = make_pass(engine, issue);
    struct mics_pass_exchange exchanges[MICS_PASS_EXCHANGES_MAX];

    engine->model->ops->exchanges(&pass, op->stage, op->backward, exchanges);
    const struct mics_pass_exchange *exchange = &exchanges[op->array];
    if (exchange->gathers) {
        mics_comm_all_gather(comm, issue->stream, exchange->from, exchange->to, exchange->bytes,
                             MICS_U8);
        if (engine->host_counts)
            copy_counts(engine, issue->stream, exchange->to);
    } else
        mics_comm_all_to_all_if(comm, issue->stream, exchange->from, exchange->to, exchange->bytes,
                                MICS_U8, active_flag(engine, issue, exchange));
}

/* As precise as the timer allows, without spinning on a core that communication needs. */
static void sleep_for(void *context)
{
    const double *seconds = context;

    prctl(PR_SET_TIMERSLACK, 1000ul);
    mics_sleep_s(*seconds);
}

/* Instead of a computation: only its duration. */
static void issue_duration(struct mics_engine *engine, const struct issue *issue)
{
    const double *seconds = &engine->options.op_durations[issue->op - issue->schedule->ops];

    if (*seconds > 0)
        mics_launch_call(issue->stream,
                         &(struct mics_args_call){.fn = sleep_for, .context = (void *)seconds});
}

static bool is_paced(const struct mics_engine *engine, const struct issue *issue)
{
    return is_paced_step(engine, issue) && issue->op->kind != MICS_OP_READ &&
           !mics_op_is_comm(issue->op->kind);
}

void mics_engine_issue(struct mics_engine *engine, const struct issue *issue)
{
    static void (*const issue_kind[MICS_OP_KIND_COUNT])(struct mics_engine *,
                                                        const struct issue *) = {
        [MICS_OP_TARGET_COUNT] = issue_count,
        [MICS_OP_GATHER] = issue_exchange,
        [MICS_OP_FORWARD] = issue_forward,
        [MICS_OP_BACKWARD] = issue_backward,
        [MICS_OP_DISPATCH] = issue_dispatch,
        [MICS_OP_COMBINE] = issue_dispatch,
        [MICS_OP_REDUCE] = issue_exchange,
        [MICS_OP_ACCUMULATE] = issue_exchange,
        [MICS_OP_SCATTER] = issue_exchange,
        [MICS_OP_SYNC] = issue_exchange,
        [MICS_OP_CONVERT] = issue_exchange,
        [MICS_OP_NORM] = issue_norm,
        [MICS_OP_LOSS_NORM_REDUCE] = issue_total,
        [MICS_OP_LOAD] = issue_piece,
        [MICS_OP_UPDATE] = issue_update,
        [MICS_OP_STORE] = issue_piece,
        [MICS_OP_OUTER_DELTA] = issue_outer_delta,
        [MICS_OP_OUTER_UPDATE] = issue_outer_update,
        [MICS_OP_REPLICA_REDUCE] = issue_replica_reduce,
        [MICS_OP_PUBLISH] = issue_exchange,
        [MICS_OP_READ] = issue_read,
    };

    if (is_paced(engine, issue))
        issue_duration(engine, issue);
    else
        issue_kind[issue->op->kind](engine, issue);
}
