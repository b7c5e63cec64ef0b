/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.c - the table of NCCL's communicators, and how collectives are issued.
 *
 * Bytes are counted as comm.h defines them, for a ring or a short tree: NCCL reports neither the
 * algorithm that it chooses nor the bytes that its protocols add.
 */
#include "comm/nccl/nccl.h"

#include <stdlib.h>
#include <time.h>

/* How long a rank that sees another rank fail leaves the report to that rank or to a watchdog. */
static const int remote_error_sleeps = 800;
static const struct timespec remote_error_sleep = {.tv_nsec = 10 * 1000 * 1000};

static struct nccl_comm *nccl_of(struct mics_comm *comm)
{
    return (struct nccl_comm *)comm;
}

/* Issuing ------------------------------------------------------------------------------------ */

static ncclDataType_t type_of(enum mics_dtype dtype)
{
    static const ncclDataType_t types[] = {[MICS_F32] = ncclFloat32,
                                           [MICS_F64] = ncclFloat64,
                                           [MICS_BF16] = ncclBfloat16,
                                           [MICS_F16] = ncclFloat16,
                                           [MICS_U8] = ncclUint8};

    return types[dtype];
}

/* NCCL reports an invalid argument from the call itself, everything else from the end of the
 * group. */
static void keep_error(ncclResult_t *first, ncclResult_t result)
{
    if (*first == ncclSuccess && result != ncclInProgress)
        *first = result;
}

/* A rank of NCCL is a block. */
static ncclResult_t all_to_all(const struct nccl_comm *comm, cudaStream_t stream,
                               const struct comm_call *call)
{
    const ncclDataType_t type = type_of(call->dtype);
    ncclResult_t first = ncclGroupStart(), result;

    if (first != ncclSuccess)
        return first;
    for (int peer = 0; peer < comm->base.comm.size; peer++) {
        const uint64_t offset = (uint64_t)peer * call->bytes;

        result = ncclSend((char *)call->send + offset, call->count, type, peer, comm->nccl, stream);
        keep_error(&first, result);
        result = ncclRecv((char *)call->recv + offset, call->count, type, peer, comm->nccl, stream);
        keep_error(&first, result);
    }
    result = ncclGroupEnd();
    return first == ncclSuccess ? result : first;
}

static ncclResult_t issue_call(const struct nccl_comm *comm, cudaStream_t stream,
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
    case COMM_ALL_TO_ALL:
        return all_to_all(comm, stream, call);
    case COMM_BROADCAST:
        return ncclBroadcast(call->recv, call->recv, call->bytes, ncclUint8,
                             comm->base.blocks[call->root], nccl, stream);
    default: /* a barrier: no rank has the sum before all have contributed */
        return ncclAllReduce(comm->token, comm->token, 1, ncclFloat32, ncclSum, nccl, stream);
    }
}

static ncclResult_t issue_group(const struct nccl_comm *comm, cudaStream_t stream,
                                const struct comm_call *calls, int count)
{
    ncclResult_t first = ncclGroupStart(), result;

    if (first != ncclSuccess)
        return first;
    for (int i = 0; i < count; i++) {
        result = issue_call(comm, stream, &calls[i]);
        keep_error(&first, result);
    }
    result = ncclGroupEnd();
    return first == ncclSuccess ? result : first;
}

/* The context's lock is held. */
static ncclResult_t issue_locked(const struct nccl_comm *comm, cudaStream_t stream,
                                 const struct comm_call *calls, int count)
{
    const cudaEvent_t launch = comm->context->launch;

    if (!comm->nccl)
        return ncclRemoteError;
    if (launch && cudaStreamWaitEvent(stream, launch, 0) != cudaSuccess)
        return ncclUnhandledCudaError;
    return count == 1 ? issue_call(comm, stream, calls) : issue_group(comm, stream, calls, count);
}

static ncclResult_t issue(const struct nccl_comm *comm, cudaStream_t stream,
                          const struct comm_call *calls, int count)
{
    struct nccl_context *context = comm->context;

    pthread_mutex_lock(&context->lock);
    ncclResult_t result = issue_locked(comm, stream, calls, count);
    pthread_mutex_unlock(&context->lock);
    result = mics_nccl_wait(comm, result);
    if (result == ncclSuccess && context->launch &&
        cudaEventRecord(context->launch, stream) != cudaSuccess)
        return ncclUnhandledCudaError;
    return result;
}

static void fail_device(struct nccl_comm *comm, enum comm_call_kind kind, ncclResult_t result)
{
    struct mics_device *device = comm->context->device;
    struct mics_err err;

    for (int i = 0; result == ncclRemoteError && i < remote_error_sleeps; i++)
        if (!atomic_load(&comm->context->aborting))
            nanosleep(&remote_error_sleep, NULL);
    if (atomic_load(&comm->context->aborting)) /* the device has failed with the cause */
        return;
    const enum mics_status status = mics_nccl_failure(comm, result, &err);
    mics_err_prefix(&err, "%s among %d ranks", mics_comm_call_name(kind), comm->base.comm.size);
    device->ops->fail(device, status, err.text);
}

/* The first communicator joins with its first collective, because most jobs only split it. */
static bool has_joined(struct nccl_comm *comm)
{
    struct mics_device *device = comm->context->device;
    struct mics_err err;

    if (comm->joined)
        return true;
    const enum mics_status status = mics_nccl_join(comm, &err);
    if (status != MICS_OK)
        device->ops->fail(device, status, err.text);
    return status == MICS_OK;
}

static void nccl_submit(struct comm_base *base, struct mics_stream *stream,
                        const struct comm_call *calls, int count)
{
    struct nccl_comm *comm = nccl_of(&base->comm);
    struct mics_device *device = stream->device;

    if (device->ops->failure(device, NULL) != MICS_OK || !has_joined(comm))
        return;
    for (int i = 0; i < count; i++)
        base->counts->sent_bytes += mics_comm_call_sent(base, &calls[i]);
    mics_cuda_use((struct cuda_device *)device);
    const ncclResult_t result = issue(comm, ((struct cuda_stream *)stream)->stream, calls, count);
    if (result != ncclSuccess)
        fail_device(comm, calls->kind, result);
}

/* The table ---------------------------------------------------------------------------------- */

/* Blocking calls are on host memory. */
static enum mics_status nccl_execute(struct comm_base *base, const struct comm_call *calls,
                                     int count, struct comm_sent *sent, struct mics_err *err)
{
    struct comm_base *control = (struct comm_base *)nccl_of(&base->comm)->control;

    return control->backend->execute(control, calls, count, sent, err);
}

static enum mics_status nccl_split(struct mics_comm *base, int color, int key, int block,
                                   struct mics_comm **out, struct mics_err *err)
{
    struct nccl_comm *comm = nccl_of(base);
    struct mics_comm *control = NULL;
    const enum mics_status status =
        mics_comm_split(comm->control, color, key, block, &control, err);

    if (status != MICS_OK)
        return status;
    if (control)
        return mics_nccl_comm_new(comm->context, control, false, out, err);
    *out = NULL;
    return MICS_OK;
}

static void nccl_free(struct mics_comm *base)
{
    struct nccl_comm *comm = nccl_of(base);
    struct mics_device *device = comm->context->device;

    mics_nccl_leave(comm);
    mics_comm_free(comm->control);
    if (comm->token)
        device->ops->release(device, comm->token);
    mics_nccl_context_remove(comm->context, comm);
    free(comm->base.blocks);
    free(comm);
}

static void nccl_cancel(struct mics_comm *base)
{
    mics_nccl_context_abort(nccl_of(base)->context);
}

static void nccl_abort(struct mics_comm *base, int code)
{
    struct nccl_comm *comm = nccl_of(base);

    mics_nccl_context_abort(comm->context);
    mics_comm_abort(comm->control, code);
}

static const struct mics_comm_health_ops nccl_health = {.check = mics_nccl_check,
                                                        .cancel = nccl_cancel};

const struct comm_backend mics_nccl_backend = {.name = "nccl",
                                               .health = &nccl_health,
                                               .split = nccl_split,
                                               .free = nccl_free,
                                               .abort = nccl_abort,
                                               .submit = nccl_submit,
                                               .execute = nccl_execute};
