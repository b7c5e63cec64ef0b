/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - shared by the tests of the host's kernels: arrays of random numbers, pools,
 * comparisons.
 */
#ifndef MICS_TESTS_KERNELS_H
#define MICS_TESTS_KERNELS_H

#include "host/kernels.h"
#include "tap.h"

#include <stdlib.h>

#define POOLS 3

/* Pools of 1, 2 and 3 threads. */
static struct mics_pool *pools[POOLS];

static inline void open_pools(void)
{
    for (unsigned i = 0; i < POOLS; i++)
        pools[i] = mics_pool_new(i + 1);
}

static inline int close_pools(void)
{
    for (unsigned i = 0; i < POOLS; i++)
        mics_pool_free(pools[i]);
    return tap_done();
}

/* `count` numbers in [-1, 1), a function of `seed`. The caller frees them. */
static inline float *random_floats(size_t count, uint64_t seed)
{
    float *out = malloc((count + 1) * sizeof(float));
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;

    for (size_t i = 0; out && i < count; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out[i] = (float)((double)(state >> 11) / 4503599627370496.0 - 1.0);
    }
    if (!out)
        abort();
    return out;
}

static inline float *copy_floats(const float *from, size_t count)
{
    float *out = malloc((count + 1) * sizeof(float));

    if (!out)
        abort();
    return memcpy(out, from, count * sizeof(float));
}

static inline double *zero_doubles(size_t count)
{
    double *out = calloc(count + 1, sizeof(double));

    if (!out)
        abort();
    return out;
}

/* The largest |got - want| / max(1, |want|); infinite where one is NaN. */
static inline double worst_error(const float *got, const double *want, size_t count)
{
    double worst = 0;

    for (size_t i = 0; i < count; i++) {
        double error = fabs(got[i] - want[i]) / fmax(1, fabs(want[i]));

        worst = error <= worst ? worst : isnan(error) ? INFINITY : error;
    }
    return worst;
}

#define CHECK_CLOSE(got, want, count, tolerance)                                                   \
    CHECK_NEAR(worst_error(got, want, count), 0, tolerance)
#define CHECK_SAME_BITS(a, b, count) CHECK(memcmp(a, b, (count) * sizeof(*(a))) == 0)

#endif
