/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost.h - how long a collective takes on a topology.
 *
 * Communication: what was measured, size by size, where the topology has it for that group (its
 * `collectives`, else its flat `exchanges`), whatever the formulas say; else NCCL's
 * model on NVIDIA's GPUs (nccl_cost.h); else the algorithms of lib/comm/mpi, of which the fastest
 * counts. A ring of m ranks on q nodes (Thakur et al. 2005): a piece crosses the network q - 1
 * times, and goes from rank to rank of a node m - q times, so
 *
 *     (q-1) alpha_net + (m-q) alpha_node + (m-1)/m S / beta
 *
 * and twice that for an all-reduce. Trees, direct messages, halving and all_to_all: cost.c. A
 * collective that a calibration does not have, as those of older versions have no all_to_all, takes
 * the time of its formula.
 * Computation: see compute.h.
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

/* The time of a collective that uses its links alone. Other collectives over the same links
 * lengthen only `transfer_s`. */
struct mics_collective_time {
    double latency_s, transfer_s;
};

/* One collective on `bytes` (the whole array, gathered size). Zero for a group of one rank. */
struct mics_collective_time mics_cost_collective_time(const struct mics_topology *topology,
                                                      enum mics_collective collective,
                                                      struct mics_span span, uint64_t bytes);

/* The sum of both, in seconds. */
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
