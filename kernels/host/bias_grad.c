/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bias_grad.c - sums of the columns of a gradient.
 *
 * A thread owns a range of columns and goes down the rows eight at a time: eight streams for the
 * memory's prefetchers, and one trip of the sums to the cache for all of them. A column's order of
 * summation depends on the number of rows only. 4 bytes and 1 flop per element.
 */
#include "host/flat.h"
#include "host/kernels.h"
#include "host/simd.h"

#define STRIP 64 /* columns that are not shared between threads */
#define ROWS  8  /* added at a time */

/* sum[c] += the sum of ROWS rows, in pairs. */
static void add_rows(float *sum, const float *from, size_t n, uint64_t columns)
{
    uint64_t c = 0;

    for (; c + MICS_LANES <= columns; c += MICS_LANES) {
        const float *at = from + c;
        mics_vf low = (mics_vload(at) + mics_vload(at + n)) +
                      (mics_vload(at + 2 * n) + mics_vload(at + 3 * n));
        mics_vf high = (mics_vload(at + 4 * n) + mics_vload(at + 5 * n)) +
                       (mics_vload(at + 6 * n) + mics_vload(at + 7 * n));

        mics_vstore(sum + c, mics_vload(sum + c) + (low + high));
    }
    for (; c < columns; c++) {
        const float *at = from + c;
        float low = (at[0] + at[n]) + (at[2 * n] + at[3 * n]);
        float high = (at[4 * n] + at[5 * n]) + (at[6 * n] + at[7 * n]);

        sum[c] += low + high;
    }
}

static void sum_strips(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_bias_grad *args = context;
    uint64_t first = begin * STRIP, columns = mics_min_u64(end * STRIP, args->n) - first;
    const float *from = (const float *)args->grad_out + first;
    float *sum = (float *)args->grad_bias + first;
    uint32_t row = 0;

    for (; row + ROWS <= args->rows; row += ROWS, from += ROWS * (size_t)args->n)
        add_rows(sum, from, args->n, columns);
    for (; row < args->rows; row++, from += args->n)
        for (uint64_t c = 0; c < columns; c++)
            sum[c] += from[c];
}

void mics_host_bias_grad(struct mics_pool *pool, const struct mics_op_bias_grad *args)
{
    uint64_t strips = mics_ceil_div(args->n, STRIP);

    mics_pool_run(pool, strips, strips / 16 + 1, sum_strips, (void *)args);
}
