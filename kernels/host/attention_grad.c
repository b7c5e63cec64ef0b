/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_grad.c - the gradient of attention, in blocks as in attention.c.
 *
 * The scores are recomputed block by block. With P = exp(scale q k' - lse) and delta the row sums
 * of grad_out * out:
 *     grad_v = P' grad_out
 *     dS     = P * (grad_out v' - delta)
 *     grad_q = scale dS k
 *     grad_k = scale dS' q
 * (Dao et al. 2022, appendix B.) In fp32 the heads that share their keys are computed by one
 * thread, one head after another, by blocks of queries and, inside, blocks of keys: grad_q of the
 * block is held, grad_k and grad_v are added to in place, in a fixed order. 10 T T D flops per
 * head, half of that when causal.
 *
 * In bf16 a sum in place would be rounded at each addition, and a few groups of heads do not keep
 * many threads busy. Then there are two passes, in which blocks are independent: by blocks of
 * queries for grad_q, then by blocks of keys, whose sums are held over all queries of all heads. 14
 * T T D flops. The order of every sum, and so each bit of a gradient in fp32, is the same in both.
 */
#include "host/attention_blocks.h"
#include "host/vmath.h"

#include <assert.h>

/* One head of a gradient: its parts begin where those of struct head do. */
struct grads {
    void *qkv;
    const void *grad_out, *out;
    size_t at; /* of the head in them, in elements */
    const float *lse;
    float *delta;
};

/* A head and its gradient. */
struct pair {
    struct head head;
    struct grads grads;
    bool first; /* of the heads that share its keys */
};

struct backward {
    const struct mics_args_attention_grad *args;
    bool pairs;
};

static struct pair pair_at(const struct backward *backward, uint32_t b, uint32_t h)
{
    const struct mics_args_attention_grad *args = backward->args;
    const size_t row = ((size_t)b * args->H + h) * args->T;
    struct pair pair = {
        .head = head_at(args->qkv, args->dtype, b, h, args->T, args->H, args->H_kv, args->D),
        .grads = {.qkv = args->grad_qkv,
                  .grad_out = args->grad_out,
                  .out = args->out,
                  .at = ((size_t)b * args->T * args->H + h) * args->D,
                  .lse = args->lse + row,
                  .delta = args->delta + row},
        .first = h % (args->H / args->H_kv) == 0,
    };

    pair.head.causal = args->causal;
    pair.head.window = mics_attention_window(args->window, args->T);
    pair.head.pairs = backward->pairs;
    if (args->targets)
        pair.head.targets = args->targets + (size_t)b * args->T;
    return pair;
}

/* Sums of the gradients of a block of keys, in rows `ld` apart. `first`: they are not set yet. */
struct sums {
    float *key, *value;
    size_t ld;
    bool first;
};

/* The state of one block of queries. */
struct grad_block {
    _Alignas(64) float query_t[MICS_HOST_HEAD_MAX * BLOCK_LD]; /* [D][query], scaled, or pairs */
    float out_t[MICS_HOST_HEAD_MAX * BLOCK_LD];           /* the same of grad_out, not scaled */
    float query[BLOCK * HEAD_LD];                         /* [query][D], scaled */
    float out[BLOCK * HEAD_LD];                           /* [query][D], of grad_out */
    float grad_t[MICS_HOST_HEAD_MAX * BLOCK_LD];          /* [D][query], of grad_q */
    float grad[BLOCK * HEAD_LD];                          /* of grad_k, grad_v or grad_q */
    float keys[BLOCK * HEAD_LD], values[BLOCK * HEAD_LD]; /* [key][D]; of values, pairs */
    float key_pairs[BLOCK * HEAD_LD];                     /* [key][D / 2] */
    float p[BLOCK * BLOCK_LD], ds[BLOCK * BLOCK_LD];      /* [key][query] */
    float lse[BLOCK], delta[BLOCK];                       /* [query] */
    struct seen seen;                                     /* by the queries */
    uint32_t rows;
    float scale, score_scale;
};

/* What both passes need of queries [query, query + BLOCK); delta has been computed. Unless
 * `of_keys`, rows of queries and gradients in fp32 are not needed. */
static void load_block(struct grad_block *block, const struct pair *pair, uint32_t query,
                       bool of_keys)
{
    const struct head *head = &pair->head;
    const struct grads *grads = &pair->grads;
    const uint32_t rows = block_size(head->T, query);
    const size_t of_query = head->query + query * head->step;
    const size_t of_out = grads->at + query * head->step_out;

    block->rows = rows;
    block->scale = 1.0f / sqrtf((float)head->D);
    block->score_scale = score_scale(head);
    if (!head->pairs || of_keys) {
        pack_block(block->query, head, head->qkv, of_query, head->step, rows, block->scale);
        pack_block(block->out, head, grads->grad_out, of_out, head->step_out, rows, 1.0f);
    }
    if (head->pairs) {
        pack_pairs(block->grad, head, head->qkv, of_query, head->step, rows, BLOCK);
        transpose_block(block->query_t, block->grad, head);
        pack_pairs(block->grad, head, grads->grad_out, of_out, head->step_out, rows, BLOCK);
        transpose_block(block->out_t, block->grad, head);
    } else {
        transpose_block(block->query_t, block->query, head);
        transpose_block(block->out_t, block->out, head);
    }
    find_seen(&block->seen, head, query);
    for (uint32_t i = 0; i < BLOCK; i++) {
        block->lse[i] = i < rows ? grads->lse[query + i] : 0;
        block->delta[i] = i < rows ? grads->delta[query + i] : 0;
    }
}

/* A tile: keys [from, from + span) of a block, queries from `column` on. */
struct span {
    uint32_t from, span, column;
};

/* to[key][query] = rows of `of` (keys or values) times with[D][query]. */
static void score(const struct span *s, float *to, const float *of, const float *with,
                  const struct head *head)
{
    product_of_pairs(head, &(struct mics_tile){
                               .c = to + s->from * BLOCK_LD + s->column,
                               .a = of + s->from * head->ld,
                               .b = with + s->column,
                               .row_step = head->ld,
                               .depth_step = 1,
                               .ldb = BLOCK_LD,
                               .ldc = BLOCK_LD,
                               .rows = s->span,
                               .width = BLOCK - s->column,
                           });
}

/* From scores and grad_out v' to P and dS. */
static void probabilities(struct grad_block *block, unsigned v, uint32_t keys)
{
    float *p = block->p + v * MICS_LANES, *ds = block->ds + v * MICS_LANES;
    mics_vf lse = mics_vload(block->lse + v * MICS_LANES);
    mics_vf delta = mics_vload(block->delta + v * MICS_LANES);
    const float scale = block->score_scale;

    for (uint32_t j = 0; j < keys; j++, p += BLOCK_LD, ds += BLOCK_LD) {
        mics_vf e = mics_vexp(scale * mics_vload(p) - lse);

        mics_vstore(p, e);
        mics_vstore(ds, e * (mics_vload(ds) - delta));
    }
}

/* to[key][D] += of[key][query] rows[query][D]. Rows of `to` that do not end with a whole vector get
 * it from a product of their own. */
static void add_product(struct grad_block *block, const struct span *s, const struct head *head,
                        float *to, const struct sums *sums, const float *of, const float *rows)
{
    const bool whole = head->D == head->width;

    to += s->from * sums->ld;
    mics_tile_product(&(struct mics_tile){
        .c = whole ? to : block->grad,
        .a = of + s->from * BLOCK_LD + s->column,
        .b = rows + s->column * head->ld,
        .row_step = BLOCK_LD,
        .depth_step = 1,
        .ldb = head->ld,
        .ldc = whole ? sums->ld : head->ld,
        .rows = s->span,
        .depth = block->rows - s->column,
        .width = head->width,
        .add = whole && !sums->first,
    });
    for (uint32_t i = 0; !whole && i < s->span; i++)
        for (uint32_t d = 0; d < head->D; d++) {
            const float one = block->grad[i * head->ld + d];

            to[i * sums->ld + d] = sums->first ? one : to[i * sums->ld + d] + one;
        }
}

/* grad_q += dS k */
static void add_grad_query(struct grad_block *block, const struct span *s, const struct head *head)
{
    mics_tile_product(&(struct mics_tile){
        .c = block->grad_t + s->column,
        .a = block->keys + s->from * head->ld,
        .b = block->ds + s->from * BLOCK_LD + s->column,
        .row_step = 1,
        .depth_step = head->ld,
        .ldb = BLOCK_LD,
        .ldc = BLOCK_LD,
        .rows = head->D,
        .depth = s->span,
        .width = BLOCK - s->column,
        .add = true,
    });
}

/* P and dS of a block of queries and one of keys, which have been packed. */
static void recompute(struct grad_block *block, const struct head *head, uint32_t query,
                      uint32_t key)
{
    const uint32_t count = block_size(head->T, key);
    const bool diagonal = head->causal && key == query;
    struct span s = {0};

    for (s.from = 0; s.from < count; s.from += s.span) {
        s.span = span_of(diagonal, count, s.from);
        s.column = diagonal ? s.from : 0;
        score(&s, block->p, head->pairs ? block->key_pairs : block->keys, block->query_t, head);
        score(&s, block->ds, block->values, block->out_t, head);
    }
    if (diagonal)
        mask_diagonal(block->p, count);
    hide_unseen(block->p, &block->seen, key, count);
    for (unsigned v = 0; v < VECTORS; v++)
        probabilities(block, v, keys_seen(diagonal, count, v));
}

/* Keys and values of a block; unless `of_query`, those in fp32 are not needed. */
static void pack_keys(struct grad_block *block, const struct head *head, uint32_t key,
                      bool of_query)
{
    const uint32_t count = block_size(head->T, key);
    const size_t row = key * head->step;

    if (head->pairs) {
        pack_pairs(block->key_pairs, head, head->qkv, head->key + row, head->step, count, count);
        pack_pairs(block->values, head, head->qkv, head->value + row, head->step, count, count);
        if (of_query)
            pack_rows(block->keys, head, head->key, key, count);
        return;
    }
    pack_rows(block->keys, head, head->key, key, count);
    pack_rows(block->values, head, head->value, key, count);
}

/* What a block of queries and one of keys give: to `sums`, unless NULL, and to grad_q if
 * `of_query`. */
static void grad_keys(struct grad_block *block, const struct head *head, uint32_t query,
                      uint32_t key, const struct sums *sums, bool of_query)
{
    const uint32_t count = block_size(head->T, key);
    const bool diagonal = head->causal && key == query;
    struct span s = {0};

    recompute(block, head, query, key);
    for (s.from = 0; s.from < count; s.from += s.span) {
        s.span = span_of(diagonal, count, s.from);
        s.column = diagonal ? s.from : 0;
        if (sums) {
            add_product(block, &s, head, sums->value, sums, block->p, block->out);
            add_product(block, &s, head, sums->key, sums, block->ds, block->query);
        }
        if (of_query)
            add_grad_query(block, &s, head);
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

/* delta[t] = sum over d of grad_out * out, of a block of queries. */
static void row_products(const struct pair *pair, uint32_t query)
{
    const struct grads *grads = &pair->grads;
    const uint32_t D = pair->head.D, rows = block_size(pair->head.T, query);
    size_t at = grads->at + query * pair->head.step_out;

    for (uint32_t t = query; t < query + rows; t++, at += pair->head.step_out)
        grads->delta[t] = pair->head.dtype == MICS_BF16
                              ? row_product(grads->grad_out, grads->out, at, D, MICS_BF16)
                          : pair->head.dtype == MICS_F16
                              ? row_product(grads->grad_out, grads->out, at, D, MICS_F16)
                              : row_product(grads->grad_out, grads->out, at, D, MICS_F32);
}

/* The first block of queries that sees a block of keys ... */
static uint32_t first_queries(const struct head *head, uint32_t key)
{
    if (head->causal)
        return key;
    return head->targets ? document_begin(head, key, 0) / BLOCK * BLOCK : 0;
}

/* ... of the first head, sets its sums. */
static bool sets_sums(const struct pair *pair, uint32_t query, uint32_t key)
{
    return pair->first && query == first_queries(&pair->head, key);
}

/* delta and grad_q of a block of queries; if `of_keys`, in fp32, also what they give to grad_k and
 * grad_v. */
static void grad_queries(struct grad_block *block, const struct pair *pair, uint32_t query,
                         bool of_keys)
{
    const struct head *head = &pair->head;

    row_products(pair, query);
    load_block(block, pair, query, of_keys);
    memset(block->grad_t, 0, (size_t)head->width * BLOCK_LD * sizeof(float));
    const uint32_t stop = keys_end(head, &block->seen, query, block->rows);

    for (uint32_t key = block->seen.first[0] / BLOCK * BLOCK; key < stop; key += BLOCK) {
        float *const row = (float *)pair->grads.qkv + key * head->step;
        const struct sums sums = {.key = row + head->key,
                                  .value = row + head->value,
                                  .ld = head->step,
                                  .first = sets_sums(pair, query, key)};

        pack_keys(block, head, key, true);
        grad_keys(block, head, query, key, of_keys ? &sums : NULL, true);
    }
    for (size_t i = 0; i < (size_t)head->D * BLOCK_LD; i++)
        block->grad_t[i] *= block->scale;
    transpose_back(block->grad, block->grad_t, head);
    unpack(pair->grads.qkv, head, head->query + query * head->step, head->step, block->grad,
           block->rows);
}

/* By groups of heads: everything, in fp32. */
static void grad_groups(void *context, uint64_t begin, uint64_t end)
{
    const struct backward *backward = context;
    const struct mics_args_attention_grad *args = backward->args;
    const uint32_t group = args->H / args->H_kv;
    struct grad_block block;

    for (uint64_t i = begin * group; i < end * group; i++) {
        const struct pair pair =
            pair_at(backward, (uint32_t)(i / args->H), (uint32_t)(i % args->H));

        for (uint32_t query = 0; query < args->T; query += BLOCK)
            grad_queries(&block, &pair, query, true);
    }
}

/* By blocks of queries, the longest (last) one of a head first: delta and grad_q. */
static void grad_query_blocks(void *context, uint64_t begin, uint64_t end)
{
    const struct backward *backward = context;
    const struct mics_args_attention_grad *args = backward->args;
    const uint64_t blocks = mics_ceil_div(args->T, BLOCK);
    struct grad_block block;

    for (uint64_t i = begin; i < end; i++) {
        const uint64_t head = i / blocks;
        const struct pair pair =
            pair_at(backward, (uint32_t)(head / args->H), (uint32_t)(head % args->H));

        grad_queries(&block, &pair, (uint32_t)(blocks - 1 - i % blocks) * BLOCK, false);
    }
}

/* Sums that are held until they are rounded once. */
struct key_sums {
    float key[BLOCK * HEAD_LD], value[BLOCK * HEAD_LD]; /* [key][D] */
};

/* grad_k and grad_v of a block of keys of a group of heads, from head h of sequence b on. */
static void grad_key_block(struct grad_block *block, const struct backward *backward, uint32_t b,
                           uint32_t h, uint32_t key)
{
    const struct mics_args_attention_grad *args = backward->args;
    struct pair pair = pair_at(backward, b, h);
    const struct head *head = &pair.head;
    struct key_sums held;
    struct sums sums = {.key = held.key, .value = held.value, .ld = head->ld};
    const uint32_t count = block_size(args->T, key), group = args->H / args->H_kv;
    const size_t to = key * head->step;

    pack_keys(block, head, key, false);
    for (uint32_t i = 0; i < group; i++) {
        pair = pair_at(backward, b, h + i);
        for (uint32_t query = first_queries(head, key); query < args->T; query += BLOCK) {
            load_block(block, &pair, query, true);
            if (block->seen.first[0] >= key + BLOCK)
                break; /* nor do later queries see one of these keys */
            sums.first = sets_sums(&pair, query, key);
            grad_keys(block, head, query, key, &sums, false);
        }
    }
    unpack(args->grad_qkv, head, head->key + to, head->step, held.key, count);
    unpack(args->grad_qkv, head, head->value + to, head->step, held.value, count);
}

/* By blocks of keys, the first of a group, which all queries see, first. */
static void grad_key_blocks(void *context, uint64_t begin, uint64_t end)
{
    const struct backward *backward = context;
    const struct mics_args_attention_grad *args = backward->args;
    const uint64_t blocks = mics_ceil_div(args->T, BLOCK);
    const uint32_t group = args->H / args->H_kv;
    struct grad_block block;

    for (uint64_t i = begin; i < end; i++) {
        const uint64_t of = i / blocks;

        grad_key_block(&block, backward, (uint32_t)(of / args->H_kv),
                       (uint32_t)(of % args->H_kv) * group, (uint32_t)(i % blocks) * BLOCK);
    }
}

/* Whether one pass by groups is faster than two passes with 1.4 times the flops: if there are
 * groups for all threads. */
static bool one_pass(const struct mics_pool *pool, uint64_t groups, enum mics_dtype dtype)
{
    const uint64_t threads = mics_pool_threads(pool);

    return dtype == MICS_F32 && mics_ceil_div(groups, threads) * threads * 10 <= groups * 14;
}

void mics_host_attention_grad(struct mics_pool *pool, const struct mics_args_attention_grad *args)
{
    const uint64_t groups = (uint64_t)args->B * args->H_kv;
    const uint64_t blocks = mics_ceil_div(args->T, BLOCK);

    assert(args->D <= MICS_HOST_HEAD_MAX && args->H % args->H_kv == 0);
    assert(args->causal || !args->window);
    if (groups == 0 || args->T == 0)
        return;
    struct backward backward = {args, uses_pairs(pool, args->dtype, args->D)};

    if (one_pass(pool, groups, args->dtype)) {
        mics_pool_run(pool, groups, 1, grad_groups, &backward);
        return;
    }
    mics_pool_run(pool, blocks * args->B * args->H, 1, grad_query_blocks, &backward);
    mics_pool_run(pool, blocks * groups, 1, grad_key_blocks, &backward);
}
