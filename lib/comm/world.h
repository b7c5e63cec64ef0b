/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world.h - all ranks of a job, in node order, and the nodes that they are on.
 *
 * Ranks are grouped by the node that they really are on (MPI_Comm_split_type), not by arithmetic.
 * MICS_NODE_RANKS=k in the environment declares, for tests and demonstrations, that every k ranks are a
 * node; it must be the same on all ranks, and divide their number. Host names of declared nodes end in
 * "#0", "#1", ...
 */
#ifndef MICS_COMM_WORLD_H
#define MICS_COMM_WORLD_H

#include "comm/comm.h"

#include <stdbool.h>
#include <stdint.h>

struct mics_world {
    struct mics_comm *comm;      /* rank = place in node order: node by node, then by local rank */
    struct mics_comm *node_comm; /* the ranks of this node */
    uint32_t rank, size;
    uint32_t node, node_count; /* nodes ordered by their lowest launch rank */
    uint32_t local_rank, local_size;
    uint32_t *ranks_of_node;  /* [node_count] */
    char (*host_of_node)[64]; /* [node_count] host names */
    bool declared;            /* by MICS_NODE_RANKS */
};

/* Under a launcher over MPI, else one rank alone. MICS_ERR_ARG: MICS_NODE_RANKS is malformed, differs between
 * ranks, or does not divide their number; MICS_ERR_UNSUPPORTED: under a launcher in a build without MPI. */
enum mics_status mics_world_open(struct mics_world **out, struct mics_err *err);

/* The same over any communicator, which then belongs to the world (on failure it is freed);
 * ranks_per_node 0: ask the backend. For tests over threads. */
enum mics_status mics_world_open_over(struct mics_comm *comm, uint32_t ranks_per_node,
                                      struct mics_world **out, struct mics_err *err);
void mics_world_close(struct mics_world *world); /* collective; NULL is fine */

/* All nodes with the same number of ranks? */
bool mics_world_is_even(const struct mics_world *world);

/* Ranks on this rank's machine, which share its cores and memory: more than local_size where several
 * nodes are declared on it. */
uint32_t mics_world_host_ranks(const struct mics_world *world);

#endif
