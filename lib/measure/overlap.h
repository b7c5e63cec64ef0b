/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overlap.h - collectives while all ranks compute: how much longer they take, and what computation
 * loses; and how far ranks get apart that only compute.
 *
 * On hosts the ranks of a node share its cores, and MPI's progress, the copies of the kernel's
 * network stack and sums need some of them. How much is measured, not derived: each rank computes
 * matrix products on a stream of its own, first alone, then while the collective is repeated on
 * another stream.
 * Ranks that share cores also take turns, so that some reach a collective later than others.
 */
#ifndef MICS_MEASURE_OVERLAP_H
#define MICS_MEASURE_OVERLAP_H

#include "measure/measure_group.h"

/* What computes: a stream and three matrices. */
struct mics_bench_load {
    const struct mics_bench *bench;
    struct mics_stream *stream;
    struct mics_event *done; /* of the collectives beside it */
    void *memory;
    double rounds_s;
};

/* The device must be the host. Measurements are repeated until they are certain, or about
 * `rounds_s` have passed, but a few times at least. On success the caller calls
 * mics_bench_load_fini(). */
enum mics_status mics_bench_load_init(const struct mics_bench *bench, double rounds_s,
                                      struct mics_bench_load *out, struct mics_err *err);
void mics_bench_load_fini(struct mics_bench_load *load); /* zeroed: fine */

/* Measure `collective` of `bytes` (the whole array, rounded down to whole elements of each rank) in
 * this rank's group, all groups side by side; alone it takes about `alone_s`. Takes one to
 * three seconds, or `rounds_s` if that is less, longest where ranks share cores, so that results
 * differ; more for a collective longer than 60 ms. Collective over the world; *out is the same on
 * all ranks. */
enum mics_status mics_bench_overlap(const struct mics_bench_load *load,
                                    struct mics_bench_comms *comms, enum mics_collective collective,
                                    uint64_t bytes, double alone_s, struct mics_overlap_point *out,
                                    struct mics_err *err);

/* Let all ranks compute, without waiting for each other, and find how far the last is behind the
 * mean after MICS_STRAGGLER_POINTS times up to 0.4 s. Takes 2 to 10 s, or three times `rounds_s` if
 * that is less. Collective over the world; `out` [MICS_STRAGGLER_POINTS] is the same on all
 * ranks. */
enum mics_status mics_bench_stragglers(const struct mics_bench_load *load,
                                       struct mics_straggler_point *out, struct mics_err *err);

#endif
