/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.c - what backends for host memory share: calls on streams, sums, the members of a split; and
 * the backend of a single rank.
 */
#include "comm/backend.h"

#include "base/num.h"
#include "comm/cpu_time.h"
#include "device/launch.h"
#include "host/sum.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Calls on streams --------------------------------------------------------------------------- */

/* The payload of an operation on a stream: call `index` of a batch of `count`. A whole batch does
 * not fit into one payload. */
struct stream_call {
    struct comm_base *base;
    struct mics_device *device;
    int index, count;
    struct comm_call call;
};

/* In the stream's thread. */
static void run_stream_call(void *context)
{
    const struct stream_call *part = context;
    struct comm_base *base = part->base;
    struct comm_sent sent = {0};
    struct mics_err err = {""};

    base->batch[part->index] = part->call;
    if (part->index + 1 < part->count)
        return;
    if (part->call.active && *part->call.active == 0)
        return;
    const struct comm_thread_time began = mics_comm_cpu_begin();
    const enum mics_status status = mics_comm_execute(base, base->batch, part->count, &sent, &err);

    mics_comm_cpu_end(began);
    base->counts->sent_bytes += sent.bytes;
    base->counts->net_bytes += sent.net_bytes;
    if (status != MICS_OK)
        part->device->ops->fail(part->device, status, err.text);
}

void mics_comm_host_submit(struct comm_base *base, struct mics_stream *stream,
                           const struct comm_call *calls, int count)
{
    for (int i = 0; i < count; i++) {
        const struct stream_call part = {base, stream->device, i, count, calls[i]};
        struct mics_args_call op = {.fn = run_stream_call};

        static_assert(sizeof part <= sizeof op.payload, "a call fits into an operation's payload");
        memcpy(op.payload, &part, sizeof part);
        mics_launch_call(stream, &op);
    }
}

/* Sums --------------------------------------------------------------------------------------- */

void mics_comm_accumulate(void *into, const void *from, uint64_t count, enum mics_dtype dtype)
{
    if (dtype == MICS_F64)
        mics_host_accumulate_f64(into, from, count);
    else if (dtype == MICS_BF16)
        mics_host_accumulate_bf16(into, from, count);
    else if (dtype == MICS_F16)
        mics_host_accumulate_f16(into, from, count);
    else
        mics_host_accumulate_f32(into, from, count);
}

void mics_comm_sum(void *out, const void *a, const void *b, uint64_t count, enum mics_dtype dtype)
{
    if (dtype == MICS_F64)
        mics_host_sum_f64(out, a, b, count);
    else if (dtype == MICS_BF16)
        mics_host_sum_bf16(out, a, b, count);
    else if (dtype == MICS_F16)
        mics_host_sum_f16(out, a, b, count);
    else
        mics_host_sum_f32(out, a, b, count);
}

/* Members of a split ------------------------------------------------------------------------- */

/* The arguments of one rank. */
struct split_args {
    int color, key, block, rank;
    uint64_t tag;
};

static int compare_args(const void *left, const void *right)
{
    const struct split_args *a = left, *b = right;

    if (a->color != b->color)
        return a->color < b->color ? -1 : 1;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->rank < b->rank ? -1 : 1;
}

static enum mics_status check_blocks(const struct comm_split *split, struct mics_err *err)
{
    bool *taken = calloc((unsigned)split->size, sizeof *taken);
    enum mics_status status = MICS_OK;

    if (!taken)
        return mics_err_nomem(err);
    for (int i = 0; i < split->size && status == MICS_OK; i++) {
        const int block = split->blocks[i];

        if (block < 0 || block >= split->size)
            status =
                mics_err_set(err, MICS_ERR_ARG, "split: block %d of %d ranks", block, split->size);
        else if (taken[block])
            status = mics_err_set(err, MICS_ERR_ARG, "split: two ranks have block %d", block);
        else
            taken[block] = true;
    }
    free(taken);
    return status;
}

/* Sorts `all`. */
static enum mics_status select_members(struct split_args *all, int count,
                                       const struct split_args *own, struct comm_split *out,
                                       struct mics_err *err)
{
    int first = 0;

    for (int i = 0; i < count; i++)
        out->max_tag = mics_max_u64(out->max_tag, all[i].tag);
    if (own->color < 0)
        return MICS_OK;

    qsort(all, (size_t)count, sizeof *all, compare_args);
    while (all[first].color != own->color)
        first++;
    while (first + out->size < count && all[first + out->size].color == own->color)
        out->size++;
    out->parents = calloc((size_t)out->size, sizeof *out->parents);
    out->blocks = calloc((size_t)out->size, sizeof *out->blocks);
    if (!out->parents || !out->blocks)
        return mics_err_nomem(err);
    for (int i = 0; i < out->size; i++) {
        out->parents[i] = all[first + i].rank;
        out->blocks[i] = all[first + i].block;
        if (all[first + i].rank == own->rank)
            out->rank = i;
    }
    return check_blocks(out, err);
}

enum mics_status mics_comm_split_init(struct mics_comm *comm, int color, int key, int block,
                                      uint64_t tag, struct comm_split *out, struct mics_err *err)
{
    const struct split_args own = {color, key, block, comm->rank, tag};
    struct split_args *all = calloc((size_t)comm->size, sizeof *all);

    *out = (struct comm_split){0};
    if (!all)
        return mics_err_nomem(err);
    enum mics_status status = mics_comm_all_gather_now(comm, &own, all, sizeof own, err);
    if (status == MICS_OK)
        status = select_members(all, comm->size, &own, out, err);
    if (status != MICS_OK)
        mics_comm_split_fini(out);
    free(all);
    return status;
}

void mics_comm_split_fini(struct comm_split *split)
{
    free(split->parents);
    free(split->blocks);
    *split = (struct comm_split){0};
}

/* A single rank ------------------------------------------------------------------------------ */

static enum mics_status self_split(struct mics_comm *comm, int color, int key, int block,
                                   struct mics_comm **out, struct mics_err *err)
{
    (void)comm, (void)key;
    if (color < 0) {
        *out = NULL;
        return MICS_OK;
    }
    if (block != 0)
        return mics_err_set(err, MICS_ERR_ARG, "split: block %d of 1 ranks", block);
    return mics_comm_new_self(out, err);
}

static void self_free(struct mics_comm *comm)
{
    free(comm);
}

/* Not exit(): its handlers could run into threads that are still working. */
static void self_abort(struct mics_comm *comm, int code)
{
    (void)comm;
    _exit(code);
}

static const struct comm_backend self_backend = {
    .name = "self", .split = self_split, .free = self_free, .abort = self_abort};

enum mics_status mics_comm_new_self(struct mics_comm **out, struct mics_err *err)
{
    struct comm_base *base = calloc(1, sizeof *base);

    if (!base)
        return mics_err_nomem(err);
    mics_comm_base_init(base, &self_backend);
    base->comm.size = 1;
    *out = &base->comm;
    return MICS_OK;
}
