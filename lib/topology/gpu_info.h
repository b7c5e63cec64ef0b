/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_info.h - the GPUs of this machine, with their links and the network cards that are near, for a document. */
#ifndef MICS_TOPOLOGY_GPU_INFO_H
#define MICS_TOPOLOGY_GPU_INFO_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Add to `machine` (a map): gpus [{name, uuid, pci_id, memory_bytes, capability "9.0", pcie {generation, width,
 * generation_now, width_now}, nvlinks, nvlinks_to_switches, ? nvlink_bytes_per_s, ? network {distance, names}}], in
 * the order of NVML. `network` has the cards that are nearest, as hwloc sees it: behind one "switch", one
 * "host bridge", in one "numa node", or in one "machine". Nothing is added where there is no NVML; where it
 * says that something is wrong, that is added as gpus_error. */
enum mics_status mics_gpus_add(json_t *machine, struct mics_err *err);

/* A table of them, after an empty line; nothing where there are none. `machine` may be NULL. */
enum mics_status mics_gpus_print(FILE *out, const json_t *machine, int tsv, struct mics_err *err);

/*
 * nvml.h - the GPUs of this machine, as NVIDIA's management library tells.
 *
 * It comes with the driver, so it is opened when it is needed and nothing is linked. What is asked for was there in
 * every version since 2018; what a GPU or a driver does not answer is left 0.
 */

struct mics_nvml_gpu {
    char name[96];
    char uuid[96];                        /* "GPU-5a3c..." */
    char pci_id[32];                      /* "00000000:1b:00.0" */
    uint64_t memory_bytes;                /* in all, with what the driver keeps for itself */
    uint64_t free_bytes;                  /* now */
    int major, minor;                     /* compute capability */
    unsigned pcie_generation, pcie_width; /* as GPU and slot allow; lanes */
    unsigned pcie_generation_now, pcie_width_now;
    unsigned nvlinks, nvlinks_to_switches; /* that are up; of them to an NVSwitch */
    double nvlink_rate; /* bytes/s of all of them one way, as NCCL counts them; 0: unknown */
};

/* *out[*count] is the caller's, to free(). $MICS_NVML_PATH names another library, for tests.
 * MICS_ERR_UNSUPPORTED: there is no such library, or it lacks a function. MICS_ERR_DEVICE: it says what is wrong. */
enum mics_status mics_nvml_list(struct mics_nvml_gpu **out, uint32_t *count, struct mics_err *err);

/* Is it the GPU that CUDA knows by these 16 bytes? A part of a GPU (MIG) has an identity of its
 * own. */
bool mics_nvml_gpu_is(const struct mics_nvml_gpu *gpu, const char uuid[16]);

/* Bytes/s of so many NVLinks one way, on GPUs of this compute capability; 0: not known. */
double mics_nvlink_rate(int capability, unsigned links);

#endif
