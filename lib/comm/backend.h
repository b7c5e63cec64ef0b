/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backend.h - what the backends of communicators share. For backends only.
 *
 * backend.c implements the functions of comm.h for all backends: it turns each into a comm_call,
 * copies where there is only one rank, keeps the queue of the open group, and counts calls. A
 * backend implements `submit` (on a stream) and `execute` (blocking), both of which take a batch of
 * calls. Backends on the host implement only `execute` and use mics_comm_host_submit().
 */
#ifndef MICS_COMM_BACKEND_H
#define MICS_COMM_BACKEND_H

#include "comm/comm.h"

#include <stdbool.h>

enum comm_call_kind {
    COMM_ALL_GATHER,
    COMM_REDUCE_SCATTER,
    COMM_ALL_REDUCE,
    COMM_ALL_TO_ALL,
    COMM_BROADCAST,
    COMM_BARRIER,
    COMM_EXCHANGE /* blocking only, one call at a time */
};

/* One collective. all_reduce and broadcast have their data in `recv`. */
struct comm_call {
    enum comm_call_kind kind;
    bool in_rank_order;    /* all_gather: block = rank, whatever the communicator's blocks are */
    enum mics_dtype dtype; /* of sums, and of what `count` counts */
    int root;              /* broadcast; exchange: the rank to send to, -1: none */
    int from;              /* exchange: the rank to receive from, -1: none */
    void *send, *recv;
    const uint32_t *active; /* all_to_all: 0 when the call runs: it does nothing; NULL: it does */
    uint64_t count;         /* elements of one block, or of all data where there are no blocks */
    uint64_t bytes;         /* the same in bytes; exchange: to send, and `count` to receive */
    double within_s;        /* exchange: how long it may give way to others */
};

/* What this rank sent. */
struct comm_sent {
    uint64_t bytes, net_bytes; /* in total; to other nodes */
};

struct comm_base;

/* What a backend implements. */
struct comm_backend {
    const char *name;
    const struct mics_comm_health_ops *health;       /* NULL: none */
    const struct mics_comm_heartbeat_ops *heartbeat; /* NULL: none */

    /* mics_comm_split(), mics_comm_free(), mics_comm_abort(). */
    enum mics_status (*split)(struct mics_comm *comm, int color, int key, int block,
                              struct mics_comm **out, struct mics_err *err);
    void (*free)(struct mics_comm *comm);
    void (*abort)(struct mics_comm *comm, int code);

    /* Enqueue a batch of 1 to MICS_COMM_GROUP_MAX calls of the same kind and dtype on the stream,
     * without waiting for other ranks. Called only if there are several ranks. */
    void (*submit)(struct comm_base *base, struct mics_stream *stream,
                   const struct comm_call *calls, int count);
    /* Carry out such a batch, blocking; add what this rank sent to *sent. Batches of one
     * communicator come one at a time. */
    enum mics_status (*execute)(struct comm_base *base, const struct comm_call *calls, int count,
                                struct comm_sent *sent, struct mics_err *err);
};

/* First member of every backend's communicator. */
struct comm_base {
    struct mics_comm comm;
    const struct comm_backend *backend;
    int *blocks; /* [size] block of each rank; NULL: one rank */
    /* Where bytes are counted: &comm.counts unless a backend that wraps this one redirects it. */
    struct mics_comm_counts *counts;

    /* The open group, on the enqueuing thread. */
    bool group_open;
    int group_count;
    struct mics_stream *group_stream;
    struct comm_call group[MICS_COMM_GROUP_MAX];

    struct comm_call batch[MICS_COMM_GROUP_MAX]; /* host.c: the batch that the stream assembles */
};

/* backend.c ---------------------------------------------------------------------------------- */

/* Set everything in base->comm that follows from the backend; the caller sets rank, size, block and
 * node. */
void mics_comm_base_init(struct comm_base *base, const struct comm_backend *backend);

/* The backend's `execute`, with "all_gather among 4 ranks" before the text of an error. */
enum mics_status mics_comm_execute(struct comm_base *base, const struct comm_call *calls, int count,
                                   struct comm_sent *sent, struct mics_err *err);

const char *mics_comm_call_name(enum comm_call_kind kind); /* "all_gather" */

/* The block where `call` has the piece of `rank`. */
static inline int comm_block_of(const struct comm_base *base, const struct comm_call *call,
                                int rank)
{
    return call->in_rank_order ? rank : base->blocks[rank];
}

/* The part of the data of this rank that an all_gather or all_to_all leaves here: copy it from
 * `send` to its block of `recv`. */
void mics_comm_copy_own(const struct comm_base *base, const struct comm_call *call);

/* host.c ------------------------------------------------------------------------------------- */

/* `submit` for host memory: calls `execute` from the stream's thread, and counts what it sent. */
void mics_comm_host_submit(struct comm_base *base, struct mics_stream *stream,
                           const struct comm_call *calls, int count);

/* into[i] += from[i], and out[i] = a[i] + b[i]; the arrays do not overlap. */
void mics_comm_accumulate(void *into, const void *from, uint64_t count, enum mics_dtype dtype);
void mics_comm_sum(void *out, const void *a, const void *b, uint64_t count, enum mics_dtype dtype);

/* The members of the communicator that a split creates, in its order. size 0: this rank is in
 * none. */
struct comm_split {
    int size, rank;
    int *parents;     /* [size] rank in the old communicator */
    int *blocks;      /* [size] */
    uint64_t max_tag; /* over all ranks of the old communicator, members or not */
};

/* Collective over `comm`. The arrays belong to the caller until mics_comm_split_fini().
 * MICS_ERR_ARG: the blocks of a color are not a permutation. */
enum mics_status mics_comm_split_init(struct mics_comm *comm, int color, int key, int block,
                                      uint64_t tag, struct comm_split *out, struct mics_err *err);
void mics_comm_split_fini(struct comm_split *split);

/* ring_tree.c -------------------------------------------------------------------------------- */

/*
 * Ring. In step s of an all-reduce of m ranks, rank i sends piece (i - 1 - s) mod m to rank i + 1
 * and receives piece (i - 2 - s) mod m from rank i - 1. In steps [0, m - 1) received pieces are
 * added: that is the reduce-scatter, after which rank i has the sum of piece i. In steps [m - 1, 2m
 * - 2) they are stored: that is the all-gather. (Patarasuk and Yuan 2009.)
 *
 * Tree. With ranks counted from the root, the children of rank v are a v + 1 ... a v + a for an
 * arity a. Short data use a broad tree, for few hops; long data a chain, in segments, for
 * bandwidth.
 *
 * Halving and doubling, for short data of m = 2^l ranks. In the rounds of distance d = 1, 2, 4 ...
 * m/2 of a reduction, ranks i and i xor d exchange partial sums: each keeps the pieces p = i mod 2d
 * and sends the others. If there are fewer pieces than ranks (an all-reduce of few bytes), the last
 * rounds exchange the whole of the piece that both hold. In the rounds of distance m/2 ... 2, 1
 * of a gather, i sends its pieces p = i mod 2d to i xor d. So every sum is that of pairs, then
 * of pairs of pairs: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)), whatever the number of pieces.
 * All ranks of a communicator choose by its size and the bytes alone: the order of a sum is
 * never a matter of measurement. (Thakur et al. 2005.)
 */

/* Elements [begin, begin + count) of an array. */
struct comm_piece {
    uint64_t begin, count;
};

/* Piece `index` of `pieces` nearly equal ones of `total` elements. */
struct comm_piece mics_comm_piece(uint64_t total, int pieces, int index);

/* Children of a rank: `count` of them, starting with `first`. Ranks are counted from the root. */
struct comm_children {
    int first, count;
};

struct comm_children mics_comm_children(int rank_from_root, int size, int arity);
int mics_comm_broadcast_arity(uint64_t bytes);

/* Bytes up to which collectives of `size` ranks are halved; 0: none are. */
uint64_t mics_comm_short_bytes(int size);
bool mics_comm_is_short(int size, const struct comm_call *call);
/* Pieces of a short call: a power of two up to `size`. */
int mics_comm_halving_pieces(int size, const struct comm_call *call);

/* Bytes that this rank sends in a call by ring, tree or halving. */
uint64_t mics_comm_call_sent(const struct comm_base *base, const struct comm_call *call);

/* a mod size, in [0, size) also for negative a. */
static inline int comm_mod(int a, int size)
{
    return (a % size + size) % size;
}

#endif
