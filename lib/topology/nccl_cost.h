/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_cost.h - how long NCCL's collectives take, and what they take from the GPU meanwhile.
 *
 * NCCL's model of its algorithms and protocols (NVIDIA/nccl 5067397c, src/graph/tuning.cc), with
 * the time of chunks on their way added; the fastest is used. Constants are NVIDIA's, a few are
 * calibrated by published measurements. A topology has the bandwidths of the links and the latency
 * that the network adds to each of NCCL's hops.
 */
#ifndef MICS_TOPOLOGY_NCCL_COST_H
#define MICS_TOPOLOGY_NCCL_COST_H

#include "topology/cost.h"

/* A node, as NCCL divides its links into channels: rings over all links, each with buffers and a
 * multiprocessor of its own. */
struct mics_nccl_node {
    uint32_t per_node;      /* GPUs */
    uint32_t channels;      /* of a communicator inside the node */
    uint32_t nvls_channels; /* NVLink SHARP; 0: not available (before Hopper) */
    uint32_t cards;         /* network cards, or bundles of them: at most one for each GPU */
    bool hopper;            /* or later */
};

/* Derived from the rates of the links and the generation of the GPU, so that it works for measured
 * and described clusters. */
struct mics_nccl_node mics_nccl_node_from_topology(const struct mics_topology *topology);

/* Channels of rings and trees of a communicator on `nodes`, with `per_node` ranks on each. */
uint32_t mics_nccl_channels(const struct mics_nccl_node *node, uint32_t nodes, uint32_t per_node);

struct mics_nccl_cost {
    struct mics_collective_time time;
    const char *algorithm; /* "ring LL128": what NCCL is assumed to choose */
};

/* Are the devices of the topology GPUs that communicate by NCCL? A description such as "node:4
 * gpu:8" is not: it gives latency and bandwidth of its links itself. */
bool mics_nccl_is_used(const struct mics_topology *topology);

/* One collective on `bytes` (the whole array, gathered size) of a group of 2 ranks or more. */
struct mics_nccl_cost mics_nccl_cost(const struct mics_topology *topology,
                                     enum mics_collective collective, struct mics_span span,
                                     uint64_t bytes);

/* With NCCL_ALGO set: only by algorithms whose name begins with `algorithm`, such as "ring"; NULL:
 * any. If none does it, the time is 0 and the name NULL. */
struct mics_nccl_cost mics_nccl_cost_of(const struct mics_topology *topology,
                                        enum mics_collective collective, struct mics_span span,
                                        uint64_t bytes, const char *algorithm);

/* The part of the speed of computation beside it that is lost, 0 to 1, on a GPU with so many
 * multiprocessors. */
double mics_nccl_slowdown(const struct mics_topology *topology, uint32_t multiprocessors,
                          enum mics_collective collective, struct mics_span span, uint64_t bytes);

#endif
