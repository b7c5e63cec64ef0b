/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi.h - internals of the MPI backend, shared by its files and tests.
 *
 * One thread of the process at a time drives: it makes all MPI calls. Threads post requests; one of
 * those that wait drives until its own is complete, the others sleep. The progress thread calls
 * MPI_Init_thread and MPI_Finalize, and drives now and then while nothing is in progress. A
 * communicator is a list of world ranks and a tag, over one duplicate of MPI_COMM_WORLD: splitting
 * creates no MPI communicator, so it does not block other traffic, and freeing is not collective.
 * Collectives are state machines over MPI_Isend and MPI_Irecv, so those of several communicators
 * progress together.
 *
 *   mpi.c         communicators: table, split, allocation
 *   thread.c      requests, the driver and the progress thread
 *   algorithms.c  ring, tree and direct algorithms
 *   halving.c     halving and doubling of short data
 *   pairs.c       all_to_all and exchanges, between pairs of ranks
 *   tune.c        selects between ring and direct by measurement
 *   node.c        copies between the processes of one node, which replace messages there
 *   heartbeat.c   status words of ranks
 *   native.c      MPI's own collectives, for comparison
 *   none.c        replaces all of these in a build without MPI
 */
#ifndef MICS_COMM_MPI_MPI_H
#define MICS_COMM_MPI_MPI_H

#include "comm/backend.h"

#include <assert.h>
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    /* Between nodes: bytes of a segment (a multiple of 8), and segments in flight in each
     * direction. Over TCP, Open MPI sends a message of up to 64 KiB including its header at once
     * (btl_tcp_eager_limit); for a longer one it asks the receiver first, and the link idles until
     * the answer arrives. */
    COMM_MPI_WINDOW = MICS_COMM_WINDOW,
    COMM_MPI_SEGMENT = 64 * 1024 - 512,
    COMM_MPI_STAGING = COMM_MPI_WINDOW * COMM_MPI_SEGMENT,
    /* Among the ranks of one node, where a message is a copy from the other process's memory. */
    COMM_MPI_NODE_WINDOW = 2,
    COMM_MPI_NODE_SEGMENT = COMM_MPI_STAGING / COMM_MPI_NODE_WINDOW,
};

/* Pieces (the data of one rank) of up to this many bytes use the direct algorithm instead of the
 * ring; 0: none do. The same on all ranks. An all_reduce uses it if its gather and its reduction
 * both would and the number of ranks divides its count. */
struct mpi_direct_limits {
    uint64_t gather_bytes, reduce_bytes;
};

struct mpi_comm;

/* A batch of calls that a thread waits for; on that thread's stack. */
struct mpi_request {
    const struct comm_call *calls;
    int count;
    struct mpi_comm *comm;
    struct mpi_request *next;
    struct comm_sent sent;
    pthread_cond_t changed; /* done, or the waiting thread can drive */
    bool done;
    enum mics_status status;
    struct mics_err err;
};

enum mpi_algorithm {
    MPI_ALGORITHM_RING,
    MPI_ALGORITHM_TREE,
    MPI_ALGORITHM_DIRECT,
    MPI_ALGORITHM_HALVING,
    MPI_ALGORITHM_PAIRS,
};

/* State of the request at the head of a communicator's queue. Driver only. */
struct mpi_transfer {
    const struct comm_call *calls; /* [count] */
    int count;                     /* more than 1 only for the ring, halving and all_to_all */
    enum mpi_algorithm algorithm;

    /* Ring, tree and pairs: packets are numbered in the order of sending. */
    uint64_t segments; /* ring and all_to_all: of one step, over all calls */
    uint64_t packets;  /* to send and to receive */
    uint64_t send_posted, send_done, recv_posted, recv_done;
    struct comm_sent sent;

    int first_step; /* ring */

    uint64_t packets_out; /* pairs: to send; `packets` are to receive */
    double begun_s;       /* pairs: when it began */
    /* Pairs: a sent message is complete when its receiver has asked for it, not when the kernel has
     * it. */
    bool synchronous;

    /* Tree. */
    int parent; /* -1: this rank is the root */
    int child_ranks[MICS_COMM_TREE_ARITY], children;
    int up_done; /* children added, plus 1 when the sum was sent to the parent */
    bool up_posted, up;

    /* Direct and halving. */
    uint64_t piece_bytes;   /* direct */
    uint64_t message_bytes; /* halving: sent in the current round */
    bool reducing;          /* the reduction is still to be finished */
    int distance;           /* of the current round, in ranks; direct: of the gather */
    int request_count;      /* messages of the round; 0: it has not begun */
    int requests_done;      /* the first of them, which are complete */

    MPI_Request sends[MICS_COMM_TREE_ARITY], recvs[MICS_COMM_TREE_ARITY];
};

struct mpi_comm {
    struct comm_base base;
    struct mpi_thread *thread;
    int *ranks; /* [size] in the world */
    int tag;
    uint64_t segment, window; /* ring: bytes of a message, messages in flight in each direction */
    char *staging;            /* [COMM_MPI_STAGING] */
    MPI_Request *requests;    /* [2 * size], direct */
    struct mpi_direct_limits direct;
    struct mpi_node *node;     /* not NULL: all ranks are on one node, and copy from each other */
    bool broken;               /* a transfer failed; messages of it may still be in flight */
    struct mpi_native *native; /* not NULL: a communicator of native.c */

    /* Driver only. */
    struct mpi_request *head, *tail; /* the head is in progress */
    struct mpi_comm *next_active;
    struct mpi_transfer transfer;
};

/* Heartbeats of the whole process. Each rank sends to two receivers. */
struct mpi_heartbeat {
    atomic_uint_fast64_t word; /* of this rank */
    atomic_bool is_set;
    struct {
        atomic_uint_fast64_t word, at_us; /* at_us 0: none has arrived */
    } * received;                         /* [world size]; NULL: this rank is not a receiver */

    atomic_uint_fast64_t pending_since_us[2]; /* a send to a receiver; 0: none is pending */

    /* Driver only. */
    double next_poll_s, next_s[2];
    uint64_t words[2];
    MPI_Request sends[2];
};

/* MPI, the progress thread and the requests of all communicators of the process. */
struct mpi_thread {
    struct mpi_heartbeat heartbeat;
    pthread_t id;
    int comms;                        /* communicators that use the thread */
    int world_rank, world_size, node; /* node: lowest world rank on it */
    int *nodes;                       /* [world_size] of each rank */
    uint64_t next_tag, last_tag;
    bool is_shared; /* any thread may drive; else only the progress thread */

    pthread_mutex_t lock;  /* guards this group */
    pthread_cond_t posted; /* for the driver: a request or abort; on the monotonic clock */
    pthread_cond_t idle;   /* for the progress thread: what it has to do; the same clock */
    pthread_cond_t start;  /* of MPI */
    struct mpi_request *head, *tail;
    bool is_driven, started, stop, aborting;
    double moved_at;     /* the last time that a transfer moved; set when a driver ends */
    double idle_until_s; /* how long the progress thread sleeps */
    int crowded;         /* drives that are still to yield for a short time only */
    int abort_code;
    enum mics_status start_status;
    struct mics_err start_err;

    /* Transfers of all ranks of this node to which exchanges give way; shared, or own_traffic. */
    atomic_int *traffic, own_traffic;

    /* Driver only. */
    MPI_Comm world;
    struct mpi_comm *active; /* communicators with a request in progress */
};

/* thread.c. Start the thread and MPI; finalise both. */
enum mics_status mics_mpi_thread_start(struct mpi_thread **out, struct mics_err *err);
void mics_mpi_thread_stop(struct mpi_thread *thread); /* collective */
/* Carry out the calls of a request; blocks. Writes *sent and `err` of the request to the
 * caller's. */
enum mics_status mics_mpi_thread_execute(struct mpi_comm *comm, const struct comm_call *calls,
                                         int count, struct comm_sent *sent, struct mics_err *err);
_Noreturn void mics_mpi_thread_abort(struct mpi_thread *thread, int code);

/* algorithms.c. Can the calls be one transfer? The ring and halving carry several, but they sum in
 * different orders; all_to_all carries several; the tree carries one. */
bool mics_mpi_can_coalesce(const struct mpi_comm *comm, const struct comm_call *calls, int count);
/* Prepare the transfer of the communicator's first request. */
void mics_mpi_transfer_begin(struct mpi_comm *comm);
/* Do what can be done without waiting. Sets *moved if anything was done, *done when the transfer is
 * complete. Returns MPI's error code. */
int mics_mpi_transfer_progress(struct mpi_comm *comm, bool *moved, bool *done);

/* One message of a transfer. `to` and `from`: ranks in the communicator. An empty one is sent
 * only if `also_empty`; otherwise *request becomes null. */
int mics_mpi_send(struct mpi_comm *comm, const void *data, uint64_t bytes, int to, bool also_empty,
                  MPI_Request *request);
int mics_mpi_receive(struct mpi_comm *comm, void *data, uint64_t bytes, int from, bool also_empty,
                     MPI_Request *request);

/* Whether all messages of a round are complete; the next round then has none. */
int mics_mpi_test_round(struct mpi_comm *comm, bool *complete);

/* halving.c. Are all of the calls halved? begin and progress as those of the transfer. */
bool mics_mpi_halves(const struct mpi_comm *comm, const struct comm_call *calls, int count);
void mics_mpi_halving_begin(struct mpi_comm *comm);
int mics_mpi_halving_progress(struct mpi_comm *comm, bool *moved, bool *done);

/* pairs.c. begin and progress as those of the transfer. */
void mics_mpi_pairs_begin(struct mpi_comm *comm);
int mics_mpi_pairs_progress(struct mpi_comm *comm, bool *moved, bool *done);

/* heartbeat.c. progress: called often, by the driver. */
extern const struct mics_comm_heartbeat_ops mics_mpi_heartbeat_ops;
enum mics_status mics_mpi_heartbeat_init(struct mpi_thread *thread);
void mics_mpi_heartbeat_fini(struct mpi_thread *thread);
void mics_mpi_heartbeat_progress(struct mpi_thread *thread);

/* native.c. One blocking call of MPI, by the driver; returns MPI's error code. */
int mics_mpi_native_run(struct mpi_comm *comm, const struct comm_call *call);

/* node.c. Map memory that ranks of one node share: `bytes` of zeros with a name of shm_open(),
 * which one of them creates and unlinks. NULL: failed. */
void *mics_mpi_map_shared(const char *name, bool create, size_t bytes);
/* Let the ranks copy from each other's memory if they are on one node and may; else comm->node
 * stays NULL. Collective, over messages. */
enum mics_status mics_mpi_node_open(struct mpi_comm *comm, struct mics_err *err);
void mics_mpi_node_close(struct mpi_comm *comm); /* not collective */
/* Carry out one call, or several that can be coalesced; blocks. Any thread, one at a time. */
enum mics_status mics_mpi_node_execute(struct mpi_comm *comm, const struct comm_call *calls,
                                       int count, struct comm_sent *sent, struct mics_err *err);

/* tune.c. Time ring and direct on all ranks together and set comm->direct. Collective; blocks. */
enum mics_status mics_mpi_tune(struct mpi_comm *comm, struct mics_err *err);
/* The limits of a communicator of the backend "mpi"; 0 for others. */
struct mpi_direct_limits mics_mpi_direct_limits(const struct mics_comm *comm);
/* For tests: the same on all ranks, while no collective is in progress. Limited to what the staging
 * memory holds. Other backends than "mpi" ignore it. */
void mics_mpi_set_direct_limits(struct mics_comm *comm, struct mpi_direct_limits limits);

#endif
