/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm_staged.c - a host's communicator for the memory of a device.
 *
 * A collective becomes rounds on the caller's stream: copy a chunk of every block to staging memory, a call that
 * carries out the host's collective on it, copy the result back. Everything is enqueued; nobody waits. One
 * communicator has one collective under way at a time, so one staging buffer is enough; the next round's copy
 * into it stands behind this round's copy out of it on the same stream, and calls of another
 * stream are the caller's to order, as for any communicator.
 *
 * Chunks send the same bytes as the whole would: those of an all_reduce are cut where each rank's share is a
 * whole number of elements, and none is so short that it would take the tree.
 */
#include "machine/comm_device.h"

#include "base/num.h"
#include "machine/comm_base.h"
#include "machine/comm_wire.h"
#include "machine/launch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct staged_comm {
    struct mics_comm comm;
    struct mics_comm *host;
    struct mics_device *device;
    char *staging; /* NULL: one rank */
    uint64_t staging_bytes;
};

static struct staged_comm *staged_of(struct mics_comm *comm)
{
    return (struct staged_comm *)comm;
}

static void copy(struct mics_stream *stream, void *dst, const void *src, uint64_t bytes)
{
    if (dst != src && bytes > 0)
        mics_launch_copy(stream, &(struct mics_op_copy){dst, src, bytes});
}

static void call_host(struct staged_comm *staged, struct mics_stream *stream,
                      const struct comm_call *call, bool first)
{
    mics_comm_base_enqueue((struct comm_base *)staged->host, stream, call, &staged->comm.counts,
                           first);
}

/* Elements of each of `blocks` blocks that fit. */
static uint64_t chunk_of(const struct staged_comm *staged, uint64_t blocks, size_t each)
{
    return staged->staging_bytes / (blocks * each);
}

static void staged_all_gather(struct mics_comm *comm, struct mics_stream *stream, const void *send,
                              void *recv, uint64_t count, enum mics_dtype dtype)
{
    struct staged_comm *staged = staged_of(comm);
    const size_t each = mics_dtype_bytes(dtype);
    const uint64_t size = (uint64_t)comm->size, own = (uint64_t)comm->block;
    const uint64_t chunk = chunk_of(staged, size, each);
    char *own_place = (char *)recv + own * count * each;

    if (size == 1) {
        copy(stream, recv, send, count * each);
        return;
    }
    for (uint64_t done = 0; done < count || done == 0; done += chunk) {
        const uint64_t part = mics_min_u64(chunk, count - done), bytes = part * each;
        const struct comm_call call = {.kind = COMM_ALL_GATHER,
                                       .dtype = dtype,
                                       .send = staged->staging + own * bytes,
                                       .recv = staged->staging,
                                       .count = part,
                                       .bytes = bytes};

        copy(stream, call.send, (const char *)send + done * each, bytes);
        call_host(staged, stream, &call, done == 0);
        for (uint64_t b = 0; b < size; b++)
            if (b != own || own_place != send)
                copy(stream, (char *)recv + (b * count + done) * each, staged->staging + b * bytes,
                     bytes);
    }
}

static void staged_reduce_scatter(struct mics_comm *comm, struct mics_stream *stream, void *send,
                                  void *recv, uint64_t count, enum mics_dtype dtype)
{
    struct staged_comm *staged = staged_of(comm);
    const size_t each = mics_dtype_bytes(dtype);
    const uint64_t size = (uint64_t)comm->size, own = (uint64_t)comm->block;
    const uint64_t chunk = chunk_of(staged, size, each);

    if (size == 1) {
        copy(stream, recv, send, count * each);
        return;
    }
    for (uint64_t done = 0; done < count || done == 0; done += chunk) {
        const uint64_t part = mics_min_u64(chunk, count - done), bytes = part * each;
        const struct comm_call call = {.kind = COMM_REDUCE_SCATTER,
                                       .dtype = dtype,
                                       .send = staged->staging,
                                       .recv = staged->staging + own * bytes,
                                       .count = part,
                                       .bytes = bytes};

        for (uint64_t b = 0; b < size; b++)
            copy(stream, staged->staging + b * bytes,
                 (const char *)send + (b * count + done) * each, bytes);
        call_host(staged, stream, &call, done == 0);
        copy(stream, (char *)recv + done * each, call.recv, bytes);
    }
}

/* The next chunk of an all_reduce that has `left` elements to go: a multiple of the ranks unless it is the last, and
 * what it leaves is nothing or more than the tree takes. */
static uint64_t reduce_chunk(const struct staged_comm *staged, uint64_t left, size_t each)
{
    const uint64_t size = (uint64_t)staged->comm.size, most = chunk_of(staged, 1, each);
    const uint64_t tree = COMM_TREE_REDUCE_BYTES / each;

    if (left <= most)
        return left;
    const uint64_t chunk = left - most <= tree ? most - tree : most;
    return chunk / size * size;
}

static void staged_all_reduce(struct mics_comm *comm, struct mics_stream *stream, void *data,
                              uint64_t count, enum mics_dtype dtype)
{
    struct staged_comm *staged = staged_of(comm);
    const size_t each = mics_dtype_bytes(dtype);
    uint64_t part;

    if (comm->size == 1)
        return;
    for (uint64_t done = 0; done < count || done == 0; done += mics_max_u64(part, 1)) {
        part = reduce_chunk(staged, count - done, each);

        char *at = (char *)data + done * each;
        const struct comm_call call = {.kind = COMM_ALL_REDUCE,
                                       .dtype = dtype,
                                       .recv = staged->staging,
                                       .count = part,
                                       .bytes = part * each};

        copy(stream, staged->staging, at, call.bytes);
        call_host(staged, stream, &call, done == 0);
        copy(stream, at, staged->staging, call.bytes);
    }
}

static void staged_broadcast(struct mics_comm *comm, struct mics_stream *stream, void *data,
                             uint64_t bytes, int root)
{
    struct staged_comm *staged = staged_of(comm);

    assert(root >= 0 && root < comm->size);
    if (comm->size == 1)
        return;
    for (uint64_t done = 0; done < bytes || done == 0; done += staged->staging_bytes) {
        const uint64_t part = mics_min_u64(staged->staging_bytes, bytes - done);
        const struct comm_call call = {.kind = COMM_BROADCAST,
                                       .root = root,
                                       .recv = staged->staging,
                                       .count = part,
                                       .bytes = part};

        if (comm->rank == root)
            copy(stream, staged->staging, (const char *)data + done, part);
        call_host(staged, stream, &call, done == 0);
        if (comm->rank != root)
            copy(stream, (char *)data + done, staged->staging, part);
    }
}

static void staged_barrier(struct mics_comm *comm, struct mics_stream *stream)
{
    if (comm->size > 1)
        call_host(staged_of(comm), stream, &(struct comm_call){.kind = COMM_BARRIER}, true);
}

/* Without a stream data are the host's, and need no detour. */
static enum mics_status staged_broadcast_now(struct mics_comm *comm, void *data, uint64_t bytes,
                                             int root, struct mics_err *err)
{
    struct mics_comm *host = staged_of(comm)->host;

    return host->ops->broadcast_now(host, data, bytes, root, err);
}

static enum mics_status staged_all_gather_now(struct mics_comm *comm, const void *send, void *recv,
                                              uint64_t bytes, struct mics_err *err)
{
    struct mics_comm *host = staged_of(comm)->host;

    return host->ops->all_gather_now(host, send, recv, bytes, err);
}

static enum mics_status staged_barrier_now(struct mics_comm *comm, struct mics_err *err)
{
    struct mics_comm *host = staged_of(comm)->host;

    return host->ops->barrier_now(host, err);
}

static enum mics_status staged_split(struct mics_comm *comm, int color, int key, int block,
                                     struct mics_comm **out, struct mics_err *err)
{
    struct staged_comm *staged = staged_of(comm);
    struct mics_comm *host = NULL;
    enum mics_status status = staged->host->ops->split(staged->host, color, key, block, &host, err);

    if (status != MICS_OK)
        return status;
    if (host)
        return mics_comm_new_staged(host, staged->device, out, err);
    *out = NULL;
    return MICS_OK;
}

static void staged_free(struct mics_comm *comm)
{
    struct staged_comm *staged = staged_of(comm);

    staged->host->ops->free(staged->host);
    if (staged->staging)
        staged->device->ops->host_release(staged->device, staged->staging);
    free(staged);
}

static void staged_abort(struct mics_comm *comm, int code)
{
    struct mics_comm *host = staged_of(comm)->host;

    host->ops->abort(host, code);
}

static const struct mics_comm_ops staged_ops = {
    .split = staged_split,
    .free = staged_free,
    .all_gather = staged_all_gather,
    .reduce_scatter = staged_reduce_scatter,
    .all_reduce = staged_all_reduce,
    .broadcast = staged_broadcast,
    .barrier = staged_barrier,
    .broadcast_now = staged_broadcast_now,
    .all_gather_now = staged_all_gather_now,
    .barrier_now = staged_barrier_now,
    .abort = staged_abort,
};

static enum mics_status allocate(struct staged_comm *staged, struct mics_err *err)
{
    const uint64_t ranks = (uint64_t)staged->comm.size;
    void *memory;

    if (ranks == 1)
        return MICS_OK;
    staged->staging_bytes = mics_max_u64(MICS_COMM_DETOUR_BYTES, 64 * ranks);
    enum mics_status status =
        staged->device->ops->host_alloc(staged->device, staged->staging_bytes, &memory, err);

    if (status == MICS_OK)
        staged->staging = memory;
    return status;
}

enum mics_status mics_comm_new_staged(struct mics_comm *host, struct mics_device *device,
                                      struct mics_comm **out, struct mics_err *err)
{
    struct staged_comm *staged = calloc(1, sizeof *staged);

    if (!staged) {
        host->ops->free(host);
        return mics_err_nomem(err);
    }
    staged->comm = *host;
    staged->comm.ops = &staged_ops;
    staged->comm.backend = "staged";
    staged->comm.counts = (struct mics_comm_counts){0};
    staged->host = host;
    staged->device = device;
    enum mics_status status = allocate(staged, err);

    if (status == MICS_OK)
        *out = &staged->comm;
    else
        staged_free(&staged->comm);
    return status;
}
