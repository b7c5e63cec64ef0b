/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vmath.h - the exponential, the logistic function and GELU in both forms, for vectors.
 *
 * The exponential is within 2 units in the last place of the exact value where that is a normal
 * number; below it is 0. NaN gives NaN.
 */
#ifndef MICS_KERNELS_HOST_VMATH_H
#define MICS_KERNELS_HOST_VMATH_H

#include "host/vector.h"

/* 1.5 * 2^23: added to a small number, it leaves the nearest integer in the low bits. */
#define MICS_VEXP_SHIFT 12582912.0f

/* e^r for r in [-0.35, 0.35]: 1 + r + r^2 p(r), with p of degree 4 by Remez' exchange (largest
 * relative error 3.1e-9). */
static inline mics_vf mics_vexp_near_zero(mics_vf r)
{
    mics_vf p = 0.00138144671f * r + 0.00836878041f;

    p = p * r + 0.0416683942f;
    p = p * r + 0.166665201f;
    p = p * r + 0.499999934f;
    return p * (r * r) + r + 1.0f;
}

/* x - n ln 2, where ln 2 = 0.693359375 - 2.12194440e-4 and n times the former is exact. */
static inline mics_vf mics_vexp_rest(mics_vf x, mics_vf n)
{
    return (x - n * 0.693359375f) + n * 2.12194440e-4f;
}

/* e^x for x up to 89, from 88.4 on infinity. With n the integer nearest to x / ln 2, the power 2^n
 * is made in the exponent's bits: there are no subnormal results, but 0. */
static inline mics_vf mics_vexp(mics_vf x)
{
    const mics_vf shift = mics_vset(MICS_VEXP_SHIFT);
    mics_vf t = x * 1.44269504f + shift, p;
    mics_vu power = (mics_vu)t << 23; /* the shift's own bits leave at the top */

    p = mics_vexp_near_zero(mics_vexp_rest(x, t - shift));
    p *= (mics_vf)(power + (127 << 23));
    return (mics_vf)((mics_vi)p & ~(x < mics_vset(-87.0f)));
}

/* 1 + e^-x, of which the reciprocal is the logistic function; any x. */
static inline mics_vf mics_vlogistic_divisor(mics_vf x)
{
    return 1.0f + mics_vexp(mics_vmin(mics_vset(89.0f), -x));
}

static inline mics_vf mics_vsigmoid(mics_vf x)
{
    return 1.0f / mics_vlogistic_divisor(x);
}

/*
 * The Gaussian error linear unit, tanh form, and its derivative. (1 + tanh(u)) / 2 is the logistic
 * function of 2u: one exponential and one division per element, without cancellation for negative
 * inputs.
 */

#define MICS_GELU_TWICE 1.59576912f /* 2 sqrt(2 / pi) */
#define MICS_GELU_CUBIC 0.044715f

static inline mics_vf mics_vgelu(mics_vf x)
{
    mics_vf twice_u = MICS_GELU_TWICE * (x + MICS_GELU_CUBIC * x * x * x);

    return x / mics_vlogistic_divisor(twice_u);
}

/* s + x s (1 - s) 2u', where s is the logistic of 2u. Past 16 the last factors are 0: x is held
 * there, or its square would overflow and 0 times infinity be NaN. */
static inline mics_vf mics_vgelu_slope(mics_vf x)
{
    const mics_vf most = mics_vset(16.0f), least = mics_vset(-16.0f);
    mics_vf square, s;

    x = mics_vmax(least, mics_vmin(most, x));
    square = x * x;
    s = mics_vsigmoid(MICS_GELU_TWICE * (x + MICS_GELU_CUBIC * x * square));
    return s + x * s * (1.0f - s) * (MICS_GELU_TWICE * (1.0f + 3.0f * MICS_GELU_CUBIC * square));
}

/*
 * The exact form: x times the normal distribution function. The complementary error function is
 * within 2e-7 of its value: t exp(-z^2 + p(t)) with t = 1 / (1 + z / 2), z >= 0 (Press et al.,
 * "Numerical Recipes", 1992, 6.2). Its argument is held where the result is 0 in fp32.
 */

#define MICS_SQRT_HALF 0.707106781f
#define MICS_PHI_ZERO  0.398942280f /* 1 / sqrt(2 pi) */

/* erfc(|x| / sqrt(2)) / 2: the normal distribution function of -|x|. */
static inline mics_vf mics_vnormal_tail(mics_vf x)
{
    const mics_vf z = MICS_SQRT_HALF * mics_vmin(mics_vset(14.0f), mics_vmax(x, -x));
    const mics_vf t = 1.0f / (1.0f + 0.5f * z);
    mics_vf p = 0.17087277f * t - 0.82215223f;

    p = p * t + 1.48851587f;
    p = p * t - 1.13520398f;
    p = p * t + 0.27886807f;
    p = p * t - 0.18628806f;
    p = p * t + 0.09678418f;
    p = p * t + 0.37409196f;
    p = p * t + 1.00002368f;
    p = p * t - 1.26551223f;
    return 0.5f * t * mics_vexp(p - z * z);
}

/* The normal distribution function. A NaN gives NaN. */
static inline mics_vf mics_vnormal_cdf(mics_vf x)
{
    const mics_vf tail = mics_vnormal_tail(x);
    const mics_vi negative = (mics_vi)(x < mics_vset(0.0f));

    return (mics_vf)(((mics_vi)tail & negative) | ((mics_vi)(1.0f - tail) & ~negative));
}

static inline mics_vf mics_vgelu_exact(mics_vf x)
{
    return x * mics_vnormal_cdf(x);
}

/* The distribution function and x times the density. */
static inline mics_vf mics_vgelu_exact_slope(mics_vf x)
{
    const mics_vf held = mics_vmax(mics_vset(-14.0f), mics_vmin(mics_vset(14.0f), x));

    return mics_vnormal_cdf(held) + held * (MICS_PHI_ZERO * mics_vexp(-0.5f * held * held));
}

#endif
