/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.h - the communication groups of a strategy, and each rank's position in them.
 *
 * Ranks are numbered in node order: rank = node * per_node + local_rank. The groups nest: p_param
 * divides p_grad divides p_optim divides n; each group is a run of consecutive ranks; each size
 * divides per_node or is a multiple of it.
 *
 * A rank's *index* in a group says which shard it holds. It is a mixed-radix number with one digit
 * per level (param, grad, optim), the first level most significant. The digit of a level is
 * (part inside the node) * (nodes of the level) + (node of the level). So each optimizer shard lies
 * inside its gradient shard, which lies inside its parameter shard; in a parameter group of q nodes
 * the rank with local rank j on node i has index j * q + i; and each stage of a hierarchical
 * exchange has its pieces side by side, in place.
 */
#ifndef MICS_PLAN_GROUP_H
#define MICS_PLAN_GROUP_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct mics_shape {
    uint32_t nodes, per_node;
    uint32_t p_param, p_grad, p_optim;
};

/* n, all ranks. */
static inline uint32_t mics_shape_world_size(const struct mics_shape *shape)
{
    return shape->nodes * shape->per_node;
}

/* The communicators of a job. Each kind partitions the ranks. */
enum mics_comm_kind {
    MICS_COMM_WORLD,       /* all ranks: scalars */
    MICS_COMM_GATHER,      /* a parameter group: flat all-gather */
    MICS_COMM_GATHER_NET,  /* its ranks of equal local rank: first stage */
    MICS_COMM_GATHER_NODE, /* its ranks of one node: second stage */
    MICS_COMM_REDUCE,      /* a gradient group: flat reduce-scatter */
    MICS_COMM_REDUCE_NODE, /* its ranks of one node: first stage */
    MICS_COMM_REDUCE_NET,  /* its ranks of equal local rank: second stage */
    MICS_COMM_SCATTER,     /* ranks of an optimizer group with the same gradient shard */
    MICS_COMM_REPLICA,     /* ranks with the same optimizer shard: the second hop */
    MICS_COMM_PUBLISH,     /* ranks of an optimizer group with the same parameter shard */
    MICS_COMM_OPTIM,       /* an optimizer group: its scalars, where replicas train on their own */
    MICS_COMM_DISPATCH,    /* a parameter group: tokens to the ranks of their experts */
    MICS_COMM_COMBINE,     /* a parameter group: results back */
    MICS_COMM_KIND_COUNT
};

/* A rank's position in its communicator of one kind. */
struct mics_group_position {
    uint32_t color, key;      /* of the split that makes the communicators */
    uint32_t block;           /* index of the block that the rank holds, 0 to size - 1 */
    uint32_t size;            /* ranks of the communicator */
    uint32_t nodes, per_node; /* that it spans */
    uint32_t sharing;         /* communicators of this kind that have ranks on the same node */
};

/* MICS_ERR_ARG with the reason: the sizes do not nest, or a group would straddle nodes unevenly. */
enum mics_status mics_shape_check(const struct mics_shape *shape, struct mics_err *err);

/* The shape must have been checked. rank < n. */
void mics_shape_position(const struct mics_shape *shape, enum mics_comm_kind kind, uint32_t rank,
                         struct mics_group_position *out);

/* Index of the rank's shard in its parameter, gradient and optimizer group, and of that group. */
struct mics_index {
    uint32_t param, grad, optim, replica;
};
struct mics_index mics_shape_index(const struct mics_shape *shape, uint32_t rank);

/* The levels (param, grad, optim, replica: bits 0 to 3) that a communicator of this kind spans and
 * that have more than one part, a stage of a hierarchical exchange as the whole exchange: ranks
 * that have waited for each other in one kind have in all others whose levels are among its own. */
uint32_t mics_shape_levels(const struct mics_shape *shape, enum mics_comm_kind kind);

/* Does a group of p ranks span several whole nodes with more than one rank on each, so that an
 * exchange can have two stages? */
bool mics_shape_has_hierarchy(const struct mics_shape *shape, uint32_t p);

const char *mics_comm_kind_name(enum mics_comm_kind kind); /* "gather_net" */

#endif
