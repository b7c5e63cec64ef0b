/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.h - collectives on a stream, behind one table.
 *
 * A communicator has `size` ranks in ring order (node order, so that a ring crosses the network as
 * seldom as it can) and, apart from that, a *block* for each rank: the place of its piece in a
 * gathered buffer. The ring order and the block order are independent.
 *
 * A collective is enqueued on a stream and runs when the stream gets there. All ranks of a
 * communicator must enqueue the same collectives in the same order; different communicators are
 * independent, and may be on different streams. A failure is sticky on the stream's device.
 * Of one communicator, one collective at a time is under way.
 *
 * Counts are elements of `dtype`. Sums of MICS_BF16 are added in fp32 and rounded once each time that a rank adds
 * what arrived to its own. Bytes and calls are counted here, inside the backend: `sent_bytes` is
 * what this rank really handed to the transport. Only what is enqueued on streams counts, not split and the
 * *_now calls. On m ranks, all_gather and reduce_scatter send exactly (m - 1) * count elements a rank;
 * an all_reduce sends 2 (m - 1) * count over all ranks together, and mics_comm_all_reduce_sent() a rank.
 */
#ifndef MICS_COMM_COMM_H
#define MICS_COMM_COMM_H

#include "base/err.h"
#include "device/device.h"

#include <stdbool.h>
#include <stdint.h>

struct mics_comm_counts {
    uint64_t calls;      /* collectives begun by this rank, of more than one rank */
    uint64_t sent_bytes; /* payload bytes that this rank sent */
    uint64_t net_bytes;  /* of them, to ranks on other nodes, as far as the backend knows nodes */
};

struct mics_comm;

struct mics_comm_ops {
    /* Ranks with equal color (>= 0) form a new communicator, in the order of (key, rank); `block` in
     * [0, new size) is a permutation. color < 0: *out becomes NULL. Collective over `comm`; blocks.
     * A communicator of one rank does nothing and counts nothing, whatever the backend. */
    enum mics_status (*split)(struct mics_comm *comm, int color, int key, int block,
                              struct mics_comm **out, struct mics_err *err);
    void (*free)(struct mics_comm *comm); /* after its streams are idle */

    /* recv[size * count]: block b holds the send[count] of the rank whose block is b.
     * send may be recv + block * count (in place), else they do not overlap. */
    void (*all_gather)(struct mics_comm *comm, struct mics_stream *stream, const void *send,
                       void *recv, uint64_t count, enum mics_dtype dtype);
    /* recv[count] = sum over ranks of block `block` of their send[size * count]. recv may be
     * send + block * count (in place). The rest of send is destroyed. The order of summation depends
     * on the communicator alone: the same bits every time. */
    void (*reduce_scatter)(struct mics_comm *comm, struct mics_stream *stream, void *send,
                           void *recv, uint64_t count, enum mics_dtype dtype);
    /* data[count] = sum over ranks; the same bits on all of them. */
    void (*all_reduce)(struct mics_comm *comm, struct mics_stream *stream, void *data,
                       uint64_t count, enum mics_dtype dtype);
    void (*broadcast)(struct mics_comm *comm, struct mics_stream *stream, void *data,
                      uint64_t bytes, int root);
    void (*barrier)(struct mics_comm *comm, struct mics_stream *stream);

    /* The same without a stream, for the time before the engine runs: they block the caller. */
    enum mics_status (*broadcast_now)(struct mics_comm *comm, void *data, uint64_t bytes, int root,
                                      struct mics_err *err);
    /* recv[size * bytes] in rank order (not block order). */
    enum mics_status (*all_gather_now)(struct mics_comm *comm, const void *send, void *recv,
                                       uint64_t bytes, struct mics_err *err);
    enum mics_status (*barrier_now)(struct mics_comm *comm, struct mics_err *err);

    /* Has something failed since that no stream reports, because it waits for ever? Any thread, at any time; does
     * not block. One that was only split so far answers for all that were split from it. MICS_ERR_COMM: of this rank's own; MICS_ERR_IO: another rank went away, which that rank itself, or
     * others, can say more about. NULL where a backend has no such failures. */
    enum mics_status (*check)(struct mics_comm *comm, struct mics_err *err);
    /* Free the streams from collectives that never end, after such a failure: nothing is exchanged any more, and operations
     * on the device fail. Any thread; within seconds. Goes with `check`. */
    void (*cancel)(struct mics_comm *comm);
    /* End the whole job with this exit code, now; other ranks are told or killed. */
    void (*abort)(struct mics_comm *comm, int code);

    /* Signs of life, beside all collectives; any thread. NULL where a backend has none. tell: what this rank says of
     * itself from now on, about once a second. heard: seconds since `rank` was last heard, *word what it
     * said; negative: never, or this rank is not told of others (the first and the last rank of the launch are). */
    void (*tell)(struct mics_comm *comm, uint64_t word);
    double (*heard)(struct mics_comm *comm, int rank, uint64_t *word);
};

/* Memory that a communicator of more than one rank keeps for messages under way. Upper bound, any backend. */
#define MICS_COMM_STAGING_BYTES (512u * 1024u)

#define MICS_COMM_JOINED_MAX 8

struct mics_comm {
    const struct mics_comm_ops *ops;
    const char *backend; /* "self", "threads", "mpi", "nccl"; "staged": another, through the host */
    const char *detail;  /* for people: "2.28.9, registered memory"; NULL: nothing to add */
    int rank, size;
    int block; /* of this rank */
    int node;  /* lowest launch rank on this rank's node, as far as the backend knows */
    struct mics_comm_counts counts; /* of this communicator; read when its streams are idle */
    /* What is enqueued while this is set joins what is enqueued next on the same stream, which must be of the same kind
     * and type, MICS_COMM_JOINED_MAX at most in all: they are over together, and a backend that can carries them out as one
     * collective, whose latency is paid once. Whoever enqueues sets it, to the same on all ranks. */
    bool joins;
};

/* Bytes that `rank` sends in one all_reduce of `count` elements. When size divides count and there are more
 * than 4096 bytes it is 2 (size - 1) / size of the data; a shorter one goes up and down a tree. */
uint64_t mics_comm_all_reduce_sent(int size, int rank, uint64_t count, enum mics_dtype dtype);

/* One rank alone. */
enum mics_status mics_comm_new_self(struct mics_comm **out, struct mics_err *err);

/* `size` ranks that are threads of this process: out[size] world communicators, one for each thread.
 * For tests. abort marks all of them failed: blocked ranks return with MICS_ERR_COMM. */
enum mics_status mics_comm_new_threads(int size, struct mics_comm **out, struct mics_err *err);

/* MPI_COMM_WORLD; initialises MPI (MPI_THREAD_MULTIPLE or SERIALIZED) and starts the thread that
 * makes all MPI calls from then on. Freeing the world finalises MPI. MICS_ERR_UNSUPPORTED in a build without MPI. */
enum mics_status mics_comm_new_mpi(struct mics_comm **out, struct mics_err *err);

/* Was this process started by mpirun, srun or another launcher that MPI knows (by its environment)? */
int mics_comm_launched_by_mpi(void);

#endif
