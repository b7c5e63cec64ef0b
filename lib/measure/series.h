/* SPDX-License-Identifier: Apache-2.0 */
/*
 * series.h - one collective over growing sizes: 1 KiB, 4 KiB, ... until the time is used up.
 *
 * A size is timed in batches of a few collectives enqueued one after another, so that waiting for
 * them adds little to the time of short ones. All ranks take the same decisions, from times they
 * exchange.
 */
#ifndef MICS_MEASURE_SERIES_H
#define MICS_MEASURE_SERIES_H

#include "measure/measure_group.h"
#include "measure/statistics.h"

enum { MICS_SERIES_MAX = 10, MICS_SERIES_FIRST_BYTES = 1024 };

struct mics_series {
    size_t count;                                /* sizes that were measured; at least 5 */
    struct mics_sample samples[MICS_SERIES_MAX]; /* whole array; median over batches, then ranks */
    uint32_t batches;                            /* of all sizes */
    double *best[MICS_SERIES_MAX]; /* [world size]: each rank's best; -1 if it took no part */
};

/* Run `collective`, flat, in the group `comms`, NULL on a rank that takes no part; different ranks
 * may have different groups, all of `ranks` ranks, which then run side by side. Takes about
 * `budget_s`, more if the five smallest sizes do, or a sixth that is still short. The result is the
 * same on all ranks; mics_series_fini() frees it. */
enum mics_status mics_series_run(const struct mics_bench *bench, struct mics_bench_comms *comms,
                                 enum mics_collective collective, uint32_t ranks, double budget_s,
                                 struct mics_series *out, struct mics_err *err);
void mics_series_fini(struct mics_series *series);

/* What a series enqueues: a collective of `count` fp32 elements of each rank of the group, in the
 * bench's buffer; in place, unless it is an all_to_all. */
struct mics_series_case {
    const struct mics_bench *bench;
    struct mics_bench_comms *comms;
    enum mics_collective collective;
    uint64_t count;
    struct mics_exchange_replay *replay; /* NULL: all_to_all */
    struct mics_pieces buffers[MICS_BUFFER_COUNT];
};

enum mics_status mics_series_open(const struct mics_bench *bench, struct mics_bench_comms *comms,
                                  enum mics_collective collective, uint64_t count,
                                  struct mics_series_case *out, struct mics_err *err);
void mics_series_enqueue(const struct mics_series_case *c); /* on the bench's stream */
void mics_series_close(struct mics_series_case *c);         /* the stream must be idle */

#endif
