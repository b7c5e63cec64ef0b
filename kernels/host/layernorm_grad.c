/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layernorm_grad.c - the gradients of layer normalisation.
 *
 * A chunk of rows is walked twice, the second time from the cache: by rows for grad_in, then by ranges of
 * channels for grad_weight and grad_bias, four rows at a time. A channel's order of summation depends on
 * the number of rows only. 16 bytes and about 20 flops per element.
 */
#include "host/flat.h"
#include "host/kernels.h"
#include "host/simd.h"

#define CHUNK_FLOATS (256 * 1024) /* of a chunk of rows: 1 MiB of each array */
#define GRAIN_FLOATS (32 * 1024)  /* of a piece of rows */
#define STRIP        64           /* channels that are not shared between threads */
#define ROWS         4            /* added at a time; a chunk has a multiple of them */

struct chunk {
    const struct mics_op_layernorm_grad *args;
    uint64_t first, rows;
};

/* The means over a row of w g and of w g x', where x' is the normalised input. */
static void row_means(const struct mics_op_layernorm_grad *args, uint64_t row, float *mean_g,
                      float *mean_gx)
{
    const float *in = (const float *)args->in + row * args->C;
    const float *grad = (const float *)args->grad_out + row * args->C, *weight = args->weight;
    float mean = args->mean[row], rstd = args->rstd[row], sum_g = 0, sum_gx = 0;
    mics_vf g[2] = {{0}}, gx[2] = {{0}};
    uint32_t c = 0;

    for (; c + 2 * MICS_LANES <= args->C; c += 2 * MICS_LANES)
        for (unsigned v = 0; v < 2; v++) {
            uint32_t at = c + v * MICS_LANES;
            mics_vf one = mics_vload(grad + at) * mics_vload(weight + at);

            g[v] += one;
            gx[v] += one * ((mics_vload(in + at) - mean) * rstd);
        }
    for (; c < args->C; c++) {
        sum_g += grad[c] * weight[c];
        sum_gx += grad[c] * weight[c] * ((in[c] - mean) * rstd);
    }
    *mean_g = (sum_g + mics_vsum(g[0] + g[1])) / (float)args->C;
    *mean_gx = (sum_gx + mics_vsum(gx[0] + gx[1])) / (float)args->C;
}

/* grad_in += rstd (w g - mean(w g) - x' mean(w g x')) */
static void grad_rows(void *context, uint64_t begin, uint64_t end)
{
    const struct chunk *chunk = context;
    const struct mics_op_layernorm_grad *args = chunk->args;
    const float *weight = args->weight;

    for (uint64_t row = chunk->first + begin; row < chunk->first + end; row++) {
        const float *in = (const float *)args->in + row * args->C;
        const float *grad = (const float *)args->grad_out + row * args->C;
        float *to = (float *)args->grad_in + row * args->C;
        float mean = args->mean[row], rstd = args->rstd[row], mean_g, mean_gx;
        uint32_t c = 0;

        row_means(args, row, &mean_g, &mean_gx);
        for (; c + MICS_LANES <= args->C; c += MICS_LANES) {
            mics_vf x = (mics_vload(in + c) - mean) * rstd;
            mics_vf g = mics_vload(grad + c) * mics_vload(weight + c);

            mics_vstore(to + c, mics_vload(to + c) + rstd * (g - mean_g - x * mean_gx));
        }
        for (; c < args->C; c++)
            to[c] += rstd * (grad[c] * weight[c] - mean_g - (in[c] - mean) * rstd * mean_gx);
    }
}

/* One vector of channels of up to ROWS rows. */
static inline void add_vector(const struct mics_op_layernorm_grad *args, uint64_t row,
                              unsigned rows, uint64_t c)
{
    const float *in = args->in, *grad = args->grad_out;
    float *weight = args->grad_weight, *bias = args->grad_bias;
    mics_vf sum_weight = {0}, sum_bias = {0};

    for (unsigned r = 0; r < rows; r++) {
        size_t at = (row + r) * args->C + c;
        mics_vf g = mics_vload(grad + at);

        sum_bias += g;
        sum_weight += g * ((mics_vload(in + at) - args->mean[row + r]) * args->rstd[row + r]);
    }
    mics_vstore(weight + c, mics_vload(weight + c) + sum_weight);
    mics_vstore(bias + c, mics_vload(bias + c) + sum_bias);
}

/* One channel of up to ROWS rows, in the same order. */
static void add_channel(const struct mics_op_layernorm_grad *args, uint64_t row, unsigned rows,
                        uint64_t c)
{
    const float *in = args->in, *grad = args->grad_out;
    float *weight = args->grad_weight, *bias = args->grad_bias;
    float sum_weight = 0, sum_bias = 0;

    for (unsigned r = 0; r < rows; r++) {
        size_t at = (row + r) * args->C + c;

        sum_bias += grad[at];
        sum_weight += grad[at] * ((in[at] - args->mean[row + r]) * args->rstd[row + r]);
    }
    weight[c] += sum_weight;
    bias[c] += sum_bias;
}

static void grad_strips(void *context, uint64_t begin, uint64_t end)
{
    const struct chunk *chunk = context;
    const struct mics_op_layernorm_grad *args = chunk->args;
    uint64_t stop = mics_min_u64(end * STRIP, args->C), row = chunk->first;

    for (; row < chunk->first + chunk->rows; row += ROWS) {
        unsigned rows = (unsigned)mics_min_u64(chunk->first + chunk->rows - row, ROWS);
        uint64_t c = begin * STRIP;

        if (rows == ROWS)
            for (; c + MICS_LANES <= stop; c += MICS_LANES)
                add_vector(args, row, ROWS, c);
        for (; c + MICS_LANES <= stop; c += MICS_LANES)
            add_vector(args, row, rows, c);
        for (; c < stop; c++)
            add_channel(args, row, rows, c);
    }
}

void mics_host_layernorm_grad(struct mics_pool *pool, const struct mics_op_layernorm_grad *args)
{
    uint64_t strips = mics_ceil_div(args->C, STRIP), C = args->C;
    uint64_t most = mics_round_up(CHUNK_FLOATS / (C + 1) + 1, ROWS);
    struct chunk chunk = {.args = args};

    for (; chunk.first < args->rows; chunk.first += chunk.rows) {
        chunk.rows = mics_min_u64(args->rows - chunk.first, most);
        mics_pool_run(pool, chunk.rows, GRAIN_FLOATS / (C + 1) + 1, grad_rows, &chunk);
        mics_pool_run(pool, strips, strips / 16 + 1, grad_strips, &chunk);
    }
}
