/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_machine.h - the devices of a machine as NCCL sees them, and the bandwidth that they give.
 *
 * Processors (NUMA nodes), PCI devices and GPUs form a tree; processors are connected with each
 * other, GPUs also by NVLinks with each other and with switches. Rates are those of NCCL's model
 * (NVIDIA/nccl src/graph/topo.h and topo.cc, read on 2026-11-26).
 */
#ifndef MICS_TOPOLOGY_NCCL_MACHINE_H
#define MICS_TOPOLOGY_NCCL_MACHINE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    MICS_NCCL_MAX_GPUS = 64,
    MICS_NCCL_MAX_DEVICES = 512,
    MICS_NCCL_SWITCH = MICS_NCCL_MAX_GPUS, /* all NVSwitches together, as an index of a GPU */
    MICS_NCCL_MAX_PEERS = 256,
    MICS_NCCL_NO_PARENT = -1,
};

enum mics_nccl_kind { MICS_NCCL_PROCESSOR, MICS_NCCL_PCI, MICS_NCCL_GPU };

struct mics_nccl_device {
    enum mics_nccl_kind kind;
    int parent;                   /* index of a processor or a PCI device */
    double rate;                  /* bytes/s to the parent and back */
    double processor_rate;        /* GPU: of other links to its processor; 0: there are none */
    double between_rate;          /* processor: to each other one; INFINITY: not known */
    bool intel;                   /* processor: an Intel */
    uint64_t bus;                 /* PCI; 0: not stated */
    uint32_t cards, silent_cards; /* network cards here; those among them without a stated rate */
    double cards_rate;            /* bytes/s of those with one */
    bool states_speed;            /* PCI: the file has the speed of its link */
};

struct mics_nccl_machine {
    uint32_t devices;
    struct mics_nccl_device list[MICS_NCCL_MAX_DEVICES];
    uint32_t gpus;               /* at least 1, of one kind */
    int gpu[MICS_NCCL_MAX_GPUS]; /* their devices, by PCI address */
    uint32_t capability;         /* 90: 9.0; 0: not stated */
    char device[16];             /* of PCI, "0x2335"; empty: not stated */
    bool has_gpu_elements;       /* NCCL has looked at the GPUs and their NVLinks */
    /* NVLinks between two, which both state. */
    uint32_t links[MICS_NCCL_MAX_GPUS + 1][MICS_NCCL_MAX_GPUS + 1];
    uint32_t processor_links;          /* NVLinks to processors */
    uint32_t own_links, unknown_links; /* to the GPU itself, to a device not in the file */
    bool has_one_sided_links;          /* that only one of two GPUs states */
    uint32_t peers;                    /* PCI switches that are connected beside the tree */
    int peer[MICS_NCCL_MAX_PEERS][2];

    uint32_t cards, silent_cards; /* network cards (ports); those without a stated rate */
    double cards_rate;            /* bytes/s of all cards with a rate */
    double card_rate;             /* of each card if all are alike and state it; else 0 */
    double latency_s;             /* the largest that a card states; 0: none states one */
};

/* How a group of GPUs meets, by the way with the most bandwidth. */
enum mics_nccl_way { MICS_NCCL_OVER_NVLINK, MICS_NCCL_OVER_PCI, MICS_NCCL_OVER_PROCESSORS };

struct mics_nccl_group {
    double rate; /* bytes/s of one GPU, one way */
    enum mics_nccl_way way;
};

/* Rate of a group of `count` (2 or more) GPUs, machine->gpu[first] and the following: the larger of
 * two. By NVLinks alone, of which NCCL makes as many rings as there are: their weakest cut. Else
 * one ring over the GPUs in the best order, which is as fast as its slowest step; a step takes
 * NVLinks where there are some. MICS_ERR_NOMEM. */
enum mics_status mics_nccl_group_rate(const struct mics_nccl_machine *machine, uint32_t first,
                                      uint32_t count, struct mics_nccl_group *out,
                                      struct mics_err *err);

/* GPUs of the largest set that NVLinks join, and of the smallest; both 1 without NVLinks. */
void mics_nccl_joined(const struct mics_nccl_machine *machine, uint32_t *largest,
                      uint32_t *smallest);

/* Bytes/s between the GPUs together and the network: what links of PCI and of processors carry to
 * the cards, of which those with a rate reach `factor` of it, and those without `silent_rate`. */
enum mics_status mics_nccl_net_rate(const struct mics_nccl_machine *machine, double factor,
                                    double silent_rate, double *out, struct mics_err *err);

/* The slowest link to the slot among the cards without a rate; 0: there are none. */
double mics_nccl_card_slot_rate(const struct mics_nccl_machine *machine);

#endif
