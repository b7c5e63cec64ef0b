/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bf16.h - numbers of bf16 in and out of registers, and of either type by its name.
 *
 * Where a dtype is a parameter it is a constant at the call: a kernel's loops are written once, always
 * inlined, and made for each type. All arithmetic is fp32.
 */
#ifndef MICS_KERNELS_HOST_BF16_H
#define MICS_KERNELS_HOST_BF16_H

#include "dtype.h"
#include "host/simd.h"

#define MICS_TYPED static inline __attribute__((always_inline))

typedef uint16_t mics_vh __attribute__((vector_size(2 * MICS_LANES)));
typedef uint16_t mics_vh_loose __attribute__((vector_size(2 * MICS_LANES), aligned(2), may_alias));

static inline float mics_bf16_widen(uint16_t value)
{
    const uint32_t bits = (uint32_t)value << 16;
    float wide;

    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

/* To nearest, ties to even; NaN stays NaN. */
static inline uint16_t mics_bf16_round(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline mics_vf mics_vwiden(mics_vh value)
{
    return (mics_vf)(__builtin_convertvector(value, mics_vu) << 16);
}

static inline mics_vh mics_vround(mics_vf value)
{
    const mics_vu bits = (mics_vu)value;
    const mics_vu rounded = bits + 0x7fffu + (bits >> 16 & 1u), nan = bits | 0x400000u;
    const mics_vu mask = (mics_vu)(value != value);

    return __builtin_convertvector(((rounded & ~mask) | (nan & mask)) >> 16, mics_vh);
}

/* Element `i` of an array of `dtype`. */
MICS_TYPED float mics_load_as(const void *from, uint64_t i, const enum mics_dtype dtype)
{
    return dtype == MICS_BF16 ? mics_bf16_widen(((const uint16_t *)from)[i])
                              : ((const float *)from)[i];
}

MICS_TYPED void mics_store_as(void *to, uint64_t i, float value, const enum mics_dtype dtype)
{
    if (dtype == MICS_BF16)
        ((uint16_t *)to)[i] = mics_bf16_round(value);
    else
        ((float *)to)[i] = value;
}

/* Elements [i, i + MICS_LANES). */
MICS_TYPED mics_vf mics_vload_as(const void *from, uint64_t i, const enum mics_dtype dtype)
{
    if (dtype == MICS_BF16)
        return mics_vwiden(*(const mics_vh_loose *)((const uint16_t *)from + i));
    return mics_vload((const float *)from + i);
}

MICS_TYPED void mics_vstore_as(void *to, uint64_t i, mics_vf value, const enum mics_dtype dtype)
{
    if (dtype == MICS_BF16)
        *(mics_vh_loose *)((uint16_t *)to + i) = mics_vround(value);
    else
        mics_vstore((float *)to + i, value);
}

/* Elements [i, i + count), fewer than a vector; 0 in the other lanes. */
MICS_TYPED mics_vf mics_vload_part_as(const void *from, uint64_t i, unsigned count,
                                      const enum mics_dtype dtype)
{
    uint16_t lanes[MICS_LANES] = {0};

    if (dtype != MICS_BF16)
        return mics_vload_part((const float *)from + i, count);
    memcpy(lanes, (const uint16_t *)from + i, count * sizeof lanes[0]);
    return mics_vload_as(lanes, 0, MICS_BF16);
}

MICS_TYPED void mics_vstore_part_as(void *to, uint64_t i, mics_vf value, unsigned count,
                                    const enum mics_dtype dtype)
{
    uint16_t lanes[MICS_LANES];

    if (dtype != MICS_BF16) {
        mics_vstore_part((float *)to + i, value, count);
        return;
    }
    mics_vstore_as(lanes, 0, value, MICS_BF16);
    memcpy((uint16_t *)to + i, lanes, count * sizeof lanes[0]);
}

/* The address of element `i`. */
static inline void *mics_at(const void *base, uint64_t i, enum mics_dtype dtype)
{
    return (char *)base + i * mics_dtype_bytes(dtype);
}

#endif
