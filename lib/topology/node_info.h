/* SPDX-License-Identifier: Apache-2.0 */
/* node_info.h - what the machine that we run on is made of. */
#ifndef MICS_TOPOLOGY_NODE_INFO_H
#define MICS_TOPOLOGY_NODE_INFO_H

#include "base/err.h"

#include <jansson.h>
#include <stdint.h>

/* The machine as hwloc sees it, whole: {processor, packages, numa_nodes, cores, threads,
 * cache_bytes [L1d, L2, L3; 0: none], memory_bytes}. MICS_ERR_DEVICE: hwloc cannot say. */
enum mics_status mics_node_describe(json_t **out, struct mics_err *err);

/* Bytes of memory of the machine. 0: unknown. */
uint64_t mics_node_physical_bytes(void);

/* Bytes that the processes of this machine may use together: its memory, or less where a control
 * group of this process or one above it has a limit. 0: unknown. */
uint64_t mics_node_memory_bytes(void);

/* The lowest limit of the control groups that `membership`, in the form of /proc/self/cgroup, names,
 * under the file system at `root`; UINT64_MAX if there is none. Version 1 and 2. */
uint64_t mics_cgroup_memory_limit(const char *membership, const char *root);

#endif
