/* SPDX-License-Identifier: Apache-2.0 */
/*
 * issue.c - collectives to NCCL: one call, or a group of those that have joined, which NCCL launches as one.
 *
 * The calls of a group are kept here until the last has come. A group of NCCL's that is begun with the first would swallow
 * those of other communicators in between, whose streams go on without them.
 */
#include "comm/nccl/nccl.h"

#include <assert.h>
#include <time.h>

/* So long the word is with whoever knows more of a rank that went away: a watchdog, or that rank. */
static const int patience_naps = 800;
static const struct timespec nap = {.tv_nsec = 10 * 1000 * 1000};

static ncclDataType_t type_of(enum mics_dtype dtype)
{
    static const ncclDataType_t types[] = {
        [MICS_F32] = ncclFloat32, [MICS_F64] = ncclFloat64, [MICS_BF16] = ncclBfloat16};

    return types[dtype];
}

static const char *name_of(enum comm_kind kind)
{
    static const char *const names[] = {
        [COMM_ALL_GATHER] = "all_gather", [COMM_REDUCE_SCATTER] = "reduce_scatter",
        [COMM_ALL_REDUCE] = "all_reduce", [COMM_BROADCAST] = "broadcast",
        [COMM_BARRIER] = "barrier",
    };

    return names[kind];
}

static ncclResult_t call_nccl(const struct nccl_comm *comm, cudaStream_t stream,
                              const struct comm_call *call)
{
    const ncclDataType_t type = type_of(call->dtype);
    const ncclComm_t nccl = comm->nccl;

    switch (call->kind) {
    case COMM_ALL_GATHER:
        return ncclAllGather(call->send, call->recv, call->count, type, nccl, stream);
    case COMM_REDUCE_SCATTER:
        return ncclReduceScatter(call->send, call->recv, call->count, type, ncclSum, nccl, stream);
    case COMM_ALL_REDUCE:
        return ncclAllReduce(call->recv, call->recv, call->count, type, ncclSum, nccl, stream);
    case COMM_BROADCAST:
        return ncclBroadcast(call->recv, call->recv, call->bytes, ncclUint8,
                             comm->blocks[call->root], nccl, stream);
    default: /* nobody has the sum before all have come */
        return ncclAllReduce(comm->token, comm->token, 1, ncclFloat32, ncclSum, nccl, stream);
    }
}

/* An argument that NCCL finds wrong is told by its call alone, everything else by the end of the group. */
static ncclResult_t call_group(const struct nccl_comm *comm, cudaStream_t stream)
{
    ncclResult_t worst = ncclGroupStart(), result;

    if (worst != ncclSuccess)
        return worst;
    for (int i = 0; i < comm->waiting_count; i++) {
        result = call_nccl(comm, stream, &comm->waiting[i]);
        if (worst == ncclSuccess && result != ncclInProgress)
            worst = result;
    }
    result = ncclGroupEnd();
    return worst == ncclSuccess ? result : worst;
}

/* Everything that waits. The lock is held. */
static ncclResult_t call_all(struct nccl_comm *comm, cudaStream_t stream)
{
    const cudaEvent_t launch = comm->family->launch;

    if (!comm->nccl)
        return ncclRemoteError;
    if (launch && cudaStreamWaitEvent(stream, launch, 0) != cudaSuccess)
        return ncclUnhandledCudaError;
    return comm->waiting_count == 1 ? call_nccl(comm, stream, &comm->waiting[0])
                                    : call_group(comm, stream);
}

static ncclResult_t run_all(struct nccl_comm *comm, cudaStream_t stream)
{
    struct nccl_family *family = comm->family;

    pthread_mutex_lock(&family->lock);
    ncclResult_t result = call_all(comm, stream);
    pthread_mutex_unlock(&family->lock);
    result = mics_nccl_settle(comm, result);
    if (result == ncclSuccess && family->launch &&
        cudaEventRecord(family->launch, stream) != cudaSuccess)
        return ncclUnhandledCudaError;
    return result;
}

static void fail(struct nccl_comm *comm, ncclResult_t result)
{
    struct mics_device *device = comm->family->device;
    const enum comm_kind kind = comm->waiting[0].kind;
    struct mics_err err;

    for (int i = 0; result == ncclRemoteError && i < patience_naps; i++)
        if (!atomic_load(&comm->family->ending))
            nanosleep(&nap, NULL);
    if (atomic_load(&comm->family->ending)) /* the device has failed, and tells that */
        return;
    const enum mics_status status = mics_nccl_failure(comm, result, &err);
    mics_err_prefix(&err, "%s among %d ranks", name_of(kind), comm->comm.size);
    device->ops->fail(device, status, err.text);
}

/* Those of most families only split their first communicator; all ranks come to the first collective of it. */
static bool join_late(struct nccl_comm *comm)
{
    struct mics_device *device = comm->family->device;
    struct mics_err err;

    if (comm->joined)
        return true;
    const enum mics_status status = mics_nccl_join(comm, &err);
    if (status != MICS_OK)
        device->ops->fail(device, status, err.text);
    return status == MICS_OK;
}

void mics_nccl_issue(struct nccl_comm *comm, struct mics_stream *stream,
                     const struct comm_call *call, uint64_t sent_bytes)
{
    struct mics_device *device = stream->device;

    if (device->ops->failure(device, NULL) != MICS_OK || !join_late(comm)) {
        comm->waiting_count = 0;
        return;
    }
    comm->comm.counts.calls++;
    comm->comm.counts.sent_bytes += sent_bytes;
    assert(comm->waiting_count < MICS_COMM_JOINED_MAX);
    comm->waiting[comm->waiting_count++] = *call;
    if (comm->comm.joins)
        return;
    mics_cuda_use((struct cuda_device *)device);
    const ncclResult_t result = run_all(comm, ((struct cuda_stream *)stream)->stream);
    if (result != ncclSuccess)
        fail(comm, result);
    comm->waiting_count = 0;
}
