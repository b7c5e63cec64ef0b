/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bias_grad.c - sums of the columns of a gradient.
 *
 * One thread sums a strip of columns, in blocks of rows: the order of summation is a function of the
 * shape only. 4 bytes and 1 flop per element.
 */
#include "host/flat.h"
#include "host/kernels.h"
#include "host/simd.h"

#define STRIP_VECTORS 8
#define STRIP         (STRIP_VECTORS * MICS_LANES)
#define BLOCK_ROWS    64

/* sum[STRIP] += the sums of a block of whole strips. */
static void add_block(float *sum, const float *from, uint32_t rows, uint32_t n)
{
    mics_vf part[STRIP_VECTORS] = {{0}};

    for (uint32_t i = 0; i < rows; i++, from += n)
        for (unsigned v = 0; v < STRIP_VECTORS; v++)
            part[v] += mics_vload(from + v * MICS_LANES);
    for (unsigned v = 0; v < STRIP_VECTORS; v++)
        mics_vstore(sum + v * MICS_LANES, mics_vload(sum + v * MICS_LANES) + part[v]);
}

/* The same for the last, narrower strip. */
static void add_narrow_block(float *sum, const float *from, uint32_t rows, uint32_t n,
                             uint32_t columns)
{
    float part[STRIP] = {0};

    for (uint32_t i = 0; i < rows; i++, from += n)
        for (uint32_t j = 0; j < columns; j++)
            part[j] += from[j];
    for (uint32_t j = 0; j < columns; j++)
        sum[j] += part[j];
}

static void sum_strips(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_bias_grad *args = context;

    for (uint64_t strip = begin; strip < end; strip++) {
        uint32_t first = (uint32_t)strip * STRIP, columns = args->n - first;

        for (uint32_t row = 0; row < args->rows; row += BLOCK_ROWS) {
            const float *from = args->grad_out + (size_t)row * args->n + first;
            uint32_t rows = args->rows - row < BLOCK_ROWS ? args->rows - row : BLOCK_ROWS;

            if (columns >= STRIP)
                add_block(args->grad_bias + first, from, rows, args->n);
            else
                add_narrow_block(args->grad_bias + first, from, rows, args->n, columns);
        }
    }
}

void mics_host_bias_grad(struct mics_pool *pool, const struct mics_op_bias_grad *args)
{
    if (args->n > 0)
        mics_pool_run(pool, mics_ceil_div(args->n, STRIP), 1, sum_strips, (void *)args);
}
