/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layernorm.c - layer normalisation (Ba, Kiros and Hinton 2016), forward and backward.
 *
 * Forward: a row is read from memory once, its mean and its variance are taken in two passes over the
 * cached row. Backward: one pass over rows for grad_in, one over strips of channels for grad_weight
 * and grad_bias, so that no sum depends on the number of threads.
 */
#include "host/flat.h"
#include "host/kernels.h"
#include "host/simd.h"

#include <math.h>

#define STRIP_VECTORS 4
#define STRIP         (STRIP_VECTORS * MICS_LANES)
#define BLOCK_ROWS    64
#define GRAIN_FLOATS  (32 * 1024) /* of a piece of rows */

static uint64_t rows_grain(uint32_t C)
{
    return GRAIN_FLOATS / ((uint64_t)C + 1) + 1;
}

static float row_mean(const float *in, uint32_t C)
{
    mics_vf even = {0}, odd = {0};
    float sum = 0;
    uint32_t c = 0;

    for (; c + 2 * MICS_LANES <= C; c += 2 * MICS_LANES) {
        even += mics_vload(in + c);
        odd += mics_vload(in + c + MICS_LANES);
    }
    for (; c < C; c++)
        sum += in[c];
    return (sum + mics_vsum(even + odd)) / (float)C;
}

static float row_variance(const float *in, float mean, uint32_t C)
{
    mics_vf even = {0}, odd = {0};
    float sum = 0;
    uint32_t c = 0;

    for (; c + 2 * MICS_LANES <= C; c += 2 * MICS_LANES) {
        mics_vf a = mics_vload(in + c) - mean, b = mics_vload(in + c + MICS_LANES) - mean;

        even += a * a;
        odd += b * b;
    }
    for (; c < C; c++)
        sum += (in[c] - mean) * (in[c] - mean);
    return (sum + mics_vsum(even + odd)) / (float)C;
}

static void normalise_rows(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_layernorm *args = context;
    uint32_t C = args->C;

    for (uint64_t row = begin; row < end; row++) {
        const float *in = args->in + row * C;
        float *out = args->out + row * C;
        float mean = row_mean(in, C), rstd = 1.0f / sqrtf(row_variance(in, mean, C) + args->eps);
        uint32_t c = 0;

        for (; c + MICS_LANES <= C; c += MICS_LANES)
            mics_vstore(out + c, (mics_vload(in + c) - mean) * rstd * mics_vload(args->weight + c) +
                                     mics_vload(args->bias + c));
        for (; c < C; c++)
            out[c] = (in[c] - mean) * rstd * args->weight[c] + args->bias[c];
        args->mean[row] = mean;
        args->rstd[row] = rstd;
    }
}

/* The means over a row of w g and of w g x', where x' is the normalised input. */
static void row_sums(const struct mics_op_layernorm_grad *args, uint64_t row, float *mean_g,
                     float *mean_gx)
{
    const float *in = args->in + row * args->C, *grad = args->grad_out + row * args->C;
    float mean = args->mean[row], rstd = args->rstd[row], sum_g = 0, sum_gx = 0;
    mics_vf g = {0}, gx = {0};
    uint32_t c = 0;

    for (; c + MICS_LANES <= args->C; c += MICS_LANES) {
        mics_vf one = mics_vload(grad + c) * mics_vload(args->weight + c);

        g += one;
        gx += one * ((mics_vload(in + c) - mean) * rstd);
    }
    for (; c < args->C; c++) {
        sum_g += grad[c] * args->weight[c];
        sum_gx += grad[c] * args->weight[c] * ((in[c] - mean) * rstd);
    }
    *mean_g = (sum_g + mics_vsum(g)) / (float)args->C;
    *mean_gx = (sum_gx + mics_vsum(gx)) / (float)args->C;
}

/* grad_in += rstd (w g - mean(w g) - x' mean(w g x')) */
static void grad_rows(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_layernorm_grad *args = context;
    const float *weight = args->weight;

    for (uint64_t row = begin; row < end; row++) {
        const float *in = args->in + row * args->C, *grad = args->grad_out + row * args->C;
        float *to = args->grad_in + row * args->C;
        float mean = args->mean[row], rstd = args->rstd[row], mean_g, mean_gx;
        uint32_t c = 0;

        row_sums(args, row, &mean_g, &mean_gx);
        for (; c + MICS_LANES <= args->C; c += MICS_LANES) {
            mics_vf x = (mics_vload(in + c) - mean) * rstd;
            mics_vf g = mics_vload(grad + c) * mics_vload(weight + c);

            mics_vstore(to + c, mics_vload(to + c) + rstd * (g - mean_g - x * mean_gx));
        }
        for (; c < args->C; c++)
            to[c] += rstd * (grad[c] * weight[c] - mean_g - (in[c] - mean) * rstd * mean_gx);
    }
}

/* Add a block of rows of one whole strip of channels, from channel `first`, to grad_weight and
 * grad_bias. */
static void add_block(const struct mics_op_layernorm_grad *args, uint64_t row, uint64_t stop,
                      uint32_t first)
{
    mics_vf weight[STRIP_VECTORS] = {{0}}, bias[STRIP_VECTORS] = {{0}};

    for (; row < stop; row++) {
        const float *in = args->in + row * args->C + first;
        const float *grad = args->grad_out + row * args->C + first;

        for (unsigned v = 0; v < STRIP_VECTORS; v++) {
            mics_vf g = mics_vload(grad + v * MICS_LANES);

            bias[v] += g;
            weight[v] +=
                g * ((mics_vload(in + v * MICS_LANES) - args->mean[row]) * args->rstd[row]);
        }
    }
    for (unsigned v = 0; v < STRIP_VECTORS; v++) {
        float *to_weight = args->grad_weight + first + v * MICS_LANES;
        float *to_bias = args->grad_bias + first + v * MICS_LANES;

        mics_vstore(to_weight, mics_vload(to_weight) + weight[v]);
        mics_vstore(to_bias, mics_vload(to_bias) + bias[v]);
    }
}

/* The same for the last, narrower strip. */
static void add_narrow_block(const struct mics_op_layernorm_grad *args, uint64_t row, uint64_t stop,
                             uint32_t first)
{
    float weight[STRIP] = {0}, bias[STRIP] = {0};
    uint32_t columns = args->C - first;

    for (; row < stop; row++)
        for (uint32_t c = 0; c < columns; c++) {
            float g = args->grad_out[row * args->C + first + c];

            bias[c] += g;
            weight[c] +=
                g * ((args->in[row * args->C + first + c] - args->mean[row]) * args->rstd[row]);
        }
    for (uint32_t c = 0; c < columns; c++) {
        args->grad_weight[first + c] += weight[c];
        args->grad_bias[first + c] += bias[c];
    }
}

static void grad_strips(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_layernorm_grad *args = context;

    for (uint64_t strip = begin; strip < end; strip++) {
        uint32_t first = (uint32_t)strip * STRIP;

        for (uint64_t row = 0; row < args->rows; row += BLOCK_ROWS) {
            uint64_t stop = mics_min_u64(row + BLOCK_ROWS, args->rows);

            if (args->C - first >= STRIP)
                add_block(args, row, stop, first);
            else
                add_narrow_block(args, row, stop, first);
        }
    }
}

void mics_host_layernorm(struct mics_pool *pool, const struct mics_op_layernorm *args)
{
    if (args->rows > 0)
        mics_pool_run(pool, args->rows, rows_grain(args->C), normalise_rows, (void *)args);
}

void mics_host_layernorm_grad(struct mics_pool *pool, const struct mics_op_layernorm_grad *args)
{
    if (args->rows == 0)
        return;
    mics_pool_run(pool, args->rows, rows_grain(args->C), grad_rows, (void *)args);
    mics_pool_run(pool, mics_ceil_div(args->C, STRIP), 1, grad_strips, (void *)args);
}
