/* SPDX-License-Identifier: Apache-2.0 */
/*
 * qk_norm.c - root mean square norms of the heads of queries and keys, and their gradients.
 *
 * A head is read from memory once; its mean square is taken of the cached head. The gradient of the
 * weights is summed first, over rows and heads in their order, for a vector of channels at a time,
 * since the gradient of the heads is then written in place. 8 bytes and about 5 flops per element
 * in fp32, of the gradient 20 bytes and about 12 flops.
 */
#include "host/kernels.h"
#include "host/pool.h"
#include "host/vector.h"

#include <math.h>

#define GRAIN_FLOATS (32 * 1024) /* of a piece of rows */

/* The sum over a head of a b. */
MICS_TYPED float dot(const void *a, const void *b, uint32_t D, const enum mics_dtype dtype)
{
    mics_vf part = {0};
    float sum = 0;
    uint32_t c = 0;

    for (; c + MICS_LANES <= D; c += MICS_LANES)
        part += mics_vload_as(a, c, dtype) * mics_vload_as(b, c, dtype);
    for (; c < D; c++)
        sum += mics_load_as(a, c, dtype) * mics_load_as(b, c, dtype);
    return sum + mics_vsum(part);
}

MICS_TYPED void normalise(const void *in, const void *weight, float rstd, uint32_t D, void *out,
                          const enum mics_dtype dtype)
{
    uint32_t c = 0;

    for (; c + MICS_LANES <= D; c += MICS_LANES)
        mics_vstore_as(out, c, mics_vload_as(in, c, dtype) * rstd * mics_vload_as(weight, c, dtype),
                       dtype);
    for (; c < D; c++)
        mics_store_as(out, c, mics_load_as(in, c, dtype) * rstd * mics_load_as(weight, c, dtype),
                      dtype);
}

/* What a row has, of either operation. */
struct row {
    uint32_t H, H_kv, D, D_kv, heads; /* heads: with a norm */
    uint64_t width;
};

static struct row row_of(uint32_t H, uint32_t H_kv, uint32_t D, uint32_t D_kv)
{
    return (struct row){H, H_kv, D, D_kv, H + H_kv, (uint64_t)H * D + 2 * (uint64_t)H_kv * D_kv};
}

/* Where head h begins, the values behind that of the last key, and its channels. */
static uint64_t head_at(const struct row *row, uint32_t h, uint32_t *D)
{
    *D = h < row->H ? row->D : row->D_kv;
    return h < row->H ? (uint64_t)h * row->D
                      : (uint64_t)row->H * row->D + (uint64_t)(h - row->H) * row->D_kv;
}

MICS_TYPED void norm_rows(const struct mics_args_qk_norm *args, uint64_t begin, uint64_t end,
                          const enum mics_dtype dtype)
{
    const struct row of = row_of(args->H, args->H_kv, args->D, args->D_kv);
    const uint32_t heads = of.heads;
    uint32_t D;

    for (uint64_t row = begin; row < end; row++) {
        for (uint32_t h = 0; h < heads; h++) {
            const uint64_t at = row * of.width + head_at(&of, h, &D);
            const void *in = mics_element(args->in, at, dtype);
            const float rstd = 1.0f / sqrtf(dot(in, in, D, dtype) / (float)D + args->eps);

            normalise(in, h < args->H ? args->q_weight : args->k_weight, rstd, D,
                      mics_element(args->out, at, dtype), dtype);
            args->rstd[row * heads + h] = rstd;
        }
        const uint64_t values = row * of.width + head_at(&of, heads, &D);
        memcpy(mics_element(args->out, values, dtype), mics_element(args->in, values, dtype),
               (size_t)args->H_kv * args->D_kv * mics_dtype_bytes(dtype));
    }
}

static void norm_piece(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_qk_norm *args = context;

    if (args->dtype == MICS_BF16)
        norm_rows(args, begin, end, MICS_BF16);
    else if (args->dtype == MICS_F16)
        norm_rows(args, begin, end, MICS_F16);
    else
        norm_rows(args, begin, end, MICS_F32);
}

/* Rows of a piece of work. */
static uint64_t grain_of(uint64_t width)
{
    return GRAIN_FLOATS / (width + 1) + 1;
}

void mics_host_qk_norm(struct mics_pool *pool, const struct mics_args_qk_norm *args)
{
    const struct row row = row_of(args->H, args->H_kv, args->D, args->D_kv);

    mics_pool_run(pool, args->rows, grain_of(row.width), norm_piece, (void *)args);
}

/* Gradients of the weights of queries or keys: `heads` heads from head `first` on. */
struct weights {
    const struct mics_args_qk_norm_grad *args;
    void *grad_weight;
    uint32_t first, heads, D;
};

/* Channels [c, c + count) of a head's gradient times its normalised input; count is at most a
 * vector. */
MICS_TYPED mics_vf head_part(const struct mics_args_qk_norm_grad *args, uint64_t at, unsigned count,
                             float rstd, const enum mics_dtype dtype)
{
    if (count == MICS_LANES)
        return mics_vload_as(args->grad, at, dtype) * (mics_vload_as(args->in, at, dtype) * rstd);
    return mics_vload_part_as(args->grad, at, count, dtype) *
           (mics_vload_part_as(args->in, at, count, dtype) * rstd);
}

MICS_TYPED void sum_channels(const struct weights *w, uint32_t c, unsigned count,
                             const enum mics_dtype dtype)
{
    const struct mics_args_qk_norm_grad *args = w->args;
    const struct row of = row_of(args->H, args->H_kv, args->D, args->D_kv);
    mics_vf sum = {0};
    uint32_t D;
    float sums[MICS_LANES];

    for (uint64_t row = 0; row < args->rows; row++)
        for (uint32_t h = w->first; h < w->first + w->heads; h++)
            sum += head_part(args, row * of.width + head_at(&of, h, &D) + c, count,
                             args->rstd[row * of.heads + h], dtype);
    mics_vstore(sums, sum);
    for (unsigned i = 0; i < count; i++)
        mics_store_as(w->grad_weight, c + i,
                      mics_load_as(w->grad_weight, c + i, args->grad_dtype) + sums[i],
                      args->grad_dtype);
}

static void sum_piece(void *context, uint64_t begin, uint64_t end)
{
    const struct weights *w = context;

    for (uint64_t v = begin; v < end; v++) {
        const uint32_t c = (uint32_t)v * MICS_LANES;
        const unsigned count = w->D - c < MICS_LANES ? w->D - c : MICS_LANES;

        if (w->args->dtype == MICS_BF16)
            sum_channels(w, c, count, MICS_BF16);
        else if (w->args->dtype == MICS_F16)
            sum_channels(w, c, count, MICS_F16);
        else
            sum_channels(w, c, count, MICS_F32);
    }
}

/* rstd (g - x' mean(g x')) with g = weight * grad and x' = in * rstd, in the place of grad. */
MICS_TYPED void grad_head(void *grad, const void *in, const void *weight, float rstd, uint32_t D,
                          const enum mics_dtype dtype)
{
    mics_vf part = {0};
    float sum = 0;
    uint32_t c = 0;

    for (; c + MICS_LANES <= D; c += MICS_LANES)
        part += mics_vload_as(grad, c, dtype) * mics_vload_as(weight, c, dtype) *
                mics_vload_as(in, c, dtype);
    for (; c < D; c++)
        sum += mics_load_as(grad, c, dtype) * mics_load_as(weight, c, dtype) *
               mics_load_as(in, c, dtype);

    const float along = (sum + mics_vsum(part)) * rstd / (float)D * rstd;
    for (c = 0; c + MICS_LANES <= D; c += MICS_LANES) {
        const mics_vf g = mics_vload_as(grad, c, dtype) * mics_vload_as(weight, c, dtype);

        mics_vstore_as(grad, c, rstd * (g - mics_vload_as(in, c, dtype) * along), dtype);
    }
    for (; c < D; c++) {
        const float g = mics_load_as(grad, c, dtype) * mics_load_as(weight, c, dtype);

        mics_store_as(grad, c, rstd * (g - mics_load_as(in, c, dtype) * along), dtype);
    }
}

static void grad_piece(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_qk_norm_grad *args = context;
    const struct row of = row_of(args->H, args->H_kv, args->D, args->D_kv);
    uint32_t D;

    for (uint64_t row = begin; row < end; row++)
        for (uint32_t h = 0; h < of.heads; h++) {
            const uint64_t at = row * of.width + head_at(&of, h, &D);
            const void *in = mics_element(args->in, at, args->dtype);
            const void *weight = h < args->H ? args->q_weight : args->k_weight;
            void *grad = mics_element(args->grad, at, args->dtype);
            const float rstd = args->rstd[row * of.heads + h];

            if (args->dtype == MICS_BF16)
                grad_head(grad, in, weight, rstd, D, MICS_BF16);
            else if (args->dtype == MICS_F16)
                grad_head(grad, in, weight, rstd, D, MICS_F16);
            else
                grad_head(grad, in, weight, rstd, D, MICS_F32);
        }
}

void mics_host_qk_norm_grad(struct mics_pool *pool, const struct mics_args_qk_norm_grad *args)
{
    const struct row row = row_of(args->H, args->H_kv, args->D, args->D_kv);
    struct weights q = {args, args->grad_q_weight, 0, args->H, args->D};
    struct weights k = {args, args->grad_k_weight, args->H, args->H_kv, args->D_kv};

    mics_pool_run(pool, mics_ceil_div(args->D, MICS_LANES), 1, sum_piece, &q);
    mics_pool_run(pool, mics_ceil_div(args->D_kv, MICS_LANES), 1, sum_piece, &k);
    mics_pool_run(pool, args->rows, grain_of(row.width), grad_piece, (void *)args);
}
