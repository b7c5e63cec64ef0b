/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numbers.c - loops of a few integer operations without branches, which compilers vectorise: 6
 * bytes moved and about 10 operations per element.
 */
#include "host/numbers.h"

#include <string.h>

#define BF16_INFINITE 0x7f80u
#define F64_INFINITE  0x7ff0000000000000u

size_t mics_storage_dtype_bytes(enum mics_storage_dtype dtype)
{
    static const size_t bytes[] = {4, 2, 2, 8, 1};

    return bytes[dtype];
}

static inline uint16_t bits_to_bf16(uint32_t bits)
{
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t nan = bits >> 16 | 0x40u;

    return (uint16_t)((bits & ~MICS_F32_SIGN) > MICS_F32_INFINITE ? nan : rounded);
}

void mics_numbers_to_f32(enum mics_storage_dtype dtype, const void *src, float *dst, size_t count)
{
    const uint16_t *in = src;

    if (dtype == MICS_STORAGE_F32)
        memcpy(dst, src, count * sizeof *dst);
    else if (dtype == MICS_STORAGE_F16)
        for (size_t i = 0; i < count; i++)
            dst[i] = mics_f16_widen(in[i]);
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
            out[i] = mics_f16_round(src[i]);
    else
        for (size_t i = 0; i < count; i++)
            out[i] = bits_to_bf16(mics_float_bits(src[i]));
}

static bool finite_32(const uint32_t *data, size_t count)
{
    uint32_t found = 0;

    for (size_t i = 0; i < count; i++)
        found |= (data[i] & MICS_F32_INFINITE) == MICS_F32_INFINITE;
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
        return finite_16(data, count, MICS_F16_INFINITE);
    case MICS_STORAGE_BF16:
        return finite_16(data, count, BF16_INFINITE);
    case MICS_STORAGE_F64:
        return finite_64(data, count);
    case MICS_STORAGE_RAW:
        break;
    }
    return true;
}
