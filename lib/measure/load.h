/* SPDX-License-Identifier: Apache-2.0 */
/* load.h - collectives while all ranks compute on the cores of their hosts: how much longer they
 * take, and how much slower computation gets; and how far ranks drift apart when they only
 * compute. */
#ifndef MICS_MEASURE_LOAD_H
#define MICS_MEASURE_LOAD_H

#include "measure/measure_group.h"

/* Matrix products on a stream of their own. */
struct mics_load;

/* The device must be the host. Each measurement below is repeated until it is certain, or about
 * `rounds_s` have passed, but a few times at least. `brief`: one to three times, only all-gathers,
 * and none that takes longer than 20 ms; other collectives are derived from them. Collective over
 * the world, as are the others. On success the caller calls mics_load_close(). */
enum mics_status mics_load_open(const struct mics_bench *bench, bool brief, double rounds_s,
                                struct mics_load **out, struct mics_err *err);
void mics_load_close(struct mics_load *load); /* NULL is fine */

/* Set the overlap points of costs[MICS_COLLECTIVE_COUNT], by enum mics_collective, which have been
 * measured alone in the groups `comms`, all side by side. About a second for a brief load, else two
 * to six for each collective. The same on all ranks. */
enum mics_status mics_load_beside(const struct mics_load *load, struct mics_bench_comms *comms,
                                  struct mics_collective_cost *costs, struct mics_err *err);

/* out[MICS_STRAGGLER_POINTS], the same on all ranks; a few seconds. */
enum mics_status mics_load_stragglers(const struct mics_load *load,
                                      struct mics_straggler_point *out, struct mics_err *err);

#endif
