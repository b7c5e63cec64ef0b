/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe.h - measure the cluster that we run on.
 *
 * All ranks compute at once, then all pairs of neighbours talk, then all groups that a plan may form
 * run their collectives. A measurement that names somebody as slow is made again, twice.
 */
#ifndef MICS_PROBE_PROBE_H
#define MICS_PROBE_PROBE_H

#include "comm/job_device.h"
#include "topology/topology.h"

/* Takes about `seconds` (more on a network where that does not suffice for five sizes of everything).
 * Collective. On every rank *out becomes a document mics.topology, see topology.h, which the caller
 * owns; `machine` is in that of rank 0 only. Apart from that the documents are alike.
 * MICS_ERR_INFEASIBLE: the nodes have different numbers of ranks, and which. */
enum mics_status mics_probe_run(struct mics_world *world, enum mics_device_kind kind,
                                double seconds, json_t **out, struct mics_err *err);

#endif
