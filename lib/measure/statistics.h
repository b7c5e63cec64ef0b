/* SPDX-License-Identifier: Apache-2.0 */
/* statistics.h - robust statistics of measured times, and latency and bandwidth fitted to them. */
#ifndef MICS_MEASURE_STATISTICS_H
#define MICS_MEASURE_STATISTICS_H

#include "topology/topology.h"

#include <stdbool.h>
#include <stddef.h>

/* The median of count >= 1 values, which are sorted by it. */
double mics_median(double *values, size_t count);

/* Median absolute deviation from `median`. `values` are replaced by their deviations. */
double mics_mad(double *values, size_t count, double median);

/* A time is slow if it is more than MICS_SLOW_TIMES the median of its class and more than
 * MICS_SLOW_MADS median absolute deviations above it. The first condition alone gives false
 * positives in a class that varies a lot, the second in one that hardly varies. */
#define MICS_SLOW_TIMES 3.0
#define MICS_SLOW_MADS  5.0

/* A class of comparable times. `scratch` holds `count` values. */
struct mics_class {
    double median, mad;
};
struct mics_class mics_class_of(const double *times, size_t count, double *scratch);
bool mics_class_is_slow(const struct mics_class *class, double time);

/* One measurement, or the median of several of one size. */
struct mics_sample {
    double bytes, seconds; /* 0 or more; above 0 */
};

enum { MICS_FIT_MAX = 256 };

/* Fit seconds = alpha + bytes / beta so that the sum of the *relative* deviations |fit / measured -
 * 1| is minimal: a size of 1 KiB counts as much as one of 64 MiB, and a disturbed measurement,
 * however long it took, adds at most 1. alpha >= 0, beta <= 1e15.
 *
 * out->samples becomes `count`, out->spread the median of the relative deviations. MICS_ERR_ARG:
 * fewer than two sizes, more than MICS_FIT_MAX samples, or a time that is not above 0. */
enum mics_status mics_fit_link(const struct mics_sample *samples, size_t count,
                               struct mics_link *out, struct mics_err *err);

/* Drop samples, in ascending order of size, that a burst made fast: on a link with a token
 * bucket (shaped, or with credits) what fits into the bucket travels faster than the link sustains.
 * A sample between the first and the last is dropped if its bytes per second are more than 1.25
 * times those of every larger one that is kept. Returns the number that is left. */
size_t mics_fit_drop_bursts(struct mics_sample *samples, size_t count);

/* Raise the times of samples, in ascending order of size, that have more bytes per second than any
 * larger one, to the highest rate of these: what lasts, without bursts. */
void mics_sustain(struct mics_sample *samples, size_t count);

/* If there are more than `most` (2 or more) samples, keep so many: the first, the last and others
 * at equal distances. Returns the number that is left. */
size_t mics_samples_thin(struct mics_sample *samples, size_t count, size_t most);

/* The cost of a collective on groups of nodes x per_node ranks from the times of samples, in
 * ascending order of size, MICS_COLLECTIVE_POINTS at most: its points, and the line fitted to
 * them. Over the network a size is not taken to be faster than larger ones: a token bucket was
 * full then, or the other groups on the same card had finished. In a node, what fits the caches is
 * faster in training, too. `samples` are changed. Errors as of mics_fit_link(). */
enum mics_status mics_collective_cost_fit(enum mics_collective collective, uint32_t nodes,
                                          uint32_t per_node, struct mics_sample *samples,
                                          size_t count, struct mics_collective_cost *out,
                                          struct mics_err *err);

#endif
