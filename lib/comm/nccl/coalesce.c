/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coalesce.c - ranks come together for NCCL, and part.
 *
 * NCCL itself waits for ever for a rank that fails before it has joined. So nobody waits inside NCCL: it joins in
 * the background, and every half second all ranks tell each other how they are.
 */
#include "comm/nccl/nccl.h"

#include <stdlib.h>
#include <time.h>

enum { NAP_US = 500, ROUND_NAPS = 1000, LEAVE_NAPS = 10000 };

static const struct timespec nap = {.tv_nsec = NAP_US * 1000};

/* What rank 0 says at the beginning. */
struct invitation {
    ncclUniqueId id;
    int failed;
};

/* How a rank is. */
enum standing { STANDING_WAITS, STANDING_IN, STANDING_FAILED };

/* Until NCCL is done, or for so many naps. */
static ncclResult_t wait_a_round(const struct nccl_comm *comm, ncclResult_t result, int naps)
{
    for (int i = 0; i < naps && result == ncclInProgress; i++) {
        result = mics_nccl_read_state(comm);
        if (result == ncclInProgress)
            nanosleep(&nap, NULL);
    }
    return result;
}

static enum standing standing_of(ncclResult_t result)
{
    if (result == ncclInProgress)
        return STANDING_WAITS;
    return result == ncclSuccess ? STANDING_IN : STANDING_FAILED;
}

/* The worst standing of all ranks, and the first rank that has it. */
static enum mics_status compare(struct nccl_comm *comm, enum standing own, enum standing *all,
                                enum standing *worst, int *who, struct mics_err *err)
{
    static const int badness[] = {[STANDING_IN] = 0, [STANDING_WAITS] = 1, [STANDING_FAILED] = 2};
    struct mics_comm *control = comm->control;
    const enum mics_status status =
        control->ops->all_gather_now(control, &own, all, sizeof own, err);

    *worst = STANDING_IN;
    *who = 0;
    for (int i = 0; i < control->size && status == MICS_OK; i++) {
        if (badness[all[i]] > badness[*worst]) {
            *worst = all[i];
            *who = i;
        }
    }
    return status;
}

/* All ranks leave this together, and with the same verdict. */
static enum mics_status wait_for_all(struct nccl_comm *comm, ncclResult_t result,
                                     struct mics_err *err)
{
    enum standing *all = calloc((size_t)comm->comm.size, sizeof *all);
    enum standing worst = STANDING_WAITS;
    enum mics_status status = all ? MICS_OK : mics_err_nomem(err);
    int who = 0;

    while (status == MICS_OK && worst == STANDING_WAITS) {
        result = wait_a_round(comm, result, ROUND_NAPS);
        status = compare(comm, standing_of(result), all, &worst, &who, err);
    }
    free(all);
    if (status != MICS_OK || worst == STANDING_IN)
        return status;
    if (standing_of(result) == STANDING_FAILED)
        return mics_nccl_failure(comm, result, err);
    return mics_err_set(err, MICS_ERR_COMM, "NCCL: rank %d of %d could not join", who,
                        comm->comm.size);
}

static enum mics_status invite(struct nccl_comm *comm, struct invitation *invitation,
                               struct mics_err *err)
{
    struct mics_comm *control = comm->control;
    ncclResult_t result = ncclSuccess;

    if (control->rank == 0)
        result = ncclGetUniqueId(&invitation->id);
    invitation->failed = result != ncclSuccess;
    if (result != ncclSuccess)
        mics_nccl_failure(NULL, result, err);
    const enum mics_status status =
        control->ops->broadcast_now(control, invitation, sizeof *invitation, 0, err);

    if (status != MICS_OK || !invitation->failed)
        return status;
    if (control->rank != 0)
        mics_err_set(err, MICS_ERR_COMM, "NCCL: rank 0 could not invite");
    return MICS_ERR_COMM;
}

/* NULL: whoever ends the job has it. */
static ncclComm_t take_away(struct nccl_comm *comm)
{
    pthread_mutex_lock(&comm->family->lock);
    const ncclComm_t nccl = comm->nccl;

    comm->nccl = NULL;
    pthread_mutex_unlock(&comm->family->lock);
    return nccl;
}

/* Begin; whether the rank is in, NCCL's state tells later. `nccl` must stay where it is until then. */
static ncclResult_t begin(struct nccl_comm *comm, const struct invitation *invitation,
                          ncclComm_t *nccl)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    config.blocking = 0;
    pthread_mutex_lock(&comm->family->lock);
    const ncclResult_t result =
        ncclCommInitRankConfig(nccl, comm->comm.size, invitation->id, comm->comm.block, &config);
    comm->nccl = *nccl;
    pthread_mutex_unlock(&comm->family->lock);
    return result == ncclSuccess ? ncclInProgress : result;
}

enum mics_status mics_nccl_join(struct nccl_comm *comm, struct mics_err *err)
{
    struct invitation invitation;
    ncclComm_t nccl = NULL;
    enum mics_status status = invite(comm, &invitation, err);

    if (status != MICS_OK)
        return status;
    mics_cuda_use((struct cuda_device *)comm->family->device);
    status = wait_for_all(comm, begin(comm, &invitation, &nccl), err);
    atomic_store(&comm->joined, status == MICS_OK);
    if (status == MICS_OK) {
        mics_nccl_register(comm);
        return MICS_OK;
    }
    nccl = take_away(comm);
    if (nccl)
        (void)ncclCommAbort(nccl);
    return status;
}

static ncclResult_t finalize(struct nccl_comm *comm)
{
    struct mics_device *device = comm->family->device;
    ncclResult_t result = ncclRemoteError;

    if (device->ops->failure(device, NULL) != MICS_OK)
        return result;
    pthread_mutex_lock(&comm->family->lock);
    if (comm->nccl)
        result = ncclCommFinalize(comm->nccl);
    pthread_mutex_unlock(&comm->family->lock);
    return result;
}

void mics_nccl_leave(struct nccl_comm *comm)
{
    mics_nccl_deregister(comm);
    if (!comm->nccl)
        return;
    const ncclResult_t result = wait_a_round(comm, finalize(comm), LEAVE_NAPS);
    const ncclComm_t nccl = take_away(comm);

    if (nccl)
        (void)(result == ncclSuccess ? ncclCommDestroy(nccl) : ncclCommAbort(nccl));
}
