/* SPDX-License-Identifier: Apache-2.0 */
/* bench_place.c - groups by arithmetic on nodes and local ranks, which the world has from the machines themselves. */
#include "bench/place.h"
#include "comm/mpi/native.h"

enum mics_status mics_bench_check_partition(const struct mics_world *world, uint32_t partition,
                                            struct mics_err *err)
{
    const uint32_t k = world->local_size, p = partition;

    if (p == 0 || world->size % p != 0)
        return mics_err_set(err, MICS_ERR_ARG, "%u does not divide the %u ranks", p, world->size);
    if (k % p != 0 && p % k != 0)
        return mics_err_set(
            err, MICS_ERR_ARG,
            "%u is neither a part of a node nor a number of whole nodes of %u ranks", p, k);
    return MICS_OK;
}

/* Parts of a node, or whole nodes. */
static struct mics_bench_seat partition_seat(const struct mics_world *world, uint32_t p)
{
    const uint32_t k = world->local_size, q = p / k;

    if (p < k)
        return (struct mics_bench_seat){1, p, 0, world->rank / p, 0, world->rank % p};
    return (struct mics_bench_seat){q, k, 0, world->node / q, world->node % q, world->local_rank};
}

/* Those at the same place of their partition groups. */
static struct mics_bench_seat replication_seat(const struct mics_world *world, uint32_t p)
{
    const uint32_t k = world->local_size, n = world->node_count, q = p / k;

    if (p < k)
        return (struct mics_bench_seat){
            n, k / p, 0, world->rank % p, world->node, world->local_rank / p};
    return (struct mics_bench_seat){n / q, 1, 0, world->rank % p, world->node / q, 0};
}

/* One rank of each node of a partition group that spans nodes, or else of the world. */
static struct mics_bench_seat network_seat(const struct mics_world *world, uint32_t p)
{
    const uint32_t k = world->local_size, q = p > k ? p / k : world->node_count;

    return (struct mics_bench_seat){
        q, 1, 0, world->node / q * k + world->local_rank, world->node % q, 0};
}

struct mics_bench_seat mics_bench_seat_of(const struct mics_world *world,
                                          enum mics_bench_group group, uint32_t partition)
{
    const uint32_t n = world->node_count, k = world->local_size;
    struct mics_bench_seat seat = {n, k, 0, 0, world->node, world->local_rank};

    if (group == MICS_BENCH_NODE)
        seat = (struct mics_bench_seat){1, k, 0, world->node, 0, world->local_rank};
    if (group == MICS_BENCH_PARTITION)
        seat = partition_seat(world, partition);
    if (group == MICS_BENCH_REPLICATION)
        seat = replication_seat(world, partition);
    if (group == MICS_BENCH_NETWORK)
        seat = network_seat(world, partition);
    seat.groups = world->size / (seat.nodes * seat.per_node);
    return seat;
}

bool mics_bench_has_hierarchy(const struct mics_bench_seat *seat)
{
    return seat->nodes > 1 && seat->per_node > 1;
}

uint32_t mics_bench_rank_of_block(const struct mics_bench_seat *seat, uint32_t block)
{
    return block % seat->nodes * seat->per_node + block / seat->nodes;
}

static enum mics_status open_stages(const struct mics_bench *bench, uint32_t segments,
                                    struct mics_bench_place *place, struct mics_err *err)
{
    const struct mics_bench_seat *seat = &place->seat;
    struct mics_comm *world = bench->comm;
    const uint32_t net = seat->which * seat->per_node + seat->local;
    const uint32_t node = seat->which * seat->nodes + seat->node;
    enum mics_status status = world->ops->split(world, (int)net, (int)seat->node, (int)seat->node,
                                                &place->net_stage, err);

    if (status == MICS_OK)
        status = world->ops->split(world, (int)node, (int)seat->local, (int)seat->local,
                                   &place->node_stage, err);
    if (status == MICS_OK)
        status = mics_hier_open(bench->device, place->net_stage, place->node_stage, 1,
                                &place->whole, err);
    if (status == MICS_OK)
        status = mics_hier_open(bench->device, place->net_stage, place->node_stage, segments,
                                &place->segmented, err);
    return status;
}

enum mics_status mics_bench_place_open(const struct mics_bench *bench,
                                       const struct mics_bench_seat *seat, uint32_t segments,
                                       struct mics_bench_place *out, struct mics_err *err)
{
    struct mics_comm *world = bench->comm;
    const int block = (int)(seat->node * seat->per_node + seat->local);
    enum mics_status status;

    *out = (struct mics_bench_place){.seat = *seat, .segments = segments};
    status = world->ops->split(world, (int)seat->which, block, block, &out->flat, err);
    if (status == MICS_OK && mics_comm_has_native(out->flat))
        status = mics_comm_new_native(out->flat, &out->mpi, err);
    if (status == MICS_OK && mics_bench_has_hierarchy(seat))
        status = open_stages(bench, segments, out, err);
    if (status != MICS_OK)
        mics_bench_place_close(out);
    return status;
}

void mics_bench_place_close(struct mics_bench_place *place)
{
    struct mics_comm *comms[] = {place->mpi, place->flat, place->net_stage, place->node_stage};

    mics_hier_close(place->whole);
    mics_hier_close(place->segmented);
    for (size_t i = 0; i < sizeof comms / sizeof *comms; i++)
        if (comms[i])
            comms[i]->ops->free(comms[i]);
    *place = (struct mics_bench_place){0};
}
