/* SPDX-License-Identifier: Apache-2.0 */
/* counts.c - what a step exchanges, as the communicators will count it. */
#include "plan/schedule.h"

#include "base/num.h"

/* Bytes that one rank of a ring sends. Gathers and scatters have equal pieces; an all-reduce whose elements
 * are no multiple of the ranks is counted with pieces rounded up. */
static uint64_t ring_bytes(const struct mics_op *op, uint32_t size)
{
    uint64_t element = op->bytes / op->count, piece = mics_ceil_div(op->count, size) * element;

    return (op->collective == MICS_ALL_REDUCE ? 2 : 1) * (size - 1) * piece;
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
        sent_bytes[op->comm] += ring_bytes(op, members[op->comm].size);
    }
}
