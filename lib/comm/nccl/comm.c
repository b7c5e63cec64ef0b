/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.c - the table of a communicator, by NCCL.
 *
 * What is counted as sent is what the algorithm of comm.h sends, a ring's or a short tree's: which one NCCL takes,
 * and with what it wraps the data, it does not tell.
 */
#include "comm/nccl/nccl.h"

#include "comm/routes.h"
#include "device/launch.h"

#include <assert.h>
#include <stdlib.h>

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
