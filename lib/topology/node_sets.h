/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_sets.h - what a document says about single nodes: their hosts, which of them are slow, and
 * which are alike; and the sets of nodes that a plan may use.
 *
 *     ? node_classes [{nodes [index of each node], device, memory_bytes, flops_per_s,
 *                      memory_bandwidth_bytes_per_s}]: of one rank; each node is in one class
 *     ? other_parts [topology]: of the nodes that have another number of ranks
 */
#ifndef MICS_TOPOLOGY_NODE_SETS_H
#define MICS_TOPOLOGY_NODE_SETS_H

#include "topology/host_list.h"
#include "topology/topology.h"

/* Check "hosts", "bad_nodes", "outliers", "node_classes" and "other_parts" of topology->doc against
 * the topology and against each other. MICS_ERR_FORMAT: the path, and what contradicts what. */
enum mics_status mics_node_sets_check(const struct mics_topology *topology, struct mics_err *err);

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
 * calls mics_node_sets_free(). MICS_ERR_INFEASIBLE: every node is bad, or with `all_nodes` the nodes
 * have different numbers of ranks. */
enum mics_status mics_node_sets_new(const struct mics_topology *topology, bool all_nodes,
                                    struct mics_node_set **out, uint32_t *count,
                                    struct mics_err *err);
void mics_node_sets_free(struct mics_node_set *sets, uint32_t count);

/* The names in "hosts", or none. *list must be zero. A name without its "#" for a declared node is
 * wanted if `strip`. */
enum mics_status mics_topology_hosts(const struct mics_topology *topology, bool strip,
                                     struct mics_host_list *list, struct mics_err *err);

/* Set "hosts" to the names list->names[order[i]], or list->names[i] if `order` is NULL. The
 * topology gets a document if it has none. MICS_ERR_ARG: there are not as many as nodes. */
enum mics_status mics_topology_set_hosts(struct mics_topology *topology,
                                         const struct mics_host_list *list, const uint32_t *order,
                                         struct mics_err *err);

#endif
