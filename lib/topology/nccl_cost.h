/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_cost.h - how long NCCL's collectives take, and what they take from the GPU meanwhile.
 *
 * The model by which NCCL chooses its algorithm and protocol (NVIDIA/nccl 5067397c,
 * src/graph/tuning.cc): for each of them latency + bytes / bandwidth; the fastest is used. Its
 * constants are NVIDIA's. A topology has the bandwidths of the links and the latency that the
 * network adds to each of NCCL's hops.
 */
#ifndef MICS_TOPOLOGY_NCCL_COST_H
#define MICS_TOPOLOGY_NCCL_COST_H

#include "topology/cost.h"

struct mics_nccl_cost {
    struct mics_collective_time time;
    const char *algorithm; /* "ring LL128": what NCCL is assumed to choose */
    double slowdown;       /* part of the speed of computation beside it that is lost, 0 to 1 */
};

/* Are the devices of the topology GPUs that communicate by NCCL? A description such as "node:4
 * gpu:8" is not: it gives latency and bandwidth of its links itself. */
bool mics_nccl_is_used(const struct mics_topology *topology);

/* One collective on `bytes` (the whole array, gathered size) of a group of 2 ranks or more. */
struct mics_nccl_cost mics_nccl_cost(const struct mics_topology *topology,
                                     enum mics_collective collective, struct mics_span span,
                                     uint64_t bytes);

#endif
