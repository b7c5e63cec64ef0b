/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bias_grad.c - sums of the columns of a gradient.
 *
 * A thread owns a range of columns and goes down the rows eight at a time: eight streams for the
 * memory's prefetchers, and one trip of the sums to the cache for all of them. A column's order of
 * summation depends on the number of rows only. 4 bytes (2 in bf16) and 1 flop per element.
 */
#include "host/bf16.h"
#include "host/flat.h"
#include "host/kernels.h"

#define STRIP 64   /* columns that are not shared between threads */
#define ROWS  8    /* added at a time */
#define WIDE  1024 /* columns whose sums are held at a time */

/* Rows `at`, `at` + n, ... of one column or vector of them, as the sum of ROWS in pairs. */
#define IN_PAIRS(load, from, at, n, type)                                                          \
    (((load(from, at, type) + load(from, (at) + (n), type)) +                                      \
      (load(from, (at) + 2 * (n), type) + load(from, (at) + 3 * (n), type))) +                     \
     ((load(from, (at) + 4 * (n), type) + load(from, (at) + 5 * (n), type)) +                      \
      (load(from, (at) + 6 * (n), type) + load(from, (at) + 7 * (n), type))))

/* sum[c] += the sum of ROWS rows, from element `at` of `from` on. */
MICS_TYPED void add_rows(float *sum, const void *from, size_t at, size_t n, uint64_t columns,
                         const enum mics_dtype type)
{
    uint64_t c = 0;

    for (; c + MICS_LANES <= columns; c += MICS_LANES)
        mics_vstore(sum + c, mics_vload(sum + c) + IN_PAIRS(mics_vload_as, from, at + c, n, type));
    for (; c < columns; c++)
        sum[c] += IN_PAIRS(mics_load_as, from, at + c, n, type);
}

/* sum[columns] += columns [first, first + columns) of all rows. */
MICS_TYPED void add_columns(const struct mics_op_bias_grad *args, float *sum, uint64_t first,
                            uint64_t columns, const enum mics_dtype type)
{
    size_t at = first;
    uint32_t row = 0;

    for (; row + ROWS <= args->rows; row += ROWS, at += ROWS * (size_t)args->n)
        add_rows(sum, args->grad_out, at, args->n, columns, type);
    for (; row < args->rows; row++, at += args->n)
        for (uint64_t c = 0; c < columns; c++)
            sum[c] += mics_load_as(args->grad_out, at + c, type);
}

MICS_TYPED void sum_columns(const struct mics_op_bias_grad *args, uint64_t first, uint64_t columns,
                            const enum mics_dtype grad_type)
{
    float sum[WIDE];

    for (uint64_t c = 0; c < columns; c++)
        sum[c] = mics_load_as(args->grad_bias, first + c, grad_type);
    if (args->dtype == MICS_BF16)
        add_columns(args, sum, first, columns, MICS_BF16);
    else
        add_columns(args, sum, first, columns, MICS_F32);
    for (uint64_t c = 0; c < columns; c++)
        mics_store_as(args->grad_bias, first + c, sum[c], grad_type);
}

static void sum_strips(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_bias_grad *args = context;
    const uint64_t stop = mics_min_u64(end * STRIP, args->n);

    for (uint64_t first = begin * STRIP; first < stop; first += WIDE) {
        const uint64_t columns = mics_min_u64(stop - first, WIDE);

        if (args->grad_dtype == MICS_BF16)
            sum_columns(args, first, columns, MICS_BF16);
        else
            sum_columns(args, first, columns, MICS_F32);
    }
}

void mics_host_bias_grad(struct mics_pool *pool, const struct mics_op_bias_grad *args)
{
    uint64_t strips = mics_ceil_div(args->n, STRIP);

    mics_pool_run(pool, strips, strips / 16 + 1, sum_strips, (void *)args);
}
