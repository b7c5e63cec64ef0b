/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.h - internals of the NCCL backend, which is part of the GPU plug-in.
 *
 * A communicator has an NCCL communicator and one of the host among the same ranks ("control"),
 * which creates it and carries the *_now calls. Its NCCL rank is its block, so that NCCL's
 * all-gather and reduce-scatter place pieces as comm.h requires, in place; NCCL itself finds the
 * order of its rings from the machine's topology. NCCL communicators are non-blocking ("blocking =
 * 0"): the thread that issues a call polls until the call has been launched, and stops polling when
 * the job is aborted.
 *
 * NCCL communicators are not thread-safe, and ncclCommAbort requires that no other thread is inside
 * NCCL. So the context's lock is held around every call of NCCL. The calls return at once; a
 * watchdog that finds the lock held tries again later.
 *
 * Launch order: one thread issues everything, in the same order on all ranks. The GPU must keep
 * that order, or two communicators can wait for each other. NCCL does so
 * (NCCL_LAUNCH_ORDER_IMPLICIT, since 2.26); with older versions each collective waits for an event
 * recorded after the previous one.
 *
 *   comm.c      the table; issuing collectives
 *   init.c      the first communicator of a job; joining and leaving NCCL
 *   context.c   what all communicators share; errors and aborts
 *   memory.c    memory registered with NCCL
 */
#ifndef MICS_COMM_NCCL_NCCL_H
#define MICS_COMM_NCCL_NCCL_H

#include "comm/backend.h"
#include "device/cuda/cuda.h"

/* Before 2.24, nccl.h declares ncclBfloat16 only if cuda_bf16.h has declared its types, which it
 * does only in C++. */
#define __CUDA_BF16_TYPES_EXIST__
#include <nccl.h>

/* Versions that added memory registration and the implicit launch order. */
enum { NCCL_WITH_MEMORY = 21900, NCCL_WITH_ORDER = 22600 };

/* Shared by all communicators that descend from one mics_nccl_open(). */
struct nccl_context {
    struct mics_device *device;
    int version;          /* NCCL's, as 22809 */
    char detail[48];      /* "2.28.9, registered memory" */
    cudaEvent_t launch;   /* after the newest collective; NULL: NCCL keeps the order itself */
    atomic_bool aborting; /* pollers give up */

    pthread_mutex_t lock; /* held around calls of NCCL; guards all below and each `nccl` */
    struct nccl_comm *comms;
    int refs; /* communicators, also those of one rank */
};

struct nccl_comm {
    struct comm_base base; /* base.blocks: the NCCL rank of each rank */
    struct mics_comm *control;
    struct nccl_context *context;
    struct nccl_comm *next;      /* of the context */
    atomic_bool joined;          /* NCCL has initialised it on all ranks */
    _Atomic(ncclComm_t) nccl;    /* NULL: not joined, or aborted */
    float *token;                /* device memory that barriers sum */
    struct nccl_handle *handles; /* of memory registered with it */
};

/* comm.c */
extern const struct comm_backend mics_nccl_backend;

/* init.c. A communicator of the ranks of `control`, of which it takes ownership, also on failure.
 * It joins NCCL at once, or with `late` when it is first used. Collective over `control`. */
enum mics_status mics_nccl_comm_new(struct nccl_context *context, struct mics_comm *control,
                                    bool late, struct mics_comm **out, struct mics_err *err);
/* Create comm->nccl among all ranks of comm->control; if one rank fails, all do. */
enum mics_status mics_nccl_join(struct nccl_comm *comm, struct mics_err *err);
/* Finalise comm->nccl, or abort it after a failure or when that takes too long. */
void mics_nccl_leave(struct nccl_comm *comm);

/* context.c */
enum mics_status mics_nccl_context_new(struct mics_device *device, struct nccl_context **out,
                                       struct mics_err *err);
void mics_nccl_context_free(struct nccl_context *context); /* without communicators */
void mics_nccl_context_add(struct nccl_context *context, struct nccl_comm *comm);
/* Frees the context with its last communicator. */
void mics_nccl_context_remove(struct nccl_context *context, struct nccl_comm *comm);
/* Abort all communicators on this rank, within seconds. Any thread. */
void mics_nccl_context_abort(struct nccl_context *context);

/* NCCL's asynchronous state. ncclRemoteError: the communicator was aborted. */
ncclResult_t mics_nccl_read_state(const struct nccl_comm *comm);
/* Poll until `result` is no longer ncclInProgress. */
ncclResult_t mics_nccl_wait(const struct nccl_comm *comm, ncclResult_t result);
/* MICS_ERR_COMM with "NCCL: <text of the result>: <NCCL's last error>". `comm` may be NULL. */
enum mics_status mics_nccl_failure(const struct nccl_comm *comm, ncclResult_t result,
                                   struct mics_err *err);
enum mics_status mics_nccl_check(struct mics_comm *comm, struct mics_err *err); /* health.check */

/* memory.c. The value of MICS_NCCL_REGISTER. */
enum nccl_register { NCCL_REGISTER_UNSET, NCCL_REGISTER_OFF, NCCL_REGISTER_ON, NCCL_REGISTER_BAD };
enum nccl_register mics_nccl_register_setting(void);
bool mics_nccl_can_register(int version);
/* Register all shared memory of the device with a communicator that has joined, and deregister it
 * before it leaves. Not collective: a failure becomes the device's. */
void mics_nccl_register(struct nccl_comm *comm);
void mics_nccl_deregister(struct nccl_comm *comm);

#endif
