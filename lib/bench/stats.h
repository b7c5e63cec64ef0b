/* SPDX-License-Identifier: Apache-2.0 */
/* stats.h - robust statistics of measurements. */
#ifndef MICS_BENCH_STATS_H
#define MICS_BENCH_STATS_H

#include <stdbool.h>
#include <stddef.h>

/* The median of count >= 1 values, which are sorted by it. */
double mics_median(double *values, size_t count);

/* Median absolute deviation from `median`. `values` are replaced by their deviations. */
double mics_mad(double *values, size_t count, double median);

/* A value is slow when it is more than so many times its class's median, and as well so many median
 * absolute deviations above it: the first alone would accuse in a class that varies, the second
 * alone in one that hardly does. */
#define MICS_SLOW_TIMES 3.0
#define MICS_SLOW_MADS  5.0

/* What a class of times is compared with. `scratch` holds count values. */
struct mics_class {
    double median, mad;
};
struct mics_class mics_class_of(const double *times, size_t count, double *scratch);
bool mics_class_is_slow(const struct mics_class *class, double time);

#endif
