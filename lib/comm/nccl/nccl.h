/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.h - the parts of the NCCL backend, which see each other here and nowhere else. All of it is in the plug-in.
 *
 * A communicator is one of NCCL's and one of the host's among the same ranks ("control"), which brings them
 * together and carries the *_now calls. Its rank for NCCL is its block, so that NCCL's all-gather and reduce-scatter put
 * pieces where comm.h wants them, in place; in which order its rings visit the ranks NCCL finds out itself, from the
 * machine. NCCL is told not to block (its "blocking = 0"): whoever issues a call polls until it is under way, and
 * stops polling when the job is being ended.
 *
 * One thread at a time is inside NCCL, for its state is not safe against two, and nobody else is when it is aborted: the
 * family's lock is held around each of its calls. They return at once, so a watchdog that finds it held looks again later.
 *
 * Launch order: one thread issues everything, in the same order on all ranks, and that order holds on the GPU, else two
 * communicators could wait for each other: NCCL sees to it (NCCL_LAUNCH_ORDER_IMPLICIT, 2.26), before that an
 * event does, which lets one collective follow another.
 */
#ifndef MICS_COMM_NCCL_NCCL_H
#define MICS_COMM_NCCL_NCCL_H

#include "comm/backend.h"
#include "device/cuda/cuda.h"

/* Before 2.24 nccl.h declares ncclBfloat16 only where cuda_bf16.h has declared its types, which it
 * does in C++ alone. */
#define __CUDA_BF16_TYPES_EXIST__
#include <nccl.h>

enum { NCCL_WITH_MEMORY = 21900, NCCL_WITH_ORDER = 22600 };

/* All communicators that come from one mics_nccl_open(). */
struct nccl_family {
    struct mics_device *device;
    int version;        /* NCCL's, as 22809 */
    char detail[48];    /* "2.28.9, registered memory" */
    cudaEvent_t launch; /* the newest collective of any member; NULL: NCCL keeps the order itself */
    atomic_bool ending; /* aborted: nobody waits any more */
    pthread_mutex_t
        lock; /* guards all below, each member's `nccl`, and is held around calls of NCCL */
    struct nccl_comm *members;
    int refs; /* members, of one rank too */
};

struct nccl_comm {
    struct mics_comm comm;
    struct mics_comm *control;
    struct nccl_family *family;
    struct nccl_comm *next;                         /* of the family */
    atomic_bool joined;                             /* NCCL's rank of all; of more than one rank */
    _Atomic(ncclComm_t) nccl;                       /* NULL: not joined, or aborted */
    int *blocks;                                    /* [size]: NCCL's rank of each */
    float *token;                                   /* device memory that barriers add up */
    struct nccl_handle *handles;                    /* of the memory that is registered with it */
    struct comm_call waiting[MICS_COMM_JOINED_MAX]; /* for the one that they join */
    int waiting_count;
};

/* A communicator of the ranks of `control`, which it takes, also on failure; it joins NCCL, unless `late`. Collective over
 * `control`. */
enum mics_status mics_nccl_comm_new(struct nccl_family *family, struct mics_comm *control,
                                    bool late, struct mics_comm **out, struct mics_err *err);

/* nccl_comm.c: the table. */
extern const struct mics_comm_ops mics_nccl_ops;

/* nccl_issue.c: enqueue a collective of more than one rank, or keep it for the one that it joins. */
void mics_nccl_issue(struct nccl_comm *comm, struct mics_stream *stream,
                     const struct comm_call *call, uint64_t sent_bytes);

/* nccl_join.c: make comm->nccl among all ranks of comm->control. A rank that cannot join fails all. */
enum mics_status mics_nccl_join(struct nccl_comm *comm, struct mics_err *err);
/* Leave in peace; where that takes too long, or something has failed, without it. */
void mics_nccl_leave(struct nccl_comm *comm);

/* nccl_memory.c. What MICS_NCCL_REGISTER says: 0, 1, nothing, or nonsense. */
enum nccl_wish { NCCL_WISH_NONE, NCCL_WISH_OFF, NCCL_WISH_ON, NCCL_WISH_WRONG };
enum nccl_wish mics_nccl_wish(void);
bool mics_nccl_can_register(int version);
/* All of the device's shared memory with a communicator that has joined; and before it leaves. Not collective: that one
 * rank cannot is a failure of its device. */
void mics_nccl_register(struct nccl_comm *comm);
void mics_nccl_deregister(struct nccl_comm *comm);

/* nccl_family.c */
enum mics_status mics_nccl_family_new(struct mics_device *device, struct nccl_family **out,
                                      struct mics_err *err);
void mics_nccl_family_free(struct nccl_family *family); /* without members */
void mics_nccl_family_add(struct nccl_family *family, struct nccl_comm *comm);
void mics_nccl_family_remove(struct nccl_family *family,
                             struct nccl_comm *comm); /* the last frees it */
/* End all of NCCL's work on this rank, within seconds. Any thread. */
void mics_nccl_family_end(struct nccl_family *family);

/* nccl_state.c: what NCCL says of its state now; ncclRemoteError: there is no communicator any more. */
ncclResult_t mics_nccl_read_state(const struct nccl_comm *comm);
/* Poll until `result` is no longer "in progress". */
ncclResult_t mics_nccl_settle(const struct nccl_comm *comm, ncclResult_t result);
/* "WHAT: NCCL: text of the result: what NCCL said last" */
enum mics_status mics_nccl_failure(const struct nccl_comm *comm, ncclResult_t result,
                                   struct mics_err *err);
/* struct mics_comm_ops.check */
enum mics_status mics_nccl_check(struct mics_comm *comm, struct mics_err *err);

#endif
