/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_state.c - what NCCL says of itself. */
#include "comm/nccl/nccl.h"

#include <sched.h>
#include <string.h>
#include <time.h>

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
