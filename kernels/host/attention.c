/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention.c - softmax(q k' / sqrt(D)) v for each head and its gradient, in blocks (Dao et al.,
 * FlashAttention, 2022); nothing of size T x T is stored.
 *
 * A block is BLOCK queries by as many keys. Inside a block the *queries* lie along the vectors:
 * scores are held as [key][query], so that the maxima and sums of the softmax run down columns,
 * without a sum across a vector, and keys and values are read in place, one number at a time; those
 * in bf16 are widened a block at a time.
 */
#include "host/kernels.h"
#include "host/pool.h"
#include "host/tile.h"
#include "host/vector.h"
#include "host/vmath.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

#define BLOCK   64 /* queries, and keys, of a block */
#define VECTORS (BLOCK / MICS_LANES)

/* One head of one sequence. `query`, `key`, `value`: where it begins, in elements of qkv. Rows
 * of them are `ld` apart; of outputs, ld_out. Heads of a group have their keys and values in
 * common. */
struct head {
    const void *qkv;
    enum mics_dtype dtype;
    size_t query, key, value;
    size_t ld, ld_out;
    uint32_t T, D;
    bool causal;
    const int32_t *targets; /* [T] of the sequence; NULL: it is one document */
};

static inline struct head head_at(const void *qkv, enum mics_dtype dtype, uint32_t b, uint32_t h,
                                  uint32_t T, uint32_t H, uint32_t H_kv, uint32_t D)
{
    const size_t ld = ((size_t)H + 2 * (size_t)H_kv) * D, row = (size_t)b * T * ld;
    const size_t key = row + ((size_t)H + h / (H / H_kv)) * D;

    return (struct head){
        .qkv = qkv,
        .dtype = dtype,
        .query = row + (size_t)h * D,
        .key = key,
        .value = key + (size_t)H_kv * D,
        .ld = ld,
        .ld_out = (size_t)H * D,
        .T = T,
        .D = D,
    };
}

/* Up to BLOCK rows of D in fp32, `ld` apart. */
struct rows {
    const float *at;
    size_t ld;
};

/* Rows from element `first` of `from` on: in place, or widened into `buffer` (a block by D). */
static inline struct rows widen_rows(const void *from, size_t first, size_t ld, uint32_t rows,
                                     uint32_t D, enum mics_dtype dtype, float *buffer)
{
    if (dtype != MICS_BF16)
        return (struct rows){(const float *)from + first, ld};
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t d = 0; d < D; d++)
            buffer[i * D + d] = mics_load_as(from, first + i * ld + d, MICS_BF16);
    return (struct rows){buffer, D};
}

static inline uint32_t block_size(uint32_t T, uint32_t first)
{
    return T - first < BLOCK ? T - first : BLOCK;
}

/* to[d][i] = scale * from[i][d] for `rows` rows of D; the block's other columns become 0. */
static inline void transpose_in(float *to, struct rows from, uint32_t rows, uint32_t D, float scale)
{
    for (uint32_t d = 0; d < D; d++, to += BLOCK) {
        for (uint32_t i = 0; i < rows; i++)
            to[i] = scale * from.at[i * from.ld + d];
        for (uint32_t i = rows; i < BLOCK; i++)
            to[i] = 0;
    }
}

/* to[first + i * ld + d] = from[d][i] for `rows` rows of D. */
static inline void transpose_out(void *to, size_t first, size_t ld, const float *from,
                                 uint32_t rows, uint32_t D, enum mics_dtype dtype)
{
    for (uint32_t i = 0; dtype == MICS_BF16 && i < rows; i++)
        for (uint32_t d = 0; d < D; d++)
            mics_store_as(to, first + i * ld + d, from[d * BLOCK + i], MICS_BF16);
    for (uint32_t i = 0; dtype != MICS_BF16 && i < rows; i++)
        for (uint32_t d = 0; d < D; d++)
            mics_store_as(to, first + i * ld + d, from[d * BLOCK + i], MICS_F32);
}

/* Keys of a block, from key `from` on, of one tile product: on the diagonal of a causal mask one
 * vector, whose scores are needed from query `from` on only; elsewhere all. */
static inline uint32_t span_of(bool diagonal, uint32_t keys, uint32_t from)
{
    return diagonal && keys - from > MICS_LANES ? MICS_LANES : keys - from;
}

/* In a block on the diagonal, mask the keys after each query that span_of() did not leave out. */
static inline void mask_diagonal(float *scores, uint32_t keys)
{
    for (uint32_t j = 0; j < keys; j++)
        for (uint32_t i = j / MICS_LANES * MICS_LANES; i < j; i++)
            scores[j * BLOCK + i] = -INFINITY;
}

/*
 * Documents. A query sees keys from the first token of its document on. The score of an earlier key
 * becomes a number instead of an infinity, because a query may see none of the first block of keys
 * of its block of queries: its sums, which are then of equal scores, are multiplied by 0 when the
 * first key follows that it sees.
 */

#define HIDDEN (-1e30f)

/* first[i]: the first token that query `query` + i sees, ascending. */
static void find_documents(uint32_t first[BLOCK], const struct head *head, uint32_t query)
{
    const uint32_t rows = block_size(head->T, query);
    uint32_t begin = head->targets ? query : 0;

    while (begin > 0 && head->targets[begin - 1] != MICS_TARGET_LAST)
        begin--;
    for (uint32_t i = 0; i < BLOCK; i++) {
        first[i] = begin;
        if (head->targets && i < rows && head->targets[query + i] == MICS_TARGET_LAST)
            begin = query + i + 1;
    }
}

/* In a block of keys from `key` on, hide those before the document of each query. */
static void hide_documents(float *scores, const uint32_t first[BLOCK], uint32_t key, uint32_t keys)
{
    if (first[BLOCK - 1] <= key)
        return;
    for (uint32_t j = 0; j < keys; j++)
        for (uint32_t i = 0; i < BLOCK; i++)
            if (key + j < first[i])
                scores[j * BLOCK + i] = HIDDEN;
}

/* Keys that a vector of queries sees of a block. */
static inline uint32_t keys_seen(bool diagonal, uint32_t keys, unsigned v)
{
    return diagonal && keys > (v + 1) * MICS_LANES ? (v + 1) * MICS_LANES : keys;
}

/*
 * Forward. A block of queries goes through the blocks of keys that it may see and keeps for each
 * query the largest score so far, the sum of the exponentials relative to it, and the output so
 * far, rescaled when the maximum grows. 4 T T D flops per head, half of that when causal. Blocks of
 * queries are independent; each is computed by one thread.
 */

/* The state of one block of queries. */
struct forward_block {
    float query[MICS_HOST_HEAD_MAX * BLOCK]; /* [D][query], scaled */
    float out[MICS_HOST_HEAD_MAX * BLOCK];   /* [D][query] */
    float scores[BLOCK * BLOCK];             /* [key][query], then their exponentials */
    float max[BLOCK], sum[BLOCK];            /* [query] */
    uint32_t first[BLOCK];                   /* [query], key that it sees */
    float wide[2]
              [BLOCK * MICS_HOST_HEAD_MAX]; /* keys and values in bf16; before them the queries */
};

/* Exponentials of the scores of a column of vectors, in place; the maximum and the sum of its
 * queries are brought up to date. Returns what the earlier sums and outputs are to be multiplied
 * by. */
static mics_vf softmax_column(struct forward_block *block, unsigned v, uint32_t keys)
{
    float *scores = block->scores + v * MICS_LANES;
    mics_vf old = mics_vload(block->max + v * MICS_LANES), max = old, sum = {0}, rescale;

    for (uint32_t j = 0; j < keys; j++)
        max = mics_vmax(mics_vload(scores + j * BLOCK), max);
    for (uint32_t j = 0; j < keys; j++) {
        mics_vf e = mics_vexp(mics_vload(scores + j * BLOCK) - max);

        mics_vstore(scores + j * BLOCK, e);
        sum += e;
    }
    rescale = mics_vexp(old - max);
    mics_vstore(block->max + v * MICS_LANES, max);
    mics_vstore(block->sum + v * MICS_LANES,
                mics_vload(block->sum + v * MICS_LANES) * rescale + sum);
    return rescale;
}

/* scores = k' q of a block of keys. */
static void score_keys(struct forward_block *block, struct rows keys, uint32_t count, uint32_t D,
                       bool diagonal)
{
    for (uint32_t from = 0, span; from < count; from += span) {
        uint32_t column = diagonal ? from : 0;

        span = span_of(diagonal, count, from);
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
        mask_diagonal(block->scores, count);
}

/* out += v' p; the first block of keys writes. */
static void add_values(struct forward_block *block, struct rows values, uint32_t count, uint32_t D,
                       bool diagonal, bool first)
{
    for (uint32_t from = 0, span; from < count; from += span) {
        uint32_t column = diagonal ? from : 0;

        span = span_of(diagonal, count, from);
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

static struct rows rows_at(const struct head *head, size_t part, uint32_t t, uint32_t rows,
                           float *buffer)
{
    return widen_rows(head->qkv, part + t * head->ld, head->ld, rows, head->D, head->dtype, buffer);
}

/* `first`: nothing has been summed yet. */
static void attend_keys(struct forward_block *block, const struct head *head, uint32_t query,
                        uint32_t key, bool first)
{
    uint32_t keys = block_size(head->T, key);
    bool diagonal = head->causal && key == query;

    score_keys(block, rows_at(head, head->key, key, keys, block->wide[0]), keys, head->D, diagonal);
    hide_documents(block->scores, block->first, key, keys);
    for (unsigned v = 0; v < VECTORS; v++) {
        mics_vf rescale = softmax_column(block, v, keys_seen(diagonal, keys, v));
        float *column = block->out + v * MICS_LANES;

        for (uint32_t d = 0; !first && d < head->D; d++, column += BLOCK)
            mics_vstore(column, mics_vload(column) * rescale);
    }
    add_values(block, rows_at(head, head->value, key, keys, block->wide[1]), keys, head->D,
               diagonal, first);
}

static void load_queries(struct forward_block *block, const struct head *head, uint32_t query,
                         uint32_t rows)
{
    transpose_in(block->query, rows_at(head, head->query, query, rows, block->wide[0]), rows,
                 head->D, 1.0f / sqrtf((float)head->D));
}

/* Outputs, from element `first` of out on, and lse of queries [query, query + BLOCK) of a head. */
static void attend(const struct head *head, uint32_t query, void *out, size_t first, float *lse)
{
    struct forward_block block;
    uint32_t rows = block_size(head->T, query);
    uint32_t stop = head->causal ? query + rows : head->T;

    load_queries(&block, head, query, rows);
    find_documents(block.first, head, query);
    for (unsigned i = 0; i < BLOCK; i++) {
        block.max[i] = -INFINITY;
        block.sum[i] = 0;
    }
    const uint32_t start = block.first[0] / BLOCK * BLOCK;

    for (uint32_t key = start; key < stop; key += BLOCK)
        attend_keys(&block, head, query, key, key == start);
    for (unsigned i = 0; i < rows; i++)
        lse[i] = block.max[i] + logf(block.sum[i]);
    for (unsigned i = 0; i < BLOCK; i++)
        block.sum[i] = 1.0f / block.sum[i];
    for (uint32_t d = 0; d < head->D; d++)
        for (unsigned i = 0; i < BLOCK; i++)
            block.out[d * BLOCK + i] *= block.sum[i];
    transpose_out(out, first, head->ld_out, block.out, rows, head->D, head->dtype);
}

/* Work items are blocks of queries, grouped by head, the longest (last) block of a head first. */
static void attend_blocks(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_attention *args = context;
    uint64_t blocks = mics_ceil_div(args->T, BLOCK);

    for (uint64_t i = begin; i < end; i++) {
        uint32_t b = (uint32_t)(i / blocks / args->H), h = (uint32_t)(i / blocks % args->H);
        uint32_t query = (uint32_t)(blocks - 1 - i % blocks) * BLOCK;
        struct head head =
            head_at(args->qkv, args->dtype, b, h, args->T, args->H, args->H_kv, args->D);

        head.causal = args->causal;
        if (args->targets)
            head.targets = args->targets + (size_t)b * args->T;
        attend(&head, query, args->out,
               ((size_t)b * args->T + query) * head.ld_out + (size_t)h * args->D,
               args->lse + ((size_t)b * args->H + h) * args->T + query);
    }
}

void mics_host_attention(struct mics_pool *pool, const struct mics_op_attention *args)
{
    uint64_t work = mics_ceil_div(args->T, BLOCK) * args->B * args->H;

    assert(args->D <= MICS_HOST_HEAD_MAX && args->H % args->H_kv == 0);
    assert(args->causal || !args->targets);
    if (work > 0)
        mics_pool_run(pool, work, 1, attend_blocks, (void *)args);
}

/*
 * The gradient, with the scores recomputed block by block. With P = exp(scale q k' - lse) and delta
 * the row sums of grad_out * out:
 *     grad_v = P' grad_out
 *     dS     = P * (grad_out v' - delta)
 *     grad_q = scale dS k
 *     grad_k = scale dS' q
 * (Dao et al. 2022, appendix B.) The heads that share their keys are computed by one thread, one
 * head after another, by blocks of queries and, inside, blocks of keys: grad_q of the block is
 * held, grad_k and grad_v are added to in place, in a fixed order. 10 T T D flops per head, half of
 * that when causal.
 *
 * In bf16 a sum in place would be rounded at each addition. So there are two passes: by blocks of
 * queries for grad_q, then by blocks of keys, whose sums are held over all queries of all heads. 14
 * T T D flops.
 */

/* One head of a gradient: its parts begin where those of struct head do. */
struct grads {
    void *qkv;
    const void *out; /* grad_out */
    size_t at;       /* of the head in it, in elements */
    const float *lse;
    float *delta;
};

/* Sums of the gradients of a block of keys, in rows `ld` apart. */
struct sums {
    float *key, *value;
    size_t ld;
};

/* The state of one block of queries. */
struct grad_block {
    float query_t[MICS_HOST_HEAD_MAX * BLOCK]; /* [D][query], scaled */
    float out_t[MICS_HOST_HEAD_MAX * BLOCK];   /* [D][query], of grad_out */
    float query[BLOCK * MICS_HOST_HEAD_MAX];   /* [query][width], scaled; width is D padded */
    float out[BLOCK * MICS_HOST_HEAD_MAX];     /* [query][width], of grad_out */
    float grad_t[MICS_HOST_HEAD_MAX * BLOCK];  /* [D][query], of grad_q */
    float grad[BLOCK * MICS_HOST_HEAD_MAX];    /* [key][width], of grad_k or grad_v */
    float p[BLOCK * BLOCK], ds[BLOCK * BLOCK]; /* [key][query] */
    float wide[2][BLOCK * MICS_HOST_HEAD_MAX]; /* rows widened from bf16 */
    float lse[BLOCK], delta[BLOCK];            /* [query] */
    uint32_t first[BLOCK];                     /* [query], key that it sees */
    uint32_t rows, width;
    float scale;
};

/* to[i][width] = scale * from[i][D], the rest 0. */
static void copy_rows(float *to, uint32_t width, struct rows from, uint32_t rows, uint32_t D,
                      float scale)
{
    for (uint32_t i = 0; i < rows; i++, to += width, from.at += from.ld)
        for (uint32_t d = 0; d < width; d++)
            to[d] = d < D ? scale * from.at[d] : 0;
}

static void add_rows(float *to, size_t ld, const float *from, uint32_t width, uint32_t rows,
                     uint32_t D)
{
    for (uint32_t i = 0; i < rows; i++, to += ld, from += width)
        for (uint32_t d = 0; d < D; d++)
            to[d] += from[d];
}

static void load_block(struct grad_block *block, const struct head *head, const struct grads *grads,
                       uint32_t query)
{
    const uint32_t D = head->D, rows = block_size(head->T, query);
    const struct rows from = widen_rows(head->qkv, head->query + query * head->ld, head->ld, rows,
                                        D, head->dtype, block->wide[0]);
    const struct rows out = widen_rows(grads->out, grads->at + query * head->ld_out, head->ld_out,
                                       rows, D, head->dtype, block->wide[1]);

    block->rows = rows;
    block->width = (D + MICS_LANES - 1) / MICS_LANES * MICS_LANES;
    block->scale = 1.0f / sqrtf((float)D);
    transpose_in(block->query_t, from, rows, D, block->scale);
    transpose_in(block->out_t, out, rows, D, 1.0f);
    copy_rows(block->query, block->width, from, rows, D, block->scale);
    copy_rows(block->out, block->width, out, rows, D, 1.0f);
    memset(block->grad_t, 0, (size_t)D * BLOCK * sizeof(float));
    find_documents(block->first, head, query);
    for (uint32_t i = 0; i < BLOCK; i++) {
        block->lse[i] = i < block->rows ? grads->lse[query + i] : 0;
        block->delta[i] = i < block->rows ? grads->delta[query + i] : 0;
    }
}

/* A tile: keys [from, from + span) of a block, queries from `column` on. */
struct span {
    uint32_t from, span, column;
};

/* to[key][query] = rows of `of` (keys or values) times with[D][query]. */
static void score(const struct span *s, float *to, struct rows of, const float *with, uint32_t D)
{
    mics_tile_product(&(struct mics_tile){
        .c = to + s->from * BLOCK + s->column,
        .a = of.at + s->from * of.ld,
        .b = with + s->column,
        .row_step = of.ld,
        .depth_step = 1,
        .ldb = BLOCK,
        .ldc = BLOCK,
        .rows = s->span,
        .depth = D,
        .width = BLOCK - s->column,
    });
}

/* From scores and grad_out v' to P and dS. */
static void probabilities(struct grad_block *block, unsigned v, uint32_t keys)
{
    float *p = block->p + v * MICS_LANES, *ds = block->ds + v * MICS_LANES;
    mics_vf lse = mics_vload(block->lse + v * MICS_LANES);
    mics_vf delta = mics_vload(block->delta + v * MICS_LANES);

    for (uint32_t j = 0; j < keys; j++, p += BLOCK, ds += BLOCK) {
        mics_vf e = mics_vexp(mics_vload(p) - lse);

        mics_vstore(p, e);
        mics_vstore(ds, e * (mics_vload(ds) - delta));
    }
}

/* to[key][D] += of[key][query] rows[query][D] */
static void add_product(struct grad_block *block, const struct span *s, float *to, size_t ld,
                        const float *of, const float *rows, uint32_t D)
{
    uint32_t width = block->width;

    mics_tile_product(&(struct mics_tile){
        .c = block->grad,
        .a = of + s->from * BLOCK + s->column,
        .b = rows + s->column * width,
        .row_step = BLOCK,
        .depth_step = 1,
        .ldb = width,
        .ldc = width,
        .rows = s->span,
        .depth = block->rows - s->column,
        .width = width,
    });
    add_rows(to + s->from * ld, ld, block->grad, width, s->span, D);
}

/* grad_q += dS k */
static void add_grad_query(struct grad_block *block, const struct span *s, struct rows keys,
                           uint32_t D)
{
    mics_tile_product(&(struct mics_tile){
        .c = block->grad_t + s->column,
        .a = keys.at + s->from * keys.ld,
        .b = block->ds + s->from * BLOCK + s->column,
        .row_step = 1,
        .depth_step = keys.ld,
        .ldb = BLOCK,
        .ldc = BLOCK,
        .rows = D,
        .depth = s->span,
        .width = BLOCK - s->column,
        .add = true,
    });
}

/* What a block of queries and one of keys give: to `sums`, unless NULL, and to grad_q if
 * `of_query`. */
static void grad_keys(struct grad_block *block, const struct head *head, uint32_t query,
                      uint32_t key, const struct sums *sums, bool of_query)
{
    const uint32_t count = block_size(head->T, key), D = head->D;
    const struct rows keys = widen_rows(head->qkv, head->key + key * head->ld, head->ld, count, D,
                                        head->dtype, block->wide[0]);
    const struct rows values = widen_rows(head->qkv, head->value + key * head->ld, head->ld, count,
                                          D, head->dtype, block->wide[1]);
    const bool diagonal = head->causal && key == query;
    struct span s = {0};

    for (s.from = 0; s.from < count; s.from += s.span) {
        s.span = span_of(diagonal, count, s.from);
        s.column = diagonal ? s.from : 0;
        score(&s, block->p, keys, block->query_t, D);
        score(&s, block->ds, values, block->out_t, D);
    }
    if (diagonal)
        mask_diagonal(block->p, count);
    hide_documents(block->p, block->first, key, count);
    for (unsigned v = 0; v < VECTORS; v++)
        probabilities(block, v, keys_seen(diagonal, count, v));
    for (s.from = 0; s.from < count; s.from += s.span) {
        s.span = span_of(diagonal, count, s.from);
        s.column = diagonal ? s.from : 0;
        if (sums) {
            add_product(block, &s, sums->value, sums->ld, block->p, block->out, D);
            add_product(block, &s, sums->key, sums->ld, block->ds, block->query, D);
        }
        if (of_query)
            add_grad_query(block, &s, keys, D);
    }
}

static void zero_keys(const struct head *head, const struct grads *grads)
{
    float *key = (float *)grads->qkv + head->key, *value = (float *)grads->qkv + head->value;

    for (uint32_t t = 0; t < head->T; t++) {
        memset(key + t * head->ld, 0, head->D * sizeof(float));
        memset(value + t * head->ld, 0, head->D * sizeof(float));
    }
}

/* By blocks of queries: grad_q; in fp32 the others as well. */
static void grad_head(const struct head *head, const struct grads *grads)
{
    const bool bf16 = head->dtype == MICS_BF16;
    struct grad_block block;

    for (uint32_t query = 0; query < head->T; query += BLOCK) {
        load_block(&block, head, grads, query);
        const uint32_t stop = head->causal ? query + block.rows : head->T;

        for (uint32_t key = block.first[0] / BLOCK * BLOCK; key < stop; key += BLOCK) {
            struct sums sums = {.ld = head->ld};

            if (!bf16) {
                sums.key = (float *)grads->qkv + head->key + key * head->ld;
                sums.value = (float *)grads->qkv + head->value + key * head->ld;
            }
            grad_keys(&block, head, query, key, bf16 ? NULL : &sums, true);
        }
        for (size_t i = 0; i < (size_t)head->D * BLOCK; i++)
            block.grad_t[i] *= block.scale;
        transpose_out(grads->qkv, head->query + query * head->ld, head->ld, block.grad_t,
                      block.rows, head->D, head->dtype);
    }
}

MICS_TYPED float row_product(const void *a, const void *b, size_t at, uint32_t D,
                             const enum mics_dtype type)
{
    mics_vf sum = {0};
    float rest;
    uint32_t d = 0;

    for (; d + MICS_LANES <= D; d += MICS_LANES)
        sum += mics_vload_as(a, at + d, type) * mics_vload_as(b, at + d, type);
    rest = mics_vsum(sum);
    for (; d < D; d++)
        rest += mics_load_as(a, at + d, type) * mics_load_as(b, at + d, type);
    return rest;
}

/* delta[t] = sum over d of grad_out * out */
static void row_products(const struct grads *grads, const void *out, const struct head *head)
{
    size_t at = grads->at;

    for (uint32_t t = 0; t < head->T; t++, at += head->ld_out)
        grads->delta[t] = head->dtype == MICS_BF16
                              ? row_product(grads->out, out, at, head->D, MICS_BF16)
                              : row_product(grads->out, out, at, head->D, MICS_F32);
}

/* A head and its gradient. */
struct pair {
    struct head head;
    struct grads grads;
};

static struct pair pair_at(const struct mics_op_attention_grad *args, uint32_t b, uint32_t h)
{
    const size_t row = ((size_t)b * args->H + h) * args->T;
    struct pair pair = {
        .head = head_at(args->qkv, args->dtype, b, h, args->T, args->H, args->H_kv, args->D),
        .grads = {.qkv = args->grad_qkv,
                  .out = args->grad_out,
                  .at = ((size_t)b * args->T * args->H + h) * args->D,
                  .lse = args->lse + row,
                  .delta = args->delta + row},
    };

    pair.head.causal = args->causal;
    if (args->targets)
        pair.head.targets = args->targets + (size_t)b * args->T;
    return pair;
}

struct key_sums {
    float key[BLOCK * MICS_HOST_HEAD_MAX], value[BLOCK * MICS_HOST_HEAD_MAX]; /* [key][D] */
};

static void store_sums(const struct pair *pair, uint32_t key, const struct key_sums *sums)
{
    const struct head *head = &pair->head;
    const size_t at = key * head->ld;

    for (uint32_t i = 0; i < block_size(head->T, key); i++)
        for (uint32_t d = 0; d < head->D; d++) {
            const size_t to = at + i * head->ld + d;

            mics_store_as(pair->grads.qkv, head->key + to, sums->key[i * head->D + d], MICS_BF16);
            mics_store_as(pair->grads.qkv, head->value + to, sums->value[i * head->D + d],
                          MICS_BF16);
        }
}

/* grad_k and grad_v in bf16 of a group of heads, from head h of sequence b on. */
static void grad_shared_keys(const struct mics_op_attention_grad *args, uint32_t b, uint32_t h)
{
    const uint32_t group = args->H / args->H_kv;
    struct key_sums held;
    struct sums sums = {held.key, held.value, args->D};
    struct grad_block block;

    for (uint32_t key = 0; key < args->T; key += BLOCK) {
        const struct pair first = pair_at(args, b, h);

        memset(&held, 0, sizeof held);
        for (uint32_t i = 0; i < group; i++) {
            const struct pair pair = pair_at(args, b, h + i);

            for (uint32_t query = args->causal ? key : 0; query < args->T; query += BLOCK) {
                load_block(&block, &pair.head, &pair.grads, query);
                if (block.first[0] >= key + BLOCK)
                    break; /* these queries, and later ones, are of later documents */
                grad_keys(&block, &pair.head, query, key, &sums, false);
            }
        }
        store_sums(&first, key, &held);
    }
}

static void grad_groups(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_attention_grad *args = context;
    const uint32_t group = args->H / args->H_kv;

    for (uint64_t i = begin; i < end; i++) {
        const uint32_t b = (uint32_t)(i / args->H_kv), h = (uint32_t)(i % args->H_kv) * group;

        for (uint32_t j = 0; j < group; j++) {
            const struct pair pair = pair_at(args, b, h + j);

            if (j == 0 && args->dtype != MICS_BF16)
                zero_keys(&pair.head, &pair.grads);
            row_products(&pair.grads, args->out, &pair.head);
            grad_head(&pair.head, &pair.grads);
        }
        if (args->dtype == MICS_BF16)
            grad_shared_keys(args, b, h);
    }
}

void mics_host_attention_grad(struct mics_pool *pool, const struct mics_op_attention_grad *args)
{
    uint64_t groups = (uint64_t)args->B * args->H_kv;

    assert(args->D <= MICS_HOST_HEAD_MAX && args->H % args->H_kv == 0);
    assert(args->causal || !args->targets);
    if (groups > 0 && args->T > 0)
        mics_pool_run(pool, groups, 1, grad_groups, (void *)args);
}
