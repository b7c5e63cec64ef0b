/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rmsnorm_grad.c - the gradients of root mean square normalisation.
 *
 * With x' = in * rstd and g = weight * grad_out:
 *     grad_in     += rstd (g - x' mean(g x'))
 *     grad_weight += column sums of grad_out * x'
 * The rows are walked twice: each by itself for grad_in, then in strips of channels for grad_weight, whose sums
 * over all rows stay in registers, so that a bf16 gradient is rounded once. A channel's order of
 * summation is that of the rows. 24 bytes and about 12 flops per element in fp32.
 */
#include "host/bf16.h"
#include "host/flat.h"
#include "host/kernels.h"

#define GRAIN_FLOATS (32 * 1024) /* of a piece of rows */
#define VECTORS      4           /* side by side in a strip */
#define STRIP        (VECTORS * MICS_LANES)

/* The mean over a row of g x'. */
MICS_TYPED float row_mean(const void *in, const void *grad, const void *weight, uint32_t C,
                          float rstd, const enum mics_dtype dtype)
{
    mics_vf part[2] = {{0}};
    float sum = 0;
    uint32_t c = 0;

    for (; c + 2 * MICS_LANES <= C; c += 2 * MICS_LANES)
        for (unsigned v = 0; v < 2; v++) {
            const uint32_t at = c + v * MICS_LANES;

            part[v] += mics_vload_as(grad, at, dtype) * mics_vload_as(weight, at, dtype) *
                       mics_vload_as(in, at, dtype);
        }
    for (; c < C; c++)
        sum += mics_load_as(grad, c, dtype) * mics_load_as(weight, c, dtype) *
               mics_load_as(in, c, dtype);
    return (sum + mics_vsum(part[0] + part[1])) * rstd / (float)C;
}

MICS_TYPED void grad_row(const struct mics_op_rmsnorm_grad *args, uint64_t row,
                         const enum mics_dtype dtype)
{
    const uint64_t at = row * args->C;
    const void *in = mics_at(args->in, at, dtype), *grad = mics_at(args->grad_out, at, dtype);
    const void *weight = args->weight;
    void *to = mics_at(args->grad_in, at, dtype);
    const float rstd = args->rstd[row];
    const float along = row_mean(in, grad, weight, args->C, rstd, dtype) * rstd;
    uint32_t c = 0;

    for (; c + MICS_LANES <= args->C; c += MICS_LANES) {
        mics_vf g = mics_vload_as(grad, c, dtype) * mics_vload_as(weight, c, dtype);

        g = rstd * (g - mics_vload_as(in, c, dtype) * along);
        mics_vstore_as(to, c, mics_vload_as(to, c, dtype) + g, dtype);
    }
    for (; c < args->C; c++) {
        float g = mics_load_as(grad, c, dtype) * mics_load_as(weight, c, dtype);

        g = rstd * (g - mics_load_as(in, c, dtype) * along);
        mics_store_as(to, c, mics_load_as(to, c, dtype) + g, dtype);
    }
}

static void grad_rows(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_rmsnorm_grad *args = context;

    for (uint64_t row = begin; row < end; row++) {
        if (args->dtype == MICS_BF16)
            grad_row(args, row, MICS_BF16);
        else
            grad_row(args, row, MICS_F32);
    }
}

/* Sums over all rows of whole vectors from channel c on. */
MICS_TYPED void sum_vectors(const struct mics_op_rmsnorm_grad *args, uint64_t c,
                            const unsigned vectors, mics_vf *sum, const enum mics_dtype dtype)
{
    for (uint64_t row = 0; row < args->rows; row++)
        for (unsigned v = 0; v < vectors; v++) {
            const uint64_t at = row * args->C + c + v * MICS_LANES;

            sum[v] += mics_vload_as(args->grad_out, at, dtype) *
                      (mics_vload_as(args->in, at, dtype) * args->rstd[row]);
        }
}

/* The sums of one strip, in order, of which the last may be short. */
MICS_TYPED void sum_strip(const struct mics_op_rmsnorm_grad *args, uint64_t c, uint64_t stop,
                          float *sums, const enum mics_dtype dtype)
{
    const uint64_t first = c;
    mics_vf sum[VECTORS] = {{0}};

    if (c + STRIP <= stop) {
        sum_vectors(args, c, VECTORS, sum, dtype);
        for (unsigned v = 0; v < VECTORS; v++)
            mics_vstore(sums + v * MICS_LANES, sum[v]);
        return;
    }
    for (; c + MICS_LANES <= stop; c += MICS_LANES) {
        sum[0] = (mics_vf){0};
        sum_vectors(args, c, 1, sum, dtype);
        mics_vstore(sums + (c - first), sum[0]);
    }
    for (; c < stop; c++) {
        float one = 0;

        for (uint64_t row = 0; row < args->rows; row++)
            one += mics_load_as(args->grad_out, row * args->C + c, dtype) *
                   (mics_load_as(args->in, row * args->C + c, dtype) * args->rstd[row]);
        sums[c - first] = one;
    }
}

static void grad_strips(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_rmsnorm_grad *args = context;
    float sums[STRIP];

    for (uint64_t c = begin * STRIP; c < mics_min_u64(end * STRIP, args->C); c += STRIP) {
        const uint64_t stop = mics_min_u64(c + STRIP, args->C);

        if (args->dtype == MICS_BF16)
            sum_strip(args, c, stop, sums, MICS_BF16);
        else
            sum_strip(args, c, stop, sums, MICS_F32);
        for (uint64_t i = c; i < stop; i++)
            mics_store_as(args->grad_weight, i,
                          mics_load_as(args->grad_weight, i, args->grad_dtype) + sums[i - c],
                          args->grad_dtype);
    }
}

void mics_host_rmsnorm_grad(struct mics_pool *pool, const struct mics_op_rmsnorm_grad *args)
{
    mics_pool_run(pool, args->rows, GRAIN_FLOATS / ((uint64_t)args->C + 1) + 1, grad_rows,
                  (void *)args);
    mics_pool_run(pool, mics_ceil_div(args->C, STRIP), 1, grad_strips, (void *)args);
}
