/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_topo.h - a machine as NCCL described it (NCCL_TOPO_DUMP_FILE), and a topology of so many of them.
 *
 * The file is XML: system > cpu > pci ... > pci > gpu > nvlink, and pci > nic > net. Elements of other names are passed
 * over, with all in them; known ones in other places, malformed numbers, and GPUs that differ are refused.
 */
#ifndef MICS_TOPOLOGY_NCCL_TOPO_H
#define MICS_TOPOLOGY_NCCL_TOPO_H

#include "topology/topology.h"

#include <stddef.h>

struct mics_nccl_machine {
    uint32_t gpus;       /* at least 1, all alike: */
    uint32_t capability; /* 90: 9.0 */
    char device[16];     /* of PCI, "0x2335"; empty: the file does not say */
    uint32_t nvlinks;    /* of the GPU that has least */
    double pcie_rate;    /* bytes/s one way between GPU and slot, the least; 0: unknown */
    uint32_t cards;      /* network cards (ports) */
    double cards_rate;   /* bytes/s of all together */
    double card_rate;    /* of each if they are alike; else 0 */
    double latency_s;    /* the greatest that a card states; 0: none does */
};

/* MICS_ERR_FORMAT: with the line, what is there, what was expected. MICS_ERR_UNSUPPORTED: a build without expat. */
enum mics_status mics_nccl_machine_parse(const char *text, size_t size,
                                         struct mics_nccl_machine *out, struct mics_err *err);

/* 1 <= nodes <= MICS_MAX_NODES machines like that in the file at `path` ("-": standard input). `gpu`: the GPU's name in
 * the catalogue; NULL: known by its PCI device. Rates of links are those of NCCL, of cards what the catalogue takes to
 * be reached; a latency that the file does not state is assumed. *out is the caller's, to mics_topology_free(). */
enum mics_status mics_topology_from_nccl(const char *path, const char *gpu, uint32_t nodes,
                                         struct mics_topology **out, struct mics_err *err);

#endif
