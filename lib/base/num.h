/* SPDX-License-Identifier: Apache-2.0 */
/* num.h - small arithmetic on sizes. */
#ifndef MICS_BASE_NUM_H
#define MICS_BASE_NUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Smallest integer >= a / b. b > 0. */
static inline uint64_t mics_ceil_div(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* Smallest multiple of `step` >= a. step > 0. */
static inline uint64_t mics_round_up(uint64_t a, uint64_t step)
{
    return mics_ceil_div(a, step) * step;
}

static inline uint64_t mics_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t mics_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* *out = a * b; false, with *out unchanged, if it does not fit. */
static inline bool mics_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t product;

    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *out = product;
    return true;
}

/* *out = a + b; false, with *out unchanged, if it does not fit. */
static inline bool mics_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t sum;

    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *out = sum;
    return true;
}

#endif
