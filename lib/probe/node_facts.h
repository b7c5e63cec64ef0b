/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_facts.h - what a node says about itself: programs, limits, disks, network cards, GPUs.
 *
 * Everything is read, nothing is measured. What a machine does not tell is left out.
 */
#ifndef MICS_PROBE_NODE_FACTS_H
#define MICS_PROBE_NODE_FACTS_H

#include "base/err.h"

#include <jansson.h>

/* *out, which belongs to the caller, becomes
 *
 *     {versions {mics, mpi, kernel, ? nvidia}, cores, memory_bytes, ? memory_free_bytes,
 *      ? shm_bytes, ? shm_free_bytes, ? memlock_bytes (absent: no limit), ? disk_free_bytes (where
 *      the program runs), ? governor, ? throttled (times since the start), interfaces [{name, up,
 *      ? bits_per_s, ? mtu}] (cards, no virtual ones), rdma [{name, port, ? state, ? gbit_per_s,
 *      ? link_layer}], ? gpus [{name, pci_id, memory_bytes, used_bytes, pcie {generation, width,
 *      width_now}, nvlinks, ? ecc, ? peers [how it reaches each GPU of the node; null: not known],
 *      ...}] (members of struct mics_gpu_health that are known), ? gpus_error, ? xids [{pci_id,
 *      xid}] (each once)}
 *
 * $MICS_SYSTEM_ROOT, for tests, is a folder with sys/, proc/ and dev/kmsg. */
enum mics_status mics_node_facts(json_t **out, struct mics_err *err);

/* Times that the processors of this node were slowed down by heat since the start, by the kernel's
 * count. -1: unknown. */
long long mics_node_throttled(void);

/* Seconds since 1970, by this node's clock. */
double mics_time_of_day_s(void);

#endif
