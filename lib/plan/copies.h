/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies.h - which ranks keep which optimizer shards in the memory of their node.
 *
 * The state of a run is cut into p_optim shards, that of units of another shape into shards of
 * their own. Where a shard is on several nodes anyway, because there are several optimizer groups
 * or a node has several of its ranks, each of these nodes keeps its own; where it is on fewer nodes
 * than there are to be copies, it is also sent to others. Ranks are numbered in node order, and a
 * copy goes to the rank with the same number on its node.
 */
#ifndef MICS_PLAN_COPIES_H
#define MICS_PLAN_COPIES_H

#include "plan/group.h"

struct mics_copies {
    struct mics_shape shape;
    uint32_t held;   /* nodes that hold a shard without copying: the same number for each shard */
    uint32_t rounds; /* copies to send of each shard */
};

/* `wanted` copies of each shard, at most one for each node. */
struct mics_copies mics_copies_make(const struct mics_shape *shape, uint32_t wanted);

/* Does a rank keep its own shard? Of the ranks of a node with the same shard, the first does. */
bool mics_copies_keeps_own(const struct mics_copies *copies, uint32_t rank);

/* The rank to which `rank` sends its shard in a round, or -1. */
int64_t mics_copies_target(const struct mics_copies *copies, uint32_t rank, uint32_t round);
/* The rank from which `rank` receives a shard in a round, or -1. */
int64_t mics_copies_source(const struct mics_copies *copies, uint32_t rank, uint32_t round);

/* Shards that the ranks of a node keep, at most over all nodes. */
uint32_t mics_copies_per_node(const struct mics_copies *copies);
/* Shards that the ranks of a node send, at most over all nodes. */
uint32_t mics_copies_sent_per_node(const struct mics_copies *copies);

/* Any so many nodes may be lost at once. */
uint32_t mics_copies_nodes_to_lose(const struct mics_copies *copies);

#endif
