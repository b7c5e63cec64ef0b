/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate.h - a topology's costs, measured where it runs. */
#ifndef MICS_PROBE_CALIBRATE_H
#define MICS_PROBE_CALIBRATE_H

#include "bench/run.h"
#include "topology/topology.h"

/* Measure each collective on each group that a plan may form, in about `seconds`, and the race between flat and
 * hierarchical all-gathers and reduce-scatters, cut into 1, 2 and 4 segments, in place, over the request's sizes, on each
 * group of several whole nodes. On rank 0 `doc`, a topology of as many nodes and ranks, gets "collectives" and "exchanges"
 * (topology.h) anew; NULL on the others. The bench's buffer must be as the request asks. Collective over the world.
 * MICS_ERR_ARG: more sizes than MICS_ALGORITHM_POINTS. MICS_ERR_COMM: wrong results. */
enum mics_status mics_calibrate(const struct mics_bench *bench,
                                const struct mics_bench_request *request, double seconds,
                                json_t *doc, struct mics_err *err);

#endif
