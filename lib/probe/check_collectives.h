/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_collectives.h - collectives inside nodes and over all ranks, by size, and what a topology
 * says that they and other rates should reach.
 */
#ifndef MICS_PROBE_CHECK_COLLECTIVES_H
#define MICS_PROBE_CHECK_COLLECTIVES_H

#include "measure/bench.h"
#include "measure/statistics.h"
#include "probe/findings.h"
#include "topology/topology.h"

/* All-gather, reduce-scatter and all-reduce in each node and over all ranks, over growing sizes for
 * about `seconds` each; those in nodes up to five times while a node is slow. A node is slow if two
 * of the three are, at the largest size, compared with the other nodes. Adds "collectives",
 * [{op, bytes, bytes_per_s (on the bus)}], to each node; *out becomes a document mics.bench, the
 * caller's, or NULL if nodes have different numbers of ranks or there is one rank. Collective. */
enum mics_status mics_check_measure_collectives(struct mics_findings *findings,
                                                const struct mics_bench *bench, double seconds,
                                                json_t *nodes, json_t **out, struct mics_err *err);

/* All-gather, reduce-scatter, all-reduce. */
enum { MICS_CHECK_OPS = 3 };

/* Set slow[nodes] to a bit for each collective in which a node is slow, or 0 if it is in fewer than
 * two, and `classes` to the rates of each; is any? `scratch` has room for `nodes` values.
 * rates[MICS_CHECK_OPS][nodes] are those of the largest size. */
bool mics_check_slow_nodes(const double *rates, uint32_t nodes, bool on_host, double *scratch,
                           struct mics_class *classes, unsigned char *slow);

/* Compare a document mics.check with what `topology` says that the cluster should reach, and add a
 * finding for what is lower by more than MICS_EXPECT_TOLERANCE; also "expected", what each rate
 * should be, and "expected_by", the `name` of the topology. What was measured on another device
 * than the topology's is not compared; MICS_ERR_FORMAT: nothing was. */
enum mics_status mics_check_expect(json_t *doc, const struct mics_topology *topology,
                                   const char *name, struct mics_err *err);

/* Add a notice for collectives over all ranks that are far slower than pairs of nodes ("links"). */
void mics_check_compare_with_links(struct mics_findings *findings, const json_t *bench,
                                   const json_t *links);

/* Of a row of mics.bench: "all_gather of 4 MiB in nodes", and whether it is that of the largest
 * size of its collective and group. */
const char *mics_check_name_row(const json_t *row, char text[96]);
bool mics_check_is_largest(const json_t *rows, const json_t *row);

#endif
