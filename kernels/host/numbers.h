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

#define MICS_F16_INFINITE 0x7c00u
#define MICS_F32_INFINITE 0x7f800000u
#define MICS_F32_SIGN     0x80000000u

/* The exponent's bias moves from 15 to 127. A subnormal is a whole number of 2^-24: scaled as if it
 * were normal, with the hidden one taken off again. As the processors' instruction does it: a NaN
 * keeps its sign and the bits of its mantissa, and becomes quiet. */
static inline float mics_f16_widen(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t exponent = half & MICS_F16_INFINITE;
    const uint32_t moved = ((uint32_t)(half & 0x7fffu) << 13) + (112u << 23);
    const uint32_t quiet = (half & 0x3ffu) ? 1u << 22 : 0;
    const uint32_t infinite = (moved + (112u << 23)) | quiet;
    const uint32_t small =
        mics_float_bits(mics_bits_float(moved + (1u << 23)) - mics_bits_float(113u << 23));
    const uint32_t normal = exponent == MICS_F16_INFINITE ? infinite : moved;

    return mics_bits_float(sign | (exponent == 0 ? small : normal));
}

/* Rounding by addition: of half a unit (less one unless the last bit kept is odd) to the bits, or,
 * for what becomes subnormal, of a number whose last bit is 2^-24. */
static inline uint16_t mics_f16_round(float value)
{
    const uint32_t bits = mics_float_bits(value);
    const uint32_t sign = bits & MICS_F32_SIGN, size = bits ^ sign;
    const uint32_t magic = 126u << 23;
    const uint32_t nan = 0x7e00u | (size >> 13 & 0x3ffu);
    const uint32_t large = size > MICS_F32_INFINITE ? nan : MICS_F16_INFINITE;
    const uint32_t small = mics_float_bits(mics_bits_float(size) + mics_bits_float(magic)) - magic;
    const uint32_t normal = (size - (112u << 23) + 0xfffu + ((size >> 13) & 1u)) >> 13;
    const uint32_t finite = size < (113u << 23) ? small : normal;

    return (uint16_t)((size >= (143u << 23) ? large : finite) | sign >> 16);
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
