/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backend.c - the functions of comm.h, for all backends. The plug-in has a copy of its own.
 */
#include "comm/backend.h"

#include "device/device.h"

#include <assert.h>
#include <string.h>

const char *mics_comm_call_name(enum comm_call_kind kind)
{
    static const char *const names[] = {
        [COMM_ALL_GATHER] = "all_gather", [COMM_REDUCE_SCATTER] = "reduce_scatter",
        [COMM_ALL_REDUCE] = "all_reduce", [COMM_ALL_TO_ALL] = "all_to_all",
        [COMM_BROADCAST] = "broadcast",   [COMM_BARRIER] = "barrier",
        [COMM_EXCHANGE] = "exchange",
    };

    return names[kind];
}

void mics_comm_group_begin(struct mics_comm *comm)
{
    struct comm_base *base = (struct comm_base *)comm;

    assert(!base->group_open);
    base->group_open = true;
    base->group_count = 0;
}

void mics_comm_group_end(struct mics_comm *comm)
{
    struct comm_base *base = (struct comm_base *)comm;

    assert(base->group_open);
    base->group_open = false;
    if (base->group_count > 0)
        base->backend->submit(base, base->group_stream, base->group, base->group_count);
}

static void enqueue(struct mics_comm *comm, struct mics_stream *stream, struct comm_call call)
{
    struct comm_base *base = (struct comm_base *)comm;

    comm->counts.calls++;
    if (!base->group_open) {
        base->backend->submit(base, stream, &call, 1);
        return;
    }
    assert(base->group_count < MICS_COMM_GROUP_MAX);
    assert(base->group_count == 0 ||
           (stream == base->group_stream && call.kind == base->group[0].kind &&
            call.dtype == base->group[0].dtype));
    base->group_stream = stream;
    base->group[base->group_count++] = call;
}

static bool has_sums(enum mics_dtype dtype)
{
    return dtype == MICS_F32 || dtype == MICS_F64 || mics_dtype_is_half(dtype);
}

/* All that a collective with blocks does for a single rank. */
static void copy_own(struct mics_stream *stream, const void *send, void *recv, uint64_t bytes)
{
    const struct mics_args_copy copy = {recv, send, bytes};

    if (send != recv && bytes > 0)
        stream->device->ops->launch(stream, MICS_K_COPY, &copy, sizeof copy);
}

void mics_comm_all_gather(struct mics_comm *comm, struct mics_stream *stream, const void *send,
                          void *recv, uint64_t count, enum mics_dtype dtype)
{
    const uint64_t bytes = count * mics_dtype_bytes(dtype);

    if (comm->size == 1)
        copy_own(stream, send, recv, bytes);
    else
        enqueue(comm, stream,
                (struct comm_call){.kind = COMM_ALL_GATHER,
                                   .dtype = dtype,
                                   .send = (void *)send,
                                   .recv = recv,
                                   .count = count,
                                   .bytes = bytes});
}

void mics_comm_reduce_scatter(struct mics_comm *comm, struct mics_stream *stream, void *send,
                              void *recv, uint64_t count, enum mics_dtype dtype)
{
    const uint64_t bytes = count * mics_dtype_bytes(dtype);

    assert(has_sums(dtype));
    if (comm->size == 1)
        copy_own(stream, send, recv, bytes);
    else
        enqueue(comm, stream,
                (struct comm_call){.kind = COMM_REDUCE_SCATTER,
                                   .dtype = dtype,
                                   .send = send,
                                   .recv = recv,
                                   .count = count,
                                   .bytes = bytes});
}

void mics_comm_all_reduce(struct mics_comm *comm, struct mics_stream *stream, void *data,
                          uint64_t count, enum mics_dtype dtype)
{
    assert(has_sums(dtype));
    if (comm->size > 1)
        enqueue(comm, stream,
                (struct comm_call){.kind = COMM_ALL_REDUCE,
                                   .dtype = dtype,
                                   .recv = data,
                                   .count = count,
                                   .bytes = count * mics_dtype_bytes(dtype)});
}

void mics_comm_all_to_all(struct mics_comm *comm, struct mics_stream *stream, const void *send,
                          void *recv, uint64_t count, enum mics_dtype dtype)
{
    mics_comm_all_to_all_if(comm, stream, send, recv, count, dtype, NULL);
}

void mics_comm_all_to_all_if(struct mics_comm *comm, struct mics_stream *stream, const void *send,
                             void *recv, uint64_t count, enum mics_dtype dtype,
                             const uint32_t *active)
{
    const uint64_t bytes = count * mics_dtype_bytes(dtype);

    assert(count == 0 || send != recv);
    if (comm->size == 1)
        copy_own(stream, send, recv, bytes);
    else
        enqueue(comm, stream,
                (struct comm_call){.kind = COMM_ALL_TO_ALL,
                                   .active = stream->device->on_host ? active : NULL,
                                   .dtype = dtype,
                                   .send = (void *)send,
                                   .recv = recv,
                                   .count = count,
                                   .bytes = bytes});
}

void mics_comm_copy_own(const struct comm_base *base, const struct comm_call *call)
{
    const uint64_t offset = (uint64_t)comm_block_of(base, call, base->comm.rank) * call->bytes;
    const char *from = (char *)call->send + (call->kind == COMM_ALL_TO_ALL ? offset : 0);
    char *to = (char *)call->recv + offset;

    if (to != from && call->bytes > 0)
        memcpy(to, from, call->bytes);
}

static struct comm_call broadcast_call(const struct mics_comm *comm, void *data, uint64_t bytes,
                                       int root)
{
    (void)comm;
    assert(root >= 0 && root < comm->size);
    return (struct comm_call){
        .kind = COMM_BROADCAST, .root = root, .recv = data, .count = bytes, .bytes = bytes};
}

void mics_comm_broadcast(struct mics_comm *comm, struct mics_stream *stream, void *data,
                         uint64_t bytes, int root)
{
    const struct comm_call call = broadcast_call(comm, data, bytes, root);

    if (comm->size > 1)
        enqueue(comm, stream, call);
}

void mics_comm_barrier(struct mics_comm *comm, struct mics_stream *stream)
{
    if (comm->size > 1)
        enqueue(comm, stream, (struct comm_call){.kind = COMM_BARRIER});
}

enum mics_status mics_comm_execute(struct comm_base *base, const struct comm_call *calls, int count,
                                   struct comm_sent *sent, struct mics_err *err)
{
    const enum mics_status status = base->backend->execute(base, calls, count, sent, err);

    if (status != MICS_OK)
        mics_err_prefix(err, "%s among %d ranks", mics_comm_call_name(calls->kind),
                        base->comm.size);
    return status;
}

static enum mics_status execute_now(struct mics_comm *comm, struct comm_call call,
                                    struct mics_err *err)
{
    struct comm_sent sent = {0};

    return mics_comm_execute((struct comm_base *)comm, &call, 1, &sent, err);
}

enum mics_status mics_comm_broadcast_now(struct mics_comm *comm, void *data, uint64_t bytes,
                                         int root, struct mics_err *err)
{
    const struct comm_call call = broadcast_call(comm, data, bytes, root);

    return comm->size == 1 ? MICS_OK : execute_now(comm, call, err);
}

enum mics_status mics_comm_all_gather_now(struct mics_comm *comm, const void *send, void *recv,
                                          uint64_t bytes, struct mics_err *err)
{
    const struct comm_call call = {.kind = COMM_ALL_GATHER,
                                   .in_rank_order = true,
                                   .send = (void *)send,
                                   .recv = recv,
                                   .count = bytes,
                                   .bytes = bytes};

    if (comm->size > 1)
        return execute_now(comm, call, err);
    if (send != recv && bytes > 0)
        memcpy(recv, send, bytes);
    return MICS_OK;
}

enum mics_status mics_comm_barrier_now(struct mics_comm *comm, struct mics_err *err)
{
    return comm->size == 1 ? MICS_OK
                           : execute_now(comm, (struct comm_call){.kind = COMM_BARRIER}, err);
}

enum mics_status mics_comm_sendrecv_now(struct mics_comm *comm, const void *send,
                                        uint64_t send_bytes, int to, void *recv,
                                        uint64_t recv_bytes, int from, double within_s,
                                        struct mics_err *err)
{
    const struct comm_call call = {.kind = COMM_EXCHANGE,
                                   .root = to,
                                   .from = from,
                                   .send = (void *)send,
                                   .recv = recv,
                                   .count = from < 0 ? 0 : recv_bytes,
                                   .bytes = to < 0 ? 0 : send_bytes,
                                   .within_s = within_s};

    assert(to < comm->size && to != comm->rank && from < comm->size && from != comm->rank);
    return comm->size == 1 ? MICS_OK : execute_now(comm, call, err);
}

enum mics_status mics_comm_split(struct mics_comm *comm, int color, int key, int block,
                                 struct mics_comm **out, struct mics_err *err)
{
    return ((struct comm_base *)comm)->backend->split(comm, color, key, block, out, err);
}

void mics_comm_free(struct mics_comm *comm)
{
    ((struct comm_base *)comm)->backend->free(comm);
}

void mics_comm_abort(struct mics_comm *comm, int code)
{
    ((struct comm_base *)comm)->backend->abort(comm, code);
}

void mics_comm_base_init(struct comm_base *base, const struct comm_backend *backend)
{
    base->backend = backend;
    base->counts = &base->comm.counts;
    base->comm.backend = backend->name;
    base->comm.health = backend->health;
    base->comm.heartbeat = backend->heartbeat;
    base->comm.counts = (struct mics_comm_counts){0};
}
