/* SPDX-License-Identifier: Apache-2.0 */
/* counts.c - what a step exchanges, as the communicators will count it. */
#include "plan/schedule/schedule.h"

#include "comm/comm.h"

/* The rank's place in a communicator that sums: each optimizer group has one rank in a replication group. */
static uint32_t place_in(const struct mics_shape *shape, enum mics_comm_kind kind, uint32_t rank)
{
    return kind == MICS_COMM_REPLICA ? rank / shape->p_optim : rank;
}

/* Gathers and scatters have equal pieces, and a ring sends all but one of them. */
static uint64_t sent_by(const struct mics_op *op, uint32_t size, uint32_t rank)
{
    if (op->collective == MICS_ALL_REDUCE)
        return mics_comm_all_reduce_sent((int)size, (int)rank, op->count, op->dtype);
    return op->bytes / size * (size - 1);
}

void mics_schedule_counts(const struct mics_schedule *schedule, const struct mics_shape *shape,
                          uint32_t rank, uint64_t calls[MICS_COMM_KIND_COUNT],
                          uint64_t sent_bytes[MICS_COMM_KIND_COUNT])
{
    struct mics_member members[MICS_COMM_KIND_COUNT];

    for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++) {
        mics_shape_member(shape, (enum mics_comm_kind)kind, rank, &members[kind]);
        calls[kind] = sent_bytes[kind] = 0;
    }
    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];

        if (!mics_op_is_comm(op->kind) || members[op->comm].size == 1)
            continue;
        calls[op->comm]++;
        sent_bytes[op->comm] +=
            sent_by(op, members[op->comm].size, place_in(shape, op->comm, rank));
    }
}
