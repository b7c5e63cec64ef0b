/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost.h - how long a collective takes on a topology.
 *
 * Communication: the measured collective where the topology has one for that group, else the
 * alpha-beta formula of a ring (Thakur et al. 2005): (m-1) alpha + (m-1)/m S / beta. An all-reduce
 * takes twice that, or 2 log2(m) alpha + 2 S / beta with two trees (Sanders et al. 2009) where that
 * is less. Computation: see compute.h.
 */
#ifndef MICS_TOPOLOGY_COST_H
#define MICS_TOPOLOGY_COST_H

#include "topology/topology.h"

/* The ranks of a group, and how many such groups share a node's network cards at once. */
struct mics_span {
    uint32_t nodes;    /* 1 or more */
    uint32_t per_node; /* its ranks on each of them, 1 or more */
    uint32_t sharing;  /* groups that use the same cards at the same time, 1 or more */
};

/* Seconds of one collective on `bytes` (the whole array, gathered size). 0 for a group of one
 * rank. */
double mics_cost_collective(const struct mics_topology *topology, enum mics_collective collective,
                            struct mics_span span, uint64_t bytes);

/* The measured algorithms of a collective on a group; NULL: not measured. */
const struct mics_algorithm_timing *mics_algorithm_timing_find(const struct mics_topology *topology,
                                                               enum mics_collective collective,
                                                               uint32_t nodes, uint32_t per_node,
                                                               uint32_t segments);

/* Seconds for an array of `bytes`: interpolated in the logarithms between two points; below the
 * first point its time; above the last point in proportion to the bytes. */
double mics_algorithm_timing_flat(const struct mics_algorithm_timing *timing, double bytes);
double mics_algorithm_timing_hierarchical(const struct mics_algorithm_timing *timing, double bytes);

/* Bytes of the first and the last point at which hierarchical is faster; both 0: at none. */
struct mics_hierarchical_window {
    double from, to;
};
struct mics_hierarchical_window
mics_algorithm_timing_window(const struct mics_algorithm_timing *timing);

#endif
