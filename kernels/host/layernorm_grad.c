/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layernorm_grad.c - the gradients of layer normalisation.
 *
 * A chunk of rows is walked twice, the second time from the cache: by rows for grad_in, then by ranges of
 * channels for grad_weight and grad_bias, four rows at a time. A channel's order of summation depends on
 * the number of rows only. Sums that are stored in bf16 are of all rows, in one chunk, so that they are
 * rounded once. 16 bytes (8 in bf16) and about 20 flops per element.
 */
#include "host/bf16.h"
#include "host/flat.h"
#include "host/kernels.h"

#define CHUNK_FLOATS (256 * 1024) /* of a chunk of rows: 1 MiB of each array */
#define GRAIN_FLOATS (32 * 1024)  /* of a piece of rows */
#define STRIP        64           /* channels that are not shared between threads */
#define WIDE         512          /* channels whose sums are held at a time */
#define ROWS         4            /* added at a time; a chunk has a multiple of them */

struct chunk {
    const struct mics_op_layernorm_grad *args;
    uint64_t first, rows;
};

/* The means over a row of w g and of w g x', where x' is the normalised input. */
MICS_TYPED void row_means(const struct mics_op_layernorm_grad *args, uint64_t row, float *mean_g,
                          float *mean_gx, const enum mics_dtype type)
{
    const uint64_t at = row * args->C;
    const void *in = args->in, *grad = args->grad_out, *weight = args->weight;
    float mean = args->mean[row], rstd = args->rstd[row], sum_g = 0, sum_gx = 0;
    mics_vf g[2] = {{0}}, gx[2] = {{0}};
    uint32_t c = 0;

    for (; c + 2 * MICS_LANES <= args->C; c += 2 * MICS_LANES)
        for (unsigned v = 0; v < 2; v++) {
            uint32_t i = c + v * MICS_LANES;
            mics_vf one = mics_vload_as(grad, at + i, type) * mics_vload_as(weight, i, type);

            g[v] += one;
            gx[v] += one * ((mics_vload_as(in, at + i, type) - mean) * rstd);
        }
    for (; c < args->C; c++) {
        float one = mics_load_as(grad, at + c, type) * mics_load_as(weight, c, type);

        sum_g += one;
        sum_gx += one * ((mics_load_as(in, at + c, type) - mean) * rstd);
    }
    *mean_g = (sum_g + mics_vsum(g[0] + g[1])) / (float)args->C;
    *mean_gx = (sum_gx + mics_vsum(gx[0] + gx[1])) / (float)args->C;
}

/* grad_in += rstd (w g - mean(w g) - x' mean(w g x')) */
MICS_TYPED void grad_row(const struct mics_op_layernorm_grad *args, uint64_t row,
                         const enum mics_dtype type)
{
    const void *weight = args->weight, *in = mics_at(args->in, row * args->C, type);
    const void *grad = mics_at(args->grad_out, row * args->C, type);
    void *to = mics_at(args->grad_in, row * args->C, type);
    float mean = args->mean[row], rstd = args->rstd[row], mean_g, mean_gx;
    uint32_t c = 0;

    row_means(args, row, &mean_g, &mean_gx, type);
    for (; c + MICS_LANES <= args->C; c += MICS_LANES) {
        mics_vf x = (mics_vload_as(in, c, type) - mean) * rstd;
        mics_vf g = mics_vload_as(grad, c, type) * mics_vload_as(weight, c, type);

        mics_vstore_as(to, c, mics_vload_as(to, c, type) + rstd * (g - mean_g - x * mean_gx), type);
    }
    for (; c < args->C; c++) {
        float x = (mics_load_as(in, c, type) - mean) * rstd;
        float g = mics_load_as(grad, c, type) * mics_load_as(weight, c, type);

        mics_store_as(to, c, mics_load_as(to, c, type) + rstd * (g - mean_g - x * mean_gx), type);
    }
}

static void grad_rows(void *context, uint64_t begin, uint64_t end)
{
    const struct chunk *chunk = context;

    for (uint64_t row = chunk->first + begin; row < chunk->first + end; row++) {
        if (chunk->args->dtype == MICS_BF16)
            grad_row(chunk->args, row, MICS_BF16);
        else
            grad_row(chunk->args, row, MICS_F32);
    }
}

/* The sums of a range of channels, from channel `first` on. */
struct sums {
    float weight[WIDE], bias[WIDE];
    uint64_t first, count;
};

/* One vector of channels of up to ROWS rows. */
MICS_TYPED void add_vector(const struct mics_op_layernorm_grad *args, struct sums *sums,
                           uint64_t row, unsigned rows, uint64_t c, const enum mics_dtype type)
{
    mics_vf sum_weight = {0}, sum_bias = {0};

    for (unsigned r = 0; r < rows; r++) {
        const uint64_t at = (row + r) * args->C + sums->first + c;
        const mics_vf g = mics_vload_as(args->grad_out, at, type);

        sum_bias += g;
        sum_weight +=
            g * ((mics_vload_as(args->in, at, type) - args->mean[row + r]) * args->rstd[row + r]);
    }
    mics_vstore(sums->weight + c, mics_vload(sums->weight + c) + sum_weight);
    mics_vstore(sums->bias + c, mics_vload(sums->bias + c) + sum_bias);
}

/* One channel of up to ROWS rows, in the same order. */
MICS_TYPED void add_channel(const struct mics_op_layernorm_grad *args, struct sums *sums,
                            uint64_t row, unsigned rows, uint64_t c, const enum mics_dtype type)
{
    float sum_weight = 0, sum_bias = 0;

    for (unsigned r = 0; r < rows; r++) {
        const uint64_t at = (row + r) * args->C + sums->first + c;
        const float g = mics_load_as(args->grad_out, at, type);

        sum_bias += g;
        sum_weight +=
            g * ((mics_load_as(args->in, at, type) - args->mean[row + r]) * args->rstd[row + r]);
    }
    sums->weight[c] += sum_weight;
    sums->bias[c] += sum_bias;
}

MICS_TYPED void add_chunk(const struct chunk *chunk, struct sums *sums, const enum mics_dtype type)
{
    const struct mics_op_layernorm_grad *args = chunk->args;
    const uint64_t stop = chunk->first + chunk->rows;

    for (uint64_t row = chunk->first; row < stop; row += ROWS) {
        const unsigned rows = (unsigned)mics_min_u64(stop - row, ROWS);
        uint64_t c = 0;

        if (rows == ROWS)
            for (; c + MICS_LANES <= sums->count; c += MICS_LANES)
                add_vector(args, sums, row, ROWS, c, type);
        for (; c + MICS_LANES <= sums->count; c += MICS_LANES)
            add_vector(args, sums, row, rows, c, type);
        for (; c < sums->count; c++)
            add_channel(args, sums, row, rows, c, type);
    }
}

MICS_TYPED void add_channels(const struct chunk *chunk, struct sums *sums,
                             const enum mics_dtype grad_type)
{
    const struct mics_op_layernorm_grad *args = chunk->args;

    for (uint64_t c = 0; c < sums->count; c++) {
        sums->weight[c] = mics_load_as(args->grad_weight, sums->first + c, grad_type);
        sums->bias[c] = mics_load_as(args->grad_bias, sums->first + c, grad_type);
    }
    if (args->dtype == MICS_BF16)
        add_chunk(chunk, sums, MICS_BF16);
    else
        add_chunk(chunk, sums, MICS_F32);
    for (uint64_t c = 0; c < sums->count; c++) {
        mics_store_as(args->grad_weight, sums->first + c, sums->weight[c], grad_type);
        mics_store_as(args->grad_bias, sums->first + c, sums->bias[c], grad_type);
    }
}

static void grad_strips(void *context, uint64_t begin, uint64_t end)
{
    const struct chunk *chunk = context;
    const uint64_t stop = mics_min_u64(end * STRIP, chunk->args->C);
    struct sums sums;

    for (sums.first = begin * STRIP; sums.first < stop; sums.first += WIDE) {
        sums.count = mics_min_u64(stop - sums.first, WIDE);
        if (chunk->args->grad_dtype == MICS_BF16)
            add_channels(chunk, &sums, MICS_BF16);
        else
            add_channels(chunk, &sums, MICS_F32);
    }
}

void mics_host_layernorm_grad(struct mics_pool *pool, const struct mics_op_layernorm_grad *args)
{
    uint64_t strips = mics_ceil_div(args->C, STRIP), C = args->C;
    uint64_t most = mics_round_up(CHUNK_FLOATS / (C + 1) + 1, ROWS);
    struct chunk chunk = {.args = args};

    if (args->grad_dtype == MICS_BF16)
        most = args->rows;
    for (; chunk.first < args->rows; chunk.first += chunk.rows) {
        chunk.rows = mics_min_u64(args->rows - chunk.first, most);
        mics_pool_run(pool, chunk.rows, GRAIN_FLOATS / (C + 1) + 1, grad_rows, &chunk);
        mics_pool_run(pool, strips, strips / 16 + 1, grad_strips, &chunk);
    }
}
