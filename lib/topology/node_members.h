/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_members.h - what the document of a topology says about single nodes: their hosts, which of
 * them are slow, and which are alike.
 *
 *     ? node_classes [{nodes [index of each node], device, memory_bytes, flops_per_s,
 *                      memory_bandwidth_bytes_per_s}]: of one rank; each node is in one class
 *     ? other_parts [topology]: of the nodes that have another number of ranks
 */
#ifndef MICS_TOPOLOGY_NODE_MEMBERS_H
#define MICS_TOPOLOGY_NODE_MEMBERS_H

#include "doc/cursor.h"
#include "topology/host_list.h"
#include "topology/topology.h"

enum { MICS_MAX_NODE_CLASSES = 32, MICS_MAX_PARTS = 64 };

/* Check "hosts", "bad_nodes", "outliers", "node_classes" and "other_parts" of the topology's
 * document against the topology and against each other. */
void mics_topology_check_nodes(const struct mics_cursor *root,
                               const struct mics_topology *topology);

/* The name of a node, or NULL. It belongs to the document. */
const char *mics_topology_host(const struct mics_topology *topology, size_t node);

/* All names, or none. *list must be zero. Names lose their "#" for a declared node if `strip`. */
enum mics_status mics_topology_hosts(const struct mics_topology *topology, bool strip,
                                     struct mics_host_list *list, struct mics_err *err);

/* Set "hosts" to the names list->names[order[i]], or list->names[i] if `order` is NULL. The
 * topology gets a document if it has none. MICS_ERR_ARG: there are not as many as nodes. */
enum mics_status mics_topology_set_hosts(struct mics_topology *topology,
                                         const struct mics_host_list *list, const uint32_t *order,
                                         struct mics_err *err);

/* A class, and which nodes are in it. Strings and indices belong to the document. */
struct mics_node_class {
    const char *device;
    uint64_t memory_bytes;
    double flops, memory_bandwidth;
    const json_t *nodes;
};

/* *count: 0 if the document has no classes. MICS_ERR_FORMAT: the path, and what contradicts
 * what. */
enum mics_status mics_node_classes_read(const struct mics_topology *topology,
                                        struct mics_node_class classes[MICS_MAX_NODE_CLASSES],
                                        uint32_t *count, struct mics_err *err);

/* Item `index` of "other_parts"; it belongs to the caller. NULL after an error. */
struct mics_topology *mics_topology_open_part(const struct mics_cursor *array, size_t index);

#endif
