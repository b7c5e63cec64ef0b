/* SPDX-License-Identifier: Apache-2.0 */
/* collectives.h - measured costs of all collectives on all shapes of groups. */
#ifndef MICS_BENCH_COLLECTIVES_H
#define MICS_BENCH_COLLECTIVES_H

#include "bench/bench.h"
#include "bench/series.h"

/* A cost, and the points that it was fitted to. */
struct mics_measured {
    struct mics_collective_cost cost;
    size_t count;
    struct mics_sample points[MICS_SERIES_MAX];
};

/* Measure each collective on each shape of mics_shapes_list(), all groups of a shape side by side, in about
 * `budget_s` altogether. The world must be even and of more than one rank. *out is the caller's, to
 * free(), and the same on all ranks. */
enum mics_status mics_collectives_measure(const struct mics_bench *bench, double budget_s,
                                          struct mics_measured **out, uint32_t *count,
                                          struct mics_err *err);

#endif
