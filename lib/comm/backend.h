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

/*
 * split.h - who is in the new communicator of a split. For backends only.
 */

/* The members of the new communicator in their new order; arrays are the caller's, by
 * mics_comm_split_fini(). size 0: this rank is in none. */
struct comm_split {
    int size, rank;
    int *parents;          /* [size] rank in the old communicator */
    int *blocks;           /* [size] */
    uint64_t greatest_tag; /* of all ranks of the old communicator, in the new one or not */
};

/* Collective over `comm`. MICS_ERR_ARG: the blocks of a color are no permutation. */
enum mics_status mics_comm_split_init(struct mics_comm *comm, int color, int key, int block,
                                      uint64_t tag, struct comm_split *out, struct mics_err *err);
void mics_comm_split_fini(struct comm_split *split);

/*
 * routes.h - who sends what to whom: rings and trees. For backends only.
 *
 * Ring. Step s of an all-reduce of m ranks: rank i sends piece (i - 1 - s) mod m to rank i + 1 and
 * receives piece (i - 2 - s) mod m from rank i - 1. In the steps [0, m - 1) what arrives is added, and
 * after them rank i has the sum of piece i: that is the reduce-scatter. In the steps [m - 1, 2m - 2) it is
 * stored: that is the all-gather. (Patarasuk and Yuan 2009.)
 *
 * Tree. Rank v (counted from the root) has the children a v + 1 ... a v + a, for an arity a. What is small
 * goes through a broad tree, for few hops; what is large through a chain, in segments, for bandwidth.
 */

enum {
    COMM_TREE_ARITY = 8,
    COMM_TREE_REDUCE_BYTES = 4096,     /* an all-reduce up to this goes by tree */
    COMM_TREE_BROADCAST_BYTES = 32768, /* a broadcast beyond this goes by chain */
};

/* Elements [begin, begin + count) of `total`: piece `index` of `pieces` nearly equal ones. */
struct comm_piece {
    uint64_t begin, count;
};

struct comm_piece mics_comm_piece(uint64_t total, int pieces, int index);

/* a mod size, in [0, size) for negative a too. */
static inline int comm_mod(int a, int size)
{
    return (a % size + size) % size;
}

/* Children of rank `place` (counted from the root): `count` of them from `first` on. */
struct comm_children {
    int first, count;
};

struct comm_children mics_comm_children(int place, int size, int arity);

int mics_comm_broadcast_arity(uint64_t bytes);

/* Bytes that the rank at `place` from the root sends in a broadcast. */
uint64_t mics_comm_broadcast_sent(int size, int place, uint64_t bytes);

#endif
