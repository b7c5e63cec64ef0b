/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate.h - measured costs of all collectives on all shapes of groups, and a topology with
 * them. */
#ifndef MICS_MEASURE_CALIBRATE_H
#define MICS_MEASURE_CALIBRATE_H

#include "measure/load.h"
#include "measure/measure_run.h"
#include "measure/series.h"

/* Measure each collective on each shape of mics_group_shapes_list(), all groups of a shape at the
 * same time, in about `budget_s` altogether: points and their fit. With `load`, not NULL, also
 * while all ranks compute (mics_load_beside()), which takes longer.
 * The world must be even and have more than one rank. *out is the caller's, to free(), and the same
 * on all ranks. */
enum mics_status mics_collectives_measure(const struct mics_bench *bench,
                                          const struct mics_load *load, double budget_s,
                                          struct mics_collective_cost **out, uint32_t *count,
                                          struct mics_err *err);

/* Measure each collective on each group that a plan may form, in about `seconds`; on hosts also
 * while all ranks compute, and how far ranks drift apart when they only compute, which takes
 * longer. Then time flat and hierarchical all-gathers and reduce-scatters, in 1, 2 and 4 segments,
 * in place, over the request's sizes, on each group of several whole nodes. On rank 0 `doc` is a
 * topology of as many nodes and ranks, whose "collectives", "exchanges" and, on hosts, "stragglers"
 * are replaced; NULL on other ranks. The bench's buffer must be as mics_bench_buffer_bytes() says.
 * Collective over the world. MICS_ERR_ARG: more sizes than MICS_ALGORITHM_POINTS. MICS_ERR_COMM:
 * wrong results. */
enum mics_status mics_calibrate(const struct mics_bench *bench,
                                const struct mics_bench_request *request, double seconds,
                                json_t *doc, struct mics_err *err);

#endif
