/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simd.h - vectors as wide as the machine's registers, in the compiler's own vector types.
 *
 * gcc and clang turn these into whatever the target has, so no file of ours speaks one vendor's
 * instructions. The tail of an array goes through the same arithmetic as its body, in a padded
 * vector: an element's value does not depend on where a range begins or ends.
 */
#ifndef MICS_KERNELS_HOST_SIMD_H
#define MICS_KERNELS_HOST_SIMD_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define MICS_LANES 16
#elif defined(__AVX__)
#define MICS_LANES 8
#else
#define MICS_LANES 4
#endif

typedef float mics_vf __attribute__((vector_size(4 * MICS_LANES)));
typedef uint32_t mics_vu __attribute__((vector_size(4 * MICS_LANES)));
typedef int32_t mics_vi __attribute__((vector_size(4 * MICS_LANES)));
typedef float mics_vf_loose __attribute__((vector_size(4 * MICS_LANES), aligned(4), may_alias));
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

/* yes where the mask's lane is -1, no where it is 0. */
static inline mics_vf mics_vselect(mics_vi mask, mics_vf yes, mics_vf no)
{
    return (mics_vf)(((mics_vi)yes & mask) | ((mics_vi)no & ~mask));
}

/* The larger of each pair; b where either is NaN. */
static inline mics_vf mics_vmax(mics_vf a, mics_vf b)
{
#if defined(__AVX512F__)
    return (mics_vf)_mm512_max_ps((__m512)a,
                                  (__m512)b); /* gcc makes three instructions of the other */
#else
    return mics_vselect(a > b, a, b);
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

#endif
