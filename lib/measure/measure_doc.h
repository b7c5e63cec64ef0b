/* SPDX-License-Identifier: Apache-2.0 */
/* measure_doc.h - the document mics.bench: measured cases, outliers, and regressions against an
 * earlier run. */
#ifndef MICS_MEASURE_MEASURE_DOC_H
#define MICS_MEASURE_MEASURE_DOC_H

#include "measure/measure_run.h"

#include <jansson.h>
#include <stdio.h>

#define MICS_BENCH_KIND    "mics.bench"
#define MICS_BENCH_VERSION 1

/* A new document with the members nodes, per_node, hosts, declared_nodes, device, transport, iters,
 * warmup, micro_steps, partition (if known) and rows. *out is the caller's. */
enum mics_status mics_bench_to_doc(const struct mics_world *world,
                                   const struct mics_bench_request *request,
                                   const struct mics_bench_result *result, json_t **out,
                                   struct mics_err *err);

/* The rows of a document, checked. On success *out is the caller's, to mics_bench_result_fini(). */
enum mics_status mics_bench_from_doc(const json_t *doc, struct mics_bench_result *out,
                                     struct mics_err *err);

/* Print as nccl-tests does: one table for each operation and group, then the spread of all times,
 * then the average bus bandwidth, in at most 120 columns. With `tsv` one table of all rows, in
 * seconds and bytes/s. MICS_ERR_FORMAT: another kind of document. */
enum mics_status mics_bench_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err);

/* Compare with an earlier document: add "regressions" [{op, algo, group, bytes, in_place, before_s,
 * now_s, times_slower}] to `doc` and set *count. A case is a regression if its median has grown by
 * more than a tenth, its best iteration is above the old median, and this is beyond the noise: the
 * best iteration is above the old 99th percentile, or the median has grown by more than
 * MICS_SLOW_MADS times the greater of both median absolute deviations. MICS_ERR_INFEASIBLE: the two
 * have no case in common. */
enum mics_status mics_bench_compare(json_t *doc, const json_t *old, size_t *count,
                                    struct mics_err *err);

#endif
