/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure_group.h - the groups that are measured, and what their ranks exchange through.
 *
 * A group is one communicator of a job of some shape: plan/group.h says which ranks are in it.
 * Inside it, the ranks are again a job of q nodes x k ranks, on which exchanges run as in training.
 */
#ifndef MICS_MEASURE_MEASURE_GROUP_H
#define MICS_MEASURE_MEASURE_GROUP_H

#include "engine/executor.h"
#include "measure/bench.h"
#include "measure/request.h"

/* The groups of one kind. */
struct mics_bench_grouping {
    struct mics_shape shape;
    enum mics_comm_kind kind;
};

/* `partition`: ranks of a partition group, checked; or 0 for groups that do not need it. The world
 * must be even. */
struct mics_bench_grouping mics_bench_grouping_of(const struct mics_world *world,
                                                  enum mics_bench_group group, uint32_t partition);

/* A shape of a group that a plan may form. */
struct mics_group_shape {
    uint32_t nodes, per_node;
};

/* All of them on `nodes` x `per_node` ranks, once each, of more than one rank, smallest first:
 * parts of a node (1 x d), whole nodes (q x k), one rank of each of several nodes (q x 1: the
 * network stage of a hierarchy, and the second hop), and parts of all nodes (N x d: the second hop
 * of groups smaller than a node); d divides k, q divides N. *out is the caller's, to free(). */
enum mics_status mics_group_shapes_list(uint32_t nodes, uint32_t per_node,
                                        struct mics_group_shape **out, uint32_t *count,
                                        struct mics_err *err);
/* The groups of a shape of the list. */
struct mics_bench_grouping mics_bench_grouping_of_shape(const struct mics_world *world,
                                                        const struct mics_group_shape *shape);

/* This rank's group. */
struct mics_bench_comms {
    uint32_t nodes, per_node, size;  /* of the group; size = nodes * per_node */
    uint32_t groups, index;          /* groups of this kind, and the index of this one */
    struct mics_comm *comm;          /* owned: the group's ranks in node order, their blocks too */
    struct mics_executor sharded;    /* a unit is cut into a shard for each rank: gather, reduce */
    struct mics_executor replicated; /* each rank has the whole unit: sync */
    struct mics_comm *native;        /* MPI's own; NULL: there is none */
    struct mics_executor native_sharded, native_replicated; /* the same with it */
};

/* With `native`, MPI's own collectives as well, where there are any. Collective over the world.
 * After a failure nothing is left in *out. */
enum mics_status mics_bench_comms_open(const struct mics_bench *bench,
                                       const struct mics_bench_grouping *grouping, bool native,
                                       struct mics_bench_comms *out, struct mics_err *err);
/* Over a communicator of nodes x per_node ranks in node order, which then belongs to *out. Without
 * MPI's own. */
void mics_bench_comms_init(const struct mics_bench *bench, struct mics_comm *comm, uint32_t nodes,
                           uint32_t per_node, struct mics_bench_comms *out);
void mics_bench_comms_close(struct mics_bench_comms *comms); /* collective */

/* Are there two stages, of more than one rank each? */
bool mics_bench_comms_have_hierarchy(const struct mics_bench_comms *comms);

/* What mics_exchange_replay_new() takes, for exchanges in fp32 with one micro-step. `hierarchical`
 * has an effect only where there are two stages. */
struct mics_plan_choice mics_bench_choice(const struct mics_executor *executor, bool hierarchical,
                                          uint32_t segments);

#endif
