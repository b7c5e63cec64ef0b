/* SPDX-License-Identifier: Apache-2.0 */
/* measure_group.c - groups as communicators of the shapes of plans, and the executors of one
 * group. */
#include "measure/measure_group.h"

#include <stdlib.h>

static struct mics_shape world_shape(const struct mics_world *world, uint32_t p)
{
    return (struct mics_shape){world->node_count, world->local_size, p, p, p};
}

struct mics_bench_grouping mics_bench_grouping_of(const struct mics_world *world,
                                                  enum mics_bench_group group, uint32_t partition)
{
    const uint32_t k = world->local_size;

    switch (group) {
    case MICS_BENCH_NODE:
        return (struct mics_bench_grouping){world_shape(world, k), MICS_COMM_GATHER};
    case MICS_BENCH_PARTITION:
        return (struct mics_bench_grouping){world_shape(world, partition), MICS_COMM_GATHER};
    case MICS_BENCH_REPLICATION:
        return (struct mics_bench_grouping){world_shape(world, partition), MICS_COMM_REPLICA};
    case MICS_BENCH_NETWORK: /* of a partition group that spans nodes, or else of the world */
        return (struct mics_bench_grouping){
            world_shape(world, partition > k ? partition : world->size), MICS_COMM_GATHER_NET};
    default:
        return (struct mics_bench_grouping){world_shape(world, world->size), MICS_COMM_WORLD};
    }
}

struct mics_bench_grouping mics_bench_grouping_of_shape(const struct mics_world *world,
                                                        const struct mics_group_shape *shape)
{
    const uint32_t k = world->local_size, q = shape->nodes, d = shape->per_node;

    if (q == 1 || d == k)
        return (struct mics_bench_grouping){world_shape(world, q * d), MICS_COMM_GATHER};
    if (d == 1)
        return (struct mics_bench_grouping){world_shape(world, q * k), MICS_COMM_GATHER_NET};
    return (struct mics_bench_grouping){world_shape(world, k / d), MICS_COMM_REPLICA};
}

static bool is_used(uint32_t nodes, uint32_t per_node, uint32_t q, uint32_t d)
{
    if (nodes % q != 0 || per_node % d != 0 || q * d == 1)
        return false;
    return q == 1 || d == per_node || d == 1 || q == nodes;
}

static int compare(const void *a, const void *b)
{
    const struct mics_group_shape *x = a, *y = b;
    const uint64_t left = (uint64_t)x->nodes * x->per_node;
    const uint64_t right = (uint64_t)y->nodes * y->per_node;

    if (left != right)
        return left < right ? -1 : 1;
    return (x->nodes > y->nodes) - (x->nodes < y->nodes);
}

enum mics_status mics_group_shapes_list(uint32_t nodes, uint32_t per_node,
                                        struct mics_group_shape **out, uint32_t *count,
                                        struct mics_err *err)
{
    /* No number up to 65536 has more than 128 divisors, none up to 1024 more than 32. */
    struct mics_group_shape *list = calloc(128 * 32, sizeof *list);
    uint32_t used = 0;

    if (!list)
        return mics_err_nomem(err);
    for (uint32_t q = 1; q <= nodes; q++)
        for (uint32_t d = 1; nodes % q == 0 && d <= per_node; d++)
            if (is_used(nodes, per_node, q, d))
                list[used++] = (struct mics_group_shape){q, d};
    qsort(list, used, sizeof *list, compare);
    *out = list;
    *count = used;
    return MICS_OK;
}

void mics_bench_comms_init(const struct mics_bench *bench, struct mics_comm *comm, uint32_t nodes,
                           uint32_t per_node, struct mics_bench_comms *out)
{
    const uint32_t n = nodes * per_node;
    const struct mics_shape sharded[] = MICS_SAME_SHAPE({nodes, per_node, n, n, n});
    const struct mics_shape replicated[] = MICS_SAME_SHAPE({nodes, per_node, 1, 1, 1});

    *out = (struct mics_bench_comms){
        .nodes = nodes, .per_node = per_node, .size = n, .groups = 1, .comm = comm};
    mics_executor_init(&out->sharded, bench->device, comm, sharded);
    mics_executor_init(&out->replicated, bench->device, comm, replicated);
}

/* MPI's own collectives put blocks in the order of ranks, as on one node. */
static enum mics_status open_native(const struct mics_bench *bench, struct mics_bench_comms *comms,
                                    struct mics_err *err)
{
    const uint32_t n = comms->size;
    const struct mics_shape sharded[] = MICS_SAME_SHAPE({1, n, n, n, n});
    const struct mics_shape replicated[] = MICS_SAME_SHAPE({1, n, 1, 1, 1});
    const enum mics_status status = mics_comm_new_native(comms->comm, &comms->native, err);

    if (status != MICS_OK)
        return status;
    mics_executor_init(&comms->native_sharded, bench->device, comms->comm, sharded);
    mics_executor_init(&comms->native_replicated, bench->device, comms->comm, replicated);
    comms->native_sharded.groups[MICS_UNIT_DENSE].comms[MICS_COMM_GATHER] = comms->native;
    comms->native_sharded.groups[MICS_UNIT_DENSE].comms[MICS_COMM_REDUCE] = comms->native;
    comms->native_replicated.groups[MICS_UNIT_DENSE].comms[MICS_COMM_REPLICA] = comms->native;
    return MICS_OK;
}

/* Ranks of the same group that come before this one. */
static int rank_in_group(const struct mics_bench_grouping *grouping,
                         const struct mics_group_position *member)
{
    struct mics_group_position other;
    int before = 0;

    for (uint32_t rank = 0; rank < member->key; rank++) {
        mics_shape_position(&grouping->shape, grouping->kind, rank, &other);
        before += other.color == member->color;
    }
    return before;
}

enum mics_status mics_bench_comms_open(const struct mics_bench *bench,
                                       const struct mics_bench_grouping *grouping, bool native,
                                       struct mics_bench_comms *out, struct mics_err *err)
{
    struct mics_comm *world = bench->comm, *comm = NULL;
    struct mics_group_position member;
    enum mics_status status;

    *out = (struct mics_bench_comms){0};
    mics_shape_position(&grouping->shape, grouping->kind, (uint32_t)world->rank, &member);
    status = mics_comm_split(world, (int)member.color, (int)member.key,
                             rank_in_group(grouping, &member), &comm, err);
    if (status != MICS_OK)
        return status;
    mics_bench_comms_init(bench, comm, member.nodes, member.per_node, out);
    out->groups = bench->world->size / member.size;
    out->index = member.color;
    if (native && mics_comm_has_native(comm))
        status = open_native(bench, out, err);
    if (status != MICS_OK)
        mics_bench_comms_close(out);
    return status;
}

void mics_bench_comms_close(struct mics_bench_comms *comms)
{
    if (!comms->comm)
        return;
    mics_executor_fini(&comms->sharded);
    mics_executor_fini(&comms->replicated);
    if (comms->native) {
        comms->native_sharded.groups[MICS_UNIT_DENSE].comms[MICS_COMM_GATHER] = NULL;
        comms->native_sharded.groups[MICS_UNIT_DENSE].comms[MICS_COMM_REDUCE] = NULL;
        comms->native_replicated.groups[MICS_UNIT_DENSE].comms[MICS_COMM_REPLICA] = NULL;
        mics_executor_fini(&comms->native_sharded);
        mics_executor_fini(&comms->native_replicated);
        mics_comm_free(comms->native);
    }
    mics_comm_free(comms->comm);
    *comms = (struct mics_bench_comms){0};
}

bool mics_bench_comms_have_hierarchy(const struct mics_bench_comms *comms)
{
    return mics_shape_has_hierarchy(&comms->sharded.groups[MICS_UNIT_DENSE].shape, comms->size);
}

struct mics_plan_choice mics_bench_choice(const struct mics_executor *executor, bool hierarchical,
                                          uint32_t segments)
{
    return (struct mics_plan_choice){
        .shapes = MICS_SAME_SHAPE(executor->groups[MICS_UNIT_DENSE].shape),
        .hierarchical_gather = hierarchical,
        .hierarchical_reduce = hierarchical,
        .segments = segments,
        .coalesce = 1,
        .micro_steps = 1,
        .dtype = MICS_F32,
        .grad_dtype = MICS_F32,
    };
}
