/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build_optimizer.c - the end of a step: norm, update, publish, scalars.
 *
 * It begins after the last backward, so that it never delays a computation of that pass. With
 * clipping the norm is a barrier, and units are updated in the order in which the next step needs
 * them, so that their gathers begin early. Without clipping they are updated in the order in which
 * their gradients arrive, the first needed last: the optimizer runs while gradients are still
 * communicated. Where the host updates (plan/host_update.h), it begins with all gradients.
 *
 * Outer steps that overlap are three parts: the difference is taken after a unit's update in the
 * step of the meeting; it is summed in the next step, one unit after another along the forwards and
 * backwards; and the outer update stands before the unit's update in that step.
 */
#include "plan/schedule/build_ops.h"

#include "base/num.h"

/* In fp16 also of units that wait for their turn: whether their gradients have overflowed. */
static void append_norm(struct build *build, uint32_t unit, uint32_t micro_step)
{
    struct mics_op op = build_turn_op(build, MICS_OP_NORM, unit, micro_step);

    if (mics_choice_checks_carried(build->choice))
        op.turn = MICS_NONE;
    build_append(build, &op);
}

/* A part of an outer step of a unit, in steps of this turn. */
static void append_outer(struct build *build, enum mics_op_kind exchange,
                         const struct mics_op *update, uint32_t turn)
{
    struct mics_op like = *update;

    like.turn = turn;
    build_exchange(build, exchange, &like, 1);
}

/* A piece comes to the device, is updated, and goes back, each on a stream of its own. */
static void append_piece(struct build *build, const struct mics_op *piece)
{
    static const struct {
        enum mics_op_kind kind;
        enum mics_stream_kind stream;
    } parts[] = {{MICS_OP_LOAD, MICS_STREAM_LOAD},
                 {MICS_OP_UPDATE, MICS_STREAM_UPDATE},
                 {MICS_OP_STORE, MICS_STREAM_STORE}};

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct mics_op op = *piece;

        op.kind = parts[i].kind;
        op.stream = parts[i].stream;
        build_append(build, &op);
    }
}

/* Pieces do not cross segments. */
static void append_pieces(struct build *build, const struct mics_op *update)
{
    const struct mics_layout *layout = &build->out->layouts[update->unit];
    struct mics_op piece = *update;

    for (uint32_t segment = 0; segment < layout->segments; segment++)
        for (uint64_t at = 0; at < layout->optim_piece; at += piece.count) {
            piece.segment = segment;
            piece.piece = build->next_piece++;
            piece.begin = at;
            piece.count = mics_min_u64(build->choice->offload_piece, layout->optim_piece - at);
            piece.bytes = piece.count * sizeof(float) * mics_choice_offload_values(build->choice);
            append_piece(build, &piece);
        }
}

static void append_update(struct build *build, uint32_t unit, uint32_t micro_step)
{
    const struct mics_op op = build_turn_op(build, MICS_OP_UPDATE, unit, micro_step);

    if (build->choice->outer_overlap)
        append_outer(build, MICS_OP_OUTER_UPDATE, &op, 1);
    if (build->choice->offload_piece > 0)
        append_pieces(build, &op);
    else
        build_append(build, &op);
    /* An outer step is in steps that are a multiple of outer_steps. It follows the unit's update on
     * the streams of the second hop, so that other units need not wait for it. */
    if (build->choice->outer_steps > 0)
        append_outer(build, build->choice->outer_overlap ? MICS_OP_OUTER_DELTA : MICS_OP_SYNC, &op,
                     0);
    build_exchange(build, MICS_OP_PUBLISH, &op, 1);
}

/* The host updates all units, then all parameters go back, and are gathered. The stream of the
 * computations waits for it. */
static void append_host_updates(struct build *build, uint32_t micro_step)
{
    const uint32_t units = build->model->unit_count;

    for (uint32_t i = 0; i < units; i++) {
        struct mics_op op = build_turn_op(build, MICS_OP_UPDATE, build->unit_order[i], micro_step);

        op.piece = op.unit;
        build_append(build, &op);
    }
    for (uint32_t i = 0; i < units; i++) {
        const struct mics_op like =
            build_turn_op(build, MICS_OP_UPDATE, build->unit_order[i], micro_step);

        build_host_copy(build, MICS_OP_LOAD, MICS_BUFFER_PARAM_SHARD, MICS_STREAM_COMPUTE, &like,
                        (uint32_t)mics_dtype_bytes(build->choice->dtype));
    }
    for (uint32_t i = 0; i < units; i++) {
        const struct mics_op like =
            build_turn_op(build, MICS_OP_UPDATE, build->unit_order[i], micro_step);

        build_exchange(build, MICS_OP_PUBLISH, &like, 1);
    }
}

void build_optimizer_tail(struct build *build)
{
    const uint32_t units = build->model->unit_count, last = build->order.micro_steps - 1;
    const uint32_t stats = build->order.train ? build->model->stat_count : 0;
    const bool on_host = build_updates_on_host(build), clip = build->choice->clip;
    const struct mics_op read =
        build_plain_op(MICS_OP_READ, MICS_STREAM_REDUCE_NET, MICS_NONE, last);

    for (uint32_t i = units; i-- > 0 && build->order.train;) {
        append_norm(build, build->unit_order[i], last);
        if (!clip && !on_host)
            append_update(build, build->unit_order[i], last);
    }
    /* With an interval also the targets of the step, for its mean loss; behind these are the stats
     * of a model with experts. */
    build_reduce_scalars(build, MICS_OP_LOSS_NORM_REDUCE, build_summing_ranks(build), last,
                         stats || mics_choice_interval(build->choice) > 1 ? 3 + stats : 2);
    for (uint32_t i = 0; i < units && build->order.train && clip && !on_host; i++)
        append_update(build, build->unit_order[i], last);
    if (on_host)
        append_host_updates(build, last);
    /* In fp16 also how many replicas have skipped the step. */
    if (build_summing_ranks(build) != MICS_COMM_WORLD)
        build_reduce_scalars(build, MICS_OP_REPLICA_REDUCE, MICS_COMM_REPLICA, last,
                             stats || build->choice->dtype == MICS_F16 ? 4 + stats : 3);
    build_append(build, &read);
}
