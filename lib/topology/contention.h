/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contention.h - collectives and computation that run at the same time on the same cores, and ranks
 * that share cores.
 *
 * Measured on hosts by mics-probe, or longer by mics-bench --calibrate (measure/load.h): a
 * collective of two sizes while nothing else runs, and while all ranks compute. What it takes
 * longer is a + b bytes through both sizes, a, b >= 0: the waits of its steps for a core, and the
 * cores that its bytes need. What computation loses is interpolated in the logarithm of the bytes;
 * outside it is that of the nearest size. Also measured is how far ranks get apart that compute and
 * do not wait for each other.
 */
#ifndef MICS_TOPOLOGY_CONTENTION_H
#define MICS_TOPOLOGY_CONTENTION_H

#include "topology/cost.h"

struct mics_contention {
    double delay_s;  /* that a collective takes longer while all ranks compute; 0 or more */
    double slowdown; /* part of computation's speed that is lost meanwhile; 0 to 1 */
};

/* Not measured on this group: {0, 0}. */
struct mics_contention mics_contention_of(const struct mics_topology *topology,
                                          enum mics_collective collective, struct mics_span span,
                                          uint64_t bytes);

/* Seconds that the last rank is behind the mean when ranks have computed for so long without
 * waiting for each other; between the measured points and 0 interpolated, beyond the last point
 * what it is there. 0 where it was not measured. */
double mics_straggler_delay(const struct mics_topology *topology, double computing_s);

#endif
