/* SPDX-License-Identifier: Apache-2.0 */
/* health_measure.h - rates of ranks and of pairs of nodes, with findings. All are collective, and
 * have the same results on all ranks. For health.c. */
#ifndef MICS_PROBE_HEALTH_MEASURE_H
#define MICS_PROBE_HEALTH_MEASURE_H

#include "comm/world.h"
#include "measure/bench.h"
#include "probe/findings.h"

/* Products and copies of all ranks at once, for about `seconds` each, up to five times while a
 * rank is slow. Adds "rates", [{flops_per_s, memory_bytes_per_s}] of its ranks, to each node. */
enum mics_status mics_health_measure_ranks(struct mics_findings *findings,
                                           const struct mics_bench *bench, double seconds,
                                           json_t *nodes, struct mics_err *err);

/* Pairs of nodes (pairs.h), each transfer for about `seconds`, twice; those that seem slow again,
 * and fast ones beside them, until none does. As many ranks of each node take part as all nodes
 * have. *out becomes
 *
 *     {bytes (of a transfer), rounds, repeats, reference_bytes_per_s, send [bytes/s of each node],
 *      receive, pairs [[from, to, bytes/s]], ? groups [0 or 1 of each node]}
 *
 * There must be two nodes or more. */
enum mics_status mics_health_measure_links(struct mics_findings *findings,
                                           const struct mics_world *world, double seconds,
                                           json_t **out, struct mics_err *err);

#endif
