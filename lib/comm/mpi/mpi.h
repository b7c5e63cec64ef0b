/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi.h - the parts of the MPI backend, which see each other here and nowhere else.
 *
 * One thread makes all MPI calls, from MPI_Init_thread to MPI_Finalize. Other threads post requests and
 * sleep until theirs is done. A communicator is a list of world ranks and a tag of its own, over one
 * duplicate of MPI_COMM_WORLD: splitting needs no MPI communicator, so it blocks nobody's traffic, and
 * freeing one is not collective. Its collectives are state machines over MPI_Isend and MPI_Irecv, so those of
 * several communicators move side by side.
 */
#ifndef MICS_COMM_MPI_MPI_H
#define MICS_COMM_MPI_MPI_H

#include "comm/backend.h"

#if MICS_HAVE_MPI

#include <assert.h>
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    COMM_MPI_WINDOW = 8, /* messages under way, each way */
    /* Bytes of a segment; a multiple of 8. A message of up to 64 KiB with its header leaves at once over TCP (Open
     * MPI's btl_tcp_eager_limit); a longer one first asks the receiver, and the link idles until it answers. */
    COMM_MPI_SEGMENT = 64 * 1024 - 512,
    COMM_MPI_STAGING = COMM_MPI_WINDOW * COMM_MPI_SEGMENT,
    /* Among the ranks of one node, where a message is a copy from the other's memory and a few words about it. */
    COMM_MPI_NODE_WINDOW = 2,
    COMM_MPI_NODE_SEGMENT = COMM_MPI_STAGING / COMM_MPI_NODE_WINDOW,
};

/* Pieces (one rank's block) of up to so many bytes go the short way; 0: none do. The same on all ranks. An
 * all_reduce whose count the ranks divide goes as both of its halves can. */
struct mics_comm_tuned {
    uint64_t gather_bytes, reduce_bytes;
};

struct mpi_comm;

/* One collective that somebody waits for; on the caller's stack. */
struct mpi_request {
    const struct comm_call *call;
    struct mpi_comm *comm;
    struct mpi_request *next;
    struct comm_sent sent;
    bool done;
    enum mics_status status;
    struct mics_err err;
};

enum mpi_route { MPI_ROUTE_RING, MPI_ROUTE_TREE, MPI_ROUTE_SHORT };

/* What the request at the head of the communicator's queue takes. Thread of MPI only. */
struct mpi_transfer {
    const struct comm_call *call;
    enum mpi_route route;

    uint64_t segments; /* of a piece */
    uint64_t packets;  /* to send and to receive: segments * steps */
    uint64_t send_posted, send_done, recv_posted, recv_done;
    struct comm_sent sent;

    int first_step; /* ring */
    int place, parent, child_ranks[COMM_TREE_ARITY],
        children; /* tree; parent -1: this is the root */
    int up_done;  /* tree: children added, then the parent told */
    bool up_posted, up;

    uint64_t piece;    /* short: bytes */
    bool adds;         /* short: sums come first, or are under way */
    int distance;      /* short: of this round of the gather, in ranks */
    int request_count; /* short: messages under way */

    MPI_Request sends[COMM_TREE_ARITY], recvs[COMM_TREE_ARITY];
};

struct mpi_comm {
    struct comm_base base;
    struct mpi_engine *engine;
    int *ranks; /* [size] in the world */
    int tag;
    uint64_t segment, window; /* of a ring: bytes of a message, messages under way each way */
    char *staging;            /* [COMM_MPI_STAGING] */
    MPI_Request *requests;    /* [2 * size] of a short route */
    struct mics_comm_tuned tuned;
    bool broken;               /* a transfer failed, and left messages behind */
    struct mpi_native *native; /* not NULL: MPI's own collectives (comm_native.c) */

    /* Thread of MPI only. */
    struct mpi_request *head, *tail; /* waiting; the head is under way */
    struct mpi_comm *next_active;
    struct mpi_transfer transfer;
};

/* Words that the ranks tell about themselves; mpi_pulse.c. */
struct mpi_pulse {
    atomic_uint_fast64_t word; /* this rank's */
    atomic_bool told;
    struct {
        atomic_uint_fast64_t word, at_us; /* at_us 0: never */
    } * heard;                            /* [world size]; NULL: not a listener */

    /* Thread of MPI only. */
    double next_s;
    uint64_t words[2];
    MPI_Request sends[2];
};

struct mpi_engine {
    struct mpi_pulse pulse;
    pthread_t thread;
    int comms;                        /* that use the engine */
    int world_rank, world_size, node; /* node: lowest world rank on it */
    int *nodes;                       /* [world_size] of each rank */
    uint64_t next_tag, last_tag;

    pthread_mutex_t lock;  /* guards all in this group */
    pthread_cond_t posted; /* a request, stop or abort; on the monotonic clock */
    pthread_cond_t done;   /* a request was answered, or MPI was started */
    struct mpi_request *head, *tail;
    bool started, stop, aborting;
    int abort_code;
    enum mics_status start_status;
    struct mics_err start_err;

    /* Thread of MPI only. */
    MPI_Comm world;
    struct mpi_comm *active;
};

/* mpi_start.c: start the thread and MPI. */
enum mics_status mics_mpi_engine_start(struct mpi_engine **out, struct mics_err *err);
void mics_mpi_engine_stop(struct mpi_engine *engine); /* collective */

/* mpi_engine.c */
void mics_mpi_serve(struct mpi_engine *engine); /* until told to stop, or to end the job */
void mics_mpi_engine_execute(struct mpi_engine *engine, struct mpi_request *request);
_Noreturn void mics_mpi_engine_abort(struct mpi_engine *engine, int code);

/* mpi_pulse.c. beat: often, in the thread of MPI. */
enum mics_status mics_mpi_pulse_init(struct mpi_engine *engine);
void mics_mpi_pulse_fini(struct mpi_engine *engine);
void mics_mpi_pulse_beat(struct mpi_engine *engine);
void mics_mpi_tell(struct mics_comm *comm, uint64_t word);
double mics_mpi_heard(struct mics_comm *comm, int rank, uint64_t *word);

/* MICS_ERR_COMM with "<what>: <text of MPI's error code>". */
enum mics_status mics_mpi_failure(struct mics_err *err, const char *what, int code);

/* mpi_ring.c, mpi_tree.c, mpi_short.c. Prepare the transfer of a call; the buffers are laid out already. */
void mics_mpi_ring_begin(struct mpi_comm *comm, const struct comm_call *call);
void mics_mpi_tree_begin(struct mpi_comm *comm, const struct comm_call *call);
void mics_mpi_short_begin(struct mpi_comm *comm, const struct comm_call *call);
/* Do what can be done now. *moved is set if anything could; *done when all is. The error is MPI's. */
int mics_mpi_ring_progress(struct mpi_comm *comm, bool *moved, bool *done);
int mics_mpi_tree_progress(struct mpi_comm *comm, bool *moved, bool *done);
int mics_mpi_short_progress(struct mpi_comm *comm, bool *moved, bool *done);

/* comm_native.c: one blocking call of MPI. */
int mics_mpi_native_run(struct mpi_comm *comm, const struct comm_call *call);

/* mpi_tune.c: time the routes, all ranks together, and set what to take. */
enum mics_status mics_mpi_tune(struct mpi_comm *comm, struct mics_err *err);

/* Goes the call by tree? If not, the short way? */
bool mics_mpi_takes_tree(const struct comm_call *call);
bool mics_mpi_takes_short(const struct mpi_comm *comm, const struct comm_call *call);

/* Messages of no bytes are sent where `empty_too`; else their request is null. `to`, `from`: rank in the
 * communicator. */
int mics_mpi_send(struct mpi_comm *comm, const void *data, uint64_t bytes, int to, bool empty_too,
                  MPI_Request *request);
int mics_mpi_recv(struct mpi_comm *comm, void *data, uint64_t bytes, int from, bool empty_too,
                  MPI_Request *request);

/*
 * tune.h - up to which size the short routes are taken instead of the ring.
 *
 * A ring moves the fewest bytes over a network but needs as many hops as ranks. What is short goes in fewer
 * hops: an all-gather in log2 m rounds, a reduce-scatter in one. The routes send the same bytes and add
 * in the same order, so results and counts do not tell which one was taken; only the time does, and it is measured when
 * a communicator over MPI is made. Other backends have one route.
 */

/* What was measured; nothing for another backend than MPI. */
struct mics_comm_tuned mics_comm_get_tuned(const struct mics_comm *comm);

/* For tests and comparisons: all ranks the same, while nothing is under way. Longer than the staging memory holds
 * is cut down to that. Another backend than MPI ignores it. */
void mics_comm_set_tuned(struct mics_comm *comm, struct mics_comm_tuned tuned);

#endif
#endif
