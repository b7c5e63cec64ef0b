/* SPDX-License-Identifier: Apache-2.0 */
/*
 * executor.c - communicators of shapes, and what the hops of an exchange do.
 *
 * Addresses follow from operands and layout alone: a buffer holds one piece of each segment, and a
 * smaller piece has the same place inside it as in the segment.
 */
#include "engine/executor.h"

#include "comm/agree.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void mics_executor_init(struct mics_executor *executor, struct mics_device *device,
                        struct mics_comm *comm, const struct mics_shape *shapes)
{
    const uint32_t rank = (uint32_t)comm->rank;

    *executor = (struct mics_executor){.device = device, .comm = comm};
    for (int unit_kind = 0; unit_kind < MICS_UNIT_KIND_COUNT; unit_kind++) {
        struct mics_groups *groups = &executor->groups[unit_kind];

        groups->shape = shapes[unit_kind];
        groups->index = mics_shape_index(&groups->shape, rank);
        for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++)
            mics_shape_position(&groups->shape, (enum mics_comm_kind)kind, rank,
                                &groups->members[kind]);
    }
}

void mics_executor_fini(struct mics_executor *executor)
{
    for (int kind = 0; kind < MICS_STREAM_COUNT; kind++)
        if (executor->streams[kind])
            executor->device->ops->stream_close(executor->streams[kind]);
    for (int unit_kind = 0; unit_kind < MICS_UNIT_KIND_COUNT; unit_kind++)
        for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++)
            if (executor->groups[unit_kind].comms[kind])
                mics_comm_free(executor->groups[unit_kind].comms[kind]);
    *executor = (struct mics_executor){0};
}

/* Does nothing if it is there already. */
static enum mics_status open_stream(struct mics_executor *executor, enum mics_stream_kind kind,
                                    struct mics_err *err)
{
    struct mics_device *device = executor->device;

    if (executor->streams[kind])
        return MICS_OK;
    return device->ops->stream_open(device, mics_stream_kind_name(kind),
                                    kind != MICS_STREAM_COMPUTE, &executor->streams[kind], err);
}

enum mics_status mics_executor_open_streams(struct mics_executor *executor, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (int kind = 0; status == MICS_OK && kind < MICS_STREAM_DISPATCH; kind++)
        status = open_stream(executor, (enum mics_stream_kind)kind, err);
    return status;
}

/* Those that only some schedules use: of tokens that travel to experts, and of optimizer states in
 * host memory. */
static enum mics_status open_other_streams(struct mics_executor *executor,
                                           const struct mics_schedule *schedule,
                                           struct mics_err *err)
{
    enum mics_status status = MICS_OK;
    bool opens = false;

    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const enum mics_stream_kind stream = schedule->ops[i].stream;

        if (stream < MICS_STREAM_DISPATCH)
            continue;
        opens = true;
        if (status == MICS_OK)
            status = open_stream(executor, stream, err);
    }
    return opens ? mics_agree(executor->comm, status, err) : MICS_OK;
}

/* Split off the communicator of one operation. */
static enum mics_status open_comm(struct mics_executor *executor, const struct mics_op *op,
                                  struct mics_err *err)
{
    struct mics_groups *groups = &executor->groups[op->groups];
    const struct mics_group_position *member = &groups->members[op->comm];
    struct mics_comm *world = executor->comm;
    enum mics_status status = mics_comm_split(world, (int)member->color, (int)member->key,
                                              (int)member->block, &groups->comms[op->comm], err);

    status = mics_agree(world, status, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "communicator %s", mics_comm_kind_name(op->comm));
    return status;
}

enum mics_status mics_executor_open_comms(struct mics_executor *executor,
                                          const struct mics_schedule *schedule,
                                          struct mics_err *err)
{
    const struct mics_op *used[MICS_UNIT_KIND_COUNT][MICS_COMM_KIND_COUNT] = {{NULL}};
    const enum mics_status opened = open_other_streams(executor, schedule, err);

    if (opened != MICS_OK)
        return opened;
    for (uint32_t i = 0; i < schedule->op_count; i++)
        if (mics_op_is_comm(schedule->ops[i].kind))
            used[schedule->ops[i].groups][schedule->ops[i].comm] = &schedule->ops[i];
    for (int groups = 0; groups < MICS_UNIT_KIND_COUNT; groups++)
        for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++) {
            if (!used[groups][kind] || executor->groups[groups].comms[kind])
                continue;
            const enum mics_status status = open_comm(executor, used[groups][kind], err);
            if (status != MICS_OK)
                return status;
        }
    return MICS_OK;
}

struct mics_pieces mics_pieces_in_slot(void *slot, const struct mics_layout *layout, uint64_t piece,
                                       uint32_t index, enum mics_dtype dtype)
{
    return (struct mics_pieces){mics_element(slot, index * piece, dtype), layout->segment_count};
}

/* Where this rank's piece of a segment is in its buffer. */
static void *address_of(const struct mics_groups *groups, const struct mics_layout *layout,
                        const struct mics_pieces *buffers, const struct mics_operand *operand,
                        uint32_t segment)
{
    const struct mics_pieces *pieces = &buffers[operand->buffer];
    const uint64_t begin = mics_layout_piece_begin(layout, groups->index, operand->piece,
                                                   mics_buffer_piece(operand->buffer));

    return (char *)pieces->first +
           mics_wire_bytes(operand->dtype, segment * pieces->stride + begin);
}

/* Blocks are moved as bytes. */
static void issue_collective(struct mics_comm *comm, struct mics_stream *stream,
                             const struct mics_op *op, const struct mics_layout *layout,
                             const void *from, void *to)
{
    const bool blocks = mics_dtype_is_blocks(op->from.dtype);
    const enum mics_dtype dtype = blocks ? MICS_U8 : op->from.dtype;
    uint64_t from_count = mics_layout_piece_count(layout, op->from.piece);
    uint64_t to_count = mics_layout_piece_count(layout, op->to.piece);

    if (blocks) {
        from_count = mics_wire_bytes(op->from.dtype, from_count);
        to_count = mics_wire_bytes(op->to.dtype, to_count);
    }
    switch (op->collective) {
    case MICS_ALL_GATHER:
        mics_comm_all_gather(comm, stream, from, to, from_count, dtype);
        break;
    case MICS_REDUCE_SCATTER:
        mics_comm_reduce_scatter(comm, stream, (void *)(uintptr_t)from, to, to_count, dtype);
        break;
    case MICS_ALL_TO_ALL:
        mics_comm_all_to_all(comm, stream, from, to, from_count / (uint64_t)comm->size, dtype);
        break;
    default:
        mics_comm_all_reduce(comm, stream, to, to_count, dtype);
    }
}

/* Parameters are rounded to nearest. Each array of gradients has draws of its own, and so have the
 * sums, whichever replica adds them: that depends on segments. */
static struct mics_conversion make_conversion(const struct mics_executor *executor,
                                              const struct mics_op *op,
                                              const struct mics_layout *layout, uint32_t segment)
{
    const struct mics_groups *groups = &executor->groups[op->groups];
    const struct mics_index index = groups->index;
    const struct mics_group_position *scatter = &groups->members[MICS_COMM_SCATTER];
    struct mics_conversion conversion = {
        .count = mics_convert_count(layout, &op->from, &op->to, index.replica)};

    if (!executor->rounding.stochastic || op->to.buffer == MICS_BUFFER_GATHER_STAGING)
        return conversion;
    conversion.rounding = executor->rounding;
    if (op->from.piece == MICS_PIECE_GRAD) {
        conversion.replica = layout->replicas + 1 + index.replica * scatter->size + scatter->block;
        conversion.first =
            mics_layout_piece_offset(layout, segment, layout->grad_piece, index.grad);
        return conversion;
    }
    conversion.replica = index.replica;
    conversion.first = mics_layout_piece_offset(layout, segment, layout->optim_piece, index.optim);
    if (op->to.piece == MICS_PIECE_SYNC) {
        conversion.replica = layout->replicas;
        conversion.first += index.replica * layout->sync_piece;
    }
    return conversion;
}

void mics_executor_issue(const struct mics_executor *executor, const struct mics_op *op,
                         const struct mics_layout *layout, struct mics_stream *stream,
                         const struct mics_pieces *buffers)
{
    const struct mics_groups *groups = &executor->groups[op->groups];
    const uint32_t segments = op->kind == MICS_OP_ACCUMULATE ? layout->segments : 1;

    for (uint32_t segment = op->segment; segment < op->segment + segments; segment++) {
        const void *from = address_of(groups, layout, buffers, &op->from, segment);
        void *to = address_of(groups, layout, buffers, &op->to, segment);
        struct mics_conversion conversion;

        if (mics_op_is_comm(op->kind)) {
            issue_collective(groups->comms[op->comm], stream, op, layout, from, to);
            continue;
        }
        conversion = make_conversion(executor, op, layout, segment);
        conversion.from = from;
        conversion.to = to;
        mics_conversion_launch(stream, op, layout, &conversion);
    }
}

/* Let the stream wait for the operations that operation `index` depends on. */
static void wait_for_dependencies(const struct mics_executor *executor,
                                  const struct mics_replay *replay, uint32_t index,
                                  struct mics_stream *stream)
{
    const struct mics_op *op = &replay->schedule->ops[index];

    for (uint32_t i = 0; i < op->dep_count; i++) {
        const uint32_t dep = replay->schedule->deps[op->dep_begin + i];

        if (dep < index)
            executor->device->ops->event_wait(stream, replay->end[dep]);
        else if (replay->end_before)
            executor->device->ops->event_wait(stream, replay->end_before[dep]);
    }
}

static_assert(MICS_COALESCE_MAX <= MICS_COMM_GROUP_MAX, "coalesced units fit into a group");

/* Is the operation coalesced with the one before it? */
static bool continues_group(const struct mics_schedule *schedule, uint32_t index)
{
    return index > 0 && schedule->ops[index - 1].coalesce_next;
}

/* Coalesced operations end together, with the last one. The first one's end is recorded last, so
 * that in a trace they nest. */
static void record_ends(const struct mics_executor *executor, const struct mics_replay *replay,
                        uint32_t last, struct mics_stream *stream)
{
    for (uint32_t i = last; !replay->schedule->ops[last].coalesce_next; i--) {
        if (replay->end[i])
            executor->device->ops->event_record(replay->end[i], stream);
        if (!continues_group(replay->schedule, i))
            return;
    }
}

/* Coalesced operations are idle together. */
static void issue_in_group(const struct mics_executor *executor, const struct mics_replay *replay,
                           uint32_t index, struct mics_stream *stream)
{
    const struct mics_op *op = &replay->schedule->ops[index];
    const bool continues = continues_group(replay->schedule, index);

    if (op->coalesce_next && !continues)
        mics_comm_group_begin(executor->groups[op->groups].comms[op->comm]);
    replay->issue(replay->context, index, stream);
    if (!op->coalesce_next && continues)
        mics_comm_group_end(executor->groups[op->groups].comms[op->comm]);
}

void mics_executor_replay(const struct mics_executor *executor, const struct mics_replay *replay)
{
    const struct mics_schedule *schedule = replay->schedule;

    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];
        struct mics_stream *stream = replay->streams[op->stream];

        if (replay->micro_steps > 0 && op->micro_step - replay->first >= replay->micro_steps)
            continue;
        wait_for_dependencies(executor, replay, i, stream);
        if (replay->enter)
            replay->enter(replay->context, i, stream);
        if (replay->begin)
            executor->device->ops->event_record(replay->begin[i], stream);
        if (!replay->is_idle || !replay->is_idle(replay->context, i))
            issue_in_group(executor, replay, i, stream);
        record_ends(executor, replay, i, stream);
    }
}

/* An exchange is over before the next one begins, so one set of events is enough, and only
 * operations that another stream waits for have one. */
struct mics_exchange_replay {
    struct mics_executor *executor;
    struct mics_schedule *schedule;
    struct mics_event **end;    /* [op_count]; NULL: nothing waits for the operation */
    struct mics_event *entry;   /* the caller's stream is at the beginning */
    struct mics_event *exit;    /* the last micro-step that was enqueued is over */
    enum mics_stream_kind last; /* stream of the last operation */
};

static enum mics_status open_waited_events(struct mics_exchange_replay *replay,
                                           struct mics_err *err)
{
    const struct mics_schedule *schedule = replay->schedule;
    struct mics_device *device = replay->executor->device;
    enum mics_status status = device->ops->event_open(device, &replay->entry, err);

    if (status == MICS_OK)
        status = device->ops->event_open(device, &replay->exit, err);
    for (uint32_t i = 0; status == MICS_OK && i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];

        for (uint32_t d = op->dep_begin; d < op->dep_begin + op->dep_count; d++)
            if (status == MICS_OK && schedule->deps[d] < i && !replay->end[schedule->deps[d]])
                status = device->ops->event_open(device, &replay->end[schedule->deps[d]], err);
    }
    return status;
}

/* What the schedule needs: all streams but that of the last operation, and all communicators. */
static enum mics_status prepare(struct mics_exchange_replay *replay, struct mics_err *err)
{
    const struct mics_schedule *schedule = replay->schedule;
    enum mics_status status = mics_executor_open_comms(replay->executor, schedule, err);

    replay->end = calloc(schedule->op_count + 1, sizeof(struct mics_event *));
    if (status == MICS_OK && !replay->end)
        status = mics_err_nomem(err);
    if (schedule->op_count > 0)
        replay->last = schedule->ops[schedule->op_count - 1].stream;
    for (uint32_t i = 0; status == MICS_OK && i < schedule->op_count; i++)
        if (schedule->ops[i].stream != replay->last)
            status = open_stream(replay->executor, schedule->ops[i].stream, err);
    return status == MICS_OK ? open_waited_events(replay, err) : status;
}

enum mics_status mics_exchange_replay_new(struct mics_executor *executor,
                                          const struct mics_plan_choice *choice,
                                          enum mics_exchange_kind kind, uint64_t count,
                                          struct mics_exchange_replay **out, struct mics_err *err)
{
    struct mics_exchange_replay *replay = calloc(1, sizeof *replay);
    enum mics_status status;

    if (!replay)
        return mics_err_nomem(err);
    replay->executor = executor;
    status = mics_schedule_new_exchange(choice, kind, count, &replay->schedule, err);
    if (status == MICS_OK)
        status = prepare(replay, err);
    if (status == MICS_OK)
        *out = replay;
    else
        mics_exchange_replay_free(replay);
    return status;
}

void mics_exchange_replay_free(struct mics_exchange_replay *replay)
{
    if (!replay)
        return;
    const struct mics_device_ops *device = replay->executor->device->ops;
    for (uint32_t i = 0; replay->end && i < replay->schedule->op_count; i++)
        device->event_close(replay->end[i]);
    device->event_close(replay->entry);
    device->event_close(replay->exit);
    mics_schedule_free(replay->schedule);
    free(replay->end);
    free(replay);
}

struct exchange_context {
    const struct mics_exchange_replay *replay;
    const struct mics_pieces *buffers;
};

static void issue_op(void *context, uint32_t index, struct mics_stream *stream)
{
    const struct exchange_context *c = context;
    const struct mics_schedule *schedule = c->replay->schedule;
    const struct mics_op *op = &schedule->ops[index];

    mics_executor_issue(c->replay->executor, op, &schedule->layouts[op->unit], stream, c->buffers);
}

void mics_exchange_replay_enqueue(struct mics_exchange_replay *replay, struct mics_stream *stream,
                                  uint32_t first, uint32_t count, const struct mics_pieces *buffers)
{
    const struct mics_executor *executor = replay->executor;
    const struct mics_schedule *schedule = replay->schedule;
    const struct mics_device_ops *device = executor->device->ops;
    struct exchange_context context = {replay, buffers};
    struct mics_stream *streams[MICS_STREAM_COUNT] = {NULL}, *last = stream;
    bool entered[MICS_STREAM_COUNT] = {false};

    /* Other streams of the executor have to wait until `stream` is here. */
    memcpy(streams, executor->streams, sizeof streams);
    streams[replay->last] = stream;
    entered[replay->last] = true;
    for (uint32_t i = 0, waiting = 0; i < schedule->op_count; i++) {
        const enum mics_stream_kind kind = schedule->ops[i].stream;

        if (schedule->ops[i].micro_step - first >= count)
            continue;
        last = streams[kind];
        if (entered[kind])
            continue;
        if (waiting++ == 0)
            device->event_record(replay->entry, stream);
        device->event_wait(streams[kind], replay->entry);
        entered[kind] = true;
    }
    mics_executor_replay(executor, &(struct mics_replay){.schedule = schedule,
                                                         .streams = streams,
                                                         .end = replay->end,
                                                         .first = first,
                                                         .micro_steps = count,
                                                         .issue = issue_op,
                                                         .context = &context});
    if (last == stream) /* the last operation follows all others */
        return;
    device->event_record(replay->exit, last);
    device->event_wait(stream, replay->exit);
}
