/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_topo.h - a topology of machines as described by NCCL (NCCL_TOPO_DUMP_FILE) or for it
 * (NCCL_TOPO_FILE).
 */
#ifndef MICS_TOPOLOGY_NCCL_TOPO_H
#define MICS_TOPOLOGY_NCCL_TOPO_H

#include "topology/topology.h"

struct mics_catalogue;

struct mics_nccl_request {
    const struct mics_catalogue *catalogue;
    const char *gpu;  /* name of the GPU in the catalogue; NULL: found by its PCI device */
    uint32_t nodes;   /* machines, 1 to MICS_MAX_NODES */
    double card_rate; /* bytes/s of network cards that state no rate; 0: assumed */
};

/* For people; each may be empty. */
struct mics_nccl_findings {
    char link[600];    /* how the GPUs of a node meet, and what does not count */
    char missing[600]; /* what the file does not have, and what is taken instead */
};

/* Machines as described by the file at `path` ("-": standard input). Links have the rates that NCCL
 * assumes; network cards have the fraction of theirs that the catalogue says is reached, or what
 * the links to them carry; a latency that the file does not have is assumed. *out belongs to the
 * caller, who calls mics_topology_free(). */
enum mics_status mics_topology_from_nccl(const char *path, const struct mics_nccl_request *request,
                                         struct mics_topology **out,
                                         struct mics_nccl_findings *found, struct mics_err *err);

#endif
