/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rope.h - the frequencies of rotary positions, computed on the host in double precision for every
 * device.
 *
 * The scaling of Llama 3.1 is that of transformers 4.43 and later (modeling_rope_utils.py,
 * _compute_llama3_parameters): its three cases are one linear function, clamped to [0, 1].
 */
#ifndef MICS_KERNELS_ROPE_H
#define MICS_KERNELS_ROPE_H

#include "ops.h"

#include <math.h>

/* The factor by which frequency f is multiplied, in [1 / factor, 1]. */
static inline double mics_rope_scale(const struct mics_rope_scaling *scaling, double f)
{
    const double waves = scaling->original_positions * f / 6.283185307179586;
    double kept;

    if (scaling->kind == MICS_ROPE_PLAIN)
        return 1;
    if (scaling->kind == MICS_ROPE_LINEAR)
        return 1 / scaling->factor;
    kept =
        (waves - scaling->low_freq_factor) / (scaling->high_freq_factor - scaling->low_freq_factor);
    kept = fmin(fmax(kept, 0), 1);
    return kept + (1 - kept) / scaling->factor;
}

/* The frequency of pair i < D / 2 of each head. */
static inline float mics_rope_frequency(const struct mics_op_rope *args, uint32_t i)
{
    const double f = pow((double)args->base, -2.0 * i / args->D);

    return (float)(f * mics_rope_scale(&args->scaling, f));
}

#endif
