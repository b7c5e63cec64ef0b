/* SPDX-License-Identifier: Apache-2.0 */
/*
 * issue.c - what each kind of operation does on the device and the communicators.
 *
 * Addresses follow from the layout alone: segment t of a unit begins at t * segment_count in a slot and
 * at t * piece in a shard, and the block of a rank in a group is its index there.
 */
#include "base/clock.h"
#include "base/num.h"
#include "engine/internal.h"

#include <sys/prctl.h>

static const struct mics_layout *layout_of(const struct issue *issue)
{
    return &issue->schedule->layouts[issue->op->unit];
}

static const void *param_buffer(const struct mics_engine *engine, const struct mics_op *op)
{
    if (op->blind)
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
    struct mics_comm *comm = engine->comms[issue->op->comm];

    comm->ops->all_reduce(comm, issue->stream, &engine->scalars[issue->parity]->targets, 1,
                          MICS_F64);
}

/* Stage NET brings the q pieces of this rank's place in its node side by side; stage NODE, in place,
 * the k runs of them; a flat gather all p pieces at once. */
static void issue_gather(struct mics_engine *engine, const struct issue *issue)
{
    const struct mics_op *op = issue->op;
    const struct mics_layout *layout = layout_of(issue);
    struct mics_comm *comm = engine->comms[op->comm];
    const uint64_t q = engine->members[MICS_COMM_GATHER_NET].size;
    const uint64_t run = q * layout->param_piece;
    const uint64_t node = engine->members[MICS_COMM_GATHER_NODE].block;
    uint64_t to = op->segment * layout->segment_count, count = layout->param_piece;
    const void *send =
        mics_engine_at(engine->units[op->unit].param, op->segment * layout->param_piece, op->dtype);

    if (op->comm == MICS_COMM_GATHER_NET) {
        to += node * run;
    } else if (op->comm == MICS_COMM_GATHER_NODE) {
        send = mics_engine_at(engine->param_slots[op->param_slot], to + node * run, op->dtype);
        count = run;
    }
    comm->ops->all_gather(comm, issue->stream, send,
                          mics_engine_at(engine->param_slots[op->param_slot], to, op->dtype), count,
                          op->dtype);
}

/* The gather run backwards, in place in the gradient slot. */
static void issue_reduce(struct mics_engine *engine, const struct issue *issue)
{
    const struct mics_op *op = issue->op;
    const struct mics_layout *layout = layout_of(issue);
    struct mics_comm *comm = engine->comms[op->comm];
    const uint64_t q = engine->members[MICS_COMM_REDUCE_NET].size;
    const uint64_t run = q * layout->grad_piece;
    uint64_t at = op->segment * layout->segment_count, count = layout->grad_piece;
    void *const slot = engine->grad_slots[op->grad_slot];

    if (op->comm == MICS_COMM_REDUCE_NODE)
        count = run;
    else if (op->comm == MICS_COMM_REDUCE_NET)
        at += engine->members[MICS_COMM_REDUCE_NODE].block * run;
    comm->ops->reduce_scatter(
        comm, issue->stream, mics_engine_at(slot, at, op->dtype),
        mics_engine_at(slot, at + engine->members[op->comm].block * count, op->dtype), count,
        op->dtype);
}

static void issue_accumulate(struct mics_engine *engine, const struct issue *issue)
{
    const struct mics_op *op = issue->op;
    const struct mics_layout *layout = layout_of(issue);
    const uint64_t piece = layout->grad_piece;

    for (uint32_t segment = 0; segment < layout->segments; segment++) {
        float *shard = engine->units[op->unit].grad + segment * piece;
        const void *slot = mics_engine_at(
            engine->grad_slots[op->grad_slot],
            mics_layout_piece_offset(layout, segment, piece, engine->index.grad), op->dtype);

        if (op->micro_step == 0)
            mics_launch_cast(issue->stream, &(struct mics_op_cast){.dst = shard,
                                                                   .src = slot,
                                                                   .count = piece,
                                                                   .src_dtype = op->dtype});
        else
            mics_launch_accumulate(
                issue->stream, &(struct mics_op_accumulate){
                                   .sum = shard, .in = slot, .count = piece, .dtype = op->dtype});
    }
}

/* A piece of the fp32 shard to where it travels as another type, or back. */
static void convert(const struct issue *issue, void *dst, const void *src, uint64_t count,
                    bool back)
{
    const enum mics_dtype dtype = issue->op->dtype;

    mics_launch_cast(issue->stream, &(struct mics_op_cast){
                                        .dst = dst,
                                        .src = src,
                                        .count = count,
                                        .dst_dtype = back ? MICS_F32 : dtype,
                                        .src_dtype = back ? dtype : MICS_F32,
                                    });
}

static void issue_scatter(struct mics_engine *engine, const struct issue *issue)
{
    const struct mics_op *op = issue->op;
    const struct mics_layout *layout = layout_of(issue);
    const uint64_t own = mics_engine_optim_in_grad(engine, layout);
    struct mics_comm *comm = engine->comms[op->comm];
    float *shard = engine->units[op->unit].grad + op->segment * layout->grad_piece;
    void *room = op->dtype == MICS_F32 ? shard : engine->scatter_room;

    if (room != shard)
        convert(issue, room, shard, layout->grad_piece, false);
    comm->ops->reduce_scatter(comm, issue->stream, room, mics_engine_at(room, own, op->dtype),
                              layout->optim_piece, op->dtype);
    if (room != shard)
        convert(issue, shard + own, mics_engine_at(room, own, op->dtype), layout->optim_piece,
                true);
}

static void issue_sync(struct mics_engine *engine, const struct issue *issue)
{
    const struct mics_op *op = issue->op;
    const struct mics_layout *layout = layout_of(issue);
    struct mics_comm *comm = engine->comms[op->comm];
    float *piece = engine->units[op->unit].grad + op->segment * layout->grad_piece +
                   mics_engine_optim_in_grad(engine, layout);
    void *room = op->dtype == MICS_F32 ? piece : engine->sync_room;

    if (room != piece)
        convert(issue, room, piece, layout->optim_piece, false);
    comm->ops->all_reduce(comm, issue->stream, room, layout->optim_piece, op->dtype);
    if (room != piece)
        convert(issue, piece, room, layout->optim_piece, true);
}

/* Replicas hold the same gradients after the second hop: the first of them counts. */
static void issue_norm(struct mics_engine *engine, const struct issue *issue)
{
    const struct mics_layout *layout = layout_of(issue);

    if (engine->members[MICS_COMM_REPLICA].block != 0)
        return;
    for (uint32_t segment = 0; segment < layout->segments; segment++)
        mics_launch_squared_norm(
            issue->stream,
            &(struct mics_op_squared_norm){.sum = &engine->scalars[issue->parity]->squared_norm,
                                           .in = engine->units[issue->op->unit].grad +
                                                 segment * layout->grad_piece +
                                                 mics_engine_optim_in_grad(engine, layout),
                                           .count = layout->optim_piece});
}

static void issue_total(struct mics_engine *engine, const struct issue *issue)
{
    struct mics_comm *comm = engine->comms[issue->op->comm];

    comm->ops->all_reduce(comm, issue->stream, &engine->scalars[issue->parity]->loss_sum, 2,
                          MICS_F64);
}

static uint64_t decaying(const struct mics_unit *unit, const struct mics_layout *layout,
                         uint64_t offset)
{
    if (unit->decay_count <= offset)
        return 0;
    return mics_min_u64(unit->decay_count - offset, layout->optim_piece);
}

/* Of one segment: `param` and, where that is a master, `copy`. */
static void launch_update(struct mics_engine *engine, const struct issue *issue, float *param,
                          uint16_t *copy, uint64_t at_grad, uint64_t at_state, uint64_t decay_count)
{
    const struct unit_memory *unit = &engine->units[issue->op->unit];
    struct mics_op_update update = {.optimizer = engine->choice.optimizer,
                                    .step = issue->step,
                                    .param = param,
                                    .copy = copy,
                                    .grad = unit->grad + at_grad,
                                    .scalars = engine->scalars[issue->parity],
                                    .count = layout_of(issue)->optim_piece,
                                    .decay_count = decay_count,
                                    .lr = issue->lr,
                                    .settings = engine->options.optimizer};

    for (uint32_t i = 0; i < mics_optimizer_states(engine->choice.optimizer); i++)
        update.state[i] = unit->state[i] + at_state;
    mics_launch_update(issue->stream, &update);
}

static void issue_update(struct mics_engine *engine, const struct issue *issue)
{
    const struct mics_layout *layout = layout_of(issue);
    const struct mics_unit *unit = &engine->model->units[issue->op->unit];
    const struct unit_memory *memory = &engine->units[issue->op->unit];

    for (uint32_t segment = 0; segment < layout->segments; segment++) {
        const uint64_t in_unit =
            mics_layout_piece_offset(layout, segment, layout->optim_piece, engine->index.optim);

        void *param = mics_engine_at(memory->param,
                                     segment * layout->param_piece +
                                         mics_engine_optim_in_param(engine, layout),
                                     engine->choice.dtype);
        float *master =
            memory->master ? memory->master + segment * layout->optim_piece : (float *)param;

        launch_update(engine, issue, master, memory->master ? param : NULL,
                      segment * layout->grad_piece + mics_engine_optim_in_grad(engine, layout),
                      segment * layout->optim_piece, decaying(unit, layout, in_unit));
    }
}

static void issue_publish(struct mics_engine *engine, const struct issue *issue)
{
    const struct mics_op *op = issue->op;
    const struct mics_layout *layout = layout_of(issue);
    struct mics_comm *comm = engine->comms[op->comm];
    void *shard =
        mics_engine_at(engine->units[op->unit].param, op->segment * layout->param_piece, op->dtype);

    comm->ops->all_gather(
        comm, issue->stream,
        mics_engine_at(shard, mics_engine_optim_in_param(engine, layout), op->dtype), shard,
        layout->optim_piece, op->dtype);
}

static void issue_read(struct mics_engine *engine, const struct issue *issue)
{
    mics_launch_copy(issue->stream, &(struct mics_op_copy){.dst = issue->read,
                                                           .src = engine->scalars[issue->parity],
                                                           .bytes = sizeof *issue->read});
}

static struct mics_pass make_pass(struct mics_engine *engine, const struct issue *issue)
{
    const struct mics_op *op = issue->op;
    const uint64_t at = op->micro_step * mics_engine_micro_tokens(engine);

    return (struct mics_pass){
        .model = engine->model,
        .stream = issue->stream,
        .batch = issue->batch,
        .tokens = engine->tokens[issue->parity] + at,
        .targets = engine->targets[issue->parity] + at,
        .params = param_buffer(engine, op),
        .saved = engine->saved[op->stage],
        .out = op->stage + 1 < engine->model->stage_count ? engine->saved[op->stage + 1] : NULL,
        .flow = engine->flow,
        .scratch = engine->scratch,
        .loss_sum = &engine->scalars[issue->parity]->loss_sum,
        .micro_step = op->micro_step,
        .step = issue->step,
    };
}

/* Gradients of parameters are accumulated, so a buffer starts from zero. */
static void start_gradient(struct mics_engine *engine, const struct issue *issue,
                           struct mics_pass *pass)
{
    pass->grads = grad_buffer(engine, issue->op);
    if (issue->op->first)
        mics_launch_zero(issue->stream, &(struct mics_op_zero){
                                            .dst = pass->grads,
                                            .bytes = layout_of(issue)->padded *
                                                     mics_dtype_bytes(issue->batch.grad_dtype)});
}

static void issue_forward(struct mics_engine *engine, const struct issue *issue)
{
    const bool head = issue->op->stage + 1 == engine->model->stage_count;
    struct mics_pass pass = make_pass(engine, issue);

    if (head && issue->logits_row != MICS_NONE) {
        engine->model->family->logits(&pass, issue->logits_row, issue->logits);
        return;
    }
    if (head && issue->batch.train)
        start_gradient(engine, issue, &pass);
    engine->model->family->forward(&pass, issue->op->stage);
}

static void issue_backward(struct mics_engine *engine, const struct issue *issue)
{
    struct mics_pass pass = make_pass(engine, issue);

    start_gradient(engine, issue, &pass);
    engine->model->family->backward(&pass, issue->op->stage);
}

/* As precise as the clock allows, and without burning the core that communication needs. */
static void take_time(void *context)
{
    const double *seconds = context;

    prctl(PR_SET_TIMERSLACK, 1000ul);
    mics_sleep_s(*seconds);
}

/* In the place of a computation: only its time. */
static void issue_pace(struct mics_engine *engine, const struct issue *issue)
{
    const double *pace = &engine->options.pace[issue->op - issue->schedule->ops];

    if (*pace > 0)
        mics_launch_call(issue->stream,
                         &(struct mics_op_call){.fn = take_time, .context = (void *)pace});
}

static bool is_paced(const struct mics_engine *engine, const struct issue *issue)
{
    return engine->options.pace && issue->schedule == engine->train.schedule &&
           issue->op->kind != MICS_OP_READ && !mics_op_is_comm(issue->op->kind);
}

void mics_engine_issue(struct mics_engine *engine, const struct issue *issue)
{
    static void (*const issue_kind[MICS_OP_KIND_COUNT])(struct mics_engine *,
                                                        const struct issue *) = {
        [MICS_OP_COUNT] = issue_count,     [MICS_OP_GATHER] = issue_gather,
        [MICS_OP_FORWARD] = issue_forward, [MICS_OP_BACKWARD] = issue_backward,
        [MICS_OP_REDUCE] = issue_reduce,   [MICS_OP_ACCUMULATE] = issue_accumulate,
        [MICS_OP_SCATTER] = issue_scatter, [MICS_OP_SYNC] = issue_sync,
        [MICS_OP_NORM] = issue_norm,       [MICS_OP_TOTAL] = issue_total,
        [MICS_OP_UPDATE] = issue_update,   [MICS_OP_PUBLISH] = issue_publish,
        [MICS_OP_READ] = issue_read,
    };

    if (mics_op_is_comm(issue->op->kind) && engine->comms[issue->op->comm])
        engine->comms[issue->op->comm]->joins = issue->op->joins;
    if (is_paced(engine, issue))
        issue_pace(engine, issue);
    else
        issue_kind[issue->op->kind](engine, issue);
}
