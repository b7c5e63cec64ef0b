/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context.c - which communicators there are, and their common end.
 *
 * ncclCommAbort() waits for the GPU to let go of a collective, which may stand behind one of another communicator: so all
 * are aborted as one group, which tells each of them before it waits for any. Should that hang, too, then the process ends
 * all the same: a thread of its own does it, and nobody waits for it for longer than the patience below.
 */
#include "comm/nccl/nccl.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const int patience_s = 2;

/* NCCL's version, and what keeps the order of launches where it does not. */
static enum mics_status prepare(struct nccl_family *family, struct mics_err *err)
{
    const ncclResult_t result = ncclGetVersion(&family->version);

    if (result != ncclSuccess)
        return mics_nccl_failure(NULL, result, err);
    if (family->version >= NCCL_WITH_ORDER) {
        setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0); /* before its first communicator */
        return MICS_OK;
    }
    return mics_cuda_error(err, cudaEventCreateWithFlags(&family->launch, cudaEventDisableTiming),
                           "NCCL's order");
}

void mics_nccl_family_free(struct nccl_family *family)
{
    struct cuda_device *device = (struct cuda_device *)family->device;

    if (device->exchange == family)
        device->exchange = NULL;
    if (family->launch)
        (void)cudaEventDestroy(family->launch);
    pthread_mutex_destroy(&family->lock);
    free(family);
}

enum mics_status mics_nccl_family_new(struct mics_device *device, struct nccl_family **out,
                                      struct mics_err *err)
{
    struct nccl_family *family = calloc(1, sizeof *family);

    if (!family)
        return mics_err_nomem(err);
    family->device = device;
    pthread_mutex_init(&family->lock, NULL);
    const enum mics_status status = prepare(family, err);
    if (status == MICS_OK)
        *out = family;
    else
        mics_nccl_family_free(family);
    return status;
}

void mics_nccl_family_add(struct nccl_family *family, struct nccl_comm *comm)
{
    pthread_mutex_lock(&family->lock);
    comm->next = family->members;
    family->members = comm;
    family->refs++;
    pthread_mutex_unlock(&family->lock);
}

void mics_nccl_family_remove(struct nccl_family *family, struct nccl_comm *comm)
{
    struct nccl_comm **link;

    pthread_mutex_lock(&family->lock);
    for (link = &family->members; *link != comm; link = &(*link)->next)
        ;
    *link = comm->next;
    const bool last = --family->refs == 0;
    pthread_mutex_unlock(&family->lock);
    if (last)
        mics_nccl_family_free(family);
}

/* What the aborting thread has to do. It may outlive who waits for it: who is the last frees it. */
struct errand {
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool is_done, is_abandoned;
    int gpu;
    size_t count;
    ncclComm_t comms[];
};

static void errand_free(struct errand *errand)
{
    pthread_cond_destroy(&errand->done);
    pthread_mutex_destroy(&errand->lock);
    free(errand);
}

static void *abort_all(void *context)
{
    struct errand *errand = context;

    (void)cudaSetDevice(errand->gpu);
    (void)ncclGroupStart();
    for (size_t i = 0; i < errand->count; i++)
        (void)ncclCommAbort(errand->comms[i]);
    (void)ncclGroupEnd();
    pthread_mutex_lock(&errand->lock);
    errand->is_done = true;
    const bool last = errand->is_abandoned;
    pthread_cond_signal(&errand->done);
    pthread_mutex_unlock(&errand->lock);
    if (last)
        errand_free(errand);
    return NULL;
}

static struct timespec soon(void)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += patience_s;
    return until;
}

/* Take NCCL's communicators away from their owners. NULL: there are none, no memory, or a call of NCCL does not
 * return, and then nobody else may call it. */
static struct errand *take_all(struct nccl_family *family)
{
    const struct timespec until = soon();
    struct errand *errand = NULL;
    size_t count = 0;

    if (pthread_mutex_timedlock(&family->lock, &until) != 0)
        return NULL;
    for (struct nccl_comm *comm = family->members; comm; comm = comm->next)
        count += comm->nccl != NULL;
    if (count > 0)
        errand = calloc(1, sizeof *errand + count * sizeof errand->comms[0]);
    for (struct nccl_comm *comm = family->members; errand && comm; comm = comm->next) {
        if (comm->nccl)
            errand->comms[errand->count++] = comm->nccl;
        comm->nccl = NULL;
    }
    pthread_mutex_unlock(&family->lock);
    return errand;
}

/* A collective that is aborted leaves its stream to go on with what it has not brought: so the device fails first, and
 * nobody takes what comes then for a result. */
static void fail_device(struct nccl_family *family)
{
    struct mics_device *device = family->device;

    device->ops->fail(device, MICS_ERR_COMM, "NCCL: the job is being ended");
}

void mics_nccl_family_end(struct nccl_family *family)
{
    pthread_t thread;
    int code = 0;

    atomic_store(&family->ending, true);
    fail_device(family);
    struct errand *errand = take_all(family);
    if (!errand)
        return;
    pthread_mutex_init(&errand->lock, NULL);
    pthread_cond_init(&errand->done, NULL);
    errand->gpu = ((struct cuda_device *)family->device)->gpu;
    if (pthread_create(&thread, NULL, abort_all, errand) != 0) {
        errand_free(errand);
        return;
    }
    const struct timespec until = soon();
    pthread_mutex_lock(&errand->lock);
    while (!errand->is_done && code == 0)
        code = pthread_cond_timedwait(&errand->done, &errand->lock, &until);
    errand->is_abandoned = !errand->is_done;
    const bool last = errand->is_done;
    pthread_mutex_unlock(&errand->lock);
    if (!last) {
        pthread_detach(thread);
        return;
    }
    pthread_join(thread, NULL);
    errand_free(errand);
}

/* nccl_state.c - what NCCL says of itself. */


/* NCCL launches from a thread of its own, which is a matter of microseconds; connections take longer. */
static const double briefly_s = 200e-6;
static const struct timespec poll_nap = {.tv_nsec = 50 * 1000};

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
    pthread_mutex_lock(&comm->family->lock);
    const ncclResult_t result = state_of(comm);
    pthread_mutex_unlock(&comm->family->lock);
    return result;
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

ncclResult_t mics_nccl_settle(const struct nccl_comm *comm, ncclResult_t result)
{
    const double began_s = result == ncclInProgress ? now_s() : 0;

    while (result == ncclInProgress) {
        result = mics_nccl_read_state(comm);
        if (result != ncclInProgress)
            return result;
        if (now_s() - began_s < briefly_s)
            sched_yield();
        else
            nanosleep(&poll_nap, NULL);
    }
    return result;
}

enum mics_status mics_nccl_failure(const struct nccl_comm *comm, ncclResult_t result,
                                   struct mics_err *err)
{
    const char *said = ncclGetLastError(comm ? comm->nccl : NULL);
    const char *last = said ? said : "";
    const int length = (int)strcspn(last, "\n");

    return mics_err_set(err, MICS_ERR_COMM, "NCCL: %s%s%.*s", ncclGetErrorString(result),
                        length > 0 ? ": " : "", length, last);
}

static bool is_well(ncclResult_t result)
{
    return result == ncclSuccess || result == ncclInProgress;
}

/* Of one that has joined; else the first of the family that is not well. *who is asked last. The lock is held. */
static ncclResult_t look_at(struct nccl_comm *comm, const struct nccl_comm **who)
{
    ncclResult_t result = ncclSuccess;

    *who = comm;
    if (atomic_load(&comm->joined))
        return comm->nccl ? state_of(comm) : ncclSuccess;
    for (const struct nccl_comm *one = comm->family->members; one && is_well(result);
         one = one->next) {
        *who = one;
        if (one->nccl && atomic_load(&one->joined))
            result = state_of(one);
    }
    return result;
}

enum mics_status mics_nccl_check(struct mics_comm *base, struct mics_err *err)
{
    struct nccl_comm *comm = (struct nccl_comm *)base;
    struct nccl_family *family = comm->family;
    const struct nccl_comm *who;

    if (base->size == 1 || atomic_load(&family->ending) ||
        pthread_mutex_trylock(&family->lock) != 0)
        return MICS_OK;
    const ncclResult_t result = look_at(comm, &who);
    if (!is_well(result)) {
        mics_nccl_failure(who, result, err);
        mics_err_prefix(err, "among %d ranks", who->comm.size);
    }
    pthread_mutex_unlock(&family->lock);
    if (is_well(result))
        return MICS_OK;
    return result == ncclRemoteError ? MICS_ERR_IO : MICS_ERR_COMM;
}
