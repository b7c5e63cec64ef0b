/* SPDX-License-Identifier: Apache-2.0 */
/* check_measure.h - rates of ranks and of pairs of nodes, with findings. All are collective, and
 * have the same results on all ranks. For check.c. */
#ifndef MICS_PROBE_CHECK_MEASURE_H
#define MICS_PROBE_CHECK_MEASURE_H

#include "comm/world.h"
#include "measure/bench.h"
#include "measure/statistics.h"
#include "probe/findings.h"

/* Is a rank's or a node's rate slow, beside those of its class? */
bool mics_check_is_slow(const struct mics_class *class, double rate, bool on_host);

/* Products and passes over memory of all ranks at once, for about `seconds` each, and copies of
 * GPUs from and to their hosts, up to five times while a rank is slow. Adds "rates" of its ranks,
 * [{flops_per_s, memory_bytes_per_s, ? from_host_bytes_per_s, to_host_bytes_per_s}], to each
 * node. */
enum mics_status mics_check_measure_ranks(struct mics_findings *findings,
                                          const struct mics_bench *bench, double seconds,
                                          json_t *nodes, struct mics_err *err);

/* Pairs of nodes (pairs.h), each transfer for about `seconds`, twice; those that seem slow again,
 * and fast ones beside them, until none does. As many ranks of each node take part as all nodes
 * have. *out becomes
 *
 *     {bytes (of a transfer), rounds, repeats, reference_bytes_per_s, send [bytes/s of each node],
 *      receive, pairs [[from, to, bytes/s]], segments [[from, to, sent, sent again]],
 *      ? groups [0 or 1 of each node]}
 *
 * There must be two nodes or more. */
enum mics_status mics_check_measure_links(struct mics_findings *findings,
                                          const struct mics_world *world, double seconds,
                                          json_t **out, struct mics_err *err);

#endif
