/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unequal_nodes.h - what a probe writes where nodes differ: "other_parts" and "node_classes" of the
 * topology (node_sets.h).
 */
#ifndef MICS_PROBE_UNEQUAL_NODES_H
#define MICS_PROBE_UNEQUAL_NODES_H

#include "comm/world.h"

#include <jansson.h>

/* What a rank found about itself, and about its node. */
struct mics_rank_figures {
    uint64_t memory_bytes; /* that it may use */
    double flops, memory_bandwidth;
    char device[64];
};

/* Add "node_classes" if nodes have other devices, or memory that differs by more than a sixteenth.
 * A node has the least memory and the median rates of its ranks. All nodes have the same number of
 * ranks. Collective; the same on all ranks. */
enum mics_status mics_node_classes_add(json_t *doc, const struct mics_world *world,
                                       const struct mics_rank_figures *own, struct mics_err *err);

/* Nodes with the same number of ranks. */
struct mics_world_part {
    uint32_t per_node, ranks, nodes;
    uint32_t first_rank; /* the world's */
};

/* The parts of a world, the one with most ranks first. *out belongs to the caller, who calls free().
 */
enum mics_status mics_world_parts(const struct mics_world *world, struct mics_world_part **out,
                                  uint32_t *count, struct mics_err *err);

/* The world of this rank's part. Collective; the caller closes *out. */
enum mics_status mics_world_open_part(struct mics_world *world, struct mics_world **out,
                                      struct mics_err *err);

/* Broadcast a document: the root's *doc becomes everyone's. Collective. */
enum mics_status mics_share_document(struct mics_comm *comm, uint32_t root, json_t **doc,
                                     struct mics_err *err);

#endif
