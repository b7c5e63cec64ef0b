/* SPDX-License-Identifier: Apache-2.0 */
/* bench_doc.h - the document mics.bench: measured cases, findings, and what became slower than before. */
#ifndef MICS_BENCH_DOC_H
#define MICS_BENCH_DOC_H

#include "bench/run.h"

#include <jansson.h>
#include <stdio.h>

#define MICS_BENCH_KIND    "mics.bench"
#define MICS_BENCH_VERSION 1

/* A new document with the members nodes, per_node, hosts, declared_nodes, device, transport, iters, warmup, micro_steps, partition (if known) and
 * rows. *out is the caller's. */
enum mics_status mics_bench_to_doc(const struct mics_world *world,
                                   const struct mics_bench_request *request,
                                   const struct mics_bench_result *result, json_t **out,
                                   struct mics_err *err);

/* The rows of a document, checked. On success *out is the caller's, to mics_bench_result_fini(). */
enum mics_status mics_bench_from_doc(const json_t *doc, struct mics_bench_result *out,
                                     struct mics_err *err);

/* As nccl-tests shows it: one table for each operation and group, then the spread of all times, then the average bus
 * bandwidth, in at most 120 columns. With `tsv` one table of all rows, in seconds and bytes/s. MICS_ERR_FORMAT for another document. */
enum mics_status mics_bench_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err);

/* Compare with an earlier document: add "regressions" [{op, algo, group, bytes, in_place, before_s, now_s,
 * times_slower}] to `doc` and set *count. Slower is a case whose median grew by more than a tenth and whose best
 * iteration is above the old median, if that is beyond the noise: above the old 99th percentile, or grown by more than
 * MICS_SLOW_MADS of the greater of both median absolute deviations.
 * MICS_ERR_INFEASIBLE: the two have no case in common. */
enum mics_status mics_bench_compare(json_t *doc, const json_t *old, size_t *count,
                                    struct mics_err *err);

#endif
