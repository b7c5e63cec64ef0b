/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe.h - measure the cluster that this job runs on.
 *
 * All ranks compute at once, then all pairs of neighbours exchange messages, then all groups that a
 * plan may form run their collectives. Measurements in which something is slow are repeated
 * (slow_nodes.h).
 */
#ifndef MICS_PROBE_PROBE_H
#define MICS_PROBE_PROBE_H

#include "comm/job_device.h"
#include "topology/topology.h"

/* Takes about `seconds`, more if the network needs longer for five sizes of each measurement.
 * Collective. *out becomes a document mics.topology (topology.h), which the caller owns: the same
 * on all ranks, except that only rank 0's has `machine`. Where nodes have different numbers of
 * ranks, those with the same number are measured one part after another. */
enum mics_status mics_probe_run(struct mics_world *world, enum mics_device_kind kind,
                                double seconds, json_t **out, struct mics_err *err);

/* Look for slow ranks and links only, in about `seconds`; more if something is slow. Collective.
 * *out becomes {per_node, hosts, declared_nodes, outliers, bad_nodes} as in a topology, which the
 * caller owns. MICS_ERR_INFEASIBLE: the nodes have different numbers of ranks. */
enum mics_status mics_probe_check(struct mics_world *world, enum mics_device_kind kind,
                                  double seconds, json_t **out, struct mics_err *err);

/* What a rank found about itself, and about its node. */
struct mics_rank_figures {
    uint64_t memory_bytes; /* that it may use */
    double flops, memory_bandwidth;
    char device[64];
};

/* Add "node_classes" if nodes have other devices, or memory that differs by more than a sixteenth.
 * A node has the least memory and the median rates of its ranks. All nodes have the same number of
 * ranks. Collective; the same on all ranks. */
enum mics_status mics_node_classes_add(json_t *doc, const struct mics_world *world,
                                       const struct mics_rank_figures *own, struct mics_err *err);

#endif
