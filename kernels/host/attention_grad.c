/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_grad.c - the gradient of attention, with the scores computed again block by block.
 *
 * With P = exp(scale q k' - lse) and delta the row sums of grad_out * out:
 *     grad_v = P' grad_out
 *     dS     = P * (grad_out v' - delta)
 *     grad_q = scale dS k
 *     grad_k = scale dS' q
 * (Dao et al. 2022, appendix B.) The heads that share their keys belong to one thread, which walks, one head
 * after another, blocks of queries and, inside, blocks of keys: grad_q of the block is held, grad_k and grad_v are
 * added to in place, in a fixed order. 10 T T D flops a head, half of that when causal.
 *
 * In bf16 a sum in place would be rounded at each addition. So it is walked twice: by blocks of queries for
 * grad_q, then by blocks of keys, whose sums are held over all queries of all heads. 14 T T D flops.
 */
#include "host/heads.h"
#include "host/tile.h"
#include "host/vmath.h"

#include <assert.h>

#define BLOCK   MICS_HEAD_BLOCK
#define VECTORS MICS_HEAD_VECTORS

/* One head of a gradient: its parts begin where those of struct mics_head do. */
struct grads {
    void *qkv;
    const void *out; /* the gradient that came in */
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
struct block {
    float query_t[MICS_HOST_HEAD_MAX * BLOCK]; /* [D][query], scaled */
    float out_t[MICS_HOST_HEAD_MAX * BLOCK];   /* [D][query], of grad_out */
    float query[BLOCK * MICS_HOST_HEAD_MAX];   /* [query][width], scaled; width is D padded */
    float out[BLOCK * MICS_HOST_HEAD_MAX];     /* [query][width], of grad_out */
    float grad_t[MICS_HOST_HEAD_MAX * BLOCK];  /* [D][query], of grad_q */
    float grad[BLOCK * MICS_HOST_HEAD_MAX];    /* [key][width], of grad_k or grad_v */
    float p[BLOCK * BLOCK], ds[BLOCK * BLOCK]; /* [key][query] */
    float wide[2][BLOCK * MICS_HOST_HEAD_MAX]; /* what is in bf16 */
    float lse[BLOCK], delta[BLOCK];            /* [query] */
    uint32_t rows, width;
    float scale;
};

/* to[i][width] = scale * from[i][D], the rest 0. */
static void copy_rows(float *to, uint32_t width, struct mics_rows from, uint32_t rows, uint32_t D,
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

static void load_block(struct block *block, const struct mics_head *head, const struct grads *grads,
                       uint32_t query)
{
    const uint32_t D = head->D, rows = mics_head_block_size(head->T, query);
    const struct mics_rows from = mics_head_rows(head->qkv, head->query + query * head->ld,
                                                 head->ld, rows, D, head->dtype, block->wide[0]);
    const struct mics_rows out = mics_head_rows(grads->out, grads->at + query * head->ld_out,
                                                head->ld_out, rows, D, head->dtype, block->wide[1]);

    block->rows = rows;
    block->width = (D + MICS_LANES - 1) / MICS_LANES * MICS_LANES;
    block->scale = 1.0f / sqrtf((float)D);
    mics_head_transpose_in(block->query_t, from, rows, D, block->scale);
    mics_head_transpose_in(block->out_t, out, rows, D, 1.0f);
    copy_rows(block->query, block->width, from, rows, D, block->scale);
    copy_rows(block->out, block->width, out, rows, D, 1.0f);
    memset(block->grad_t, 0, (size_t)D * BLOCK * sizeof(float));
    for (uint32_t i = 0; i < BLOCK; i++) {
        block->lse[i] = i < block->rows ? grads->lse[query + i] : 0;
        block->delta[i] = i < block->rows ? grads->delta[query + i] : 0;
    }
}

/* A tile of what follows: keys [from, from + span) of a block, queries from `column` on. */
struct span {
    uint32_t from, span, column;
};

/* to[key][query] = rows of `of` (keys or values) times with[D][query]. */
static void score(const struct span *s, float *to, struct mics_rows of, const float *with,
                  uint32_t D)
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
static void soften(struct block *block, unsigned v, uint32_t keys)
{
    float *p = block->p + v * MICS_LANES, *ds = block->ds + v * MICS_LANES;
    mics_vf lse = mics_vload(block->lse + v * MICS_LANES);
    mics_vf delta = mics_vload(block->delta + v * MICS_LANES);

    for (uint32_t j = 0; j < keys; j++, p += BLOCK, ds += BLOCK) {
        mics_vf e = mics_vexp_low(mics_vload(p) - lse);

        mics_vstore(p, e);
        mics_vstore(ds, e * (mics_vload(ds) - delta));
    }
}

/* to[key][D] += of[key][query] rows[query][D] */
static void add_product(struct block *block, const struct span *s, float *to, size_t ld,
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
static void add_grad_query(struct block *block, const struct span *s, struct mics_rows keys,
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

/* What a block of queries and one of keys give: to `sums`, unless NULL, and to grad_q if `of_query`. */
static void grad_keys(struct block *block, const struct mics_head *head, uint32_t query,
                      uint32_t key, const struct sums *sums, bool of_query)
{
    const uint32_t count = mics_head_block_size(head->T, key), D = head->D;
    const struct mics_rows keys = mics_head_rows(head->qkv, head->key + key * head->ld, head->ld,
                                                 count, D, head->dtype, block->wide[0]);
    const struct mics_rows values = mics_head_rows(head->qkv, head->value + key * head->ld,
                                                   head->ld, count, D, head->dtype, block->wide[1]);
    const bool diagonal = head->causal && key == query;
    struct span s = {0};

    for (s.from = 0; s.from < count; s.from += s.span) {
        s.span = mics_head_span(diagonal, count, s.from);
        s.column = diagonal ? s.from : 0;
        score(&s, block->p, keys, block->query_t, D);
        score(&s, block->ds, values, block->out_t, D);
    }
    if (diagonal)
        mics_head_mask(block->p, count);
    for (unsigned v = 0; v < VECTORS; v++)
        soften(block, v, mics_head_seen(diagonal, count, v));
    for (s.from = 0; s.from < count; s.from += s.span) {
        s.span = mics_head_span(diagonal, count, s.from);
        s.column = diagonal ? s.from : 0;
        if (sums) {
            add_product(block, &s, sums->value, sums->ld, block->p, block->out, D);
            add_product(block, &s, sums->key, sums->ld, block->ds, block->query, D);
        }
        if (of_query)
            add_grad_query(block, &s, keys, D);
    }
}

static void zero_keys(const struct mics_head *head, const struct grads *grads)
{
    float *key = (float *)grads->qkv + head->key, *value = (float *)grads->qkv + head->value;

    for (uint32_t t = 0; t < head->T; t++) {
        memset(key + t * head->ld, 0, head->D * sizeof(float));
        memset(value + t * head->ld, 0, head->D * sizeof(float));
    }
}

/* By blocks of queries: grad_q; in fp32 the others as well. */
static void grad_head(const struct mics_head *head, const struct grads *grads)
{
    const bool bf16 = head->dtype == MICS_BF16;
    struct block block;

    for (uint32_t query = 0; query < head->T; query += BLOCK) {
        load_block(&block, head, grads, query);
        for (uint32_t key = 0; key < (head->causal ? query + block.rows : head->T); key += BLOCK) {
            struct sums sums = {.ld = head->ld};

            if (!bf16) {
                sums.key = (float *)grads->qkv + head->key + key * head->ld;
                sums.value = (float *)grads->qkv + head->value + key * head->ld;
            }
            grad_keys(&block, head, query, key, bf16 ? NULL : &sums, true);
        }
        for (size_t i = 0; i < (size_t)head->D * BLOCK; i++)
            block.grad_t[i] *= block.scale;
        mics_head_transpose_out(grads->qkv, head->query + query * head->ld, head->ld, block.grad_t,
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
static void row_products(const struct grads *grads, const void *out, const struct mics_head *head)
{
    size_t at = grads->at;

    for (uint32_t t = 0; t < head->T; t++, at += head->ld_out)
        grads->delta[t] = head->dtype == MICS_BF16
                              ? row_product(grads->out, out, at, head->D, MICS_BF16)
                              : row_product(grads->out, out, at, head->D, MICS_F32);
}

/* A head and its gradient. */
struct pair {
    struct mics_head head;
    struct grads grads;
};

static struct pair pair_at(const struct mics_op_attention_grad *args, uint32_t b, uint32_t h)
{
    const size_t row = ((size_t)b * args->H + h) * args->T;
    struct pair pair = {
        .head = mics_head_at(args->qkv, args->dtype, b, h, args->T, args->H, args->H_kv, args->D),
        .grads = {.qkv = args->grad_qkv,
                  .out = args->grad_out,
                  .at = ((size_t)b * args->T * args->H + h) * args->D,
                  .lse = args->lse + row,
                  .delta = args->delta + row},
    };

    pair.head.causal = args->causal;
    return pair;
}

struct key_sums {
    float key[BLOCK * MICS_HOST_HEAD_MAX], value[BLOCK * MICS_HOST_HEAD_MAX]; /* [key][D] */
};

static void store_sums(const struct pair *pair, uint32_t key, const struct key_sums *sums)
{
    const struct mics_head *head = &pair->head;
    const size_t at = key * head->ld;

    for (uint32_t i = 0; i < mics_head_block_size(head->T, key); i++)
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
    struct block block;

    for (uint32_t key = 0; key < args->T; key += BLOCK) {
        const struct pair first = pair_at(args, b, h);

        memset(&held, 0, sizeof held);
        for (uint32_t i = 0; i < group; i++) {
            const struct pair pair = pair_at(args, b, h + i);

            for (uint32_t query = args->causal ? key : 0; query < args->T; query += BLOCK) {
                load_block(&block, &pair.head, &pair.grads, query);
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
    if (groups > 0 && args->T > 0)
        mics_pool_run(pool, groups, 1, grad_groups, (void *)args);
}
