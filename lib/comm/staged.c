/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/staged.h"
#include "base/num.h"
#include "comm/backend.h"
#include "device/launch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static enum mics_status is_detour_asked(bool *out, struct mics_err *err)
{
    const char *text = getenv("MICS_COMM");

    *out = text && strcmp(text, "staged") == 0;
    if (!text || !*text || *out)
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_ARG, "MICS_COMM: expected \"staged\", found \"%s\"", text);
}

enum mics_status mics_comm_new_for_device(struct mics_comm *control, struct mics_device *device,
                                          struct mics_comm **out, struct mics_err *err)
{
    struct mics_comm *host = NULL;
    bool detour;
    enum mics_status status = is_detour_asked(&detour, err);

    if (status != MICS_OK)
        return status;
    if (device->ops->comm_open && !detour)
        return device->ops->comm_open(device, control, out, err);
    status = control->ops->split(control, 0, control->rank, control->rank, &host, err);
    if (status != MICS_OK)
        return status;
    if (!device->on_host || detour)
        return mics_comm_new_staged(host, device, out, err);
    *out = host;
    return MICS_OK;
}

/*
 * staged_exchange.c - a host's communicator for the memory of a device.
 *
 * A collective becomes rounds on the caller's stream: copy a chunk of every block to staging memory, a call that
 * carries out the host's collective on it, copy the result back. Everything is enqueued; nobody waits. One
 * communicator has one collective under way at a time, so one staging buffer is enough; the next round's copy
 * into it stands behind this round's copy out of it on the same stream, and calls of another
 * stream are the caller's to order, as for any communicator.
 *
 * Chunks send the same bytes as the whole would: those of an all_reduce are cut where each rank's share is a
 * whole number of elements, and none is so short that it would take the tree.
 *
 * Collectives that join are kept until the last of them has come. When all fit into the staging memory, side by side,
 * they are one round, whose calls join on the host; else each goes alone.
 */



struct staged_comm {
    struct mics_comm comm;
    struct mics_comm *host;
    struct mics_device *device;
    char *staging; /* NULL: one rank */
    uint64_t staging_bytes;
    struct comm_call waiting[MICS_COMM_JOINED_MAX]; /* for the one that they join */
    int waiting_count;
};

/* Elements [done, done + part) of a collective (of each of its blocks, where it has blocks) and their staging. */
struct round {
    const struct comm_call *whole;
    uint64_t done, part;
    char *place;
};

static struct staged_comm *staged_of(struct mics_comm *comm)
{
    return (struct staged_comm *)comm;
}

static bool has_blocks(const struct comm_call *call)
{
    return call->kind == COMM_ALL_GATHER || call->kind == COMM_REDUCE_SCATTER;
}

/* Bytes of an element; a broadcast counts bytes. */
static size_t each_of(const struct comm_call *call)
{
    return call->kind == COMM_BROADCAST ? 1 : mics_dtype_bytes(call->dtype);
}

static void copy(struct mics_stream *stream, void *dst, const void *src, uint64_t bytes)
{
    if (dst != src && bytes > 0)
        mics_launch_copy(stream, &(struct mics_op_copy){dst, src, bytes});
}

/* Where the round's part of block `block` is in `data`, an array of all blocks. */
static char *at(const struct round *round, void *data, uint64_t block)
{
    const struct comm_call *whole = round->whole;

    return (char *)data + (block * whole->count + round->done) * each_of(whole);
}

static uint64_t bytes_of(const struct round *round)
{
    return round->part * each_of(round->whole);
}

static void copy_in(const struct staged_comm *staged, struct mics_stream *stream,
                    const struct round *round)
{
    const struct comm_call *whole = round->whole;
    const uint64_t bytes = bytes_of(round), size = (uint64_t)staged->comm.size;

    if (whole->kind == COMM_ALL_GATHER)
        copy(stream, round->place + (uint64_t)staged->comm.block * bytes, at(round, whole->send, 0),
             bytes);
    for (uint64_t b = 0; whole->kind == COMM_REDUCE_SCATTER && b < size; b++)
        copy(stream, round->place + b * bytes, at(round, whole->send, b), bytes);
    if (whole->kind == COMM_ALL_REDUCE ||
        (whole->kind == COMM_BROADCAST && staged->comm.rank == whole->root))
        copy(stream, round->place, at(round, whole->recv, 0), bytes);
}

static void copy_out(const struct staged_comm *staged, struct mics_stream *stream,
                     const struct round *round)
{
    const struct comm_call *whole = round->whole;
    const uint64_t bytes = bytes_of(round), size = (uint64_t)staged->comm.size;
    const uint64_t own = (uint64_t)staged->comm.block;

    for (uint64_t b = 0; whole->kind == COMM_ALL_GATHER && b < size; b++)
        if (b != own || at(round, whole->recv, own) != at(round, whole->send, 0))
            copy(stream, at(round, whole->recv, b), round->place + b * bytes, bytes);
    if (whole->kind == COMM_REDUCE_SCATTER)
        copy(stream, at(round, whole->recv, 0), round->place + own * bytes, bytes);
    if (whole->kind == COMM_ALL_REDUCE ||
        (whole->kind == COMM_BROADCAST && staged->comm.rank != whole->root))
        copy(stream, at(round, whole->recv, 0), round->place, bytes);
}

/* The round on the host; `joins` the next one there. Only the first of a collective counts as a call. */
static void call_host(struct staged_comm *staged, struct mics_stream *stream,
                      const struct round *round, bool joins)
{
    const uint64_t bytes = bytes_of(round), own = (uint64_t)staged->comm.block * bytes;
    struct comm_call call = *round->whole;

    call.send = call.recv = round->place;
    if (call.kind == COMM_ALL_GATHER)
        call.send = round->place + own;
    else if (call.kind == COMM_REDUCE_SCATTER)
        call.recv = round->place + own;
    call.count = round->part;
    call.bytes = bytes;
    staged->host->joins = joins;
    mics_comm_base_enqueue((struct comm_base *)staged->host, stream, &call, &staged->comm.counts,
                           round->done == 0);
}

/* The next chunk of an all_reduce that has `left` elements to go: a multiple of the ranks unless it is the last, and
 * what it leaves is nothing or more than the tree takes. */
static uint64_t reduce_chunk(const struct staged_comm *staged, uint64_t left, size_t each)
{
    const uint64_t size = (uint64_t)staged->comm.size, most = staged->staging_bytes / each;
    const uint64_t tree = COMM_TREE_REDUCE_BYTES / each;

    if (left <= most)
        return left;
    const uint64_t chunk = left - most <= tree ? most - tree : most;
    return chunk / size * size;
}

static uint64_t chunk_of(const struct staged_comm *staged, const struct comm_call *call,
                         uint64_t left)
{
    const uint64_t blocks = has_blocks(call) ? (uint64_t)staged->comm.size : 1;

    if (call->kind == COMM_ALL_REDUCE)
        return reduce_chunk(staged, left, each_of(call));
    return mics_min_u64(staged->staging_bytes / (blocks * each_of(call)), left);
}

static void go_alone(struct staged_comm *staged, struct mics_stream *stream,
                     const struct comm_call *call)
{
    struct round round = {.whole = call, .place = staged->staging};

    do {
        round.part = chunk_of(staged, call, call->count - round.done);
        copy_in(staged, stream, &round);
        call_host(staged, stream, &round, false);
        copy_out(staged, stream, &round);
        round.done += round.part;
    } while (round.done < call->count);
}

/* Places for all that wait; false: they do not fit. */
static bool place_all(const struct staged_comm *staged, struct round *rounds)
{
    uint64_t used = 0;

    for (int i = 0; i < staged->waiting_count; i++) {
        const struct comm_call *call = &staged->waiting[i];
        const uint64_t blocks = has_blocks(call) ? (uint64_t)staged->comm.size : 1;

        rounds[i] =
            (struct round){.whole = call, .part = call->count, .place = staged->staging + used};
        if (blocks * bytes_of(&rounds[i]) > staged->staging_bytes - used)
            return false;
        used = mics_min_u64(mics_round_up(used + blocks * bytes_of(&rounds[i]), 64),
                            staged->staging_bytes);
    }
    return true;
}

static void go_together(struct staged_comm *staged, struct mics_stream *stream)
{
    const int count = staged->waiting_count;
    struct round rounds[MICS_COMM_JOINED_MAX];

    if (!place_all(staged, rounds)) {
        for (int i = 0; i < count; i++)
            go_alone(staged, stream, &staged->waiting[i]);
        return;
    }
    for (int i = 0; i < count; i++)
        copy_in(staged, stream, &rounds[i]);
    for (int i = 0; i < count; i++)
        call_host(staged, stream, &rounds[i], i + 1 < count);
    for (int i = 0; i < count; i++)
        copy_out(staged, stream, &rounds[i]);
}

static void enqueue(struct mics_comm *comm, struct mics_stream *stream, struct comm_call call)
{
    struct staged_comm *staged = staged_of(comm);

    if (!comm->joins && staged->waiting_count == 0) {
        go_alone(staged, stream, &call);
        return;
    }
    assert(staged->waiting_count < MICS_COMM_JOINED_MAX);
    staged->waiting[staged->waiting_count++] = call;
    if (comm->joins)
        return;
    go_together(staged, stream);
    staged->waiting_count = 0;
}

static void staged_all_gather(struct mics_comm *comm, struct mics_stream *stream, const void *send,
                              void *recv, uint64_t count, enum mics_dtype dtype)
{
    if (comm->size == 1)
        copy(stream, recv, send, count * mics_dtype_bytes(dtype));
    else
        enqueue(comm, stream,
                (struct comm_call){.kind = COMM_ALL_GATHER,
                                   .dtype = dtype,
                                   .send = (void *)send,
                                   .recv = recv,
                                   .count = count});
}

static void staged_reduce_scatter(struct mics_comm *comm, struct mics_stream *stream, void *send,
                                  void *recv, uint64_t count, enum mics_dtype dtype)
{
    if (comm->size == 1)
        copy(stream, recv, send, count * mics_dtype_bytes(dtype));
    else
        enqueue(comm, stream,
                (struct comm_call){.kind = COMM_REDUCE_SCATTER,
                                   .dtype = dtype,
                                   .send = send,
                                   .recv = recv,
                                   .count = count});
}

static void staged_all_reduce(struct mics_comm *comm, struct mics_stream *stream, void *data,
                              uint64_t count, enum mics_dtype dtype)
{
    if (comm->size > 1)
        enqueue(comm, stream,
                (struct comm_call){
                    .kind = COMM_ALL_REDUCE, .dtype = dtype, .recv = data, .count = count});
}

static void staged_broadcast(struct mics_comm *comm, struct mics_stream *stream, void *data,
                             uint64_t bytes, int root)
{
    assert(root >= 0 && root < comm->size);
    if (comm->size > 1)
        enqueue(
            comm, stream,
            (struct comm_call){.kind = COMM_BROADCAST, .root = root, .recv = data, .count = bytes});
}

static void staged_barrier(struct mics_comm *comm, struct mics_stream *stream)
{
    if (comm->size > 1)
        enqueue(comm, stream, (struct comm_call){.kind = COMM_BARRIER});
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
