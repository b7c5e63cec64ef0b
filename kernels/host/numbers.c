/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numbers.c - loops of a few integer operations without branches, which compilers vectorise: 6
 * bytes moved and about 10 operations per element.
 */
#include "host/numbers.h"

#include <string.h>

#define F16_INFINITE  0x7c00u
#define F32_INFINITE  0x7f800000u
#define F32_SIGN      0x80000000u
#define BF16_INFINITE 0x7f80u
#define F64_INFINITE  0x7ff0000000000000u

size_t mics_storage_dtype_bytes(enum mics_storage_dtype dtype)
{
    static const size_t bytes[] = {4, 2, 2, 8, 1};

    return bytes[dtype];
}

/* The exponent's bias moves from 15 to 127. A subnormal is a whole number of 2^-24: scaled as if it
 * were normal, with the hidden one taken off again. */
static inline uint32_t f16_to_bits(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t exponent = half & F16_INFINITE;
    const uint32_t moved = ((uint32_t)(half & 0x7fffu) << 13) + (112u << 23);
    const uint32_t infinite = moved + (112u << 23);
    const uint32_t small =
        mics_float_bits(mics_bits_float(moved + (1u << 23)) - mics_bits_float(113u << 23));
    const uint32_t normal = exponent == F16_INFINITE ? infinite : moved;

    return sign | (exponent == 0 ? small : normal);
}

/* Rounding by addition: of half a unit (less one unless the last bit kept is odd) to the bits, or,
 * for what becomes subnormal, of a number whose last bit is 2^-24. */
static inline uint16_t bits_to_f16(uint32_t bits)
{
    const uint32_t sign = bits & F32_SIGN, size = bits ^ sign;
    const uint32_t magic = 126u << 23;
    const uint32_t large = size > F32_INFINITE ? 0x7e00u : F16_INFINITE;
    const uint32_t small = mics_float_bits(mics_bits_float(size) + mics_bits_float(magic)) - magic;
    const uint32_t normal = (size - (112u << 23) + 0xfffu + ((size >> 13) & 1u)) >> 13;
    const uint32_t value = size < (113u << 23) ? small : normal;

    return (uint16_t)((size >= (143u << 23) ? large : value) | sign >> 16);
}

static inline uint16_t bits_to_bf16(uint32_t bits)
{
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t nan = bits >> 16 | 0x40u;

    return (uint16_t)((bits & ~F32_SIGN) > F32_INFINITE ? nan : rounded);
}

void mics_numbers_to_f32(enum mics_storage_dtype dtype, const void *src, float *dst, size_t count)
{
    const uint16_t *in = src;

    if (dtype == MICS_STORAGE_F32)
        memcpy(dst, src, count * sizeof *dst);
    else if (dtype == MICS_STORAGE_F16)
        for (size_t i = 0; i < count; i++)
            dst[i] = mics_bits_float(f16_to_bits(in[i]));
    else if (dtype == MICS_STORAGE_F64)
        for (size_t i = 0; i < count; i++)
            dst[i] = (float)((const double *)src)[i];
    else
        for (size_t i = 0; i < count; i++)
            dst[i] = mics_bits_float((uint32_t)in[i] << 16);
}

void mics_numbers_from_f32(enum mics_storage_dtype dtype, const float *src, void *dst, size_t count)
{
    uint16_t *out = dst;

    if (dtype == MICS_STORAGE_F32)
        memcpy(dst, src, count * sizeof *src);
    else if (dtype == MICS_STORAGE_F16)
        for (size_t i = 0; i < count; i++)
            out[i] = bits_to_f16(mics_float_bits(src[i]));
    else
        for (size_t i = 0; i < count; i++)
            out[i] = bits_to_bf16(mics_float_bits(src[i]));
}

static bool finite_32(const uint32_t *data, size_t count)
{
    uint32_t found = 0;

    for (size_t i = 0; i < count; i++)
        found |= (data[i] & F32_INFINITE) == F32_INFINITE;
    return !found;
}

static bool finite_16(const uint16_t *data, size_t count, uint16_t infinite)
{
    uint16_t found = 0;

    for (size_t i = 0; i < count; i++)
        found |= (data[i] & infinite) == infinite;
    return !found;
}

static bool finite_64(const uint64_t *data, size_t count)
{
    uint64_t found = 0;

    for (size_t i = 0; i < count; i++)
        found |= (data[i] & F64_INFINITE) == F64_INFINITE;
    return !found;
}

bool mics_numbers_finite(enum mics_storage_dtype dtype, const void *data, size_t count)
{
    switch (dtype) {
    case MICS_STORAGE_F32:
        return finite_32(data, count);
    case MICS_STORAGE_F16:
        return finite_16(data, count, F16_INFINITE);
    case MICS_STORAGE_BF16:
        return finite_16(data, count, BF16_INFINITE);
    case MICS_STORAGE_F64:
        return finite_64(data, count);
    case MICS_STORAGE_RAW:
        break;
    }
    return true;
}
