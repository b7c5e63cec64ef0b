/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rope.h - the frequencies of rotary positions, computed on the host in double precision for every
 * device.
 *
 * Scalings are those of the transformers library (modeling_rope_utils.py). The three cases of Llama
 * 3.1 are one linear function, clamped to [0, 1].
 */
#ifndef MICS_KERNELS_ROPE_H
#define MICS_KERNELS_ROPE_H

#include "ops.h"

#include <math.h>

#define MICS_TWO_PI 6.283185307179586

/* The pair of channels, not rounded, that turns `turns` times in the original positions. */
static inline double mics_rope_pair(const struct mics_args_rope *args, double turns)
{
    return args->D * log(args->scaling.original_positions / (turns * MICS_TWO_PI)) /
           (2 * log((double)args->base));
}

/* The part of pair i's frequency that YARN does not scale. */
static inline double mics_rope_yarn_kept(const struct mics_args_rope *args, uint32_t i)
{
    const struct mics_rope_scaling *scaling = &args->scaling;
    double first = mics_rope_pair(args, scaling->beta_fast);
    double last = mics_rope_pair(args, scaling->beta_slow);

    first = fmax(scaling->truncate ? floor(first) : first, 0);
    last = fmin(scaling->truncate ? ceil(last) : last, args->D - 1);
    if (!(first < last) && !(first > last))
        last += 0.001;
    return 1 - (i - first) / (last - first);
}

/* The factor by which the frequency f of pair i is multiplied, in [1 / factor, 1]. */
static inline double mics_rope_scale(const struct mics_args_rope *args, uint32_t i, double f)
{
    const struct mics_rope_scaling *scaling = &args->scaling;
    double kept = 1;

    switch (scaling->kind) {
    case MICS_ROPE_PLAIN:
    case MICS_ROPE_DYNAMIC:
        return 1;
    case MICS_ROPE_LINEAR:
        return 1 / scaling->factor;
    case MICS_ROPE_LLAMA3:
        kept = (scaling->original_positions * f / MICS_TWO_PI - scaling->low_freq_factor) /
               (scaling->high_freq_factor - scaling->low_freq_factor);
        break;
    case MICS_ROPE_YARN:
        kept = mics_rope_yarn_kept(args, i);
        break;
    }
    kept = fmin(fmax(kept, 0), 1);
    return kept + (1 - kept) / scaling->factor;
}

/* The frequency of pair i < D / 2 of each head. */
static inline float mics_rope_frequency(const struct mics_args_rope *args, uint32_t i)
{
    const double f = pow((double)args->base, -2.0 * i / args->D);

    return (float)(f * mics_rope_scale(args, i, f));
}

/* What cosines and sines are multiplied by. */
static inline float mics_rope_amplitude(const struct mics_args_rope *args)
{
    return args->scaling.kind == MICS_ROPE_YARN ? (float)args->scaling.attention_factor : 1.0f;
}

#endif
