/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention.c - softmax(q k' / sqrt(D)) v for each head, in blocks (Dao et al., FlashAttention,
 * 2022); nothing of size T x T is stored.
 *
 * A block of queries goes through the blocks of keys that it may see and keeps for each query the
 * largest score so far, the sum of the exponentials relative to it, and the output so far, rescaled
 * when the maximum grows. 4 T T D flops per head, half of that when causal. Blocks of
 * queries are independent; each is computed by one thread.
 */
#include "host/attention_blocks.h"
#include "host/vmath.h"

#include <assert.h>

/* The state of one block of queries. */
struct forward_block {
    _Alignas(64) float query[MICS_HOST_HEAD_MAX * BLOCK_LD]; /* [D][query], scaled, or pairs */
    float out[MICS_HOST_HEAD_MAX * BLOCK_LD];                /* [D][query] */
    float scores[BLOCK * BLOCK_LD];                          /* [key][query], exponentials */
    float keys[BLOCK * HEAD_LD], values[BLOCK * HEAD_LD];    /* [key][D] */
    float max[BLOCK], sum[BLOCK];                            /* [query] */
    struct seen seen;                                        /* by the queries */
    float scale;                                             /* of scores */
};

/* Exponentials of the scores of a column of vectors, in place; the maximum and the sum of its
 * queries are brought up to date. Returns what the earlier sums and outputs are to be multiplied
 * by. */
static mics_vf softmax_column(struct forward_block *block, unsigned v, uint32_t keys)
{
    float *scores = block->scores + v * MICS_LANES;
    const float scale = block->scale;
    mics_vf old = mics_vload(block->max + v * MICS_LANES), max = old, sum = {0}, rescale;

    for (uint32_t j = 0; j < keys; j++)
        max = mics_vmax(scale * mics_vload(scores + j * BLOCK_LD), max);
    for (uint32_t j = 0; j < keys; j++) {
        mics_vf e = mics_vexp(scale * mics_vload(scores + j * BLOCK_LD) - max);

        mics_vstore(scores + j * BLOCK_LD, e);
        sum += e;
    }
    rescale = mics_vexp(old - max);
    mics_vstore(block->max + v * MICS_LANES, max);
    mics_vstore(block->sum + v * MICS_LANES,
                mics_vload(block->sum + v * MICS_LANES) * rescale + sum);
    return rescale;
}

/* scores = k' q of a block of keys. */
static void score_keys(struct forward_block *block, const struct head *head, uint32_t count,
                       bool diagonal)
{
    for (uint32_t from = 0, span; from < count; from += span) {
        uint32_t column = diagonal ? from : 0;

        span = span_of(diagonal, count, from);
        product_of_pairs(head, &(struct mics_tile){
                                   .c = block->scores + from * BLOCK_LD + column,
                                   .a = block->keys + from * head->ld,
                                   .b = block->query + column,
                                   .row_step = head->ld,
                                   .depth_step = 1,
                                   .ldb = BLOCK_LD,
                                   .ldc = BLOCK_LD,
                                   .rows = span,
                                   .width = BLOCK - column,
                               });
    }
    if (diagonal)
        mask_diagonal(block->scores, count);
}

/* out += v' p; the first block of keys writes. */
static void add_values(struct forward_block *block, const struct head *head, uint32_t count,
                       bool diagonal, bool first)
{
    for (uint32_t from = 0, span; from < count; from += span) {
        uint32_t column = diagonal ? from : 0;

        span = span_of(diagonal, count, from);
        mics_tile_product(&(struct mics_tile){
            .c = block->out + column,
            .a = block->values + from * head->ld,
            .b = block->scores + from * BLOCK_LD + column,
            .row_step = 1,
            .depth_step = head->ld,
            .ldb = BLOCK_LD,
            .ldc = BLOCK_LD,
            .rows = head->D,
            .depth = span,
            .width = BLOCK - column,
            .add = !first || from > 0,
        });
    }
}

/* `first`: nothing has been summed yet. */
static void attend_keys(struct forward_block *block, const struct head *head, uint32_t query,
                        uint32_t key, bool first)
{
    uint32_t keys = block_size(head->T, key);
    bool diagonal = head->causal && key == query;

    if (head->pairs)
        pack_pairs(block->keys, head, head->qkv, head->key + key * head->step, head->step, keys,
                   keys);
    else
        pack_rows(block->keys, head, head->key, key, keys);
    score_keys(block, head, keys, diagonal);
    hide_unseen(block->scores, &block->seen, key, keys);
    for (unsigned v = 0; v < VECTORS; v++) {
        mics_vf rescale = softmax_column(block, v, keys_seen(diagonal, keys, v));
        float *column = block->out + v * MICS_LANES;

        for (uint32_t d = 0; !first && d < head->D; d++, column += BLOCK_LD)
            mics_vstore(column, mics_vload(column) * rescale);
    }
    pack_rows(block->values, head, head->value, key, keys);
    add_values(block, head, keys, diagonal, first);
}

/* The queries [query, query + BLOCK) of a head, of which nothing has been summed. */
static void start_block(struct forward_block *block, const struct head *head, uint32_t query)
{
    const size_t from = head->query + query * head->step;
    const uint32_t rows = block_size(head->T, query);

    block->scale = score_scale(head);
    if (head->pairs)
        pack_pairs(block->keys, head, head->qkv, from, head->step, rows, BLOCK);
    else
        pack_block(block->keys, head, head->qkv, from, head->step, rows,
                   1.0f / sqrtf((float)head->D));
    transpose_block(block->query, block->keys, head);
    find_seen(&block->seen, head, query);
    for (unsigned i = 0; i < BLOCK; i++) {
        block->max[i] = -INFINITY;
        block->sum[i] = 0;
    }
}

/* Outputs, from element `first` of out on, and lse of queries [query, query + BLOCK) of a head. */
static void attend(const struct head *head, uint32_t query, void *out, size_t first, float *lse)
{
    struct forward_block block;
    uint32_t rows = block_size(head->T, query);

    start_block(&block, head, query);
    const uint32_t start = block.seen.first[0] / BLOCK * BLOCK;
    const uint32_t stop = keys_end(head, &block.seen, query, rows);

    for (uint32_t key = start; key < stop; key += BLOCK)
        attend_keys(&block, head, query, key, key == start);
    for (unsigned i = 0; i < rows; i++)
        lse[i] = block.max[i] + logf(block.sum[i]);
    for (unsigned i = 0; i < BLOCK; i++)
        block.sum[i] = 1.0f / block.sum[i];
    for (uint32_t d = 0; d < head->D; d++)
        for (unsigned i = 0; i < BLOCK; i++)
            block.out[d * BLOCK_LD + i] *= block.sum[i];
    transpose_back(block.keys, block.out, head);
    unpack(out, head, first, head->step_out, block.keys, rows);
}

struct forward {
    const struct mics_args_attention *args;
    bool pairs;
};

/* Work items are blocks of queries, grouped by head, the longest (last) block of a head first. */
static void attend_blocks(void *context, uint64_t begin, uint64_t end)
{
    const struct forward *forward = context;
    const struct mics_args_attention *args = forward->args;
    uint64_t blocks = mics_ceil_div(args->T, BLOCK);

    for (uint64_t i = begin; i < end; i++) {
        uint32_t b = (uint32_t)(i / blocks / args->H), h = (uint32_t)(i / blocks % args->H);
        uint32_t query = (uint32_t)(blocks - 1 - i % blocks) * BLOCK;
        struct head head =
            head_at(args->qkv, args->dtype, b, h, args->T, args->H, args->H_kv, args->D);

        head.causal = args->causal;
        head.window = mics_attention_window(args->window, args->T);
        head.pairs = forward->pairs;
        if (args->targets)
            head.targets = args->targets + (size_t)b * args->T;
        attend(&head, query, args->out,
               ((size_t)b * args->T + query) * head.step_out + (size_t)h * args->D,
               args->lse + ((size_t)b * args->H + h) * args->T + query);
    }
}

void mics_host_attention(struct mics_pool *pool, const struct mics_args_attention *args)
{
    uint64_t work = mics_ceil_div(args->T, BLOCK) * args->B * args->H;

    assert(args->D <= MICS_HOST_HEAD_MAX && args->H % args->H_kv == 0);
    assert(args->causal || !args->window);
    if (work > 0)
        mics_pool_run(pool, work, 1, attend_blocks,
                      &(struct forward){args, uses_pairs(pool, args->dtype, args->D)});
}
