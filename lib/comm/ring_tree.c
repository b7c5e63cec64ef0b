/* SPDX-License-Identifier: Apache-2.0 */

#include "base/num.h"
#include "comm/backend.h"

struct comm_piece mics_comm_piece(uint64_t total, int pieces, int index)
{
    const uint64_t each = total / (uint64_t)pieces, longer = total % (uint64_t)pieces;
    const uint64_t i = (uint64_t)index;

    return (struct comm_piece){i * each + mics_min_u64(i, longer), each + (i < longer)};
}

struct comm_children mics_comm_children(int place, int size, int arity)
{
    int64_t first =
        (int64_t)place * arity + 1; /* `place` may be in the last layer of a huge tree */
    int64_t left = size - first;

    if (left <= 0)
        return (struct comm_children){0, 0};
    return (struct comm_children){(int)first, left < arity ? (int)left : arity};
}

int mics_comm_broadcast_arity(uint64_t bytes)
{
    return bytes <= COMM_TREE_BROADCAST_BYTES ? COMM_TREE_ARITY : 1;
}

uint64_t mics_comm_broadcast_sent(int size, int place, uint64_t bytes)
{
    return (uint64_t)mics_comm_children(place, size, mics_comm_broadcast_arity(bytes)).count *
           bytes;
}

uint64_t mics_comm_all_reduce_sent(int size, int rank, uint64_t count, enum mics_dtype dtype)
{
    const uint64_t each = mics_dtype_bytes(dtype), total = count * each;

    if (size == 1)
        return 0;
    if (total <= COMM_TREE_REDUCE_BYTES) {
        uint64_t children = (uint64_t)mics_comm_children(rank, size, COMM_TREE_ARITY).count;
        return (children + (rank > 0)) * total;
    }

    uint64_t first_kept = mics_comm_piece(count, size, rank).count;
    uint64_t last_kept = mics_comm_piece(count, size, comm_mod(rank + 1, size)).count;
    return 2 * total - (first_kept + last_kept) * each;
}
