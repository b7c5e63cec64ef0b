/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm.c - layer normalisation (Ba, Kiros and Hinton 2016) and root mean square normalisation
 * (Zhang and Sennrich 2019).
 *
 * A row is read from memory once; its statistics are computed from the cached row. Per element 8
 * bytes (4 in bf16) and about 8 flops for a layer norm, 5 for an RMS norm.
 */
#include "host/kernels.h"
#include "host/pool.h"
#include "host/vector.h"

#include <math.h>

#define WIDE         (4 * MICS_LANES)
#define GRAIN_FLOATS (32 * 1024) /* of a piece of rows */

MICS_TYPED float row_mean(const void *in, uint32_t C, const enum mics_dtype dtype)
{
    mics_vf part[4] = {{0}};
    float sum = 0;
    uint32_t c = 0;

    for (; c + WIDE <= C; c += WIDE)
        for (unsigned v = 0; v < 4; v++)
            part[v] += mics_vload_as(in, c + v * MICS_LANES, dtype);
    for (; c + MICS_LANES <= C; c += MICS_LANES)
        part[0] += mics_vload_as(in, c, dtype);
    for (; c < C; c++)
        sum += mics_load_as(in, c, dtype);
    return (sum + mics_vsum((part[0] + part[1]) + (part[2] + part[3]))) / (float)C;
}

MICS_TYPED float row_variance(const void *in, float mean, uint32_t C, const enum mics_dtype dtype)
{
    mics_vf part[4] = {{0}};
    float sum = 0;
    uint32_t c = 0;

    for (; c + WIDE <= C; c += WIDE)
        for (unsigned v = 0; v < 4; v++) {
            mics_vf x = mics_vload_as(in, c + v * MICS_LANES, dtype) - mean;

            part[v] += x * x;
        }
    for (; c + MICS_LANES <= C; c += MICS_LANES) {
        mics_vf x = mics_vload_as(in, c, dtype) - mean;

        part[0] += x * x;
    }
    for (; c < C; c++) {
        float x = mics_load_as(in, c, dtype) - mean;

        sum += x * x;
    }
    return (sum + mics_vsum((part[0] + part[1]) + (part[2] + part[3]))) / (float)C;
}

MICS_TYPED void layernorm_row(const struct mics_args_layernorm *args, uint64_t row,
                              const enum mics_dtype dtype)
{
    const void *in = mics_element(args->in, row * args->C, dtype), *weight = args->weight,
               *bias = args->bias;
    void *out = mics_element(args->out, row * args->C, dtype);
    const uint32_t C = args->C;
    const float mean = row_mean(in, C, dtype);
    const float rstd = 1.0f / sqrtf(row_variance(in, mean, C, dtype) + args->eps);
    uint32_t c = 0;

    for (; c + MICS_LANES <= C; c += MICS_LANES)
        mics_vstore_as(out, c,
                       (mics_vload_as(in, c, dtype) - mean) * rstd *
                               mics_vload_as(weight, c, dtype) +
                           mics_vload_as(bias, c, dtype),
                       dtype);
    for (; c < C; c++)
        mics_store_as(out, c,
                      (mics_load_as(in, c, dtype) - mean) * rstd * mics_load_as(weight, c, dtype) +
                          mics_load_as(bias, c, dtype),
                      dtype);
    args->mean[row] = mean;
    args->rstd[row] = rstd;
}

static void layernorm_rows(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_layernorm *args = context;

    for (uint64_t row = begin; row < end; row++) {
        if (args->dtype == MICS_BF16)
            layernorm_row(args, row, MICS_BF16);
        else if (args->dtype == MICS_F16)
            layernorm_row(args, row, MICS_F16);
        else
            layernorm_row(args, row, MICS_F32);
    }
}

void mics_host_layernorm(struct mics_pool *pool, const struct mics_args_layernorm *args)
{
    uint64_t grain = GRAIN_FLOATS / ((uint64_t)args->C + 1) + 1;

    mics_pool_run(pool, args->rows, grain, layernorm_rows, (void *)args);
}

MICS_TYPED float row_mean_square(const void *in, uint32_t C, const enum mics_dtype dtype)
{
    mics_vf part[4] = {{0}};
    float sum = 0;
    uint32_t c = 0;

    for (; c + WIDE <= C; c += WIDE)
        for (unsigned v = 0; v < 4; v++) {
            mics_vf x = mics_vload_as(in, c + v * MICS_LANES, dtype);

            part[v] += x * x;
        }
    for (; c + MICS_LANES <= C; c += MICS_LANES)
        part[0] += mics_vload_as(in, c, dtype) * mics_vload_as(in, c, dtype);
    for (; c < C; c++)
        sum += mics_load_as(in, c, dtype) * mics_load_as(in, c, dtype);
    return (sum + mics_vsum((part[0] + part[1]) + (part[2] + part[3]))) / (float)C;
}

MICS_TYPED void rmsnorm_range(const struct mics_args_rmsnorm *args, uint64_t begin, uint64_t end,
                              const enum mics_dtype dtype)
{
    const void *weight = args->weight;
    const uint32_t C = args->C;

    for (uint64_t row = begin; row < end; row++) {
        const void *in = mics_element(args->in, row * C, dtype);
        void *out = mics_element(args->out, row * C, dtype);
        float rstd = 1.0f / sqrtf(row_mean_square(in, C, dtype) + args->eps);
        uint32_t c = 0;

        for (; c + MICS_LANES <= C; c += MICS_LANES)
            mics_vstore_as(out, c,
                           mics_vload_as(in, c, dtype) * rstd * mics_vload_as(weight, c, dtype),
                           dtype);
        for (; c < C; c++)
            mics_store_as(
                out, c, mics_load_as(in, c, dtype) * rstd * mics_load_as(weight, c, dtype), dtype);
        args->rstd[row] = rstd;
    }
}

static void rmsnorm_rows(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_rmsnorm *args = context;

    if (args->dtype == MICS_BF16)
        rmsnorm_range(args, begin, end, MICS_BF16);
    else if (args->dtype == MICS_F16)
        rmsnorm_range(args, begin, end, MICS_F16);
    else
        rmsnorm_range(args, begin, end, MICS_F32);
}

void mics_host_rmsnorm(struct mics_pool *pool, const struct mics_args_rmsnorm *args)
{
    uint64_t grain = GRAIN_FLOATS / ((uint64_t)args->C + 1) + 1;

    mics_pool_run(pool, args->rows, grain, rmsnorm_rows, (void *)args);
}
