/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_grad.c - gradients of norms, and of biases: sums over the rows of a tensor.
 *
 * Every sum has an order that does not depend on the number of threads.
 */
#include "host/kernels.h"
#include "host/pool.h"
#include "host/vector.h"

#define GRAIN_FLOATS (32 * 1024) /* of a piece of rows */

/*
 * The gradient of a bias: the sum of each column.
 *
 * A thread owns a range of columns and goes down the rows eight at a time: eight streams for the
 * prefetchers, and one load and store of the sums for all eight. A column's order of summation
 * depends on the number of rows only. 4 bytes (2 in bf16) and 1 flop per element.
 */

#define BIAS_STRIP 64   /* columns that are not shared between threads */
#define BIAS_ROWS  8    /* added at a time */
#define BIAS_WIDE  1024 /* columns whose sums are held at a time */

/* Rows `at`, `at` + n, ... of one column or vector of them, as the sum of BIAS_ROWS in pairs. */
#define IN_PAIRS(load, from, at, n, dtype)                                                         \
    (((load(from, at, dtype) + load(from, (at) + (n), dtype)) +                                    \
      (load(from, (at) + 2 * (n), dtype) + load(from, (at) + 3 * (n), dtype))) +                   \
     ((load(from, (at) + 4 * (n), dtype) + load(from, (at) + 5 * (n), dtype)) +                    \
      (load(from, (at) + 6 * (n), dtype) + load(from, (at) + 7 * (n), dtype))))

/* sum[c] += the sum of BIAS_ROWS rows, from element `at` of `from` on. */
MICS_TYPED void bias_add_rows(float *sum, const void *from, size_t at, size_t n, uint64_t columns,
                              const enum mics_dtype dtype)
{
    uint64_t c = 0;

    for (; c + MICS_LANES <= columns; c += MICS_LANES)
        mics_vstore(sum + c, mics_vload(sum + c) + IN_PAIRS(mics_vload_as, from, at + c, n, dtype));
    for (; c < columns; c++)
        sum[c] += IN_PAIRS(mics_load_as, from, at + c, n, dtype);
}

/* sum[columns] += columns [first, first + columns) of all rows. */
MICS_TYPED void bias_add_columns(const struct mics_args_bias_grad *args, float *sum, uint64_t first,
                                 uint64_t columns, const enum mics_dtype dtype)
{
    size_t at = first;
    uint32_t row = 0;

    for (; row + BIAS_ROWS <= args->rows; row += BIAS_ROWS, at += BIAS_ROWS * (size_t)args->n)
        bias_add_rows(sum, args->grad_out, at, args->n, columns, dtype);
    for (; row < args->rows; row++, at += args->n)
        for (uint64_t c = 0; c < columns; c++)
            sum[c] += mics_load_as(args->grad_out, at + c, dtype);
}

MICS_TYPED void bias_columns(const struct mics_args_bias_grad *args, uint64_t first,
                             uint64_t columns, const enum mics_dtype grad_dtype)
{
    float sum[BIAS_WIDE];

    for (uint64_t c = 0; c < columns; c++)
        sum[c] = mics_load_as(args->grad_bias, first + c, grad_dtype);
    if (args->dtype == MICS_BF16)
        bias_add_columns(args, sum, first, columns, MICS_BF16);
    else if (args->dtype == MICS_F16)
        bias_add_columns(args, sum, first, columns, MICS_F16);
    else
        bias_add_columns(args, sum, first, columns, MICS_F32);
    for (uint64_t c = 0; c < columns; c++)
        mics_store_as(args->grad_bias, first + c, sum[c], grad_dtype);
}

static void bias_strips(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_bias_grad *args = context;
    const uint64_t stop = mics_min_u64(end * BIAS_STRIP, args->n);

    for (uint64_t first = begin * BIAS_STRIP; first < stop; first += BIAS_WIDE) {
        const uint64_t columns = mics_min_u64(stop - first, BIAS_WIDE);

        if (args->grad_dtype == MICS_BF16)
            bias_columns(args, first, columns, MICS_BF16);
        else if (args->grad_dtype == MICS_F16)
            bias_columns(args, first, columns, MICS_F16);
        else
            bias_columns(args, first, columns, MICS_F32);
    }
}

void mics_host_bias_grad(struct mics_pool *pool, const struct mics_args_bias_grad *args)
{
    uint64_t strips = mics_ceil_div(args->n, BIAS_STRIP);

    mics_pool_run(pool, strips, strips / 16 + 1, bias_strips, (void *)args);
}

/*
 * The gradients of layer normalisation.
 *
 * A chunk of rows is read twice, the second time from the cache: by rows for grad_in, then by
 * ranges of channels for grad_weight and grad_bias, four rows at a time. A channel's order of
 * summation depends on the number of rows only. Sums that are stored in bf16 are over all rows, in
 * one chunk, so that they are rounded once. 16 bytes (8 in bf16) and about 20 flops per element.
 */

#define CHUNK_FLOATS    (256 * 1024) /* of a chunk of rows: 1 MiB of each array */
#define LAYERNORM_STRIP 64           /* channels that are not shared between threads */
#define LAYERNORM_WIDE  512          /* channels whose sums are held at a time */
#define LAYERNORM_ROWS  4            /* added at a time; a chunk has a multiple of them */

struct chunk {
    const struct mics_args_layernorm_grad *args;
    uint64_t first, rows;
};

/* The means over a row of w g and of w g x', where x' is the normalised input. */
MICS_TYPED void layernorm_row_means(const struct mics_args_layernorm_grad *args, uint64_t row,
                                    float *mean_g, float *mean_gx, const enum mics_dtype dtype)
{
    const uint64_t at = row * args->C;
    const void *in = args->in, *grad = args->grad_out, *weight = args->weight;
    float mean = args->mean[row], rstd = args->rstd[row], sum_g = 0, sum_gx = 0;
    mics_vf g[2] = {{0}}, gx[2] = {{0}};
    uint32_t c = 0;

    for (; c + 2 * MICS_LANES <= args->C; c += 2 * MICS_LANES)
        for (unsigned v = 0; v < 2; v++) {
            uint32_t i = c + v * MICS_LANES;
            mics_vf one = mics_vload_as(grad, at + i, dtype) * mics_vload_as(weight, i, dtype);

            g[v] += one;
            gx[v] += one * ((mics_vload_as(in, at + i, dtype) - mean) * rstd);
        }
    for (; c < args->C; c++) {
        float one = mics_load_as(grad, at + c, dtype) * mics_load_as(weight, c, dtype);

        sum_g += one;
        sum_gx += one * ((mics_load_as(in, at + c, dtype) - mean) * rstd);
    }
    *mean_g = (sum_g + mics_vsum(g[0] + g[1])) / (float)args->C;
    *mean_gx = (sum_gx + mics_vsum(gx[0] + gx[1])) / (float)args->C;
}

/* grad_in += rstd (w g - mean(w g) - x' mean(w g x')) */
MICS_TYPED void layernorm_grad_row(const struct mics_args_layernorm_grad *args, uint64_t row,
                                   const enum mics_dtype dtype)
{
    const void *weight = args->weight, *in = mics_element(args->in, row * args->C, dtype);
    const void *grad = mics_element(args->grad_out, row * args->C, dtype);
    void *to = mics_element(args->grad_in, row * args->C, dtype);
    float mean = args->mean[row], rstd = args->rstd[row], mean_g, mean_gx;
    uint32_t c = 0;

    layernorm_row_means(args, row, &mean_g, &mean_gx, dtype);
    for (; c + MICS_LANES <= args->C; c += MICS_LANES) {
        mics_vf x = (mics_vload_as(in, c, dtype) - mean) * rstd;
        mics_vf g = mics_vload_as(grad, c, dtype) * mics_vload_as(weight, c, dtype);

        mics_vstore_as(to, c, mics_vload_as(to, c, dtype) + rstd * (g - mean_g - x * mean_gx),
                       dtype);
    }
    for (; c < args->C; c++) {
        float x = (mics_load_as(in, c, dtype) - mean) * rstd;
        float g = mics_load_as(grad, c, dtype) * mics_load_as(weight, c, dtype);

        mics_store_as(to, c, mics_load_as(to, c, dtype) + rstd * (g - mean_g - x * mean_gx), dtype);
    }
}

static void layernorm_grad_rows(void *context, uint64_t begin, uint64_t end)
{
    const struct chunk *chunk = context;

    for (uint64_t row = chunk->first + begin; row < chunk->first + end; row++) {
        if (chunk->args->dtype == MICS_BF16)
            layernorm_grad_row(chunk->args, row, MICS_BF16);
        else if (chunk->args->dtype == MICS_F16)
            layernorm_grad_row(chunk->args, row, MICS_F16);
        else
            layernorm_grad_row(chunk->args, row, MICS_F32);
    }
}

/* The sums of a range of channels, from channel `first` on. */
struct channel_sums {
    float weight[LAYERNORM_WIDE], bias[LAYERNORM_WIDE];
    uint64_t first, count;
};

/* One vector of channels of up to LAYERNORM_ROWS rows. */
MICS_TYPED void layernorm_add_vector(const struct mics_args_layernorm_grad *args,
                                     struct channel_sums *sums, uint64_t row, unsigned rows,
                                     uint64_t c, const enum mics_dtype dtype)
{
    mics_vf sum_weight = {0}, sum_bias = {0};

    for (unsigned r = 0; r < rows; r++) {
        const uint64_t at = (row + r) * args->C + sums->first + c;
        const mics_vf g = mics_vload_as(args->grad_out, at, dtype);

        sum_bias += g;
        sum_weight +=
            g * ((mics_vload_as(args->in, at, dtype) - args->mean[row + r]) * args->rstd[row + r]);
    }
    mics_vstore(sums->weight + c, mics_vload(sums->weight + c) + sum_weight);
    mics_vstore(sums->bias + c, mics_vload(sums->bias + c) + sum_bias);
}

/* One channel of up to LAYERNORM_ROWS rows, in the same order. */
MICS_TYPED void layernorm_add_channel(const struct mics_args_layernorm_grad *args,
                                      struct channel_sums *sums, uint64_t row, unsigned rows,
                                      uint64_t c, const enum mics_dtype dtype)
{
    float sum_weight = 0, sum_bias = 0;

    for (unsigned r = 0; r < rows; r++) {
        const uint64_t at = (row + r) * args->C + sums->first + c;
        const float g = mics_load_as(args->grad_out, at, dtype);

        sum_bias += g;
        sum_weight +=
            g * ((mics_load_as(args->in, at, dtype) - args->mean[row + r]) * args->rstd[row + r]);
    }
    sums->weight[c] += sum_weight;
    sums->bias[c] += sum_bias;
}

MICS_TYPED void layernorm_add_chunk(const struct chunk *chunk, struct channel_sums *sums,
                                    const enum mics_dtype dtype)
{
    const struct mics_args_layernorm_grad *args = chunk->args;
    const uint64_t stop = chunk->first + chunk->rows;

    for (uint64_t row = chunk->first; row < stop; row += LAYERNORM_ROWS) {
        const unsigned rows = (unsigned)mics_min_u64(stop - row, LAYERNORM_ROWS);
        uint64_t c = 0;

        if (rows == LAYERNORM_ROWS)
            for (; c + MICS_LANES <= sums->count; c += MICS_LANES)
                layernorm_add_vector(args, sums, row, LAYERNORM_ROWS, c, dtype);
        for (; c + MICS_LANES <= sums->count; c += MICS_LANES)
            layernorm_add_vector(args, sums, row, rows, c, dtype);
        for (; c < sums->count; c++)
            layernorm_add_channel(args, sums, row, rows, c, dtype);
    }
}

MICS_TYPED void layernorm_add_channels(const struct chunk *chunk, struct channel_sums *sums,
                                       const enum mics_dtype grad_dtype)
{
    const struct mics_args_layernorm_grad *args = chunk->args;

    for (uint64_t c = 0; c < sums->count; c++) {
        sums->weight[c] = mics_load_as(args->grad_weight, sums->first + c, grad_dtype);
        sums->bias[c] = mics_load_as(args->grad_bias, sums->first + c, grad_dtype);
    }
    if (args->dtype == MICS_BF16)
        layernorm_add_chunk(chunk, sums, MICS_BF16);
    else if (args->dtype == MICS_F16)
        layernorm_add_chunk(chunk, sums, MICS_F16);
    else
        layernorm_add_chunk(chunk, sums, MICS_F32);
    for (uint64_t c = 0; c < sums->count; c++) {
        mics_store_as(args->grad_weight, sums->first + c, sums->weight[c], grad_dtype);
        mics_store_as(args->grad_bias, sums->first + c, sums->bias[c], grad_dtype);
    }
}

static void layernorm_grad_strips(void *context, uint64_t begin, uint64_t end)
{
    const struct chunk *chunk = context;
    const uint64_t stop = mics_min_u64(end * LAYERNORM_STRIP, chunk->args->C);
    struct channel_sums sums;

    for (sums.first = begin * LAYERNORM_STRIP; sums.first < stop; sums.first += LAYERNORM_WIDE) {
        sums.count = mics_min_u64(stop - sums.first, LAYERNORM_WIDE);
        if (chunk->args->grad_dtype == MICS_BF16)
            layernorm_add_channels(chunk, &sums, MICS_BF16);
        else if (chunk->args->grad_dtype == MICS_F16)
            layernorm_add_channels(chunk, &sums, MICS_F16);
        else
            layernorm_add_channels(chunk, &sums, MICS_F32);
    }
}

void mics_host_layernorm_grad(struct mics_pool *pool, const struct mics_args_layernorm_grad *args)
{
    uint64_t strips = mics_ceil_div(args->C, LAYERNORM_STRIP), C = args->C;
    uint64_t most = mics_round_up(CHUNK_FLOATS / (C + 1) + 1, LAYERNORM_ROWS);
    struct chunk chunk = {.args = args};

    if (mics_dtype_is_half(args->grad_dtype))
        most = args->rows;
    for (; chunk.first < args->rows; chunk.first += chunk.rows) {
        chunk.rows = mics_min_u64(args->rows - chunk.first, most);
        mics_pool_run(pool, chunk.rows, GRAIN_FLOATS / (C + 1) + 1, layernorm_grad_rows, &chunk);
        mics_pool_run(pool, strips, strips / 16 + 1, layernorm_grad_strips, &chunk);
    }
}

/*
 * The gradients of root mean square normalisation. With x' = in * rstd and g = weight * grad_out:
 *     grad_in     += rstd (g - x' mean(g x'))
 *     grad_weight += column sums of grad_out * x'
 *
 * The rows are read twice: each by itself for grad_in, then in strips of channels for grad_weight,
 * whose sums over all rows stay in registers, so that a bf16 gradient is rounded once. A channel's
 * sum is taken in the order of the rows. 24 bytes and about 12 flops per element in fp32.
 */

#define RMSNORM_VECTORS 4 /* side by side in a strip */
#define RMSNORM_STRIP   (RMSNORM_VECTORS * MICS_LANES)

/* The mean over a row of g x'. */
MICS_TYPED float rmsnorm_row_mean(const void *in, const void *grad, const void *weight, uint32_t C,
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

MICS_TYPED void rmsnorm_grad_row(const struct mics_args_rmsnorm_grad *args, uint64_t row,
                                 const enum mics_dtype dtype)
{
    const uint64_t at = row * args->C;
    const void *in = mics_element(args->in, at, dtype),
               *grad = mics_element(args->grad_out, at, dtype);
    const void *weight = args->weight;
    void *to = mics_element(args->grad_in, at, dtype);
    const float rstd = args->rstd[row];
    const float along = rmsnorm_row_mean(in, grad, weight, args->C, rstd, dtype) * rstd;
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

static void rmsnorm_grad_rows(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_rmsnorm_grad *args = context;

    for (uint64_t row = begin; row < end; row++) {
        if (args->dtype == MICS_BF16)
            rmsnorm_grad_row(args, row, MICS_BF16);
        else if (args->dtype == MICS_F16)
            rmsnorm_grad_row(args, row, MICS_F16);
        else
            rmsnorm_grad_row(args, row, MICS_F32);
    }
}

/* Sums over all rows of whole vectors from channel c on. */
MICS_TYPED void rmsnorm_sum_vectors(const struct mics_args_rmsnorm_grad *args, uint64_t c,
                                    const unsigned vectors, mics_vf *sum,
                                    const enum mics_dtype dtype)
{
    for (uint64_t row = 0; row < args->rows; row++)
        for (unsigned v = 0; v < vectors; v++) {
            const uint64_t at = row * args->C + c + v * MICS_LANES;

            sum[v] += mics_vload_as(args->grad_out, at, dtype) *
                      (mics_vload_as(args->in, at, dtype) * args->rstd[row]);
        }
}

/* The sums of one strip, in order, of which the last may be short. */
MICS_TYPED void rmsnorm_sum_strip(const struct mics_args_rmsnorm_grad *args, uint64_t c,
                                  uint64_t stop, float *sums, const enum mics_dtype dtype)
{
    const uint64_t first = c;
    mics_vf sum[RMSNORM_VECTORS] = {{0}};

    if (c + RMSNORM_STRIP <= stop) {
        rmsnorm_sum_vectors(args, c, RMSNORM_VECTORS, sum, dtype);
        for (unsigned v = 0; v < RMSNORM_VECTORS; v++)
            mics_vstore(sums + v * MICS_LANES, sum[v]);
        return;
    }
    for (; c + MICS_LANES <= stop; c += MICS_LANES) {
        sum[0] = (mics_vf){0};
        rmsnorm_sum_vectors(args, c, 1, sum, dtype);
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

static void rmsnorm_grad_strips(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_rmsnorm_grad *args = context;
    float sums[RMSNORM_STRIP];

    for (uint64_t c = begin * RMSNORM_STRIP; c < mics_min_u64(end * RMSNORM_STRIP, args->C);
         c += RMSNORM_STRIP) {
        const uint64_t stop = mics_min_u64(c + RMSNORM_STRIP, args->C);

        if (args->dtype == MICS_BF16)
            rmsnorm_sum_strip(args, c, stop, sums, MICS_BF16);
        else if (args->dtype == MICS_F16)
            rmsnorm_sum_strip(args, c, stop, sums, MICS_F16);
        else
            rmsnorm_sum_strip(args, c, stop, sums, MICS_F32);
        for (uint64_t i = c; i < stop; i++)
            mics_store_as(args->grad_weight, i,
                          mics_load_as(args->grad_weight, i, args->grad_dtype) + sums[i - c],
                          args->grad_dtype);
    }
}

void mics_host_rmsnorm_grad(struct mics_pool *pool, const struct mics_args_rmsnorm_grad *args)
{
    mics_pool_run(pool, args->rows, GRAIN_FLOATS / ((uint64_t)args->C + 1) + 1, rmsnorm_grad_rows,
                  (void *)args);
    mics_pool_run(pool, mics_ceil_div(args->C, RMSNORM_STRIP), 1, rmsnorm_grad_strips,
                  (void *)args);
}
