/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_info.h - the GPUs of this machine, with their links and the network cards that are near, for a document. */
#ifndef MICS_TOPOLOGY_GPU_INFO_H
#define MICS_TOPOLOGY_GPU_INFO_H

#include "base/err.h"

#include <jansson.h>
#include <stdio.h>

/* Add to `machine` (a map): gpus [{name, uuid, pci_id, memory_bytes, capability "9.0", pcie {generation, width,
 * generation_now, width_now}, nvlinks, nvlinks_to_switches, ? nvlink_bytes_per_s, ? network {distance, names}}], in
 * the order of NVML. `network` has the cards that are nearest, as hwloc sees it: behind one "switch", one
 * "host bridge", in one "numa node", or in one "machine". Nothing is added where there is no NVML; where it
 * says that something is wrong, that is added as gpus_error. */
enum mics_status mics_gpus_add(json_t *machine, struct mics_err *err);

/* A table of them, after an empty line; nothing where there are none. `machine` may be NULL. */
enum mics_status mics_gpus_print(FILE *out, const json_t *machine, int tsv, struct mics_err *err);

#endif
