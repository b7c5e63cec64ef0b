/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sync.c - the gradients of a step of several micro-steps, in two hops and in one.
 *
 * In two hops, each micro-step reduce-scatters the gradients in the partition group (by stages where it spans nodes) and
 * adds the shard to what is there; at the end the shards are all-reduced among the replicas. In one hop, each micro-step
 * all-reduces the gradients over the world, and adds the shard. Gradients are in `send`; `recv` holds the sum
 * of the shard, and after it what a micro-step adds.
 */
#include "bench/data.h"
#include "bench/ops.h"
#include "device/launch.h"

static uint64_t shard_count(const struct mics_bench_case *c)
{
    const struct mics_bench_seat *seat = &c->partition->seat;

    return mics_bench_case_elements(c) / (seat->nodes * seat->per_node);
}

/* The block of the shard in the gradients: both ways leave the same. */
static uint64_t shard_block(const struct mics_bench_case *c)
{
    return c->partition->whole ? mics_hier_block(c->partition->whole)
                               : (uint64_t)c->partition->flat->block;
}

static void reduce_in_partition(const struct mics_bench_case *c, float *shard)
{
    struct mics_comm *comm = c->partition->flat;

    if (c->partition->whole)
        mics_hier_reduce_scatter(c->partition->whole, c->bench->stream, mics_bench_send(c), shard,
                                 shard_count(c), MICS_F32);
    else
        comm->ops->reduce_scatter(comm, c->bench->stream, mics_bench_send(c), shard, shard_count(c),
                                  MICS_F32);
}

static void enqueue_micro_step(const struct mics_bench_case *c, uint32_t step)
{
    const uint64_t count = shard_count(c);
    float *sum = mics_bench_recv(c), *fresh = step == 0 ? sum : sum + count;
    struct mics_comm *world = c->place->flat;

    if (c->algo == MICS_BENCH_TWO_HOP) {
        reduce_in_partition(c, fresh);
    } else {
        world->ops->all_reduce(world, c->bench->stream, mics_bench_send(c),
                               mics_bench_case_elements(c), MICS_F32);
        fresh = mics_bench_send(c) + shard_block(c) * count;
    }
    if (step > 0)
        mics_launch_add(c->bench->stream,
                        &(struct mics_op_add){.out = sum, .a = sum, .b = fresh, .count = count});
    else if (fresh != sum)
        mics_launch_copy(
            c->bench->stream,
            &(struct mics_op_copy){.dst = sum, .src = fresh, .bytes = count * sizeof(float)});
}

static void enqueue_end(const struct mics_bench_case *c)
{
    struct mics_comm *replicas = c->replication->flat;

    if (c->algo == MICS_BENCH_TWO_HOP)
        replicas->ops->all_reduce(replicas, c->bench->stream, mics_bench_recv(c), shard_count(c),
                                  MICS_F32);
}

void mics_bench_enqueue_sync(const struct mics_bench_case *c)
{
    for (uint32_t step = 0; step < c->micro_steps; step++)
        enqueue_micro_step(c, step);
    enqueue_end(c);
}

/* The shard must be the sum over all ranks and micro-steps. */
static uint64_t count_wrong(const struct mics_bench_case *c, uint64_t salt)
{
    const uint64_t count = shard_count(c), place = shard_block(c) * count;
    const float *sum = mics_bench_mirror(c, mics_bench_recv(c));
    uint64_t wrong = 0;

    for (uint64_t i = 0; i < count; i++) {
        double want = 0;

        for (uint32_t step = 0; step < c->micro_steps; step++)
            want += mics_bench_sum(0, c->bench->world->size, place + i, salt + step);
        wrong += (double)sum[i] != want;
    }
    return wrong;
}

enum mics_status mics_bench_check_sync(const struct mics_bench_case *c, uint64_t salt,
                                       uint64_t *wrong, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (uint32_t step = 0; step < c->micro_steps && status == MICS_OK; step++) {
        mics_bench_fill(mics_bench_mirror(c, mics_bench_send(c)), mics_bench_case_elements(c),
                        c->bench->world->rank, 0, salt + step);
        mics_bench_upload(c, mics_bench_send(c), mics_bench_case_elements(c));
        enqueue_micro_step(c, step);
        status = mics_bench_wait(c->bench, err);
    }
    if (status != MICS_OK)
        return status;
    enqueue_end(c);
    mics_bench_download(c, mics_bench_recv(c), shard_count(c));
    status = mics_bench_wait(c->bench, err);
    if (status == MICS_OK)
        *wrong = count_wrong(c, salt);
    return status;
}
