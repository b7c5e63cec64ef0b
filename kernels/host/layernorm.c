/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layernorm.c - layer normalisation (Ba, Kiros and Hinton 2016).
 *
 * A row is read from memory once; its mean and then its variance are taken of the cached row. 8 bytes
 * and about 8 flops per element.
 */
#include "host/flat.h"
#include "host/kernels.h"
#include "host/simd.h"

#include <math.h>

#define WIDE         (4 * MICS_LANES)
#define GRAIN_FLOATS (32 * 1024) /* of a piece of rows */

static float row_mean(const float *in, uint32_t C)
{
    mics_vf part[4] = {{0}};
    float sum = 0;
    uint32_t c = 0;

    for (; c + WIDE <= C; c += WIDE)
        for (unsigned v = 0; v < 4; v++)
            part[v] += mics_vload(in + c + v * MICS_LANES);
    for (; c + MICS_LANES <= C; c += MICS_LANES)
        part[0] += mics_vload(in + c);
    for (; c < C; c++)
        sum += in[c];
    return (sum + mics_vsum((part[0] + part[1]) + (part[2] + part[3]))) / (float)C;
}

static float row_variance(const float *in, float mean, uint32_t C)
{
    mics_vf part[4] = {{0}};
    float sum = 0;
    uint32_t c = 0;

    for (; c + WIDE <= C; c += WIDE)
        for (unsigned v = 0; v < 4; v++) {
            mics_vf x = mics_vload(in + c + v * MICS_LANES) - mean;

            part[v] += x * x;
        }
    for (; c + MICS_LANES <= C; c += MICS_LANES)
        part[0] += (mics_vload(in + c) - mean) * (mics_vload(in + c) - mean);
    for (; c < C; c++)
        sum += (in[c] - mean) * (in[c] - mean);
    return (sum + mics_vsum((part[0] + part[1]) + (part[2] + part[3]))) / (float)C;
}

/* The row that is normalised: with a residual it is added up first. */
static const float *row_input(const struct mics_op_layernorm *args, uint64_t row)
{
    const float *in = (const float *)args->in + row * args->C, *add = args->add;
    float *sum = args->sum;
    uint32_t c = 0;

    if (!add)
        return in;
    add += row * args->C;
    sum += row * args->C;
    for (; c + MICS_LANES <= args->C; c += MICS_LANES)
        mics_vstore(sum + c, mics_vload(in + c) + mics_vload(add + c));
    for (; c < args->C; c++)
        sum[c] = in[c] + add[c];
    return sum;
}

static void normalise_rows(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_layernorm *args = context;
    const float *weight = args->weight, *bias = args->bias;
    uint32_t C = args->C;

    for (uint64_t row = begin; row < end; row++) {
        const float *in = row_input(args, row);
        float *out = (float *)args->out + row * C;
        float mean = row_mean(in, C), rstd = 1.0f / sqrtf(row_variance(in, mean, C) + args->eps);
        uint32_t c = 0;

        for (; c + MICS_LANES <= C; c += MICS_LANES)
            mics_vstore(out + c, (mics_vload(in + c) - mean) * rstd * mics_vload(weight + c) +
                                     mics_vload(bias + c));
        for (; c < C; c++)
            out[c] = (in[c] - mean) * rstd * weight[c] + bias[c];
        args->mean[row] = mean;
        args->rstd[row] = rstd;
    }
}

void mics_host_layernorm(struct mics_pool *pool, const struct mics_op_layernorm *args)
{
    uint64_t grain = GRAIN_FLOATS / ((uint64_t)args->C + 1) + 1;

    mics_pool_run(pool, args->rows, grain, normalise_rows, (void *)args);
}
