/* SPDX-License-Identifier: Apache-2.0 */
/* node_info.h - the machine that this process runs on. */
#ifndef MICS_TOPOLOGY_NODE_INFO_H
#define MICS_TOPOLOGY_NODE_INFO_H

#include "base/err.h"

#include <jansson.h>
#include <stdint.h>

/* The whole machine as hwloc sees it: {processor, packages, numa_nodes, cores, threads, cache_bytes
 * [L1d, L2, L3; 0: absent], memory_bytes}. *out belongs to the caller. MICS_ERR_DEVICE: hwloc
 * fails. */
enum mics_status mics_node_describe(json_t **out, struct mics_err *err);

/* Bytes that the processes of this machine may use together: its memory, or less where the control
 * group of this process or a parent of it has a limit. 0: unknown. */
uint64_t mics_node_memory_bytes(void);

/* Bytes of this process that are in memory now. 0: unknown. */
uint64_t mics_process_resident_bytes(void);

#endif
