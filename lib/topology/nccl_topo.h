/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_topo.h - a machine as described by NCCL (NCCL_TOPO_DUMP_FILE), and a topology of such
 * machines.
 *
 * The file is XML: system > cpu > pci ... > pci > gpu > nvlink, and pci > nic > net. Unknown
 * elements are skipped with their contents. Known elements in other places, malformed numbers, and
 * GPUs that differ are errors.
 */
#ifndef MICS_TOPOLOGY_NCCL_TOPO_H
#define MICS_TOPOLOGY_NCCL_TOPO_H

#include "topology/topology.h"

#include <stddef.h>

struct mics_nccl_machine {
    uint32_t gpus;       /* at least 1, of one kind */
    uint32_t capability; /* 90: 9.0 */
    char device[16];     /* of PCI, "0x2335"; empty: not stated */
    uint32_t nvlinks;    /* of the GPU with the fewest */
    double pcie_rate;    /* bytes/s one way between GPU and slot, the slowest; 0: unknown */
    uint32_t cards;      /* network cards (ports) */
    double cards_rate;   /* bytes/s of all cards together */
    double card_rate;    /* of each card if all are alike; else 0 */
    double latency_s;    /* the largest that a card states; 0: none states one */
};

/* MICS_ERR_FORMAT: the line, what was found and what was expected. MICS_ERR_UNSUPPORTED: a build
 * without expat. */
enum mics_status mics_nccl_machine_parse(const char *text, size_t size,
                                         struct mics_nccl_machine *out, struct mics_err *err);

/* `nodes` machines (1 to MICS_MAX_NODES) as described by the file at `path` ("-": standard input).
 * `gpu`: name of the GPU in the catalogue; NULL: found by its PCI device. Links have the rates that
 * NCCL assumes; network cards have the fraction of theirs that the catalogue says is reached; a
 * latency that the file does not have is assumed. *out belongs to the caller, who calls
 * mics_topology_free(). */
struct mics_catalogue;
enum mics_status mics_topology_from_nccl(const char *path, const struct mics_catalogue *catalogue,
                                         const char *gpu, uint32_t nodes,
                                         struct mics_topology **out, struct mics_err *err);

#endif
