/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops.c - all-gather, reduce-scatter and all-reduce, flat, hierarchical and by MPI.
 *
 * An all-gather has its shard in `send` and makes `recv`; a reduce-scatter takes `send` and leaves its shard in
 * `recv`; in place, the shard's pieces are where they belong in the array. All-reduces are in place: out of
 * place the array is copied before.
 */
#include "bench/ops.h"
#include "bench/data.h"
#include "device/launch.h"

#include <string.h>

float *mics_bench_recv(const struct mics_bench_case *c)
{
    return c->bench->buffer;
}

float *mics_bench_send(const struct mics_bench_case *c)
{
    return mics_bench_recv(c) + mics_bench_case_elements(c);
}

float *mics_bench_mirror(const struct mics_bench_case *c, const float *place)
{
    return (float *)c->bench->mirror + (place - (const float *)c->bench->buffer);
}

/* Where the mirror is the buffer, a copy onto itself is none. */
void mics_bench_upload(const struct mics_bench_case *c, float *place, uint64_t count)
{
    mics_launch_copy(c->bench->stream, &(struct mics_op_copy){place, mics_bench_mirror(c, place),
                                                              count * sizeof *place});
}

void mics_bench_download(const struct mics_bench_case *c, const float *place, uint64_t count)
{
    mics_launch_copy(c->bench->stream, &(struct mics_op_copy){mics_bench_mirror(c, place), place,
                                                              count * sizeof *place});
}

static uint64_t ranks_of(const struct mics_bench_case *c)
{
    return (uint64_t)c->place->seat.nodes * c->place->seat.per_node;
}

uint64_t mics_bench_case_elements(const struct mics_bench_case *c)
{
    return c->count * ranks_of(c);
}

static struct mics_hier *hier_of(const struct mics_bench_case *c)
{
    return c->segments == 1 ? c->place->whole : c->place->segmented;
}

static struct mics_comm *comm_of(const struct mics_bench_case *c)
{
    return c->algo == MICS_BENCH_MPI ? c->place->mpi : c->place->flat;
}

static uint64_t own_block(const struct mics_bench_case *c)
{
    if (c->algo == MICS_BENCH_HIERARCHICAL)
        return mics_hier_block(hier_of(c));
    return (uint64_t)c->place->flat->block;
}

/* The group's rank whose block it is. */
static uint64_t rank_of(const struct mics_bench_case *c, uint64_t block)
{
    if (c->algo == MICS_BENCH_HIERARCHICAL)
        return mics_bench_rank_of_block(&c->place->seat, (uint32_t)block);
    return block;
}

/* Of the first of the group's ranks. Groups side by side have data of their own. */
static uint64_t first_key(const struct mics_bench_case *c)
{
    return c->place->seat.which * ranks_of(c);
}

/* Where block `block` of segment t begins in the array. */
static uint64_t at(const struct mics_bench_case *c, uint32_t t, uint64_t block)
{
    return (t * ranks_of(c) + block) * (c->count / c->segments);
}

static void enqueue_gather(const struct mics_bench_case *c)
{
    float *recv = mics_bench_recv(c), *own = recv + at(c, 0, own_block(c));
    struct mics_stream *stream = c->bench->stream;

    if (c->algo == MICS_BENCH_HIERARCHICAL)
        mics_hier_all_gather(hier_of(c), stream, c->in_place ? NULL : mics_bench_send(c), recv,
                             c->count, MICS_F32);
    else
        comm_of(c)->ops->all_gather(comm_of(c), stream, c->in_place ? own : mics_bench_send(c),
                                    recv, c->count, MICS_F32);
}

static void enqueue_reduce(const struct mics_bench_case *c)
{
    float *send = mics_bench_send(c), *own = send + at(c, 0, own_block(c));
    struct mics_stream *stream = c->bench->stream;

    if (c->algo == MICS_BENCH_HIERARCHICAL)
        mics_hier_reduce_scatter(hier_of(c), stream, send, c->in_place ? NULL : mics_bench_recv(c),
                                 c->count, MICS_F32);
    else
        comm_of(c)->ops->reduce_scatter(comm_of(c), stream, send,
                                        c->in_place ? own : mics_bench_recv(c), c->count, MICS_F32);
}

static void enqueue_all_reduce(const struct mics_bench_case *c)
{
    const uint64_t count = mics_bench_case_elements(c);
    float *recv = mics_bench_recv(c);

    if (!c->in_place)
        mics_launch_copy(c->bench->stream,
                         &(struct mics_op_copy){recv, mics_bench_send(c), count * sizeof(float)});
    comm_of(c)->ops->all_reduce(comm_of(c), c->bench->stream, recv, count, MICS_F32);
}

void mics_bench_enqueue(const struct mics_bench_case *c)
{
    static void (*const enqueue[MICS_BENCH_OP_COUNT])(const struct mics_bench_case *) = {
        enqueue_gather, enqueue_reduce, enqueue_all_reduce, mics_bench_enqueue_sync};

    enqueue[c->op](c);
}

static void fill_gather(const struct mics_bench_case *c, uint64_t salt)
{
    const uint64_t key = first_key(c) + rank_of(c, own_block(c)), piece = c->count / c->segments;

    for (uint32_t t = 0; t < c->segments; t++)
        mics_bench_fill(mics_bench_mirror(c, c->in_place
                                                 ? mics_bench_recv(c) + at(c, t, own_block(c))
                                                 : mics_bench_send(c) + t * piece),
                        piece, key, t * piece, salt);
}

static void fill_sum(const struct mics_bench_case *c, uint64_t salt)
{
    float *data =
        c->op == MICS_BENCH_ALL_REDUCE && c->in_place ? mics_bench_recv(c) : mics_bench_send(c);

    mics_bench_fill(mics_bench_mirror(c, data), mics_bench_case_elements(c),
                    first_key(c) + rank_of(c, own_block(c)), 0, salt);
}

static uint64_t wrong_in_gather(const struct mics_bench_case *c, uint64_t salt)
{
    const uint64_t piece = c->count / c->segments;
    uint64_t wrong = 0;

    for (uint32_t t = 0; t < c->segments; t++)
        for (uint64_t block = 0; block < ranks_of(c); block++)
            wrong +=
                mics_bench_count_wrong(mics_bench_mirror(c, mics_bench_recv(c) + at(c, t, block)),
                                       piece, first_key(c) + rank_of(c, block), t * piece, salt);
    return wrong;
}

static uint64_t wrong_in_shard(const struct mics_bench_case *c, uint64_t salt)
{
    const uint64_t piece = c->count / c->segments;
    uint64_t wrong = 0;

    for (uint32_t t = 0; t < c->segments; t++) {
        const uint64_t place = at(c, t, own_block(c));
        const float *data =
            c->in_place ? mics_bench_send(c) + place : mics_bench_recv(c) + t * piece;

        wrong += mics_bench_count_wrong_sums(mics_bench_mirror(c, data), piece, first_key(c),
                                             ranks_of(c), place, salt);
    }
    return wrong;
}

static uint64_t count_wrong(const struct mics_bench_case *c, uint64_t salt)
{
    if (c->op == MICS_BENCH_ALL_GATHER)
        return wrong_in_gather(c, salt);
    if (c->op == MICS_BENCH_REDUCE_SCATTER)
        return wrong_in_shard(c, salt);
    return mics_bench_count_wrong_sums(mics_bench_mirror(c, mics_bench_recv(c)),
                                       mics_bench_case_elements(c), first_key(c), ranks_of(c), 0,
                                       salt);
}

enum mics_status mics_bench_check(const struct mics_bench_case *c, uint64_t salt, uint64_t *wrong,
                                  struct mics_err *err)
{
    const uint64_t both = 2 * mics_bench_case_elements(c);
    enum mics_status status;

    if (c->op == MICS_BENCH_SYNC)
        return mics_bench_check_sync(c, salt, wrong, err);
    /* Not numbers: what is left of them is wrong. */
    memset(c->bench->mirror, 0xff, both * sizeof(float));
    if (c->op == MICS_BENCH_ALL_GATHER)
        fill_gather(c, salt);
    else
        fill_sum(c, salt);
    mics_bench_upload(c, mics_bench_recv(c), both);
    mics_bench_enqueue(c);
    mics_bench_download(c, mics_bench_recv(c), both);
    status = mics_bench_wait(c->bench, err);
    if (status == MICS_OK)
        *wrong = count_wrong(c, salt);
    return status;
}
