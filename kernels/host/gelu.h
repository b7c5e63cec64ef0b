/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gelu.h - the Gaussian error linear unit of a vector, tanh form, and its derivative.
 *
 * (1 + tanh(u)) / 2 is the logistic function of 2u: one exponential and one division per element, with
 * no cancellation for negative inputs.
 */
#ifndef MICS_KERNELS_HOST_GELU_H
#define MICS_KERNELS_HOST_GELU_H

#include "host/vmath.h"

#define MICS_GELU_TWICE 1.59576912f /* 2 sqrt(2 / pi) */
#define MICS_GELU_CUBIC 0.044715f

static inline mics_vf mics_vgelu(mics_vf x)
{
    mics_vf twice_u = MICS_GELU_TWICE * (x + MICS_GELU_CUBIC * x * x * x);

    return x / (1.0f + mics_vexp(-twice_u));
}

/* s + x s (1 - s) 2u', where s is the logistic of 2u. Past 16 the last factors are 0: x is held there,
 * or its square would overflow and 0 times infinity be NaN. */
static inline mics_vf mics_vgelu_slope(mics_vf x)
{
    const mics_vf most = mics_vset(16.0f), least = mics_vset(-16.0f);
    mics_vf square, s;

    x = mics_vselect(x > most, most, x);
    x = mics_vselect(x < least, least, x);
    square = x * x;
    s = mics_vsigmoid(MICS_GELU_TWICE * (x + MICS_GELU_CUBIC * x * square));
    return s + x * s * (1.0f - s) * (MICS_GELU_TWICE * (1.0f + 3.0f * MICS_GELU_CUBIC * square));
}

#endif
