/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.c - the table of a communicator, by NCCL.
 *
 * What is counted as sent is what the algorithm of comm.h sends, a ring's or a short tree's: which one NCCL takes,
 * and with what it wraps the data, it does not tell.
 */
#include "comm/nccl/nccl.h"
#include "device/launch.h"

#include <assert.h>
#include <stdlib.h>
#include <time.h>

static struct nccl_comm *nccl_of(struct mics_comm *comm)
{
    return (struct nccl_comm *)comm;
}

static void copy_alone(struct mics_stream *stream, void *dst, const void *src, uint64_t bytes)
{
    const struct mics_op_copy args = {dst, src, bytes};

    if (dst != src && bytes > 0)
        stream->device->ops->launch(stream, MICS_K_COPY, &args, sizeof args);
}

/* In NCCL's terms as in ours: in place where send is recv + block * count. */
static void nccl_all_gather(struct mics_comm *base, struct mics_stream *stream, const void *send,
                            void *recv, uint64_t count, enum mics_dtype dtype)
{
    const uint64_t bytes = count * mics_dtype_bytes(dtype);
    const struct comm_call call = {.kind = COMM_ALL_GATHER,
                                   .dtype = dtype,
                                   .send = (void *)send,
                                   .recv = recv,
                                   .count = count,
                                   .bytes = bytes};

    if (base->size == 1)
        copy_alone(stream, recv, send, bytes);
    else
        mics_nccl_issue(nccl_of(base), stream, &call, (uint64_t)(base->size - 1) * bytes);
}

static void nccl_reduce_scatter(struct mics_comm *base, struct mics_stream *stream, void *send,
                                void *recv, uint64_t count, enum mics_dtype dtype)
{
    const uint64_t bytes = count * mics_dtype_bytes(dtype);
    const struct comm_call call = {.kind = COMM_REDUCE_SCATTER,
                                   .dtype = dtype,
                                   .send = send,
                                   .recv = recv,
                                   .count = count,
                                   .bytes = bytes};

    if (base->size == 1)
        copy_alone(stream, recv, send, bytes);
    else
        mics_nccl_issue(nccl_of(base), stream, &call, (uint64_t)(base->size - 1) * bytes);
}

static void nccl_all_reduce(struct mics_comm *base, struct mics_stream *stream, void *data,
                            uint64_t count, enum mics_dtype dtype)
{
    const struct comm_call call = {.kind = COMM_ALL_REDUCE,
                                   .dtype = dtype,
                                   .recv = data,
                                   .count = count,
                                   .bytes = count * mics_dtype_bytes(dtype)};

    if (base->size > 1)
        mics_nccl_issue(nccl_of(base), stream, &call,
                        mics_comm_all_reduce_sent(base->size, base->rank, count, dtype));
}

static void nccl_broadcast(struct mics_comm *base, struct mics_stream *stream, void *data,
                           uint64_t bytes, int root)
{
    const struct comm_call call = {
        .kind = COMM_BROADCAST, .root = root, .recv = data, .count = bytes, .bytes = bytes};
    const int place = comm_mod(base->rank - root, base->size);

    assert(root >= 0 && root < base->size);
    if (base->size > 1)
        mics_nccl_issue(nccl_of(base), stream, &call,
                        mics_comm_broadcast_sent(base->size, place, bytes));
}

static void nccl_barrier(struct mics_comm *base, struct mics_stream *stream)
{
    if (base->size > 1)
        mics_nccl_issue(nccl_of(base), stream, &(struct comm_call){.kind = COMM_BARRIER}, 0);
}

static enum mics_status nccl_broadcast_now(struct mics_comm *base, void *data, uint64_t bytes,
                                           int root, struct mics_err *err)
{
    struct mics_comm *control = nccl_of(base)->control;

    return control->ops->broadcast_now(control, data, bytes, root, err);
}

static enum mics_status nccl_all_gather_now(struct mics_comm *base, const void *send, void *recv,
                                            uint64_t bytes, struct mics_err *err)
{
    struct mics_comm *control = nccl_of(base)->control;

    return control->ops->all_gather_now(control, send, recv, bytes, err);
}

static enum mics_status nccl_barrier_now(struct mics_comm *base, struct mics_err *err)
{
    struct mics_comm *control = nccl_of(base)->control;

    return control->ops->barrier_now(control, err);
}

static enum mics_status nccl_split(struct mics_comm *base, int color, int key, int block,
                                   struct mics_comm **out, struct mics_err *err)
{
    struct nccl_comm *comm = nccl_of(base);
    struct mics_comm *control = NULL;
    const enum mics_status status =
        comm->control->ops->split(comm->control, color, key, block, &control, err);

    if (status != MICS_OK)
        return status;
    if (control)
        return mics_nccl_comm_new(comm->family, control, false, out, err);
    *out = NULL;
    return MICS_OK;
}

static void nccl_free(struct mics_comm *base)
{
    struct nccl_comm *comm = nccl_of(base);
    struct mics_device *device = comm->family->device;

    mics_nccl_leave(comm);
    comm->control->ops->free(comm->control);
    if (comm->token)
        device->ops->release(device, comm->token);
    mics_nccl_family_remove(comm->family, comm);
    free(comm->blocks);
    free(comm);
}

static void nccl_cancel(struct mics_comm *base)
{
    struct nccl_family *family = nccl_of(base)->family;

    mics_nccl_family_end(family);
    family->device->ops->fail(family->device, MICS_ERR_COMM, "NCCL: the job is being ended");
}

static void nccl_abort(struct mics_comm *base, int code)
{
    struct nccl_comm *comm = nccl_of(base);

    mics_nccl_family_end(comm->family);
    comm->control->ops->abort(comm->control, code);
}

const struct mics_comm_ops mics_nccl_ops = {
    .split = nccl_split,
    .free = nccl_free,
    .all_gather = nccl_all_gather,
    .reduce_scatter = nccl_reduce_scatter,
    .all_reduce = nccl_all_reduce,
    .broadcast = nccl_broadcast,
    .barrier = nccl_barrier,
    .broadcast_now = nccl_broadcast_now,
    .all_gather_now = nccl_all_gather_now,
    .barrier_now = nccl_barrier_now,
    .check = mics_nccl_check,
    .cancel = nccl_cancel,
    .abort = nccl_abort,
};

/*
 * issue.c - collectives to NCCL: one call, or a group of those that have joined, which NCCL launches as one.
 *
 * The calls of a group are kept here until the last has come. A group of NCCL's that is begun with the first would swallow
 * those of other communicators in between, whose streams go on without them.
 */


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
