/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vmath.h - the exponential and what is made of it, for vectors.
 *
 * Within 2 units in the last place of the exact value where the result is a normal number. NaN gives
 * NaN, too large gives infinity, too small gives subnormal numbers and then 0.
 */
#ifndef MICS_KERNELS_HOST_VMATH_H
#define MICS_KERNELS_HOST_VMATH_H

#include "host/simd.h"

/* e^x. With n the integer nearest to x / ln 2 and r = x - n ln 2 in [-0.35, 0.35]: e^x = 2^n e^r, where
 * e^r = 1 + r + r^2 p(r), p of degree 4 by Remez' exchange (largest relative error 3.1e-9). 2^n is
 * multiplied in two halves, so that the ends of the range need no branches. */
static inline mics_vf mics_vexp(mics_vf x)
{
    const mics_vf high = mics_vset(89.0f), low = mics_vset(-104.0f), shift = mics_vset(12582912.0f);
    mics_vf t, r, p;
    mics_vi n, half;

    x = mics_vselect(x > high, high, x);
    x = mics_vselect(x < low, low, x);
    t = x * 1.44269504f + shift; /* 1.5 * 2^23: n is in the low bits of the significand */
    n = (mics_vi)t - (mics_vi)shift;
    t = t - shift;
    r = x - t * 0.693359375f; /* ln 2 = 0.693359375 - 2.12194440e-4; the first product is exact */
    r = r + t * 2.12194440e-4f;
    p = 0.00138144671f * r + 0.00836878041f;
    p = p * r + 0.0416683942f;
    p = p * r + 0.166665201f;
    p = p * r + 0.499999934f;
    p = p * (r * r) + r + 1.0f;
    half = n >> 1;
    return p * (mics_vf)((half + 127) << 23) * (mics_vf)((n - half + 127) << 23);
}

/* 1 / (1 + e^-x) */
static inline mics_vf mics_vsigmoid(mics_vf x)
{
    return 1.0f / (1.0f + mics_vexp(-x));
}

#endif
