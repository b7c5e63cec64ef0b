/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/backend.h"

#include "device/launch.h"

#include "host/sum.h"

#include <assert.h>
#include <string.h>

const char *mics_comm_call_name(enum comm_kind kind)
{
    static const char *const names[] = {
        [COMM_ALL_GATHER] = "all_gather", [COMM_REDUCE_SCATTER] = "reduce_scatter",
        [COMM_ALL_REDUCE] = "all_reduce", [COMM_BROADCAST] = "broadcast",
        [COMM_BARRIER] = "barrier",
    };

    return names[kind];
}

void mics_comm_accumulate(void *into, const void *from, uint64_t count, enum mics_dtype dtype)
{
    if (dtype == MICS_F64)
        mics_host_accumulate_f64(into, from, count);
    else if (dtype == MICS_BF16)
        mics_host_accumulate_bf16(into, from, count);
    else
        mics_host_accumulate_f32(into, from, count);
}

void mics_comm_sum(void *out, const void *a, const void *b, uint64_t count, enum mics_dtype dtype)
{
    if (dtype == MICS_F64)
        mics_host_sum_f64(out, a, b, count);
    else if (dtype == MICS_BF16)
        mics_host_sum_bf16(out, a, b, count);
    else
        mics_host_sum_f32(out, a, b, count);
}

/* What a call in a stream carries. */
struct errand {
    struct comm_base *base;
    struct mics_device *device;
    struct mics_comm_counts *counts;
    bool first, joins;
    struct comm_call call;
};

static enum mics_status execute(struct comm_base *base, const struct comm_call *call,
                                struct comm_sent *sent, struct mics_err *err)
{
    enum mics_status status = base->execute(base, call, sent, err);

    if (status != MICS_OK)
        mics_err_prefix(err, "%s among %d ranks", mics_comm_call_name(call->kind), base->comm.size);
    return status;
}

/* With the calls that wait for this one. */
static enum mics_status execute_joined(struct comm_base *base, struct comm_call *last,
                                       struct comm_sent *sent, struct mics_err *err)
{
    struct comm_call *waiting = base->waiting;
    const int count = base->waiting_count;

    base->waiting_count = 0;
    for (int i = 0; i < count; i++)
        waiting[i].next = i + 1 < count ? &waiting[i + 1] : last;
    return execute(base, count > 0 ? waiting : last, sent, err);
}

/* In the stream's thread. */
static void run_errand(void *context)
{
    struct errand *errand = context;
    struct mics_err err = {""};
    struct comm_sent sent = {0};

    errand->counts->calls += errand->first;
    if (errand->joins) {
        assert(errand->base->waiting_count < MICS_COMM_JOINED_MAX - 1);
        errand->base->waiting[errand->base->waiting_count++] = errand->call;
        return;
    }
    enum mics_status status = execute_joined(errand->base, &errand->call, &sent, &err);
    errand->counts->sent_bytes += sent.bytes;
    errand->counts->net_bytes += sent.net_bytes;
    if (status != MICS_OK)
        errand->device->ops->fail(errand->device, status, err.text);
}

void mics_comm_base_enqueue(struct comm_base *base, struct mics_stream *stream,
                            const struct comm_call *call, struct mics_comm_counts *counts,
                            bool first)
{
    const struct errand errand = {
        base, stream->device, counts, first, base->comm.joins && base->takes_joined, *call};
    struct mics_op_call op = {.fn = run_errand};

    static_assert(sizeof errand <= sizeof op.payload, "an errand fits into a call");
    memcpy(op.payload, &errand, sizeof errand);
    mics_launch_call(stream, &op);
}

static void enqueue(struct mics_comm *comm, struct mics_stream *stream, struct comm_call call)
{
    mics_comm_base_enqueue((struct comm_base *)comm, stream, &call, &comm->counts, true);
}

static void copy_alone(struct mics_stream *stream, const void *send, void *recv, uint64_t bytes)
{
    if (send != recv && bytes > 0)
        mics_launch_copy(stream, &(struct mics_op_copy){recv, send, bytes});
}

void mics_comm_base_all_gather(struct mics_comm *comm, struct mics_stream *stream, const void *send,
                               void *recv, uint64_t count, enum mics_dtype dtype)
{
    const uint64_t bytes = count * mics_dtype_bytes(dtype);

    if (comm->size == 1)
        copy_alone(stream, send, recv, bytes);
    else
        enqueue(comm, stream,
                (struct comm_call){.kind = COMM_ALL_GATHER,
                                   .dtype = dtype,
                                   .send = (void *)send,
                                   .recv = recv,
                                   .count = count,
                                   .bytes = bytes});
}

void mics_comm_base_reduce_scatter(struct mics_comm *comm, struct mics_stream *stream, void *send,
                                   void *recv, uint64_t count, enum mics_dtype dtype)
{
    const uint64_t bytes = count * mics_dtype_bytes(dtype);

    if (comm->size == 1)
        copy_alone(stream, send, recv, bytes);
    else
        enqueue(comm, stream,
                (struct comm_call){.kind = COMM_REDUCE_SCATTER,
                                   .dtype = dtype,
                                   .send = send,
                                   .recv = recv,
                                   .count = count,
                                   .bytes = bytes});
}

void mics_comm_base_all_reduce(struct mics_comm *comm, struct mics_stream *stream, void *data,
                               uint64_t count, enum mics_dtype dtype)
{
    if (comm->size > 1)
        enqueue(comm, stream,
                (struct comm_call){.kind = COMM_ALL_REDUCE,
                                   .dtype = dtype,
                                   .recv = data,
                                   .count = count,
                                   .bytes = count * mics_dtype_bytes(dtype)});
}

static struct comm_call broadcast_call(void *data, uint64_t bytes, int root)
{
    return (struct comm_call){
        .kind = COMM_BROADCAST, .root = root, .recv = data, .count = bytes, .bytes = bytes};
}

void mics_comm_base_broadcast(struct mics_comm *comm, struct mics_stream *stream, void *data,
                              uint64_t bytes, int root)
{
    assert(root >= 0 && root < comm->size);
    if (comm->size > 1)
        enqueue(comm, stream, broadcast_call(data, bytes, root));
}

void mics_comm_base_barrier(struct mics_comm *comm, struct mics_stream *stream)
{
    if (comm->size > 1)
        enqueue(comm, stream, (struct comm_call){.kind = COMM_BARRIER});
}

/* Not counted: it is no part of a step. */
static enum mics_status execute_now(struct mics_comm *comm, struct comm_call call,
                                    struct mics_err *err)
{
    struct comm_sent sent = {0};

    return execute((struct comm_base *)comm, &call, &sent, err);
}

enum mics_status mics_comm_base_broadcast_now(struct mics_comm *comm, void *data, uint64_t bytes,
                                              int root, struct mics_err *err)
{
    assert(root >= 0 && root < comm->size);
    if (comm->size == 1)
        return MICS_OK;
    return execute_now(comm, broadcast_call(data, bytes, root), err);
}

enum mics_status mics_comm_base_all_gather_now(struct mics_comm *comm, const void *send, void *recv,
                                               uint64_t bytes, struct mics_err *err)
{
    if (comm->size == 1) {
        if (send != recv && bytes > 0)
            memcpy(recv, send, bytes);
        return MICS_OK;
    }
    return execute_now(comm,
                       (struct comm_call){.kind = COMM_ALL_GATHER,
                                          .in_rank_order = true,
                                          .send = (void *)send,
                                          .recv = recv,
                                          .count = bytes,
                                          .bytes = bytes},
                       err);
}

enum mics_status mics_comm_base_barrier_now(struct mics_comm *comm, struct mics_err *err)
{
    if (comm->size == 1)
        return MICS_OK;
    return execute_now(comm, (struct comm_call){.kind = COMM_BARRIER}, err);
}
