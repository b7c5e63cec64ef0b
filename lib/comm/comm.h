/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.h - collective operations on streams, implemented by several backends.
 *
 * A communicator has `size` ranks in ring order, which is node order, so that a ring crosses the
 * network as rarely as possible. Each rank also has a *block*: the position of its piece in a
 * gathered buffer. Ring order and block order are independent of each other.
 *
 * A collective is enqueued on a stream and runs when the stream reaches it. All ranks of a
 * communicator must enqueue the same collectives in the same order. A communicator runs one
 * collective (or one group of them) at a time; different communicators are independent and may use
 * different streams. A failure is sticky on the stream's device.
 *
 * Counts are in elements of `dtype`. Sums of MICS_BF16, MICS_F16 are in fp32 and rounded once each
 * time a rank adds received data to its own. MICS_U8 has no sums.
 *
 * The backend counts calls and payload bytes in `counts`. Collectives on streams are counted; split
 * and the *_now functions are not. Among m ranks, all_gather, reduce_scatter and all_to_all send
 * exactly (m - 1) * count elements per rank. An all_reduce sends 2 (m - 1) * count elements over
 * all ranks together; mics_comm_all_reduce_sent() gives the share of one rank.
 */
#ifndef MICS_COMM_COMM_H
#define MICS_COMM_COMM_H

#include "base/err.h"
#include "device/device.h"

#include <stdint.h>

struct mics_comm;

struct mics_comm_counts {
    uint64_t calls;      /* collectives among more than one rank, also those inside groups */
    uint64_t sent_bytes; /* payload bytes that this rank sent */
    uint64_t net_bytes;  /* the part of sent_bytes that went to other nodes; 0 if unknown */
};

/* Errors that no stream reports because the stream waits forever for another rank. Any thread. */
struct mics_comm_health_ops {
    /* Does not block. The first communicator, from which the others were split, also reports the
     * errors of those. MICS_ERR_COMM: this rank failed. MICS_ERR_PEER: another rank failed; its own
     * error message has the cause. */
    enum mics_status (*check)(struct mics_comm *comm, struct mics_err *err);
    /* After a failure: abort the collectives of all communicators of this backend, so that their
     * streams continue. Operations on the device then fail. Returns within seconds. */
    void (*cancel)(struct mics_comm *comm);
};

/* A status word that each rank sends about once a second to the first and the last rank of the
 * launch, independently of collectives. Any thread. */
struct mics_comm_heartbeat_ops {
    /* Start sending, or change the word that is sent. */
    void (*set)(struct mics_comm *comm, uint64_t word);
    /* Seconds since the last heartbeat of `rank`; *word is what it contained. Negative: none has
     * arrived, or this rank does not receive heartbeats. */
    double (*age_s)(struct mics_comm *comm, int rank, uint64_t *word);
    /* Seconds for which the first or the `last` rank of the launch has not received a heartbeat of
     * this rank that was sent to it. */
    double (*unreceived_s)(struct mics_comm *comm, bool last);
};

struct mics_comm {
    const struct mics_comm_health_ops *health;       /* NULL: streams report every failure */
    const struct mics_comm_heartbeat_ops *heartbeat; /* NULL: the backend has none */
    const char *backend; /* "self", "threads", "mpi", "nccl"; "staged": through host memory */
    const char *detail;  /* for people: "2.28.9, registered memory"; NULL: nothing to add */
    int rank, size;
    int block; /* of this rank */
    int node;  /* lowest launch rank on this rank's node; 0 if the backend cannot tell */
    struct mics_comm_counts counts; /* valid while the communicator's streams are idle */
};

/* Ranks with equal `color` (>= 0) form a new communicator, ordered by (key, rank). Their `block`
 * values must be a permutation of [0, new size). color < 0: *out becomes NULL. Collective over
 * `comm`; blocks. A communicator of one rank sends nothing and counts nothing. */
enum mics_status mics_comm_split(struct mics_comm *comm, int color, int key, int block,
                                 struct mics_comm **out, struct mics_err *err);
void mics_comm_free(struct mics_comm *comm); /* its streams must be idle */

/* recv[size * count]: block b receives the send[count] of the rank whose block is b. send is either
 * recv + block * count (in place) or does not overlap recv. */
void mics_comm_all_gather(struct mics_comm *comm, struct mics_stream *stream, const void *send,
                          void *recv, uint64_t count, enum mics_dtype dtype);
/* recv[count] = sum over ranks of block `block` of their send[size * count]. recv may be
 * send + block * count (in place). The other blocks of send are destroyed. The order of summation
 * depends only on the communicator: the same bits every time. */
void mics_comm_reduce_scatter(struct mics_comm *comm, struct mics_stream *stream, void *send,
                              void *recv, uint64_t count, enum mics_dtype dtype);
/* data[count] = sum over ranks; the same bits on all of them. */
void mics_comm_all_reduce(struct mics_comm *comm, struct mics_stream *stream, void *data,
                          uint64_t count, enum mics_dtype dtype);
/* recv[size * count]: block b receives, of the rank whose block is b, the block of its
 * send[size * count] that has this rank's `block`. send and recv do not overlap. */
void mics_comm_all_to_all(struct mics_comm *comm, struct mics_stream *stream, const void *send,
                          void *recv, uint64_t count, enum mics_dtype dtype);
/* The same, but if *active is 0 when the stream gets there, on all ranks, nothing is sent and recv
 * is undefined. `active` is device memory; NULL: always sent. On a GPU, and where a rank is alone,
 * it is not read. In a group all have the same `active`. */
void mics_comm_all_to_all_if(struct mics_comm *comm, struct mics_stream *stream, const void *send,
                             void *recv, uint64_t count, enum mics_dtype dtype,
                             const uint32_t *active);
void mics_comm_broadcast(struct mics_comm *comm, struct mics_stream *stream, void *data,
                         uint64_t bytes, int root);
void mics_comm_barrier(struct mics_comm *comm, struct mics_stream *stream);

/* Blocking versions on host memory, without a stream. */
enum mics_status mics_comm_broadcast_now(struct mics_comm *comm, void *data, uint64_t bytes,
                                         int root, struct mics_err *err);
/* recv[size * bytes] in rank order (not block order). */
enum mics_status mics_comm_all_gather_now(struct mics_comm *comm, const void *send, void *recv,
                                          uint64_t bytes, struct mics_err *err);
enum mics_status mics_comm_barrier_now(struct mics_comm *comm, struct mics_err *err);
/* Send send[send_bytes] to rank `to`, and receive recv[recv_bytes] from rank `from`, which sends as
 * much to this one; -1: no rank. Neither is this rank. All ranks call it. It gives way: while other
 * communicators of the node transfer more than a packet, it sends no more than it must to end in
 * within_s seconds. 0: it does not give way. */
enum mics_status mics_comm_sendrecv_now(struct mics_comm *comm, const void *send,
                                        uint64_t send_bytes, int to, void *recv,
                                        uint64_t recv_bytes, int from, double within_s,
                                        struct mics_err *err);

/* End the whole job with this exit code, now. Any thread. */
void mics_comm_abort(struct mics_comm *comm, int code);

/* Most collectives in one group. */
#define MICS_COMM_GROUP_MAX 8

/* The collectives between begin and end are issued together at the end, as one unit: all of them
 * complete when the last one does, and backends that can coalesce them pay the latency once. They
 * must be on the same stream, of the same operation and dtype, and MICS_COMM_GROUP_MAX at most; the
 * group must be the same on all ranks. Groups do not nest. Results, calls and bytes are those of
 * separate collectives (NCCL may sum in another order, but always in the same one). */
void mics_comm_group_begin(struct mics_comm *comm);
void mics_comm_group_end(struct mics_comm *comm);

/* Host memory that a communicator of more than one rank uses for messages in flight: an upper bound
 * over all backends. */
#define MICS_COMM_STAGING_BYTES (512u * 1024u)

/* What decides the algorithm of a collective between processes, with the number of ranks (backend.h
 * describes them): sizes in bytes of all data. */
enum {
    MICS_COMM_TREE_ARITY = 8,
    MICS_COMM_TREE_REDUCE_BYTES = 4096,   /* all-reduces up to this size use the tree, unless: */
    MICS_COMM_HALVING_BYTES = 32768,      /* sums and gathers of 2^l ranks up to it are halved */
    MICS_COMM_HALVING_FROM_BYTES = 513,   /* all-reduces below it need fewer messages by the tree */
    MICS_COMM_HALVING_PIECE_BYTES = 2048, /* pieces of an all-reduce are halved down to it */
    MICS_COMM_TREE_BROADCAST_BYTES = 32768 /* longer broadcasts use the chain */
};

/* Messages of a rank to other nodes that are in flight at once. */
enum { MICS_COMM_WINDOW = 8 };

/* Bytes that `rank` sends in one all_reduce of `count` elements: 2 (size - 1) / size of the data
 * when the data are longer than MICS_COMM_HALVING_BYTES and `size` divides `count`. Shorter data
 * use halving where `size` is a power of two; elsewhere those of up to MICS_COMM_TREE_REDUCE_BYTES
 * use a tree. */
uint64_t mics_comm_all_reduce_sent(int size, int rank, uint64_t count, enum mics_dtype dtype);

/* CPU time of this process for communication since its start: user time of the stream threads
 * inside collectives without MPI (copies and sums inside a node), user time of the thread that
 * drives MPI (its calls, and the sums between nodes), and the time of both in the kernel. 0 where a
 * GPU communicates. Any thread. */
struct mics_comm_cpu {
    double own_s, mpi_s, kernel_s;
};
struct mics_comm_cpu mics_comm_cpu_now(void);

/* All ranks of the job: over MPI if this process was started by mpirun, srun or another launcher
 * that MPI knows, else a single rank. MICS_ERR_UNSUPPORTED: launched, in a build without MPI. */
enum mics_status mics_comm_open(struct mics_comm **out, struct mics_err *err);

/* A single rank. */
enum mics_status mics_comm_new_self(struct mics_comm **out, struct mics_err *err);

/* `size` ranks that are threads of this process, for tests: out[size] world communicators, one for
 * each thread. abort marks all ranks as failed: blocked ranks return MICS_ERR_COMM. */
enum mics_status mics_comm_new_threads(int size, struct mics_comm **out, struct mics_err *err);

/* MPI_COMM_WORLD. Initialises MPI and starts the thread that makes all MPI calls from then on.
 * Freeing this communicator finalises MPI. MICS_ERR_UNSUPPORTED: a build without MPI. */
enum mics_status mics_comm_new_mpi(struct mics_comm **out, struct mics_err *err);

/* Is `comm` of the backend "mpi", of more than one rank, and in block order? */
bool mics_comm_has_native(const struct mics_comm *comm);

/* MPI's own collectives, to compare ours with: the same ranks with MPI_Allgather,
 * MPI_Reduce_scatter_block, MPI_Allreduce, MPI_Alltoall, MPI_Bcast and MPI_Barrier. These block the
 * progress thread, so nothing else of this rank may be in progress. Bytes are not counted, the
 * communicator cannot be split, and messages of more than INT_MAX elements per rank fail.
 * Collective over `comm`; the caller frees *out, collectively, before `comm`.
 * MICS_ERR_UNSUPPORTED: mics_comm_has_native() is false. */
enum mics_status mics_comm_new_native(struct mics_comm *comm, struct mics_comm **out,
                                      struct mics_err *err);

#endif
