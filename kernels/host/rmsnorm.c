/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rmsnorm.c - root mean square normalisation (Zhang and Sennrich 2019), with a residual added first where
 * there is one.
 *
 * A row is read from memory once; its mean square is taken of the cached row. 8 bytes and about 5 flops per
 * element in fp32, 8 more bytes with a residual.
 */
#include "host/bf16.h"
#include "host/flat.h"
#include "host/kernels.h"

#include <math.h>

#define WIDE         (4 * MICS_LANES)
#define GRAIN_FLOATS (32 * 1024) /* of a piece of rows */

/* The row that is normalised: with a residual it is added up, and rounded, first. */
MICS_TYPED const void *row_input(const struct mics_op_rmsnorm *args, uint64_t row,
                                 const enum mics_dtype dtype)
{
    const uint64_t at = row * args->C;
    const void *in = mics_at(args->in, at, dtype), *add;
    const uint32_t C = args->C;
    uint32_t c = 0;
    void *sum;

    if (!args->add)
        return in;
    add = mics_at(args->add, at, dtype);
    sum = mics_at(args->sum, at, dtype);
    for (; c + MICS_LANES <= C; c += MICS_LANES)
        mics_vstore_as(sum, c, mics_vload_as(in, c, dtype) + mics_vload_as(add, c, dtype), dtype);
    for (; c < C; c++)
        mics_store_as(sum, c, mics_load_as(in, c, dtype) + mics_load_as(add, c, dtype), dtype);
    return sum;
}

MICS_TYPED float mean_square(const void *in, uint32_t C, const enum mics_dtype dtype)
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

MICS_TYPED void normalise_as(const struct mics_op_rmsnorm *args, uint64_t begin, uint64_t end,
                             const enum mics_dtype dtype)
{
    const void *weight = args->weight;
    const uint32_t C = args->C;

    for (uint64_t row = begin; row < end; row++) {
        const void *in = row_input(args, row, dtype);
        void *out = mics_at(args->out, row * C, dtype);
        float rstd = 1.0f / sqrtf(mean_square(in, C, dtype) + args->eps);
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

static void normalise_rows(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_rmsnorm *args = context;

    if (args->dtype == MICS_BF16)
        normalise_as(args, begin, end, MICS_BF16);
    else
        normalise_as(args, begin, end, MICS_F32);
}

void mics_host_rmsnorm(struct mics_pool *pool, const struct mics_op_rmsnorm *args)
{
    uint64_t grain = GRAIN_FLOATS / ((uint64_t)args->C + 1) + 1;

    mics_pool_run(pool, args->rows, grain, normalise_rows, (void *)args);
}
