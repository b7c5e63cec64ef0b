/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_state.c - what NCCL says of itself. */
#include "machine/cuda/nccl.h"

#include <string.h>
#include <time.h>

static const struct timespec poll_nap = {.tv_nsec = 20 * 1000};

/* NCCL's own state is safe to read beside its calls; the lock keeps the communicator alive meanwhile. */
static ncclResult_t read_state(const struct nccl_comm *comm)
{
    ncclResult_t result = ncclSuccess;

    pthread_mutex_lock(&comm->family->lock);
    if (!comm->nccl)
        result = ncclRemoteError;
    else if (ncclCommGetAsyncError(comm->nccl, &result) != ncclSuccess)
        result = ncclInternalError;
    pthread_mutex_unlock(&comm->family->lock);
    return result;
}

ncclResult_t mics_nccl_settle(const struct nccl_comm *comm, ncclResult_t result)
{
    while (result == ncclInProgress) {
        result = read_state(comm);
        if (result == ncclInProgress)
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

enum mics_status mics_nccl_check(struct mics_comm *base, struct mics_err *err)
{
    struct nccl_comm *comm = (struct nccl_comm *)base;

    if (base->size == 1 || atomic_load(&comm->family->ending))
        return MICS_OK;
    const ncclResult_t result = read_state(comm);
    if (result == ncclSuccess || result == ncclInProgress)
        return MICS_OK;
    mics_nccl_failure(comm, result, err);
    mics_err_prefix(err, "among %d ranks", base->size);
    return result == ncclRemoteError ? MICS_ERR_IO : MICS_ERR_COMM;
}
