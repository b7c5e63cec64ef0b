/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_sets.h - the sets of nodes of a topology that a plan may use.
 */
#ifndef MICS_TOPOLOGY_NODE_SETS_H
#define MICS_TOPOLOGY_NODE_SETS_H

#include "topology/node_members.h"

/* Nodes that a plan may use. */
struct mics_node_set {
    struct mics_topology *topology; /* of these nodes alone: their number, and the least memory and
                                       the lowest rates of their classes */
    json_t
        *left_out; /* [{node, ? host, why}], of all other nodes; "node" is an index of its part */
};

/* The sets of a topology: without bad nodes, each part with all its nodes, with each class alone,
 * and with the classes that have at least the memory or the speed of each class. With `all_nodes`
 * one set of all nodes, whose rates are those of the slowest node. *out belongs to the caller, who
 * calls mics_node_sets_free(). MICS_ERR_INFEASIBLE: every node is bad, or with `all_nodes` they
 * have different numbers of ranks. */
enum mics_status mics_node_sets_new(const struct mics_topology *topology, bool all_nodes,
                                    struct mics_node_set **out, uint32_t *count,
                                    struct mics_err *err);
void mics_node_sets_free(struct mics_node_set *sets, uint32_t count);

/* The same cluster with another number of nodes, whose hosts are not known. *out belongs to the
 * caller. MICS_ERR_FORMAT: the topology does not say how several nodes are linked. */
enum mics_status mics_topology_resize(const struct mics_topology *topology, uint32_t nodes,
                                      struct mics_topology **out, struct mics_err *err);

#endif
