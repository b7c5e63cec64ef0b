/* SPDX-License-Identifier: Apache-2.0 */
/*
 * links.h - latency and bandwidth of the two classes of links, pair by pair.
 *
 * The ranks of a node, and the nodes of the cluster, form a ring; the pairs are its edges. They are
 * measured in two or three phases so that no member is in two pairs at once. A pair runs
 * all-gathers of two ranks: each sends half of the bytes to the other, so time = alpha + bytes / 2
 * / beta.
 */
#ifndef MICS_MEASURE_LINKS_H
#define MICS_MEASURE_LINKS_H

#include "measure/bench.h"
#include "topology/topology.h"

enum mics_link_class { MICS_LINK_NODE, MICS_LINK_NET };

/* One pair of ranks of the world, and its best times: of the smallest size, and of the largest size
 * that all phases reached. */
struct mics_pair {
    uint32_t a, b;
    double small_s, large_s;
};

struct mics_links {
    struct mics_link link; /* MICS_LINK_NET: of a whole node, whose ranks send at the same time */
    uint32_t pair_count;
    struct mics_pair *pairs;
    double large_bytes; /* in one direction */
};

/* The world must be even and have such links: more than one rank on a node, or more than one node.
 * The result is the same on all ranks; mics_links_fini() frees it. */
enum mics_status mics_links_measure(const struct mics_bench *bench, enum mics_link_class class,
                                    double budget_s, struct mics_links *out, struct mics_err *err);
void mics_links_fini(struct mics_links *links);

/* A ring of `count` >= 2 members: the number of edges, where edge e connects members e and e + 1;
 * the number of phases; and the phase in which an edge is measured. Two members have one edge. */
uint32_t mics_ring_edges(uint32_t count);
uint32_t mics_ring_phases(uint32_t count);
uint32_t mics_ring_phase(uint32_t count, uint32_t edge);

#endif
