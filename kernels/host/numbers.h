/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numbers.h - fp32, fp16, bf16 and fp64 into one another, rounded to nearest, ties to even.
 *
 * Arrays are aligned to their elements and do not overlap. Any thread.
 */
#ifndef MICS_HOST_NUMBERS_H
#define MICS_HOST_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The bits of a number, and the number of some bits. */
static inline uint32_t mics_float_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float mics_bits_float(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* How a number is stored. RAW: bytes of any other type, which are copied unchanged. */
enum mics_storage_dtype {
    MICS_STORAGE_F32,
    MICS_STORAGE_F16,
    MICS_STORAGE_BF16,
    MICS_STORAGE_F64, /* only read */
    MICS_STORAGE_RAW
};

/* Bytes of one: 4, 2, 2, 8, 1. */
size_t mics_storage_dtype_bytes(enum mics_storage_dtype dtype);

/* Exact but for fp64, which is rounded; NaN stays NaN. RAW is not allowed
 * in this function and the next, and fp64 not in the next. */
void mics_numbers_to_f32(enum mics_storage_dtype dtype, const void *src, float *dst, size_t count);

/* Values out of range become infinite, which mics_numbers_finite() of the result detects. */
void mics_numbers_from_f32(enum mics_storage_dtype dtype, const float *src, void *dst,
                           size_t count);

/* Whether there is neither infinity nor NaN. RAW: true. */
bool mics_numbers_finite(enum mics_storage_dtype dtype, const void *data, size_t count);

#endif
