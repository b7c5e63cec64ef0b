/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layernorm.c - layer normalisation (Ba, Kiros and Hinton 2016).
 *
 * A row is read from memory once; its mean and then its variance are taken of the cached row. 8 bytes
 * (4 in bf16) and about 8 flops per element; twice that with a residual.
 */
#include "host/bf16.h"
#include "host/flat.h"
#include "host/kernels.h"

#include <math.h>

#define WIDE         (4 * MICS_LANES)
#define GRAIN_FLOATS (32 * 1024) /* of a piece of rows */

MICS_TYPED float row_mean(const void *in, uint32_t C, const enum mics_dtype type)
{
    mics_vf part[4] = {{0}};
    float sum = 0;
    uint32_t c = 0;

    for (; c + WIDE <= C; c += WIDE)
        for (unsigned v = 0; v < 4; v++)
            part[v] += mics_vload_as(in, c + v * MICS_LANES, type);
    for (; c + MICS_LANES <= C; c += MICS_LANES)
        part[0] += mics_vload_as(in, c, type);
    for (; c < C; c++)
        sum += mics_load_as(in, c, type);
    return (sum + mics_vsum((part[0] + part[1]) + (part[2] + part[3]))) / (float)C;
}

MICS_TYPED float row_variance(const void *in, float mean, uint32_t C, const enum mics_dtype type)
{
    mics_vf part[4] = {{0}};
    float sum = 0;
    uint32_t c = 0;

    for (; c + WIDE <= C; c += WIDE)
        for (unsigned v = 0; v < 4; v++) {
            mics_vf x = mics_vload_as(in, c + v * MICS_LANES, type) - mean;

            part[v] += x * x;
        }
    for (; c + MICS_LANES <= C; c += MICS_LANES) {
        mics_vf x = mics_vload_as(in, c, type) - mean;

        part[0] += x * x;
    }
    for (; c < C; c++) {
        float x = mics_load_as(in, c, type) - mean;

        sum += x * x;
    }
    return (sum + mics_vsum((part[0] + part[1]) + (part[2] + part[3]))) / (float)C;
}

/* The row that is normalised: with a residual it is added up first. */
MICS_TYPED const void *row_input(const struct mics_op_layernorm *args, uint64_t row,
                                 const enum mics_dtype type)
{
    const uint64_t at = row * args->C;
    const void *in = mics_at(args->in, at, type), *add;
    void *sum;
    uint32_t c = 0;

    if (!args->add)
        return in;
    add = mics_at(args->add, at, type);
    sum = mics_at(args->sum, at, type);
    for (; c + MICS_LANES <= args->C; c += MICS_LANES)
        mics_vstore_as(sum, c, mics_vload_as(in, c, type) + mics_vload_as(add, c, type), type);
    for (; c < args->C; c++)
        mics_store_as(sum, c, mics_load_as(in, c, type) + mics_load_as(add, c, type), type);
    return sum;
}

MICS_TYPED void normalise_row(const struct mics_op_layernorm *args, uint64_t row,
                              const enum mics_dtype type)
{
    const void *in = row_input(args, row, type), *weight = args->weight, *bias = args->bias;
    void *out = mics_at(args->out, row * args->C, type);
    const uint32_t C = args->C;
    const float mean = row_mean(in, C, type);
    const float rstd = 1.0f / sqrtf(row_variance(in, mean, C, type) + args->eps);
    uint32_t c = 0;

    for (; c + MICS_LANES <= C; c += MICS_LANES)
        mics_vstore_as(out, c,
                       (mics_vload_as(in, c, type) - mean) * rstd * mics_vload_as(weight, c, type) +
                           mics_vload_as(bias, c, type),
                       type);
    for (; c < C; c++)
        mics_store_as(out, c,
                      (mics_load_as(in, c, type) - mean) * rstd * mics_load_as(weight, c, type) +
                          mics_load_as(bias, c, type),
                      type);
    args->mean[row] = mean;
    args->rstd[row] = rstd;
}

static void normalise_rows(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_layernorm *args = context;

    for (uint64_t row = begin; row < end; row++) {
        if (args->dtype == MICS_BF16)
            normalise_row(args, row, MICS_BF16);
        else
            normalise_row(args, row, MICS_F32);
    }
}

void mics_host_layernorm(struct mics_pool *pool, const struct mics_op_layernorm *args)
{
    uint64_t grain = GRAIN_FLOATS / ((uint64_t)args->C + 1) + 1;

    mics_pool_run(pool, args->rows, grain, normalise_rows, (void *)args);
}
