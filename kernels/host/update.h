/* SPDX-License-Identifier: Apache-2.0 */
/*
 * update.h - what the optimizers share: the scale of the gradient, and when to leave all as it is.
 */
#ifndef MICS_KERNELS_HOST_UPDATE_H
#define MICS_KERNELS_HOST_UPDATE_H

#include "host/vector.h"
#include "ops.h"

#include <math.h>

/* Elements that go through one call of an optimizer's inner loop; shorter ends are padded. */
#define MICS_UPDATE_LANES 16

/* What the summed gradients are multiplied by: 1 / targets * min(1, clip / (norm + 1e-6)), with norm
 * the square root of squared_norm, over targets. false: nothing may be changed, because there are no
 * targets, or clipping is on (clip > 0) and the norm is not finite. */
static inline bool mics_update_scale(const struct mics_op_scalars *scalars, float clip,
                                     float *scale)
{
    double factor, norm;

    if (scalars->targets == 0)
        return false;
    factor = 1.0 / scalars->targets;
    if (clip > 0) {
        norm = sqrt(scalars->squared_norm) * factor;
        if (!isfinite(norm))
            return false;
        if (clip < norm + 1e-6)
            factor *= clip / (norm + 1e-6);
    }
    *scale = (float)factor;
    return true;
}

/* Elements [i, i + count) of the parameters as bf16, unless copy is NULL. */
static inline void mics_update_copy(uint16_t *copy, const float *param, uint64_t i, size_t count)
{
    for (size_t j = 0; copy && j < count; j++)
        copy[i + j] = mics_bf16_round(param[i + j]);
}

#endif
