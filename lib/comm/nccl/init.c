/* SPDX-License-Identifier: Apache-2.0 */
/*
 * init.c - creating communicators, and how ranks join and leave NCCL.
 *
 * NCCL waits forever for a rank that fails before it has joined. So no rank waits inside NCCL: it
 * initialises in the background, and every half second the ranks exchange their states over the
 * host's communicator.
 */
#include "comm/nccl/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The first communicator --------------------------------------------------------------------- */

/* What each rank reports about its GPU and NCCL. */
struct rank_info {
    char uuid[16];
    char host_id[64]; /* $NCCL_HOSTID: NCCL takes different values for different machines */
    int version;      /* of NCCL */
    bool can_register;
    enum nccl_register setting;
};

static struct rank_info own_info(const struct nccl_context *context)
{
    const char *host_id = getenv("NCCL_HOSTID");
    struct rank_info info = {.version = context->version,
                             .can_register = mics_nccl_can_register(context->version),
                             .setting = mics_nccl_register_setting()};

    memcpy(info.uuid, context->device->uuid, sizeof info.uuid);
    snprintf(info.host_id, sizeof info.host_id, "%s", host_id ? host_id : "");
    return info;
}

static bool share_gpu(const struct rank_info *a, const struct rank_info *b)
{
    if (memcmp(a->uuid, b->uuid, sizeof a->uuid) != 0)
        return false;
    return !a->host_id[0] || !b->host_id[0] || strcmp(a->host_id, b->host_id) == 0;
}

/* Some versions of NCCL hang when two ranks share a GPU. All ranks check the same data, so all of
 * them fail or none. */
static enum mics_status check_gpus(const struct mics_device *device, const struct rank_info *all,
                                   int size, struct mics_err *err)
{
    for (int i = 0; i < size; i++)
        for (int j = 0; j < i; j++)
            if (share_gpu(&all[i], &all[j]))
                return mics_err_set(err, MICS_ERR_DEVICE,
                                    "ranks %d and %d are on the same GPU, but NCCL needs one GPU "
                                    "per rank (this rank has %s); MICS_COMM=staged runs without "
                                    "NCCL",
                                    j, i, device->description ? device->description : "one");
    return MICS_OK;
}

/* Memory is registered if some rank asks for it, and all ranks can and none refuses. */
static enum mics_status choose_memory(const struct rank_info *all, int size, bool *registers,
                                      struct mics_err *err)
{
    bool on = false, off = false;

    for (int i = 0; i < size; i++) {
        if (all[i].setting == NCCL_REGISTER_BAD)
            return mics_err_set(err, MICS_ERR_ARG, "MICS_NCCL_REGISTER: expected 0 or 1");
        on |= all[i].setting == NCCL_REGISTER_ON;
        off |= all[i].setting == NCCL_REGISTER_OFF;
    }
    if (on && off)
        return mics_err_set(err, MICS_ERR_ARG,
                            "MICS_NCCL_REGISTER: 1 on some ranks, but 0 on others");
    *registers = on;
    for (int i = 0; *registers && i < size; i++)
        if (!all[i].can_register)
            return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                                "MICS_NCCL_REGISTER=1: not possible on rank %d: NCCL is version "
                                "%d.%d.%d (2.19 is needed), or NCCL_CUMEM_ENABLE or "
                                "NCCL_LOCAL_REGISTER is 0",
                                i, all[i].version / 10000, all[i].version / 100 % 100,
                                all[i].version % 100);
    return MICS_OK;
}

/* Check the ranks' GPUs and choose settings that must be the same on all of them. */
static enum mics_status compare_ranks(struct nccl_context *context, struct mics_comm *control,
                                      struct mics_err *err)
{
    struct cuda_device *device = (struct cuda_device *)context->device;
    const struct rank_info own = own_info(context);
    struct rank_info *all = calloc((size_t)control->size, sizeof *all);
    const int version = context->version;
    bool registers = false;

    if (!all)
        return mics_err_nomem(err);
    enum mics_status status = mics_comm_all_gather_now(control, &own, all, sizeof own, err);

    if (status == MICS_OK)
        status = check_gpus(context->device, all, control->size, err);
    if (status == MICS_OK)
        status = choose_memory(all, control->size, &registers, err);
    free(all);
    if (status != MICS_OK)
        return status;
    if (registers && !device->exchange)
        device->exchange = context;
    snprintf(context->detail, sizeof context->detail, "%d.%d.%d%s", version / 10000,
             version / 100 % 100, version % 100, registers ? ", registered memory" : "");
    return MICS_OK;
}

enum mics_status mics_nccl_open(struct mics_device *device, struct mics_comm *control,
                                struct mics_comm **out, struct mics_err *err)
{
    struct mics_comm *own = NULL;
    struct nccl_context *context = NULL;

    mics_cuda_use((struct cuda_device *)device);
    enum mics_status status = mics_nccl_context_new(device, &context, err);
    if (status != MICS_OK)
        return status;
    status = compare_ranks(context, control, err);
    if (status == MICS_OK)
        status = mics_comm_split(control, 0, control->rank, control->rank, &own, err);
    if (status == MICS_OK)
        return mics_nccl_comm_new(context, own, true, out, err);
    mics_nccl_context_free(context);
    return status;
}

/* Any communicator --------------------------------------------------------------------------- */

static enum mics_status open_comm(struct nccl_comm *comm, bool late, struct mics_err *err)
{
    struct mics_device *device = comm->context->device;
    struct mics_comm *control = comm->control;
    void *token;

    if (control->size == 1)
        return MICS_OK;
    comm->base.blocks = calloc((size_t)control->size, sizeof *comm->base.blocks);
    enum mics_status status = comm->base.blocks ? MICS_OK : mics_err_nomem(err);
    if (status == MICS_OK)
        status = device->ops->alloc(device, sizeof *comm->token, &token, err);
    if (status != MICS_OK)
        return status;
    comm->token = token;
    status = mics_comm_all_gather_now(control, &control->block, comm->base.blocks,
                                      sizeof *comm->base.blocks, err);
    return status == MICS_OK && !late ? mics_nccl_join(comm, err) : status;
}

enum mics_status mics_nccl_comm_new(struct nccl_context *context, struct mics_comm *control,
                                    bool late, struct mics_comm **out, struct mics_err *err)
{
    struct nccl_comm *comm = calloc(1, sizeof *comm);

    if (!comm) {
        mics_comm_free(control);
        return mics_err_nomem(err);
    }
    comm->base.comm = *control;
    mics_comm_base_init(&comm->base, &mics_nccl_backend);
    comm->base.comm.detail = context->detail;
    comm->control = control;
    comm->context = context;
    mics_nccl_context_add(context, comm);
    const enum mics_status status = open_comm(comm, late, err);

    if (status == MICS_OK)
        *out = &comm->base.comm;
    else
        mics_nccl_backend.free(&comm->base.comm);
    return status;
}

/* Joining and leaving ------------------------------------------------------------------------ */

enum { POLL_US = 500, EXCHANGE_POLLS = 1000, LEAVE_POLLS = 10000 };

static const struct timespec poll_sleep = {.tv_nsec = POLL_US * 1000};

/* What rank 0 broadcasts first. */
struct invitation {
    ncclUniqueId id;
    int failed;
};

enum join_state { JOIN_PENDING, JOIN_DONE, JOIN_FAILED };

/* Poll NCCL until it is done, `polls` times at most. */
static ncclResult_t poll_state(const struct nccl_comm *comm, ncclResult_t result, int polls)
{
    for (int i = 0; i < polls && result == ncclInProgress; i++) {
        result = mics_nccl_read_state(comm);
        if (result == ncclInProgress)
            nanosleep(&poll_sleep, NULL);
    }
    return result;
}

static enum join_state join_state_of(ncclResult_t result)
{
    if (result == ncclInProgress)
        return JOIN_PENDING;
    return result == ncclSuccess ? JOIN_DONE : JOIN_FAILED;
}

/* *worst = the worst state of all ranks; *rank = the first rank in that state. */
static enum mics_status exchange_states(struct nccl_comm *comm, enum join_state own,
                                        enum join_state *all, enum join_state *worst, int *rank,
                                        struct mics_err *err)
{
    static const int badness[] = {[JOIN_DONE] = 0, [JOIN_PENDING] = 1, [JOIN_FAILED] = 2};
    struct mics_comm *control = comm->control;
    const enum mics_status status = mics_comm_all_gather_now(control, &own, all, sizeof own, err);

    *worst = JOIN_DONE;
    *rank = 0;
    for (int i = 0; i < control->size && status == MICS_OK; i++) {
        if (badness[all[i]] > badness[*worst]) {
            *worst = all[i];
            *rank = i;
        }
    }
    return status;
}

/* Until all ranks have joined or one has failed. All ranks return together, with the same
 * outcome. */
static enum mics_status wait_for_all(struct nccl_comm *comm, ncclResult_t result,
                                     struct mics_err *err)
{
    const int size = comm->base.comm.size;
    enum join_state *all = calloc((size_t)size, sizeof *all);
    enum join_state worst = JOIN_PENDING;
    enum mics_status status = all ? MICS_OK : mics_err_nomem(err);
    int rank = 0;

    while (status == MICS_OK && worst == JOIN_PENDING) {
        result = poll_state(comm, result, EXCHANGE_POLLS);
        status = exchange_states(comm, join_state_of(result), all, &worst, &rank, err);
    }
    free(all);
    if (status != MICS_OK || worst == JOIN_DONE)
        return status;
    if (join_state_of(result) == JOIN_FAILED)
        return mics_nccl_failure(comm, result, err);
    return mics_err_set(err, MICS_ERR_COMM, "NCCL: rank %d of %d failed to join", rank, size);
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
        mics_comm_broadcast_now(control, invitation, sizeof *invitation, 0, err);

    if (status != MICS_OK || !invitation->failed)
        return status;
    if (control->rank != 0)
        mics_err_set(err, MICS_ERR_COMM, "NCCL: rank 0 failed to create a unique id");
    return MICS_ERR_COMM;
}

/* Take the NCCL communicator out of `comm`. NULL: it was aborted. */
static ncclComm_t detach(struct nccl_comm *comm)
{
    pthread_mutex_lock(&comm->context->lock);
    const ncclComm_t nccl = comm->nccl;

    comm->nccl = NULL;
    pthread_mutex_unlock(&comm->context->lock);
    return nccl;
}

/* Start joining. NCCL writes to *nccl until its state is no longer ncclInProgress. */
static ncclResult_t begin_join(struct nccl_comm *comm, const struct invitation *invitation,
                               ncclComm_t *nccl)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    config.blocking = 0;
    pthread_mutex_lock(&comm->context->lock);
    const ncclResult_t result = ncclCommInitRankConfig(nccl, comm->base.comm.size, invitation->id,
                                                       comm->base.comm.block, &config);
    comm->nccl = *nccl;
    pthread_mutex_unlock(&comm->context->lock);
    return result == ncclSuccess ? ncclInProgress : result;
}

enum mics_status mics_nccl_join(struct nccl_comm *comm, struct mics_err *err)
{
    struct invitation invitation;
    ncclComm_t nccl = NULL;
    enum mics_status status = invite(comm, &invitation, err);

    if (status != MICS_OK)
        return status;
    mics_cuda_use((struct cuda_device *)comm->context->device);
    status = wait_for_all(comm, begin_join(comm, &invitation, &nccl), err);
    atomic_store(&comm->joined, status == MICS_OK);
    if (status == MICS_OK) {
        mics_nccl_register(comm);
        return MICS_OK;
    }
    nccl = detach(comm);
    if (nccl)
        (void)ncclCommAbort(nccl);
    return status;
}

static ncclResult_t finalize(struct nccl_comm *comm)
{
    struct mics_device *device = comm->context->device;
    ncclResult_t result = ncclRemoteError;

    if (device->ops->failure(device, NULL) != MICS_OK)
        return result;
    pthread_mutex_lock(&comm->context->lock);
    if (comm->nccl)
        result = ncclCommFinalize(comm->nccl);
    pthread_mutex_unlock(&comm->context->lock);
    return result;
}

void mics_nccl_leave(struct nccl_comm *comm)
{
    mics_nccl_deregister(comm);
    if (!comm->nccl)
        return;
    const ncclResult_t result = poll_state(comm, finalize(comm), LEAVE_POLLS);
    const ncclComm_t nccl = detach(comm);

    if (nccl)
        (void)(result == ncclSuccess ? ncclCommDestroy(nccl) : ncclCommAbort(nccl));
}
