/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gelu.c - the Gaussian error linear unit, tanh form, and its derivative.
 *
 * (1 + tanh(u)) / 2 is the logistic function of 2u: one exponential and one division per element, with
 * no cancellation for negative inputs. 8 bytes per element forward, 12 backward, about 30 flops.
 */
#include "host/flat.h"
#include "host/kernels.h"
#include "host/vmath.h"

#define TWO_SQRT_2_OVER_PI 1.59576912f /* 2 sqrt(2 / pi) */
#define CUBIC              0.044715f

static inline mics_vf gelu(mics_vf x)
{
    mics_vf twice_u = TWO_SQRT_2_OVER_PI * (x + CUBIC * x * x * x);

    return x / (1.0f + mics_vexp(-twice_u));
}

/* s + x s (1 - s) 2u', where s is the logistic of 2u. Past 16 the last factors are 0: x is held there,
 * or its square would overflow and 0 times infinity be NaN. */
static inline mics_vf gelu_slope(mics_vf x)
{
    const mics_vf most = mics_vset(16.0f), least = mics_vset(-16.0f);
    mics_vf square, s;

    x = mics_vselect(x > most, most, x);
    x = mics_vselect(x < least, least, x);
    square = x * x;
    s = mics_vsigmoid(TWO_SQRT_2_OVER_PI * (x + CUBIC * x * square));
    return s + x * s * (1.0f - s) * (TWO_SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * square));
}

static void gelu_blocks(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_gelu *args = context;
    uint64_t stop = mics_flat_stop(end, args->count), i = begin * MICS_FLAT_BLOCK;

    for (; i + MICS_LANES <= stop; i += MICS_LANES)
        mics_vstore(args->out + i, gelu(mics_vload(args->in + i)));
    if (i < stop) {
        unsigned rest = (unsigned)(stop - i);

        mics_vstore_part(args->out + i, gelu(mics_vload_part(args->in + i, rest)), rest);
    }
}

static void gelu_grad_blocks(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_gelu_grad *args = context;
    uint64_t stop = mics_flat_stop(end, args->count), i = begin * MICS_FLAT_BLOCK;

    for (; i + MICS_LANES <= stop; i += MICS_LANES)
        mics_vstore(args->grad_in + i,
                    mics_vload(args->grad_out + i) * gelu_slope(mics_vload(args->in + i)));
    if (i < stop) {
        unsigned rest = (unsigned)(stop - i);
        mics_vf slope = gelu_slope(mics_vload_part(args->in + i, rest));

        mics_vstore_part(args->grad_in + i, mics_vload_part(args->grad_out + i, rest) * slope,
                         rest);
    }
}

void mics_host_gelu(struct mics_pool *pool, const struct mics_op_gelu *args)
{
    mics_flat_run(pool, args->count, gelu_blocks, args);
}

void mics_host_gelu_grad(struct mics_pool *pool, const struct mics_op_gelu_grad *args)
{
    mics_flat_run(pool, args->count, gelu_grad_blocks, args);
}
