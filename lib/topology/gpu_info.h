/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_info.h - the GPUs of this machine by NVIDIA's management library (NVML), and their
 * description in a document.
 *
 * NVML comes with the driver, so it is opened at run time and never linked. All required functions
 * exist in every version since 2018. What a GPU or a driver does not support is left 0.
 */
#ifndef MICS_TOPOLOGY_GPU_INFO_H
#define MICS_TOPOLOGY_GPU_INFO_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The state of a GPU; -1: the GPU or the driver does not tell. */
struct mics_gpu_health {
    int64_t ecc;                    /* ECC is on: 1 */
    int64_t ecc_errors;             /* uncorrected, since the driver was loaded */
    int64_t remap_pending;          /* a row of memory waits for a reset to be replaced: 1 */
    int64_t remap_failed;           /* no spare row was left: 1 */
    int64_t throttle;               /* why clocks are reduced now, bits of nvml_api.h */
    int64_t celsius, limit_celsius; /* at the limit it slows down */
    int64_t power_limit_mw, default_power_limit_mw;
    int64_t persistence, mig; /* on: 1 */
    int64_t processes;        /* that compute on it */
    int64_t link_recoveries;  /* of all NVLinks, since the driver was loaded */
};

/* How a GPU reaches the memory of another one, or why it does not. */
enum mics_gpu_peer {
    MICS_GPU_PEER_UNKNOWN, /* also of a GPU to itself */
    MICS_GPU_PEER_NVLINK,
    MICS_GPU_PEER_PCIE,
    MICS_GPU_PEER_NO_CHIPSET,
    MICS_GPU_PEER_NO_GPU,
    MICS_GPU_PEER_NO_TOPOLOGY,
    MICS_GPU_PEER_NO_REGKEY,
    MICS_GPU_PEER_NO,
};
enum { MICS_GPU_PEERS = 32 }; /* the first ones of a machine */

struct mics_nvml_gpu {
    char name[96];
    char uuid[96];                        /* "GPU-5a3c..." */
    char pci_id[32];                      /* "00000000:1b:00.0" */
    uint64_t memory_bytes;                /* total, with what the driver reserves */
    uint64_t free_bytes;                  /* now */
    int major, minor;                     /* compute capability */
    unsigned pcie_generation, pcie_width; /* supported by GPU and slot; lanes */
    unsigned pcie_generation_now, pcie_width_now;
    unsigned nvlinks, nvlinks_to_switches; /* that are up; of them to an NVSwitch */
    double nvlink_rate; /* bytes/s of all of them one way, as NCCL counts them; 0: unknown */
    struct mics_gpu_health health;
    unsigned char peers[MICS_GPU_PEERS]; /* enum mics_gpu_peer, in the order of NVML */
};

/* *out [*count] belongs to the caller, who calls free(). $MICS_NVML_PATH names another library, for
 * tests. MICS_ERR_UNSUPPORTED: the library or a function is missing. MICS_ERR_DEVICE: NVML reports
 * an error. */
enum mics_status mics_nvml_list(struct mics_nvml_gpu **out, uint32_t *count, struct mics_err *err);

/* The version of the driver; MICS_ERR_UNSUPPORTED and MICS_ERR_DEVICE as above. */
enum mics_status mics_nvml_driver(char version[96], struct mics_err *err);

/* "NVLink", "PCIe", or the reason, such as "topology not supported"; NULL: unknown. */
const char *mics_gpu_peer_name(enum mics_gpu_peer peer);

/* Does CUDA identify the GPU by these 16 bytes? A part of a GPU (MIG) has a UUID of its own. */
bool mics_nvml_gpu_is(const struct mics_nvml_gpu *gpu, const char uuid[16]);

/* Bytes/s of `links` NVLinks one way, on GPUs of a compute capability (90: 9.0); 0: unknown. */
double mics_nvlink_rate(int capability, unsigned links);

/* Add to `machine` (a map): gpus [{name, uuid, pci_id, memory_bytes, capability "9.0", pcie
 * {generation, width, generation_now, width_now}, nvlinks, nvlinks_to_switches, ?
 * nvlink_bytes_per_s, ? network {distance, names}}], in the order of NVML. `network` has the
 * nearest cards according to hwloc: below one "switch", one "host bridge", in one "numa node", or
 * in one "machine". Nothing is added where there is no NVML; if NVML reports an error, it is added
 * as gpus_error. */
enum mics_status mics_gpu_info_add(json_t *machine, struct mics_err *err);

/* A table of a machine's GPUs, after an empty line; nothing if there are none. `machine` may be
 * NULL. */
enum mics_status mics_gpu_info_print(FILE *out, const json_t *machine, int tsv,
                                     struct mics_err *err);

#endif
