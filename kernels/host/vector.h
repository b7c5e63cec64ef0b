/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector.h - vectors as wide as the machine's registers, in the compiler's own vector types, and
 * arrays of fp32, bf16 or fp16 in and out of them.
 *
 * gcc and clang compile these for whatever the target has. One vendor's instructions are used only
 * for what the types cannot say, such as pairs of bf16. The tail of an array goes through the same
 * arithmetic as its body, in a padded vector: an element's value does not depend on where a range
 * begins or ends. All arithmetic is in fp32.
 */
#ifndef MICS_KERNELS_HOST_VECTOR_H
#define MICS_KERNELS_HOST_VECTOR_H

#include "dtype.h"
#include "host/numbers.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A function that takes a dtype as a constant: its loops are written once, always inlined, and
 * compiled for each type. */
#define MICS_TYPED static inline __attribute__((always_inline))

#if defined(__AVX512F__)
#include <immintrin.h>
#define MICS_LANES 16
#elif defined(__AVX__)
#include <immintrin.h>
#define MICS_LANES 8
#else
#define MICS_LANES 4
#endif

/* Whether there are instructions that multiply pairs of bf16. */
#if defined(__AVX512BF16__)
#define MICS_HAS_PAIRS 1
#else
#define MICS_HAS_PAIRS 0
#endif

typedef float mics_vf __attribute__((vector_size(4 * MICS_LANES)));
typedef uint32_t mics_vu __attribute__((vector_size(4 * MICS_LANES)));
typedef int32_t mics_vi __attribute__((vector_size(4 * MICS_LANES)));
typedef float mics_vf_loose __attribute__((vector_size(4 * MICS_LANES), aligned(4), may_alias));
/* A number, or a pair of bf16, anywhere in memory. */
typedef float mics_f_loose __attribute__((aligned(2), may_alias));
typedef float mics_vf_half __attribute__((vector_size(2 * MICS_LANES)));
typedef double mics_vd __attribute__((vector_size(4 * MICS_LANES)));

static inline mics_vf mics_vload(const float *from)
{
    return *(const mics_vf_loose *)from;
}

static inline void mics_vstore(float *to, mics_vf value)
{
    *(mics_vf_loose *)to = value;
}

static inline mics_vf mics_vset(float value)
{
    return value - (mics_vf){0};
}

/* The first `count` lanes from memory, 0 in the others. */
static inline mics_vf mics_vload_part(const float *from, unsigned count)
{
    float lanes[MICS_LANES] = {0};

    memcpy(lanes, from, count * sizeof(float));
    return mics_vload(lanes);
}

static inline void mics_vstore_part(float *to, mics_vf value, unsigned count)
{
    float lanes[MICS_LANES];

    mics_vstore(lanes, value);
    memcpy(to, lanes, count * sizeof(float));
}

/* `yes` in lanes where the mask is -1, `no` where it is 0. */
static inline mics_vf mics_vselect(mics_vi mask, mics_vf yes, mics_vf no)
{
    return (mics_vf)(((mics_vi)yes & mask) | ((mics_vi)no & ~mask));
}

/* The larger, or smaller, of each pair; b where either is NaN. gcc compiles the generic form to
 * three instructions. */
static inline mics_vf mics_vmax(mics_vf a, mics_vf b)
{
#if defined(__AVX512F__)
    return (mics_vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX__)
    return (mics_vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return mics_vselect(a > b, a, b);
#endif
}

static inline mics_vf mics_vmin(mics_vf a, mics_vf b)
{
#if defined(__AVX512F__)
    return (mics_vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX__)
    return (mics_vf)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return mics_vselect(a < b, a, b);
#endif
}

/* Sum of the lanes, in a fixed order: halves are added until one is left. */
static inline float mics_vsum(mics_vf value)
{
    struct {
        mics_vf_half low, high;
    } halves;
    float lanes[MICS_LANES / 2];

    memcpy(&halves, &value, sizeof(halves));
    halves.low += halves.high;
    memcpy(lanes, &halves.low, sizeof(lanes));
    for (unsigned half = MICS_LANES / 4; half > 0; half /= 2)
        for (unsigned i = 0; i < half; i++)
            lanes[i] += lanes[i + half];
    return lanes[0];
}

/* The side of a square that mics_transpose_square() takes; it divides MICS_LANES. */
#define MICS_SQUARE (MICS_LANES < 8 ? MICS_LANES : 8)

/* to[i][j] = from[j][i] */
static inline void mics_transpose_square(float *to, size_t ld_to, const float *from, size_t ld_from)
{
#if defined(__AVX__)
    __m256 row[8], pair[8], four[8];

    for (unsigned i = 0; i < 8; i++)
        row[i] = _mm256_loadu_ps(from + i * ld_from);
    for (unsigned i = 0; i < 8; i += 2) {
        pair[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
        pair[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
    }
    for (unsigned i = 0; i < 8; i += 4)
        for (unsigned half = 0; half < 2; half++) {
            four[i + 2 * half] = _mm256_shuffle_ps(pair[i + half], pair[i + 2 + half], 0x44);
            four[i + 2 * half + 1] = _mm256_shuffle_ps(pair[i + half], pair[i + 2 + half], 0xee);
        }
    for (unsigned i = 0; i < 4; i++) {
        _mm256_storeu_ps(to + i * ld_to, _mm256_permute2f128_ps(four[i], four[4 + i], 0x20));
        _mm256_storeu_ps(to + (4 + i) * ld_to, _mm256_permute2f128_ps(four[i], four[4 + i], 0x31));
    }
#else
    for (unsigned i = 0; i < MICS_SQUARE; i++)
        for (unsigned j = 0; j < MICS_SQUARE; j++)
            to[i * ld_to + j] = from[j * ld_from + i];
#endif
}

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
#if defined(__AVX512F__)
    return (mics_vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)value), 16);
#elif defined(__AVX2__)
    return (mics_vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)value), 16);
#else
    return (mics_vf)(__builtin_convertvector(value, mics_vu) << 16);
#endif
}

/* Integers below 2^16 as such of 16 bits. Here, and above, gcc's generic form takes several times
 * the instructions. */
static inline mics_vh mics_vnarrow(mics_vu value)
{
#if defined(__AVX2__) && !defined(__AVX512F__)
    return (mics_vh)_mm_packus_epi32(_mm256_castsi256_si128((__m256i)value),
                                     _mm256_extracti128_si256((__m256i)value, 1));
#else
    return __builtin_convertvector(value, mics_vh);
#endif
}

static inline mics_vh mics_vround(mics_vf value)
{
#if MICS_HAS_PAIRS
    /* The instruction takes subnormal numbers as 0. */
    if (__builtin_expect(_mm512_fpclass_ps_mask((__m512)value, 0x20) == 0, 1))
        return (mics_vh)_mm512_cvtneps_pbh((__m512)value);
#endif
    const mics_vu bits = (mics_vu)value;
    const mics_vu rounded = bits + 0x7fffu + (bits >> 16 & 1u), nan = bits | 0x400000u;
    const mics_vu mask = (mics_vu)(value != value);

    return mics_vnarrow(((rounded & ~mask) | (nan & mask)) >> 16);
}

/* The same of fp16, as mics_f16_widen() and mics_f16_round() do it, NaNs included. */
static inline mics_vf mics_vwiden_f16(mics_vh value)
{
#if defined(__AVX512F__)
    return (mics_vf)_mm512_cvtph_ps((__m256i)value);
#elif defined(__AVX__) && defined(__F16C__)
    return (mics_vf)_mm256_cvtph_ps((__m128i)value);
#else
    float wide[MICS_LANES];

    for (unsigned lane = 0; lane < MICS_LANES; lane++)
        wide[lane] = mics_f16_widen(value[lane]);
    return mics_vload(wide);
#endif
}

static inline mics_vh mics_vround_f16(mics_vf value)
{
#if defined(__AVX512F__)
    return (mics_vh)_mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__AVX__) && defined(__F16C__)
    return (mics_vh)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
#else
    uint16_t rounded[MICS_LANES];

    for (unsigned lane = 0; lane < MICS_LANES; lane++)
        rounded[lane] = mics_f16_round(value[lane]);
    return *(const mics_vh_loose *)rounded;
#endif
}

/* Element `i` of an array of `dtype`. */
MICS_TYPED float mics_load_as(const void *from, uint64_t i, const enum mics_dtype dtype)
{
    if (dtype == MICS_BF16)
        return mics_bf16_widen(((const uint16_t *)from)[i]);
    if (dtype == MICS_F16)
        return mics_f16_widen(((const uint16_t *)from)[i]);
    return ((const float *)from)[i];
}

MICS_TYPED void mics_store_as(void *to, uint64_t i, float value, const enum mics_dtype dtype)
{
    if (dtype == MICS_BF16)
        ((uint16_t *)to)[i] = mics_bf16_round(value);
    else if (dtype == MICS_F16)
        ((uint16_t *)to)[i] = mics_f16_round(value);
    else
        ((float *)to)[i] = value;
}

/* Elements [i, i + MICS_LANES). */
MICS_TYPED mics_vf mics_vload_as(const void *from, uint64_t i, const enum mics_dtype dtype)
{
    if (dtype == MICS_BF16)
        return mics_vwiden(*(const mics_vh_loose *)((const uint16_t *)from + i));
    if (dtype == MICS_F16)
        return mics_vwiden_f16(*(const mics_vh_loose *)((const uint16_t *)from + i));
    return mics_vload((const float *)from + i);
}

MICS_TYPED void mics_vstore_as(void *to, uint64_t i, mics_vf value, const enum mics_dtype dtype)
{
    if (dtype == MICS_BF16)
        *(mics_vh_loose *)((uint16_t *)to + i) = mics_vround(value);
    else if (dtype == MICS_F16)
        *(mics_vh_loose *)((uint16_t *)to + i) = mics_vround_f16(value);
    else
        mics_vstore((float *)to + i, value);
}

/* Elements [i, i + count), fewer than a vector; 0 in the other lanes. */
MICS_TYPED mics_vf mics_vload_part_as(const void *from, uint64_t i, unsigned count,
                                      const enum mics_dtype dtype)
{
    uint16_t lanes[MICS_LANES] = {0};

    if (!mics_dtype_is_half(dtype))
        return mics_vload_part((const float *)from + i, count);
    memcpy(lanes, (const uint16_t *)from + i, count * sizeof lanes[0]);
    return mics_vload_as(lanes, 0, dtype);
}

MICS_TYPED void mics_vstore_part_as(void *to, uint64_t i, mics_vf value, unsigned count,
                                    const enum mics_dtype dtype)
{
    uint16_t lanes[MICS_LANES];

    if (!mics_dtype_is_half(dtype)) {
        mics_vstore_part((float *)to + i, value, count);
        return;
    }
    mics_vstore_as(lanes, 0, value, dtype);
    memcpy((uint16_t *)to + i, lanes, count * sizeof lanes[0]);
}

/* A vector, or the first `count` of its lanes. */
MICS_TYPED mics_vf mics_vload_lanes(const void *from, uint64_t i, unsigned count,
                                    const enum mics_dtype dtype)
{
    return count == MICS_LANES ? mics_vload_as(from, i, dtype)
                               : mics_vload_part_as(from, i, count, dtype);
}

MICS_TYPED void mics_vstore_lanes(void *to, uint64_t i, mics_vf value, unsigned count,
                                  const enum mics_dtype dtype)
{
    if (count == MICS_LANES)
        mics_vstore_as(to, i, value, dtype);
    else
        mics_vstore_part_as(to, i, value, count, dtype);
}

#endif
