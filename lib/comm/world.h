/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world.h - all ranks of a job in node order, and their nodes.
 *
 * Ranks are grouped by the node that they really run on (MPI_Comm_split_type), not by arithmetic.
 * MICS_NODE_RANKS=k in the environment declares, for tests and demonstrations, that every k ranks
 * are a node. It must have the same value on all ranks and divide their number. Host names of
 * declared nodes end in "#0", "#1", ..., because several of them may be on one machine.
 */
#ifndef MICS_COMM_WORLD_H
#define MICS_COMM_WORLD_H

#include "comm/comm.h"

#include <stdbool.h>
#include <stdint.h>

struct mics_world {
    struct mics_comm *comm;      /* ranks in node order: node by node, then by local rank */
    struct mics_comm *node_comm; /* the ranks of this node */
    uint32_t rank, size;
    uint32_t node, node_count; /* nodes ordered by their lowest launch rank */
    uint32_t local_rank, local_size;
    uint32_t *ranks_of_node;  /* [node_count] number of ranks */
    char (*host_of_node)[64]; /* [node_count] host names */
    bool declared;            /* by MICS_NODE_RANKS */
};

/* Was this process started by a launcher that MPI knows, such as mpirun or srun? */
bool mics_comm_is_launched(void);

/* The world of mics_comm_open(). MICS_ERR_ARG: MICS_NODE_RANKS is malformed, differs between ranks,
 * or does not divide their number; other errors as mics_comm_open(). */
enum mics_status mics_world_open(struct mics_world **out, struct mics_err *err);

/* The same, but a mistake in MICS_NODE_RANKS is left to mics_world_check(), so that others can be
 * reported first; until then the nodes are the real ones. */
enum mics_status mics_world_open_unchecked(struct mics_world **out, struct mics_err *err);
enum mics_status mics_world_check(const struct mics_world *world, struct mics_err *err);

/* The world of `comm`, of which it takes ownership, also on failure. ranks_per_node declares nodes;
 * 0: as the backend reports them. For tests over threads. */
enum mics_status mics_world_open_over(struct mics_comm *comm, uint32_t ranks_per_node,
                                      struct mics_world **out, struct mics_err *err);
void mics_world_close(struct mics_world *world); /* collective; NULL is fine */

/* Do all nodes have the same number of ranks? */
bool mics_world_is_even(const struct mics_world *world);

/* The node of a rank < size; *first: the node's first rank. */
uint32_t mics_world_node_of(const struct mics_world *world, uint32_t rank, uint32_t *first);

/* Ranks on this rank's machine, which share its cores, memory and GPUs, and this rank's position
 * among them. They differ from local_size and local_rank if several declared nodes are on the
 * machine. */
uint32_t mics_world_host_ranks(const struct mics_world *world);
uint32_t mics_world_host_rank(const struct mics_world *world);

/* Length of a host name without the number of a declared node. */
size_t mics_world_host_length(const char *host);

#endif
