/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backend.h - what the backends of communicators share. For backends only.
 *
 * A backend gives one function, which carries out a collective and blocks until this rank is done with
 * it. Here it becomes the operations on a stream (a call that runs in the stream's thread), the
 * operations without one, the counts, and the case of a single rank.
 */
#ifndef MICS_COMM_BACKEND_H
#define MICS_COMM_BACKEND_H

#include "comm/comm.h"

#include <stdbool.h>

enum comm_kind {
    COMM_ALL_GATHER,
    COMM_REDUCE_SCATTER,
    COMM_ALL_REDUCE,
    COMM_BROADCAST,
    COMM_BARRIER
};

/* One collective. all_reduce and broadcast have their data in `recv`. */
struct comm_call {
    enum comm_kind kind;
    bool in_rank_order;    /* all_gather: block = rank, whatever the communicator's blocks */
    enum mics_dtype dtype; /* of sums; else what `count` counts */
    int root;              /* broadcast */
    void *send, *recv;
    uint64_t count; /* elements: of one block, or of all data where there are no blocks */
    uint64_t bytes; /* the same in bytes */
    const struct comm_call *next; /* that has joined, of the same kind and type; NULL: none */
};

/* What a rank sent in a collective. */
struct comm_sent {
    uint64_t bytes, net_bytes; /* in all; to other nodes */
};

struct comm_base {
    struct mics_comm comm; /* comm.size > 1 wherever `execute` is called */
    int *blocks;           /* [size] of each rank; owned */
    /* Carry out one collective; *sent (zero before) = what this rank sent. Calls of one communicator come
     * one at a time. */
    enum mics_status (*execute)(struct comm_base *base, const struct comm_call *call,
                                struct comm_sent *sent, struct mics_err *err);
    bool
        takes_joined; /* `execute` carries out calls that have joined; else it gets them one by one */
    /* The stream's thread only: calls that wait for the one that they join. */
    struct comm_call waiting[MICS_COMM_JOINED_MAX - 1];
    int waiting_count;
};

/* The table with all but split, free and abort. */
#define COMM_BASE_OPS                                                                              \
    .all_gather = mics_comm_base_all_gather, .reduce_scatter = mics_comm_base_reduce_scatter,      \
    .all_reduce = mics_comm_base_all_reduce, .broadcast = mics_comm_base_broadcast,                \
    .barrier = mics_comm_base_barrier, .broadcast_now = mics_comm_base_broadcast_now,              \
    .all_gather_now = mics_comm_base_all_gather_now, .barrier_now = mics_comm_base_barrier_now

void mics_comm_base_all_gather(struct mics_comm *comm, struct mics_stream *stream, const void *send,
                               void *recv, uint64_t count, enum mics_dtype dtype);
void mics_comm_base_reduce_scatter(struct mics_comm *comm, struct mics_stream *stream, void *send,
                                   void *recv, uint64_t count, enum mics_dtype dtype);
void mics_comm_base_all_reduce(struct mics_comm *comm, struct mics_stream *stream, void *data,
                               uint64_t count, enum mics_dtype dtype);
void mics_comm_base_broadcast(struct mics_comm *comm, struct mics_stream *stream, void *data,
                              uint64_t bytes, int root);
void mics_comm_base_barrier(struct mics_comm *comm, struct mics_stream *stream);
enum mics_status mics_comm_base_broadcast_now(struct mics_comm *comm, void *data, uint64_t bytes,
                                              int root, struct mics_err *err);
enum mics_status mics_comm_base_all_gather_now(struct mics_comm *comm, const void *send, void *recv,
                                               uint64_t bytes, struct mics_err *err);
enum mics_status mics_comm_base_barrier_now(struct mics_comm *comm, struct mics_err *err);

/* Carry out a call when the stream gets there; more than one rank. `counts` takes what was sent, and one call if this
 * is the `first` part of one. */
void mics_comm_base_enqueue(struct comm_base *base, struct mics_stream *stream,
                            const struct comm_call *call, struct mics_comm_counts *counts,
                            bool first);

const char *mics_comm_call_name(enum comm_kind kind); /* "all_gather" */

/* into[i] += from[i], and out[i] = a[i] + b[i]; the ranges do not overlap. */
void mics_comm_accumulate(void *into, const void *from, uint64_t count, enum mics_dtype dtype);
void mics_comm_sum(void *out, const void *a, const void *b, uint64_t count, enum mics_dtype dtype);

/* The block where `call` puts the piece of `rank`. */
static inline int comm_block_of(const struct comm_base *base, const struct comm_call *call,
                                int rank)
{
    return call->in_rank_order ? rank : base->blocks[rank];
}

#endif
