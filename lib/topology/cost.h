/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost.h - how long one operation takes on a topology.
 *
 * Communication: the measured collective where the topology has one for that group, else the
 * alpha-beta formula of the ring (Thakur et al. 2005): (m-1) alpha + (m-1)/m S / beta. An all-reduce takes twice
 * that, or 2 log2(m) alpha + 2 S / beta by two trees (Sanders et al. 2009) where that is less.
 * Computation: a roofline, max(flops / rate, bytes / memory bandwidth).
 */
#ifndef MICS_TOPOLOGY_COST_H
#define MICS_TOPOLOGY_COST_H

#include "topology/topology.h"

/* Which ranks take part, and how many such groups share a node's network card at once. */
struct mics_span {
    uint32_t nodes;    /* that one group touches */
    uint32_t per_node; /* its ranks on each of them */
    uint32_t sharing;  /* groups that use the same card at the same time, >= 1 */
};

/* Seconds for one collective of `bytes` (the whole array, gathered size). 0 for a group of one. */
double mics_cost_collective(const struct mics_topology *topology, enum mics_collective collective,
                            struct mics_span span, uint64_t bytes);

/* Seconds for work of so many FLOPs that moves so many bytes of memory. */
double mics_cost_compute(const struct mics_topology *topology, double flops, double bytes);

/* NULL when that was not measured. */
const struct mics_race *mics_race_find(const struct mics_topology *topology,
                                       enum mics_collective collective, uint32_t nodes,
                                       uint32_t per_node, uint32_t segments);

/* Seconds for an array of so many bytes: between two points by a line in the logarithms, below the first point its time,
 * above the last in proportion to the bytes. */
double mics_race_flat(const struct mics_race *race, double bytes);
double mics_race_staged(const struct mics_race *race, double bytes);

/* The bytes of the first and the last point where the hierarchy is faster; 0: there is none. */
struct mics_race_window {
    double from, to;
};
struct mics_race_window mics_race_window(const struct mics_race *race);

#endif
