/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives by direct copies. Each rank shows its call, all meet, each does its own part reading the
 * others' memory, and all meet again before anyone goes on. Sums go over the ranks in their order. The bytes
 * counted are those that a ring (or, for what is short, a tree) would have sent.
 */
#include "comm/threads.h"

#include "base/num.h"
#include "comm/routes.h"

#include <string.h>

enum { CHUNK = 4096 }; /* bytes summed at a time, in the first-level cache */

static const struct threads_comm *threads_of(const struct comm_base *base)
{
    return (const struct threads_comm *)base;
}

static bool same_call(const struct comm_call *a, const struct comm_call *b)
{
    return a->kind == b->kind && a->bytes == b->bytes && a->dtype == b->dtype &&
           a->root == b->root && a->in_rank_order == b->in_rank_order;
}

/* Every rank comes to the same verdict, so all of them leave. */
static enum mics_status check_calls(const struct threads_group *group, struct mics_err *err)
{
    const struct comm_call *first = group->calls[0];

    for (int i = 1; i < group->size; i++) {
        const struct comm_call *other = group->calls[i];

        if (!same_call(first, other))
            return mics_err_set(
                err, MICS_ERR_COMM, "rank 0 called %s of %llu bytes, but rank %d %s of %llu",
                mics_comm_call_name(first->kind), (unsigned long long)first->bytes, i,
                mics_comm_call_name(other->kind), (unsigned long long)other->bytes);
    }
    return MICS_OK;
}

static void gather(const struct comm_base *base, const struct comm_call *call)
{
    const struct threads_group *group = threads_of(base)->group;

    for (int rank = 0; rank < group->size; rank++) {
        const void *from = group->calls[rank]->send;
        char *to = (char *)call->recv + (uint64_t)comm_block_of(base, call, rank) * call->bytes;

        if (to != from && call->bytes > 0)
            memcpy(to, from, call->bytes);
    }
}

static const char *summand(const struct comm_call *call, uint64_t offset)
{
    return (const char *)(call->kind == COMM_ALL_REDUCE ? call->recv : call->send) + offset;
}

/* out[count] = sum over ranks of what they have at `offset` (bytes). `out` may be one of these. */
static void sum_ranks(const struct threads_group *group, char *out, uint64_t offset, uint64_t count,
                      enum mics_dtype dtype)
{
    const uint64_t bytes = count * mics_dtype_bytes(dtype);
    _Alignas(64) char sum[CHUNK];

    for (uint64_t begin = 0; begin < bytes; begin += CHUNK) {
        const uint64_t part = mics_min_u64(CHUNK, bytes - begin);

        memcpy(sum, summand(group->calls[0], offset + begin), part);
        for (int rank = 1; rank < group->size; rank++)
            mics_comm_accumulate(sum, summand(group->calls[rank], offset + begin),
                                 part / mics_dtype_bytes(dtype), dtype);
        memcpy(out + begin, sum, part);
    }
}

/* A ring leaves partial sums where the other blocks were: who relies on them shall notice. */
static void destroy_send(const struct comm_base *base, const struct comm_call *call)
{
    for (int block = 0; block < base->comm.size; block++) {
        char *at = (char *)call->send + (uint64_t)block * call->bytes;

        if (at != call->recv && call->bytes > 0)
            memset(at, 0xff, call->bytes); /* NaN */
    }
}

/* *busy becomes false when the meeting in the middle fails. */
static enum mics_status all_reduce(const struct comm_base *base, const struct comm_call *call,
                                   bool *busy, struct mics_err *err)
{
    struct threads_group *group = threads_of(base)->group;
    const uint64_t each = mics_dtype_bytes(call->dtype);
    const struct comm_piece own = mics_comm_piece(call->count, group->size, base->comm.rank);

    sum_ranks(group, (char *)call->recv + own.begin * each, own.begin * each, own.count,
              call->dtype);
    enum mics_status status = mics_threads_meet(group, true, true, err);
    *busy = status == MICS_OK;
    for (int rank = 0; rank < group->size && status == MICS_OK; rank++) {
        const struct comm_piece piece = mics_comm_piece(call->count, group->size, rank);

        if (rank != base->comm.rank && piece.count > 0)
            memcpy((char *)call->recv + piece.begin * each,
                   (const char *)group->calls[rank]->recv + piece.begin * each, piece.count * each);
    }
    return status;
}

static enum mics_status do_part(const struct comm_base *base, const struct comm_call *call,
                                bool *busy, struct mics_err *err)
{
    const struct threads_group *group = threads_of(base)->group;

    switch (call->kind) {
    case COMM_ALL_GATHER:
        gather(base, call);
        break;
    case COMM_REDUCE_SCATTER:
        sum_ranks(group, call->recv, (uint64_t)base->comm.block * call->bytes, call->count,
                  call->dtype);
        break;
    case COMM_ALL_REDUCE:
        return all_reduce(base, call, busy, err);
    case COMM_BROADCAST:
        if (base->comm.rank != call->root && call->bytes > 0)
            memcpy(call->recv, group->calls[call->root]->recv, call->bytes);
        break;
    case COMM_BARRIER:
        break;
    }
    return MICS_OK;
}

static uint64_t sent_by(const struct comm_base *base, const struct comm_call *call)
{
    const int size = base->comm.size, rank = base->comm.rank;

    switch (call->kind) {
    case COMM_ALL_GATHER:
    case COMM_REDUCE_SCATTER:
        return (uint64_t)(size - 1) * call->bytes;
    case COMM_ALL_REDUCE:
        return mics_comm_all_reduce_sent(size, rank, call->count, call->dtype);
    case COMM_BROADCAST:
        return mics_comm_broadcast_sent(size, comm_mod(rank - call->root, size), call->bytes);
    case COMM_BARRIER:
        break;
    }
    return 0;
}

enum mics_status mics_threads_execute(struct comm_base *base, const struct comm_call *call,
                                      struct comm_sent *sent, struct mics_err *err)
{
    struct threads_group *group = threads_of(base)->group;

    group->calls[base->comm.rank] = call;
    enum mics_status status = mics_threads_meet(group, false, true, err);
    if (status != MICS_OK)
        return status;

    bool busy = true;
    enum mics_status part = check_calls(group, err);
    if (part == MICS_OK)
        part = do_part(base, call, &busy, err);
    if (busy)
        status = mics_threads_meet(group, true, false, part == MICS_OK ? err : NULL);
    if (part == MICS_OK && status == MICS_OK) {
        sent->bytes = sent_by(base, call);
        if (call->kind == COMM_REDUCE_SCATTER)
            destroy_send(base, call);
    }
    return part != MICS_OK ? part : status;
}
