/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decode.c - products of few rows, attention over keys and values of earlier tokens.
 *
 * A token's products read every parameter once, for 2 flops each: memory decides. So a row of the
 * matrix, which lies together in memory, is read once and multiplied by all rows while it is in the
 * first cache.
 */
#include "host/decode.h"

#include "host/kernels.h"
#include "host/vector.h"
#include "host/vmath.h"

#include <assert.h>
#include <math.h>

#define PIECE_FLOATS (64 * 1024) /* of a matrix: 256 KiB, some twenty microseconds */
#define ROW_BLOCK    4           /* rows whose sums are held in registers at a time */

/* Element [row, column] of the product, with what is added to it. */
static void store_sum(const struct mics_args_matmul *args, uint32_t row, uint32_t column, float sum)
{
    const size_t at = (size_t)row * args->ldout + column;

    if (args->bias)
        sum += ((const float *)args->bias)[column];
    if (args->add)
        sum += ((const float *)args->add)[at];
    ((float *)args->out)[at] = sum;
}

/* `rows` rows of a from `row` on (a constant where this is used) by one row of b. */
MICS_TYPED void dot_rows(const struct mics_args_matmul *args, uint32_t row, uint32_t column,
                         const unsigned rows)
{
    const float *b = (const float *)args->b + (size_t)column * args->ldb;
    const float *a = (const float *)args->a + (size_t)row * args->lda;
    mics_vf sum[ROW_BLOCK][2] = {0};
    uint32_t k = 0;

    for (; k + 2 * MICS_LANES <= args->k; k += 2 * MICS_LANES)
        for (unsigned half = 0; half < 2; half++) {
            const mics_vf of_b = mics_vload(b + k + half * MICS_LANES);

            for (unsigned r = 0; r < rows; r++)
                sum[r][half] += mics_vload(a + r * args->lda + k + half * MICS_LANES) * of_b;
        }
    for (; k < args->k; k += MICS_LANES) {
        const unsigned left = args->k - k < MICS_LANES ? args->k - k : MICS_LANES;
        const mics_vf of_b = mics_vload_part(b + k, left);

        for (unsigned r = 0; r < rows; r++)
            sum[r][0] += mics_vload_part(a + r * args->lda + k, left) * of_b;
    }
    for (unsigned r = 0; r < rows; r++)
        store_sum(args, row + r, column, mics_vsum(sum[r][0] + sum[r][1]));
}

static void skinny_matmul_piece(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_matmul *args = context;

    for (uint32_t column = (uint32_t)begin; column < end; column++) {
        uint32_t row = 0;

        for (; row + ROW_BLOCK <= args->m; row += ROW_BLOCK)
            dot_rows(args, row, column, ROW_BLOCK);
        for (; row < args->m; row++)
            dot_rows(args, row, column, 1);
    }
}

void mics_host_skinny_matmul(struct mics_pool *pool, const struct mics_args_matmul *args)
{
    assert(args->m <= MICS_SKINNY_ROWS && args->trans_b && !args->trans_a);
    assert(args->dtype == MICS_F32 && args->out_dtype == MICS_F32);
    assert(!args->pre_gelu && !args->gelu_of);
    if (args->m > 0 && args->n > 0)
        mics_pool_run(pool, args->n, PIECE_FLOATS / (args->k + 1) + 1, skinny_matmul_piece,
                      (void *)args);
}

/*
 * Attention of one query of one head: keys in blocks, as in attention.c. 4 D flops per key; keys
 * and values are read once for each query head.
 */

#define KEYS 128 /* of a block */

struct query {
    const float *at;            /* [D] */
    const float *keys, *values; /* [length, ld], of this head */
    size_t ld;
    uint32_t D;
    float scale;
    float out[MICS_HEAD_MAX];
    float scores[KEYS];
    float max, sum;
};

static float dot(const float *a, const float *b, uint32_t count)
{
    mics_vf sum = {0};
    float rest = 0;
    uint32_t i = 0;

    for (; i + MICS_LANES <= count; i += MICS_LANES)
        sum += mics_vload(a + i) * mics_vload(b + i);
    for (; i < count; i++)
        rest += a[i] * b[i];
    return rest + mics_vsum(sum);
}

/* Scores of keys [first, first + count), as exponentials relative to the maximum so far; the sum
 * and the output are rescaled to that maximum. */
static void score_block(struct query *query, uint32_t first, uint32_t count)
{
    const float *keys = query->keys + (size_t)first * query->ld;
    mics_vf total = {0};
    float max = query->max;

    for (uint32_t i = 0; i < count; i++) {
        query->scores[i] = query->scale * dot(query->at, keys + i * query->ld, query->D);
        max = fmaxf(max, query->scores[i]);
    }
    for (uint32_t i = count; i < KEYS; i++)
        query->scores[i] = -INFINITY;
    for (uint32_t i = 0; i < count; i += MICS_LANES) {
        const mics_vf weight = mics_vexp(mics_vload(query->scores + i) - max);

        mics_vstore(query->scores + i, weight);
        total += weight;
    }
    const float rescale = expf(query->max - max);

    query->max = max;
    query->sum = query->sum * rescale + mics_vsum(total);
    for (uint32_t d = 0; d < query->D; d++)
        query->out[d] *= rescale;
}

/* out += the values of keys [first, first + count), weighted; four vectors of channels at a
 * time. */
static void add_values(struct query *query, uint32_t first, uint32_t count)
{
    const float *values = query->values + (size_t)first * query->ld;
    uint32_t d = 0;

    for (; d + 4 * MICS_LANES <= query->D; d += 4 * MICS_LANES) {
        mics_vf sum[4];

        for (unsigned v = 0; v < 4; v++)
            sum[v] = mics_vload(query->out + d + v * MICS_LANES);
        for (uint32_t i = 0; i < count; i++)
            for (unsigned v = 0; v < 4; v++)
                sum[v] +=
                    query->scores[i] * mics_vload(values + i * query->ld + d + v * MICS_LANES);
        for (unsigned v = 0; v < 4; v++)
            mics_vstore(query->out + d + v * MICS_LANES, sum[v]);
    }
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t rest = d; rest < query->D; rest++)
            query->out[rest] += query->scores[i] * values[i * query->ld + rest];
}

static void attend(const struct mics_kv_cache_attention *args, uint32_t row, uint32_t head)
{
    const struct mics_kv_cache_rows *cached = &args->cached[row];
    const uint32_t D = args->D, group = args->H / args->H_kv;
    const size_t width = ((size_t)args->H + 2 * (size_t)args->H_kv) * D;
    const size_t key = (size_t)(head / group) * D;
    struct query query = {
        .at = args->qkv + row * width + (size_t)head * D,
        .keys = cached->keys + key,
        .values = cached->values + key,
        .ld = (size_t)args->H_kv * D,
        .D = D,
        .scale = 1.0f / sqrtf((float)D),
        .max = -INFINITY,
    };
    float *out = args->out + ((size_t)row * args->H + head) * D;

    for (uint32_t first = 0; first < cached->length; first += KEYS) {
        const uint32_t count = (uint32_t)mics_min_u64(cached->length - first, KEYS);

        score_block(&query, first, count);
        add_values(&query, first, count);
    }
    for (uint32_t d = 0; d < D; d++)
        out[d] = query.out[d] / query.sum;
}

static void attend_piece(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_kv_cache_attention *args = context;

    for (uint64_t i = begin; i < end; i++)
        attend(args, (uint32_t)(i / args->H), (uint32_t)(i % args->H));
}

void mics_host_kv_cache_attention(struct mics_pool *pool,
                                  const struct mics_kv_cache_attention *args)
{
    uint64_t keys = 0;

    assert(args->D <= MICS_HEAD_MAX);
    for (uint32_t i = 0; i < args->rows; i++)
        keys += args->cached[i].length;
    if (args->rows > 0)
        mics_pool_run(pool, (uint64_t)args->rows * args->H,
                      PIECE_FLOATS / (2 * keys / args->rows * args->D + 1) + 1, attend_piece,
                      (void *)args);
}
