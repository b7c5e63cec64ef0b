/* SPDX-License-Identifier: Apache-2.0 */
/* stats.c - medians by sorting: the sets are small. */
#include "bench/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double mics_median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

double mics_mad(double *values, size_t count, double median)
{
    for (size_t i = 0; i < count; i++)
        values[i] = fabs(values[i] - median);
    return mics_median(values, count);
}

struct mics_class mics_class_of(const double *times, size_t count, double *scratch)
{
    struct mics_class class;

    memcpy(scratch, times, count * sizeof *times);
    class.median = mics_median(scratch, count);
    class.mad = mics_mad(scratch, count, class.median);
    return class;
}

bool mics_class_is_slow(const struct mics_class *class, double time)
{
    return time > MICS_SLOW_TIMES * class->median &&
           time > class->median + MICS_SLOW_MADS * class->mad;
}
