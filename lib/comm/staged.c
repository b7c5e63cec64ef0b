/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staged.c - collectives on device memory through host memory, and the choice of a device's
 * backend.
 *
 * A collective becomes rounds on the caller's stream: copy a chunk of every block to staging
 * memory, run the host's collective on it, copy the result back. Everything is enqueued; nothing
 * waits. A communicator runs one collective at a time, so one staging buffer is enough: the next
 * round's copy into it follows this round's copy out of it on the same stream, and ordering calls
 * on different streams is the caller's task, as for any communicator.
 *
 * The chunks send the same bytes as the whole would: those of an all_reduce end where each rank's
 * share is a whole number of elements, and none is short enough to use the tree.
 *
 * The collectives of a group are one round when all of them fit into the staging memory, side by
 * side; the host's communicator then receives them as one group. Otherwise they run one by one.
 */
#include "comm/staged.h"

#include "base/num.h"
#include "comm/backend.h"
#include "device/launch.h"

#include <stdlib.h>
#include <string.h>

struct staged_comm {
    struct comm_base base;
    struct comm_base *host;
    struct mics_device *device;
    char *staging; /* NULL: one rank */
    uint64_t staging_bytes;
};

/* Elements [begin, begin + count) of a collective (of each block, where it has blocks), and the
 * staging memory that they use. */
struct round {
    const struct comm_call *whole;
    uint64_t begin, count;
    char *staging;
};

static struct staged_comm *staged_of(struct mics_comm *comm)
{
    return (struct staged_comm *)comm;
}

static bool has_blocks(const struct comm_call *call)
{
    return call->kind == COMM_ALL_GATHER || call->kind == COMM_REDUCE_SCATTER ||
           call->kind == COMM_ALL_TO_ALL;
}

/* Blocks of staging memory: an all_to_all has those that it sends, then those that it receives. */
static uint64_t staged_blocks(const struct staged_comm *staged, const struct comm_call *call)
{
    const uint64_t size = (uint64_t)staged->base.comm.size;

    return call->kind == COMM_ALL_TO_ALL ? 2 * size : has_blocks(call) ? size : 1;
}

/* Bytes per element; a broadcast counts bytes. */
static size_t element_bytes(const struct comm_call *call)
{
    return call->kind == COMM_BROADCAST ? 1 : mics_dtype_bytes(call->dtype);
}

static void copy(struct mics_stream *stream, void *dst, const void *src, uint64_t bytes)
{
    if (dst != src && bytes > 0)
        mics_launch_copy(stream, &(struct mics_args_copy){dst, src, bytes});
}

/* The round's part of block `block` of `data`, an array of all blocks. */
static char *part_of(const struct round *round, void *data, uint64_t block)
{
    const struct comm_call *whole = round->whole;

    return (char *)data + (block * whole->count + round->begin) * element_bytes(whole);
}

static uint64_t round_bytes(const struct round *round)
{
    return round->count * element_bytes(round->whole);
}

static void copy_in(const struct staged_comm *staged, struct mics_stream *stream,
                    const struct round *round)
{
    const struct comm_call *whole = round->whole;
    const uint64_t bytes = round_bytes(round), size = (uint64_t)staged->base.comm.size;

    if (whole->kind == COMM_ALL_GATHER)
        copy(stream, round->staging + (uint64_t)staged->base.comm.block * bytes,
             part_of(round, whole->send, 0), bytes);
    const bool sends_all = whole->kind == COMM_REDUCE_SCATTER || whole->kind == COMM_ALL_TO_ALL;
    for (uint64_t b = 0; sends_all && b < size; b++)
        copy(stream, round->staging + b * bytes, part_of(round, whole->send, b), bytes);
    if (whole->kind == COMM_ALL_REDUCE ||
        (whole->kind == COMM_BROADCAST && staged->base.comm.rank == whole->root))
        copy(stream, round->staging, part_of(round, whole->recv, 0), bytes);
}

static void copy_out(const struct staged_comm *staged, struct mics_stream *stream,
                     const struct round *round)
{
    const struct comm_call *whole = round->whole;
    const uint64_t bytes = round_bytes(round), size = (uint64_t)staged->base.comm.size;
    const uint64_t own = (uint64_t)staged->base.comm.block;

    for (uint64_t b = 0; whole->kind == COMM_ALL_GATHER && b < size; b++)
        if (b != own || part_of(round, whole->recv, own) != part_of(round, whole->send, 0))
            copy(stream, part_of(round, whole->recv, b), round->staging + b * bytes, bytes);
    for (uint64_t b = 0; whole->kind == COMM_ALL_TO_ALL && b < size; b++)
        copy(stream, part_of(round, whole->recv, b), round->staging + (size + b) * bytes, bytes);
    if (whole->kind == COMM_REDUCE_SCATTER)
        copy(stream, part_of(round, whole->recv, 0), round->staging + own * bytes, bytes);
    if (whole->kind == COMM_ALL_REDUCE ||
        (whole->kind == COMM_BROADCAST && staged->base.comm.rank != whole->root))
        copy(stream, part_of(round, whole->recv, 0), round->staging, bytes);
}

/* The round's collective on staging memory. */
static struct comm_call host_call(const struct staged_comm *staged, const struct round *round)
{
    const uint64_t bytes = round_bytes(round), own = (uint64_t)staged->base.comm.block * bytes;
    struct comm_call call = *round->whole;

    call.send = round->staging + (call.kind == COMM_ALL_GATHER ? own : 0);
    call.recv = round->staging + (call.kind == COMM_REDUCE_SCATTER ? own : 0);
    if (call.kind == COMM_ALL_TO_ALL)
        call.recv = round->staging + (uint64_t)staged->base.comm.size * bytes;
    call.count = round->count;
    call.bytes = bytes;
    return call;
}

static void run_rounds(const struct staged_comm *staged, struct mics_stream *stream,
                       const struct round *rounds, int count)
{
    struct comm_call calls[MICS_COMM_GROUP_MAX] = {0};

    for (int i = 0; i < count; i++) {
        copy_in(staged, stream, &rounds[i]);
        calls[i] = host_call(staged, &rounds[i]);
    }
    staged->host->backend->submit(staged->host, stream, calls, count);
    for (int i = 0; i < count; i++)
        copy_out(staged, stream, &rounds[i]);
}

/* Elements of the next chunk of a collective of which `left` elements remain. A chunk of an
 * all_reduce is a multiple of the ranks unless it is the last, and what remains of a sum after
 * it is nothing or more than what is summed in another order than the ring's. */
static uint64_t chunk_count(const struct staged_comm *staged, const struct comm_call *call,
                            uint64_t left)
{
    const uint64_t size = (uint64_t)staged->base.comm.size, each = element_bytes(call);
    const uint64_t unit = staged_blocks(staged, call) * each;
    const uint64_t most = staged->staging_bytes / unit;
    const uint64_t special =
        mics_max_u64(MICS_COMM_TREE_REDUCE_BYTES, mics_comm_short_bytes((int)size)) / unit;

    if (left <= most)
        return left;
    if (call->kind != COMM_ALL_REDUCE && call->kind != COMM_REDUCE_SCATTER)
        return most;
    const uint64_t count = left - most <= special ? most - special : most;
    return call->kind == COMM_ALL_REDUCE ? count / size * size : count;
}

static void run_in_chunks(const struct staged_comm *staged, struct mics_stream *stream,
                          const struct comm_call *call)
{
    struct round round = {.whole = call, .staging = staged->staging};

    do {
        round.count = chunk_count(staged, call, call->count - round.begin);
        run_rounds(staged, stream, &round, 1);
        round.begin += round.count;
    } while (round.begin < call->count);
}

/* Assign staging memory to whole calls side by side; false: they do not fit. */
static bool place_rounds(const struct staged_comm *staged, const struct comm_call *calls, int count,
                         struct round *rounds)
{
    uint64_t used = 0;

    for (int i = 0; i < count; i++) {
        rounds[i] = (struct round){
            .whole = &calls[i], .count = calls[i].count, .staging = staged->staging + used};
        const uint64_t bytes = staged_blocks(staged, &calls[i]) * round_bytes(&rounds[i]);

        if (bytes > staged->staging_bytes - used)
            return false;
        used = mics_min_u64(mics_round_up(used + bytes, 64), staged->staging_bytes);
    }
    return true;
}

static void staged_submit(struct comm_base *base, struct mics_stream *stream,
                          const struct comm_call *calls, int count)
{
    const struct staged_comm *staged = staged_of(&base->comm);
    struct round rounds[MICS_COMM_GROUP_MAX];

    if (place_rounds(staged, calls, count, rounds)) {
        run_rounds(staged, stream, rounds, count);
        return;
    }
    for (int i = 0; i < count; i++)
        run_in_chunks(staged, stream, &calls[i]);
}

/* Blocking calls are on host memory: no staging. */
static enum mics_status staged_execute(struct comm_base *base, const struct comm_call *calls,
                                       int count, struct comm_sent *sent, struct mics_err *err)
{
    struct comm_base *host = staged_of(&base->comm)->host;

    return host->backend->execute(host, calls, count, sent, err);
}

static enum mics_status staged_split(struct mics_comm *comm, int color, int key, int block,
                                     struct mics_comm **out, struct mics_err *err)
{
    const struct staged_comm *staged = staged_of(comm);
    struct mics_comm *parent = &staged->host->comm, *host = NULL;
    const enum mics_status status = mics_comm_split(parent, color, key, block, &host, err);

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
    struct mics_comm *host = &staged->host->comm;

    mics_comm_free(host);
    if (staged->staging)
        staged->device->ops->host_release(staged->device, staged->staging);
    free(staged);
}

static void staged_abort(struct mics_comm *comm, int code)
{
    struct mics_comm *host = &staged_of(comm)->host->comm;

    mics_comm_abort(host, code);
}

static const struct comm_backend staged_backend = {.name = "staged",
                                                   .split = staged_split,
                                                   .free = staged_free,
                                                   .abort = staged_abort,
                                                   .submit = staged_submit,
                                                   .execute = staged_execute};

enum mics_status mics_comm_new_staged(struct mics_comm *host, struct mics_device *device,
                                      struct mics_comm **out, struct mics_err *err)
{
    struct staged_comm *staged = calloc(1, sizeof *staged);
    enum mics_status status = MICS_OK;
    void *memory = NULL;

    if (!staged) {
        mics_comm_free(host);
        return mics_err_nomem(err);
    }
    staged->base.comm = *host;
    mics_comm_base_init(&staged->base, &staged_backend);
    staged->device = device;
    staged->host = (struct comm_base *)host;
    staged->host->counts = &staged->base.comm.counts;
    if (host->size > 1) {
        staged->staging_bytes = mics_max_u64(MICS_COMM_STAGED_BYTES, 64 * (uint64_t)host->size);
        status = device->ops->host_alloc(device, staged->staging_bytes, &memory, err);
        staged->staging = memory;
    }
    if (status == MICS_OK)
        *out = &staged->base.comm;
    else
        staged_free(&staged->base.comm);
    return status;
}

enum mics_status mics_comm_new_for_device(struct mics_comm *control, struct mics_device *device,
                                          struct mics_comm **out, struct mics_err *err)
{
    const char *asked = getenv("MICS_COMM");
    const bool staged = asked && strcmp(asked, "staged") == 0;
    struct mics_comm *host = NULL;

    if (asked && *asked && !staged)
        return mics_err_set(err, MICS_ERR_ARG, "MICS_COMM: expected \"staged\", found \"%s\"",
                            asked);
    if (device->ops->comm_open && !staged)
        return device->ops->comm_open(device, control, out, err);
    const enum mics_status status =
        mics_comm_split(control, 0, control->rank, control->rank, &host, err);
    if (status != MICS_OK)
        return status;
    if (!device->on_host || staged)
        return mics_comm_new_staged(host, device, out, err);
    *out = host;
    return MICS_OK;
}
