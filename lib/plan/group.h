/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.h - which ranks talk to which: the groups of a strategy, and each rank's place in them.
 *
 * Ranks are numbered in node order: rank = node * per_node + local_rank. The groups nest: p_param
 * divides p_grad divides p_optim divides n, each group is a run of consecutive ranks, and each size
 * divides per_node or is a multiple of it.
 *
 * A rank's *index* in a group is the place of its shard. Level by level (param, grad, optim), the digit
 * of a level is (part inside a node) * (nodes of the level) + (node of the level), and the first level
 * is the most significant. So each optimizer shard lies inside its gradient shard inside its parameter
 * shard, a parameter group of q nodes x k ranks has index j * q + i, and hierarchical stages find
 * their pieces side by side, in place.
 */
#ifndef MICS_PLAN_GROUP_H
#define MICS_PLAN_GROUP_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct mics_shape {
    uint32_t nodes, per_node; /* n = nodes * per_node */
    uint32_t p_param, p_grad, p_optim;
};

/* The communicators of a job. Each is a partition of all ranks. */
enum mics_comm_kind {
    MICS_COMM_WORLD,       /* everybody: scalars */
    MICS_COMM_GATHER,      /* a parameter group: flat all-gather */
    MICS_COMM_GATHER_NET,  /* its ranks of equal place in their nodes: first stage */
    MICS_COMM_GATHER_NODE, /* its ranks of one node: second stage */
    MICS_COMM_REDUCE,      /* a gradient group: flat reduce-scatter */
    MICS_COMM_REDUCE_NODE, /* first stage */
    MICS_COMM_REDUCE_NET,  /* second stage */
    MICS_COMM_SCATTER,     /* ranks of an optimizer group with the same gradient shard */
    MICS_COMM_REPLICA,     /* ranks that hold the same optimizer shard: the second hop */
    MICS_COMM_PUBLISH,     /* ranks of an optimizer group with the same parameter shard */
    MICS_COMM_KIND_COUNT
};

/* One rank's place in one communicator: color and key for split, the block that it holds there. */
struct mics_member {
    uint32_t color, key, block;
    uint32_t size;            /* ranks in the communicator */
    uint32_t nodes, per_node; /* that it spans */
    uint32_t sharing;         /* communicators of this kind that touch the same node */
};

/* MICS_ERR_ARG with the reason when the sizes do not nest, or a group would straddle nodes unevenly. */
enum mics_status mics_shape_check(const struct mics_shape *shape, struct mics_err *err);

/* The shape must have been checked. rank < n. */
void mics_shape_member(const struct mics_shape *shape, enum mics_comm_kind kind, uint32_t rank,
                       struct mics_member *out);

/* Index of the rank's shard in its parameter, gradient and optimizer group. */
struct mics_index {
    uint32_t param, grad, optim;
};
struct mics_index mics_shape_index(const struct mics_shape *shape, uint32_t rank);

/* Does a group of p ranks span several whole nodes with more than one rank on each, so that a hierarchy
 * has two stages? */
bool mics_shape_has_hierarchy(const struct mics_shape *shape, uint32_t p);

const char *mics_comm_kind_name(enum mics_comm_kind kind); /* "gather_net" */

#endif
