/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context.c - what all communicators of a job share: their list, errors, and aborts.
 *
 * ncclCommAbort() waits until the GPU has ended the communicator's collective, which may wait for
 * one of another communicator. So all of them are aborted in one NCCL group, which signals each
 * before it waits for any. If that hangs as well, the process must still end: a separate thread
 * calls NCCL, and the caller waits for it for a limited time.
 */
#include "comm/nccl/nccl.h"

#include "base/timed_wait.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Create and free ---------------------------------------------------------------------------- */

/* Read NCCL's version, and keep the order of launches if NCCL does not. */
static enum mics_status prepare(struct nccl_context *context, struct mics_err *err)
{
    const ncclResult_t result = ncclGetVersion(&context->version);

    if (result != ncclSuccess)
        return mics_nccl_failure(NULL, result, err);
    if (context->version >= NCCL_WITH_ORDER) {
        /* NCCL reads it with its first communicator. */
        setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
        return MICS_OK;
    }
    return mics_cuda_error(err, cudaEventCreateWithFlags(&context->launch, cudaEventDisableTiming),
                           "NCCL's launch order");
}

void mics_nccl_context_free(struct nccl_context *context)
{
    struct cuda_device *device = (struct cuda_device *)context->device;

    if (device->exchange == context)
        device->exchange = NULL;
    if (context->launch)
        (void)cudaEventDestroy(context->launch);
    pthread_mutex_destroy(&context->lock);
    free(context);
}

enum mics_status mics_nccl_context_new(struct mics_device *device, struct nccl_context **out,
                                       struct mics_err *err)
{
    struct nccl_context *context = calloc(1, sizeof *context);

    if (!context)
        return mics_err_nomem(err);
    context->device = device;
    pthread_mutex_init(&context->lock, NULL);
    const enum mics_status status = prepare(context, err);
    if (status == MICS_OK)
        *out = context;
    else
        mics_nccl_context_free(context);
    return status;
}

void mics_nccl_context_add(struct nccl_context *context, struct nccl_comm *comm)
{
    pthread_mutex_lock(&context->lock);
    comm->next = context->comms;
    context->comms = comm;
    context->refs++;
    pthread_mutex_unlock(&context->lock);
}

void mics_nccl_context_remove(struct nccl_context *context, struct nccl_comm *comm)
{
    struct nccl_comm **link;

    pthread_mutex_lock(&context->lock);
    for (link = &context->comms; *link != comm; link = &(*link)->next)
        ;
    *link = comm->next;
    const bool last = --context->refs == 0;
    pthread_mutex_unlock(&context->lock);
    if (last)
        mics_nccl_context_free(context);
}

/* State and errors --------------------------------------------------------------------------- */

/* NCCL launches from a thread of its own: usually microseconds, longer while it connects. */
static const double spin_s = 200e-6;
static const struct timespec poll_sleep = {.tv_nsec = 50 * 1000};

/* The lock is held. */
static ncclResult_t state_of(const struct nccl_comm *comm)
{
    ncclResult_t result = ncclSuccess;

    if (!comm->nccl)
        return ncclRemoteError;
    return ncclCommGetAsyncError(comm->nccl, &result) == ncclSuccess ? result : ncclInternalError;
}

ncclResult_t mics_nccl_read_state(const struct nccl_comm *comm)
{
    pthread_mutex_lock(&comm->context->lock);
    const ncclResult_t result = state_of(comm);
    pthread_mutex_unlock(&comm->context->lock);
    return result;
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

ncclResult_t mics_nccl_wait(const struct nccl_comm *comm, ncclResult_t result)
{
    const double begin_s = result == ncclInProgress ? now_s() : 0;

    while (result == ncclInProgress) {
        result = mics_nccl_read_state(comm);
        if (result != ncclInProgress)
            return result;
        if (now_s() - begin_s < spin_s)
            sched_yield();
        else
            nanosleep(&poll_sleep, NULL);
    }
    return result;
}

enum mics_status mics_nccl_failure(const struct nccl_comm *comm, ncclResult_t result,
                                   struct mics_err *err)
{
    const char *text = ncclGetLastError(comm ? comm->nccl : NULL);
    const char *last = text ? text : "";
    const int length = (int)strcspn(last, "\n");

    return mics_err_set(err, MICS_ERR_COMM, "NCCL: %s%s%.*s", ncclGetErrorString(result),
                        length > 0 ? ": " : "", length, last);
}

static bool is_healthy(ncclResult_t result)
{
    return result == ncclSuccess || result == ncclInProgress;
}

/* The state of a communicator that has joined; else the first error in the context. *which is the
 * communicator that has it. The lock is held. */
static ncclResult_t find_error(struct nccl_comm *comm, const struct nccl_comm **which)
{
    ncclResult_t result = ncclSuccess;

    *which = comm;
    if (atomic_load(&comm->joined))
        return comm->nccl ? state_of(comm) : ncclSuccess;
    for (const struct nccl_comm *other = comm->context->comms; other && is_healthy(result);
         other = other->next) {
        *which = other;
        if (other->nccl && atomic_load(&other->joined))
            result = state_of(other);
    }
    return result;
}

enum mics_status mics_nccl_check(struct mics_comm *base, struct mics_err *err)
{
    struct nccl_comm *comm = (struct nccl_comm *)base;
    struct nccl_context *context = comm->context;
    const struct nccl_comm *which;

    if (base->size == 1 || atomic_load(&context->aborting) ||
        pthread_mutex_trylock(&context->lock) != 0)
        return MICS_OK;
    const ncclResult_t result = find_error(comm, &which);
    if (!is_healthy(result)) {
        mics_nccl_failure(which, result, err);
        mics_err_prefix(err, "among %d ranks", which->base.comm.size);
    }
    pthread_mutex_unlock(&context->lock);
    if (is_healthy(result))
        return MICS_OK;
    return result == ncclRemoteError ? MICS_ERR_PEER : MICS_ERR_COMM;
}

/* Abort -------------------------------------------------------------------------------------- */

static const int abort_timeout_s = 2;

/* The work of the aborting thread. It may take longer than its caller waits: the last of the two
 * frees it. */
struct abort_task {
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool is_done, is_abandoned;
    int gpu;
    size_t count;
    ncclComm_t comms[];
};

static void abort_task_free(struct abort_task *task)
{
    pthread_cond_destroy(&task->done);
    pthread_mutex_destroy(&task->lock);
    free(task);
}

static void *abort_main(void *context)
{
    struct abort_task *task = context;

    (void)cudaSetDevice(task->gpu);
    (void)ncclGroupStart();
    for (size_t i = 0; i < task->count; i++)
        (void)ncclCommAbort(task->comms[i]);
    (void)ncclGroupEnd();
    pthread_mutex_lock(&task->lock);
    task->is_done = true;
    const bool last = task->is_abandoned;
    pthread_cond_signal(&task->done);
    pthread_mutex_unlock(&task->lock);
    if (last)
        abort_task_free(task);
    return NULL;
}

/* Move the NCCL communicators out of the context. NULL: there are none, out of memory, or another
 * thread hangs inside NCCL, which then must not be called. */
static struct abort_task *detach_all(struct nccl_context *context)
{
    struct abort_task *task = NULL;
    size_t count = 0;

    if (!mics_mutex_lock_for(&context->lock, abort_timeout_s))
        return NULL;
    for (struct nccl_comm *comm = context->comms; comm; comm = comm->next)
        count += comm->nccl != NULL;
    if (count > 0)
        task = calloc(1, sizeof *task + count * sizeof task->comms[0]);
    for (struct nccl_comm *comm = context->comms; task && comm; comm = comm->next) {
        if (comm->nccl)
            task->comms[task->count++] = comm->nccl;
        comm->nccl = NULL;
    }
    pthread_mutex_unlock(&context->lock);
    return task;
}

/* Run the task in a thread and wait for it until the deadline. */
static void run_abort_task(struct abort_task *task)
{
    pthread_t thread;
    bool in_time = true;

    if (pthread_create(&thread, NULL, abort_main, task) != 0) {
        abort_task_free(task);
        return;
    }
    const struct timespec until = mics_deadline(abort_timeout_s);
    pthread_mutex_lock(&task->lock);
    while (!task->is_done && in_time)
        in_time = mics_cond_wait_until(&task->done, &task->lock, &until);
    task->is_abandoned = !task->is_done;
    const bool done = task->is_done;
    pthread_mutex_unlock(&task->lock);
    if (!done) {
        pthread_detach(thread);
        return;
    }
    pthread_join(thread, NULL);
    abort_task_free(task);
}

void mics_nccl_context_abort(struct nccl_context *context)
{
    struct mics_device *device = context->device;

    /* The stream of an aborted collective continues with incomplete data. The device fails first,
     * so that the data are not taken for a result. */
    atomic_store(&context->aborting, true);
    device->ops->fail(device, MICS_ERR_COMM, "NCCL: the job is being aborted");

    struct abort_task *task = detach_all(context);
    if (!task)
        return;
    pthread_mutex_init(&task->lock, NULL);
    mics_cond_init_timed(&task->done);
    task->gpu = ((struct cuda_device *)device)->gpu;
    run_abort_task(task);
}
