/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_comm.c - the table of a communicator, by NCCL.
 *
 * What is counted as sent is what the algorithm of comm.h sends, a ring's or a short tree's: which one NCCL takes,
 * and with what it wraps the data, it does not tell.
 */
#include "machine/cuda/nccl.h"

#include "machine/comm_wire.h"
#include "machine/launch.h"

#include <assert.h>
#include <stdlib.h>

static ncclDataType_t type_of(enum mics_dtype dtype)
{
    static const ncclDataType_t types[] = {
        [MICS_F32] = ncclFloat32, [MICS_F64] = ncclFloat64, [MICS_BF16] = ncclBfloat16};

    return types[dtype];
}

static cudaStream_t cuda_of(struct mics_stream *stream)
{
    return ((struct cuda_stream *)stream)->stream;
}

/* Before a call of NCCL: is there any use in it? */
static bool begin(struct nccl_comm *comm, struct mics_stream *stream)
{
    if (comm->comm.size == 1 || stream->device->ops->failure(stream->device, NULL) != MICS_OK)
        return false;
    mics_cuda_use((struct cuda_device *)stream->device);
    return comm->nccl != NULL;
}

/* After it: count, or make its failure the device's. */
static void end(struct nccl_comm *comm, struct mics_stream *stream, ncclResult_t result,
                const char *what, uint64_t sent_bytes)
{
    struct mics_device *device = stream->device;
    struct mics_err err;

    result = mics_nccl_settle(comm, result);
    if (result != ncclSuccess && !atomic_load(&comm->family->ending)) {
        const enum mics_status status = mics_nccl_failure(comm, result, &err);

        mics_err_prefix(&err, "%s among %d ranks", what, comm->comm.size);
        device->ops->fail(device, status, err.text);
    } else if (result != ncclSuccess) {
        device->ops->fail(device, MICS_ERR_COMM, "NCCL: the job is being ended");
    }
    comm->comm.counts.calls++;
    comm->comm.counts.sent_bytes += sent_bytes;
}

static void copy_alone(struct mics_stream *stream, void *dst, const void *src, uint64_t bytes)
{
    const struct mics_op_copy args = {dst, src, bytes};

    if (dst != src && bytes > 0)
        stream->device->ops->launch(stream, MICS_K_COPY, &args, sizeof args);
}

static void nccl_all_gather(struct mics_comm *base, struct mics_stream *stream, const void *send,
                            void *recv, uint64_t count, enum mics_dtype dtype)
{
    struct nccl_comm *comm = (struct nccl_comm *)base;
    const uint64_t bytes = count * mics_dtype_bytes(dtype);

    if (base->size == 1)
        copy_alone(stream, recv, send, bytes);
    if (!begin(comm, stream))
        return;
    const ncclResult_t result =
        ncclAllGather(send, recv, count, type_of(dtype), comm->nccl, cuda_of(stream));
    end(comm, stream, result, "all_gather", (uint64_t)(base->size - 1) * bytes);
}

static void nccl_reduce_scatter(struct mics_comm *base, struct mics_stream *stream, void *send,
                                void *recv, uint64_t count, enum mics_dtype dtype)
{
    struct nccl_comm *comm = (struct nccl_comm *)base;
    const uint64_t bytes = count * mics_dtype_bytes(dtype);

    if (base->size == 1)
        copy_alone(stream, recv, send, bytes);
    if (!begin(comm, stream))
        return;
    const ncclResult_t result =
        ncclReduceScatter(send, recv, count, type_of(dtype), ncclSum, comm->nccl, cuda_of(stream));
    end(comm, stream, result, "reduce_scatter", (uint64_t)(base->size - 1) * bytes);
}

static void nccl_all_reduce(struct mics_comm *base, struct mics_stream *stream, void *data,
                            uint64_t count, enum mics_dtype dtype)
{
    struct nccl_comm *comm = (struct nccl_comm *)base;

    if (!begin(comm, stream))
        return;
    const ncclResult_t result =
        ncclAllReduce(data, data, count, type_of(dtype), ncclSum, comm->nccl, cuda_of(stream));
    end(comm, stream, result, "all_reduce",
        mics_comm_all_reduce_sent(base->size, base->rank, count, dtype));
}

static void nccl_broadcast(struct mics_comm *base, struct mics_stream *stream, void *data,
                           uint64_t bytes, int root)
{
    struct nccl_comm *comm = (struct nccl_comm *)base;

    assert(root >= 0 && root < base->size);
    if (!begin(comm, stream))
        return;
    const ncclResult_t result = ncclBroadcast(data, data, bytes, ncclUint8, comm->blocks[root],
                                              comm->nccl, cuda_of(stream));
    end(comm, stream, result, "broadcast",
        mics_comm_broadcast_sent(base->size, comm_mod(base->rank - root, base->size), bytes));
}

/* Nobody has the sum before all have come. */
static void nccl_barrier(struct mics_comm *base, struct mics_stream *stream)
{
    struct nccl_comm *comm = (struct nccl_comm *)base;

    if (!begin(comm, stream))
        return;
    const ncclResult_t result = ncclAllReduce(comm->token, comm->token, 1, ncclFloat32, ncclSum,
                                              comm->nccl, cuda_of(stream));
    end(comm, stream, result, "barrier", 0);
}

static enum mics_status nccl_broadcast_now(struct mics_comm *base, void *data, uint64_t bytes,
                                           int root, struct mics_err *err)
{
    struct mics_comm *control = ((struct nccl_comm *)base)->control;

    return control->ops->broadcast_now(control, data, bytes, root, err);
}

static enum mics_status nccl_all_gather_now(struct mics_comm *base, const void *send, void *recv,
                                            uint64_t bytes, struct mics_err *err)
{
    struct mics_comm *control = ((struct nccl_comm *)base)->control;

    return control->ops->all_gather_now(control, send, recv, bytes, err);
}

static enum mics_status nccl_barrier_now(struct mics_comm *base, struct mics_err *err)
{
    struct mics_comm *control = ((struct nccl_comm *)base)->control;

    return control->ops->barrier_now(control, err);
}

static enum mics_status nccl_split(struct mics_comm *base, int color, int key, int block,
                                   struct mics_comm **out, struct mics_err *err)
{
    struct nccl_comm *comm = (struct nccl_comm *)base;
    struct mics_comm *control = NULL;
    const enum mics_status status =
        comm->control->ops->split(comm->control, color, key, block, &control, err);

    if (status != MICS_OK)
        return status;
    if (control)
        return mics_nccl_comm_new(comm->family, control, out, err);
    *out = NULL;
    return MICS_OK;
}

static void nccl_free(struct mics_comm *base)
{
    struct nccl_comm *comm = (struct nccl_comm *)base;
    struct mics_device *device = comm->family->device;

    mics_nccl_leave(comm);
    comm->control->ops->free(comm->control);
    if (comm->token)
        device->ops->release(device, comm->token);
    mics_nccl_family_remove(comm->family, comm);
    free(comm->blocks);
    free(comm);
}

static void nccl_abort(struct mics_comm *base, int code)
{
    struct nccl_comm *comm = (struct nccl_comm *)base;

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
    .abort = nccl_abort,
};
