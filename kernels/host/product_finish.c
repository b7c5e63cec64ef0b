/* SPDX-License-Identifier: Apache-2.0 */
/* What follows a matrix product: one pass over a row while it is in the cache. */
#include "host/bf16.h"
#include "host/gelu.h"
#include "host/product.h"

/* A vector, or the first `count` of its lanes. */
MICS_TYPED mics_vf load(const void *from, uint64_t i, unsigned count, const enum mics_dtype type)
{
    return count == MICS_LANES ? mics_vload_as(from, i, type)
                               : mics_vload_part_as(from, i, count, type);
}

MICS_TYPED void store(void *to, uint64_t i, mics_vf value, unsigned count,
                      const enum mics_dtype type)
{
    if (count == MICS_LANES)
        mics_vstore_as(to, i, value, type);
    else
        mics_vstore_part_as(to, i, value, count, type);
}

/* Element `at` of out is column `column`. */
MICS_TYPED void finish_vector(const struct mics_op_matmul *args, mics_vf x, uint64_t at,
                              uint32_t column, unsigned count, const enum mics_dtype type,
                              const enum mics_dtype out_type)
{
    if (args->add)
        x += load(args->add, at, count, out_type);
    if (args->bias)
        x += load(args->bias, column, count, type);
    if (args->pre_gelu) {
        store(args->pre_gelu, at, x, count, type);
        x = mics_vgelu(load(args->pre_gelu, at, count, type));
    } else if (args->gelu_of) {
        x *= mics_vgelu_slope(load(args->gelu_of, at, count, type));
    }
    store(args->out, at, x, count, out_type);
}

MICS_TYPED void finish_row(const struct mics_op_matmul *args, uint32_t row, uint32_t column,
                           uint32_t count, const float *x, const enum mics_dtype type,
                           const enum mics_dtype out_type)
{
    const uint64_t at = (uint64_t)row * args->ldout + column;

    for (uint32_t i = 0; i < count; i += MICS_LANES) {
        const unsigned lanes = count - i < MICS_LANES ? count - i : MICS_LANES;

        finish_vector(args, load(x, i, lanes, MICS_F32), at + i, column + i, lanes, type, out_type);
    }
}

void mics_product_finish(const struct mics_op_matmul *args, uint32_t row, uint32_t column,
                         uint32_t count, const float *x)
{
    const bool out_bf16 = args->out_dtype == MICS_BF16;

    if (args->dtype == MICS_BF16 && out_bf16)
        finish_row(args, row, column, count, x, MICS_BF16, MICS_BF16);
    else if (args->dtype == MICS_BF16)
        finish_row(args, row, column, count, x, MICS_BF16, MICS_F32);
    else if (out_bf16)
        finish_row(args, row, column, count, x, MICS_F32, MICS_BF16);
    else
        finish_row(args, row, column, count, x, MICS_F32, MICS_F32);
}
