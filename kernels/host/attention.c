/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention.c - softmax(q k' / sqrt(D)) v for each head, in blocks (Dao et al., FlashAttention, 2022).
 *
 * A block of queries walks the blocks of keys that it may see, keeping for each query the largest
 * score so far, the sum of the exponentials relative to it, and the output so far, rescaled when
 * the maximum grows. 4 T T D flops a head, half of that when causal; nothing of size T x T is stored.
 * Blocks of queries are independent and computed by one thread each.
 */
#include "host/flat.h"
#include "host/heads.h"
#include "host/tile.h"
#include "host/vmath.h"

#include <assert.h>

#define BLOCK   MICS_HEAD_BLOCK
#define VECTORS MICS_HEAD_VECTORS

/* The state of one block of queries. */
struct block {
    float query[MICS_HOST_HEAD_MAX * BLOCK]; /* [D][query], scaled */
    float out[MICS_HOST_HEAD_MAX * BLOCK];   /* [D][query] */
    float scores[BLOCK * BLOCK];             /* [key][query], then their exponentials */
    float max[BLOCK], sum[BLOCK];            /* [query] */
    float wide[2]
              [BLOCK * MICS_HOST_HEAD_MAX]; /* keys and values in bf16; before them the queries */
};

/* Exponentials of the scores of a column of vectors, in place; the maximum and the sum of its queries
 * are brought up to date. Returns what the earlier sums and outputs are to be multiplied by. */
static mics_vf soften(struct block *block, unsigned v, uint32_t keys)
{
    float *scores = block->scores + v * MICS_LANES;
    mics_vf old = mics_vload(block->max + v * MICS_LANES), max = old, sum = {0}, rescale;

    for (uint32_t j = 0; j < keys; j++)
        max = mics_vmax(mics_vload(scores + j * BLOCK), max);
    for (uint32_t j = 0; j < keys; j++) {
        mics_vf e = mics_vexp_low(mics_vload(scores + j * BLOCK) - max);

        mics_vstore(scores + j * BLOCK, e);
        sum += e;
    }
    rescale = mics_vexp_low(old - max);
    mics_vstore(block->max + v * MICS_LANES, max);
    mics_vstore(block->sum + v * MICS_LANES,
                mics_vload(block->sum + v * MICS_LANES) * rescale + sum);
    return rescale;
}

/* scores = k' q of a block of keys. */
static void score_keys(struct block *block, struct mics_rows keys, uint32_t count, uint32_t D,
                       bool diagonal)
{
    for (uint32_t from = 0, span; from < count; from += span) {
        uint32_t column = diagonal ? from : 0;

        span = mics_head_span(diagonal, count, from);
        mics_tile_product(&(struct mics_tile){
            .c = block->scores + from * BLOCK + column,
            .a = keys.at + from * keys.ld,
            .b = block->query + column,
            .row_step = keys.ld,
            .depth_step = 1,
            .ldb = BLOCK,
            .ldc = BLOCK,
            .rows = span,
            .depth = D,
            .width = BLOCK - column,
        });
    }
    if (diagonal)
        mics_head_mask(block->scores, count);
}

/* out += v' p; the first block of keys writes. */
static void add_values(struct block *block, struct mics_rows values, uint32_t count, uint32_t D,
                       bool diagonal, bool first)
{
    for (uint32_t from = 0, span; from < count; from += span) {
        uint32_t column = diagonal ? from : 0;

        span = mics_head_span(diagonal, count, from);
        mics_tile_product(&(struct mics_tile){
            .c = block->out + column,
            .a = values.at + from * values.ld,
            .b = block->scores + from * BLOCK + column,
            .row_step = 1,
            .depth_step = values.ld,
            .ldb = BLOCK,
            .ldc = BLOCK,
            .rows = D,
            .depth = span,
            .width = BLOCK - column,
            .add = !first || from > 0,
        });
    }
}

static struct mics_rows rows_at(const struct mics_head *head, size_t part, uint32_t t,
                                uint32_t rows, float *room)
{
    return mics_head_rows(head->qkv, part + t * head->ld, head->ld, rows, head->D, head->dtype,
                          room);
}

static void attend_keys(struct block *block, const struct mics_head *head, uint32_t query,
                        uint32_t key)
{
    uint32_t keys = mics_head_block_size(head->T, key);
    bool diagonal = head->causal && key == query;

    score_keys(block, rows_at(head, head->key, key, keys, block->wide[0]), keys, head->D, diagonal);
    for (unsigned v = 0; v < VECTORS; v++) {
        mics_vf rescale = soften(block, v, mics_head_seen(diagonal, keys, v));
        float *column = block->out + v * MICS_LANES;

        for (uint32_t d = 0; key > 0 && d < head->D; d++, column += BLOCK)
            mics_vstore(column, mics_vload(column) * rescale);
    }
    add_values(block, rows_at(head, head->value, key, keys, block->wide[1]), keys, head->D,
               diagonal, key == 0);
}

static void load_queries(struct block *block, const struct mics_head *head, uint32_t query,
                         uint32_t rows)
{
    mics_head_transpose_in(block->query, rows_at(head, head->query, query, rows, block->wide[0]),
                           rows, head->D, 1.0f / sqrtf((float)head->D));
}

/* Outputs, from element `first` of out on, and lse of queries [query, query + BLOCK) of a head. */
static void attend(const struct mics_head *head, uint32_t query, void *out, size_t first,
                   float *lse)
{
    struct block block;
    uint32_t rows = mics_head_block_size(head->T, query);
    uint32_t stop = head->causal ? query + rows : head->T;

    load_queries(&block, head, query, rows);
    for (unsigned i = 0; i < BLOCK; i++) {
        block.max[i] = -INFINITY;
        block.sum[i] = 0;
    }
    for (uint32_t key = 0; key < stop; key += BLOCK)
        attend_keys(&block, head, query, key);
    for (unsigned i = 0; i < rows; i++)
        lse[i] = block.max[i] + logf(block.sum[i]);
    for (unsigned i = 0; i < BLOCK; i++)
        block.sum[i] = 1.0f / block.sum[i];
    for (uint32_t d = 0; d < head->D; d++)
        for (unsigned i = 0; i < BLOCK; i++)
            block.out[d * BLOCK + i] *= block.sum[i];
    mics_head_transpose_out(out, first, head->ld_out, block.out, rows, head->D, head->dtype);
}

/* Work is counted in blocks of queries, those of a head together, the longest (the last) first. */
static void attend_blocks(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_attention *args = context;
    uint64_t blocks = mics_ceil_div(args->T, BLOCK);

    for (uint64_t i = begin; i < end; i++) {
        uint32_t b = (uint32_t)(i / blocks / args->H), h = (uint32_t)(i / blocks % args->H);
        uint32_t query = (uint32_t)(blocks - 1 - i % blocks) * BLOCK;
        struct mics_head head =
            mics_head_at(args->qkv, args->dtype, b, h, args->T, args->H, args->H_kv, args->D);

        head.causal = args->causal;
        attend(&head, query, args->out,
               ((size_t)b * args->T + query) * head.ld_out + (size_t)h * args->D,
               args->lse + ((size_t)b * args->H + h) * args->T + query);
    }
}

void mics_host_attention(struct mics_pool *pool, const struct mics_op_attention *args)
{
    uint64_t work = mics_ceil_div(args->T, BLOCK) * args->B * args->H;

    assert(args->D <= MICS_HOST_HEAD_MAX && args->H % args->H_kv == 0);
    if (work > 0)
        mics_pool_run(pool, work, 1, attend_blocks, (void *)args);
}
