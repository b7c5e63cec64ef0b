/* SPDX-License-Identifier: Apache-2.0 */
/* ring_tree.c - pieces, neighbours and byte counts of rings, trees and halving. */
#include "comm/backend.h"

#include "base/num.h"

struct comm_piece mics_comm_piece(uint64_t total, int pieces, int index)
{
    const uint64_t each = total / (uint64_t)pieces, longer = total % (uint64_t)pieces;
    const uint64_t i = (uint64_t)index;

    return (struct comm_piece){i * each + mics_min_u64(i, longer), each + (i < longer)};
}

struct comm_children mics_comm_children(int rank_from_root, int size, int arity)
{
    const int64_t first = (int64_t)rank_from_root * arity + 1, left = size - first;

    if (left <= 0)
        return (struct comm_children){0, 0};
    return (struct comm_children){(int)first, left < arity ? (int)left : arity};
}

int mics_comm_broadcast_arity(uint64_t bytes)
{
    return bytes <= MICS_COMM_TREE_BROADCAST_BYTES ? MICS_COMM_TREE_ARITY : 1;
}

uint64_t mics_comm_short_bytes(int size)
{
    return size > 1 && (size & (size - 1)) == 0 ? MICS_COMM_HALVING_BYTES : 0;
}

bool mics_comm_is_short(int size, const struct comm_call *call)
{
    const uint64_t limit = mics_comm_short_bytes(size);

    switch (call->kind) {
    case COMM_ALL_GATHER:
    case COMM_REDUCE_SCATTER:
        return call->bytes > 0 && call->bytes <= limit / (uint64_t)size;
    case COMM_ALL_REDUCE:
        return call->bytes >= MICS_COMM_HALVING_FROM_BYTES && call->bytes <= limit;
    default:
        return false;
    }
}

static int all_reduce_pieces(int size, uint64_t bytes)
{
    int pieces = 1;

    while (pieces < size && bytes / (uint64_t)pieces > MICS_COMM_HALVING_PIECE_BYTES)
        pieces *= 2;
    return pieces;
}

int mics_comm_halving_pieces(int size, const struct comm_call *call)
{
    return call->kind == COMM_ALL_REDUCE ? all_reduce_pieces(size, call->bytes) : size;
}

/* Elements of the pieces `first`, first + stride, ... of `pieces`. */
static uint64_t every(uint64_t count, int pieces, int first, int stride)
{
    uint64_t sum = 0;

    for (int piece = first; piece < pieces; piece += stride)
        sum += mics_comm_piece(count, pieces, piece).count;
    return sum;
}

/* Elements. In the reduction a rank sends what its partner keeps; in the gather what it has. */
static uint64_t halving_sent(int size, int rank, uint64_t count, int pieces)
{
    uint64_t sent = 0;

    for (int distance = 1; distance < size; distance *= 2) {
        const int stride = 2 * distance < pieces ? 2 * distance : pieces;

        sent += every(count, pieces, (rank ^ distance) % stride, stride);
        if (distance < pieces)
            sent += every(count, pieces, rank % stride, stride);
    }
    return sent;
}

uint64_t mics_comm_all_reduce_sent(int size, int rank, uint64_t count, enum mics_dtype dtype)
{
    const uint64_t each = mics_dtype_bytes(dtype), total = count * each;

    if (size == 1)
        return 0;
    if (total >= MICS_COMM_HALVING_FROM_BYTES && total <= mics_comm_short_bytes(size))
        return each * halving_sent(size, rank, count, all_reduce_pieces(size, total));
    if (total <= MICS_COMM_TREE_REDUCE_BYTES) {
        const uint64_t children =
            (uint64_t)mics_comm_children(rank, size, MICS_COMM_TREE_ARITY).count;

        return (children + (rank > 0)) * total;
    }

    /* In each half of the ring a rank sends all pieces but one. */
    const uint64_t first_kept = mics_comm_piece(count, size, rank).count;
    const uint64_t last_kept = mics_comm_piece(count, size, comm_mod(rank + 1, size)).count;

    return 2 * total - (first_kept + last_kept) * each;
}

uint64_t mics_comm_call_sent(const struct comm_base *base, const struct comm_call *call)
{
    const int size = base->comm.size, rank = base->comm.rank;

    switch (call->kind) {
    case COMM_ALL_GATHER:
    case COMM_REDUCE_SCATTER:
    case COMM_ALL_TO_ALL:
        return (uint64_t)(size - 1) * call->bytes;
    case COMM_ALL_REDUCE:
        return mics_comm_all_reduce_sent(size, rank, call->count, call->dtype);
    case COMM_BROADCAST:
        return (uint64_t)mics_comm_children(comm_mod(rank - call->root, size), size,
                                            mics_comm_broadcast_arity(call->bytes))
                   .count *
               call->bytes;
    case COMM_EXCHANGE:
        return call->bytes;
    case COMM_BARRIER:
        break;
    }
    return 0;
}
