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
 * added to in place, in a fixed order.
 * 10 T T D flops a head, half of that when causal.
 */
#include "host/heads.h"
#include "host/tile.h"
#include "host/vmath.h"

#include <assert.h>

#define BLOCK   MICS_HEAD_BLOCK
#define VECTORS MICS_HEAD_VECTORS

/* One head of a gradient: rows of the three parts are `ld` apart, as in struct mics_head. */
struct grads {
    float *query, *key, *value;
    const float *out; /* the gradient that came in */
    const float *lse;
    float *delta;
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
    float lse[BLOCK], delta[BLOCK];            /* [query] */
    uint32_t rows, width;
    float scale;
};

/* to[i][width] = scale * from[i][D], the rest 0. */
static void copy_rows(float *to, uint32_t width, const float *from, size_t ld, uint32_t rows,
                      uint32_t D, float scale)
{
    for (uint32_t i = 0; i < rows; i++, to += width, from += ld)
        for (uint32_t d = 0; d < width; d++)
            to[d] = d < D ? scale * from[d] : 0;
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
    const float *from = head->query + query * head->ld, *out = grads->out + query * head->ld_out;
    uint32_t D = head->D;

    block->rows = mics_head_block_size(head->T, query);
    block->width = (D + MICS_LANES - 1) / MICS_LANES * MICS_LANES;
    block->scale = 1.0f / sqrtf((float)D);
    mics_head_transpose_in(block->query_t, from, head->ld, block->rows, D, block->scale);
    mics_head_transpose_in(block->out_t, out, head->ld_out, block->rows, D, 1.0f);
    copy_rows(block->query, block->width, from, head->ld, block->rows, D, block->scale);
    copy_rows(block->out, block->width, out, head->ld_out, block->rows, D, 1.0f);
    memset(block->grad_t, 0, (size_t)D * BLOCK * sizeof(float));
    for (uint32_t i = 0; i < BLOCK; i++) {
        block->lse[i] = i < block->rows ? grads->lse[query + i] : 0;
        block->delta[i] = i < block->rows ? grads->delta[query + i] : 0;
    }
}

/* A tile of what follows: keys [from, from + span) of a block, queries from `column` on. */
struct span {
    uint32_t key, from, span, column;
};

/* to[key][query] = rows of `of` (keys or values) times with[D][query]. */
static void score(const struct span *s, float *to, const float *of, const float *with,
                  const struct mics_head *head)
{
    mics_tile_product(&(struct mics_tile){
        .c = to + s->from * BLOCK + s->column,
        .a = of + (s->key + s->from) * head->ld,
        .b = with + s->column,
        .row_step = head->ld,
        .depth_step = 1,
        .ldb = BLOCK,
        .ldc = BLOCK,
        .rows = s->span,
        .depth = head->D,
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
    add_rows(to + (s->key + s->from) * ld, ld, block->grad, width, s->span, D);
}

/* grad_q += dS k */
static void add_grad_query(struct block *block, const struct span *s, const struct mics_head *head)
{
    mics_tile_product(&(struct mics_tile){
        .c = block->grad_t + s->column,
        .a = head->key + (s->key + s->from) * head->ld,
        .b = block->ds + s->from * BLOCK + s->column,
        .row_step = 1,
        .depth_step = head->ld,
        .ldb = BLOCK,
        .ldc = BLOCK,
        .rows = head->D,
        .depth = s->span,
        .width = BLOCK - s->column,
        .add = true,
    });
}

static void grad_keys(struct block *block, const struct mics_head *head, const struct grads *grads,
                      uint32_t query, uint32_t key)
{
    uint32_t keys = mics_head_block_size(head->T, key);
    bool diagonal = head->causal && key == query;
    struct span s = {.key = key};

    for (s.from = 0; s.from < keys; s.from += s.span) {
        s.span = mics_head_span(diagonal, keys, s.from);
        s.column = diagonal ? s.from : 0;
        score(&s, block->p, head->key, block->query_t, head);
        score(&s, block->ds, head->value, block->out_t, head);
    }
    if (diagonal)
        mics_head_mask(block->p, keys);
    for (unsigned v = 0; v < VECTORS; v++)
        soften(block, v, mics_head_seen(diagonal, keys, v));
    for (s.from = 0; s.from < keys; s.from += s.span) {
        s.span = mics_head_span(diagonal, keys, s.from);
        s.column = diagonal ? s.from : 0;
        add_product(block, &s, grads->value, head->ld, block->p, block->out, head->D);
        add_product(block, &s, grads->key, head->ld, block->ds, block->query, head->D);
        add_grad_query(block, &s, head);
    }
}

static void zero_keys(const struct mics_head *head, const struct grads *grads)
{
    for (uint32_t t = 0; t < head->T; t++) {
        memset(grads->key + t * head->ld, 0, head->D * sizeof(float));
        memset(grads->value + t * head->ld, 0, head->D * sizeof(float));
    }
}

static void grad_head(const struct mics_head *head, const struct grads *grads)
{
    struct block block;

    for (uint32_t query = 0; query < head->T; query += BLOCK) {
        load_block(&block, head, grads, query);
        for (uint32_t key = 0; key < (head->causal ? query + block.rows : head->T); key += BLOCK)
            grad_keys(&block, head, grads, query, key);
        for (size_t i = 0; i < (size_t)head->D * BLOCK; i++)
            block.grad_t[i] *= block.scale;
        mics_head_transpose_out(grads->query + query * head->ld, head->ld, block.grad_t, block.rows,
                                head->D);
    }
}

/* delta[t] = sum over d of grad_out * out */
static void row_products(float *delta, const float *grad_out, const float *out,
                         const struct mics_head *head)
{
    for (uint32_t t = 0; t < head->T; t++, grad_out += head->ld_out, out += head->ld_out) {
        mics_vf sum = {0};
        uint32_t d = 0;

        for (; d + MICS_LANES <= head->D; d += MICS_LANES)
            sum += mics_vload(grad_out + d) * mics_vload(out + d);
        delta[t] = mics_vsum(sum);
        for (; d < head->D; d++)
            delta[t] += grad_out[d] * out[d];
    }
}

/* Head h of sequence b; `first` of those that share its keys. */
static void grad_one(const struct mics_op_attention_grad *args, uint32_t b, uint32_t h, bool first)
{
    struct mics_head head = mics_head_at(args->qkv, b, h, args->T, args->H, args->H_kv, args->D);
    const size_t at = (size_t)b * args->T * head.ld_out + (size_t)h * args->D;
    const size_t row = ((size_t)b * args->H + h) * args->T;
    float *grad = (float *)args->grad_qkv + (head.query - (const float *)args->qkv);
    struct grads grads = {
        .query = grad,
        .key = grad + (head.key - head.query),
        .value = grad + (head.value - head.query),
        .out = (const float *)args->grad_out + at,
        .lse = args->lse + row,
        .delta = args->delta + row,
    };

    head.causal = args->causal;
    if (first)
        zero_keys(&head, &grads);
    row_products(grads.delta, grads.out, (const float *)args->out + at, &head);
    grad_head(&head, &grads);
}

static void grad_groups(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_attention_grad *args = context;
    const uint32_t group = args->H / args->H_kv;

    for (uint64_t i = begin; i < end; i++)
        for (uint32_t h = 0; h < group; h++)
            grad_one(args, (uint32_t)(i / args->H_kv), (uint32_t)(i % args->H_kv) * group + h,
                     h == 0);
}

void mics_host_attention_grad(struct mics_pool *pool, const struct mics_op_attention_grad *args)
{
    uint64_t groups = (uint64_t)args->B * args->H_kv;

    assert(args->D <= MICS_HOST_HEAD_MAX && args->H % args->H_kv == 0);
    if (groups > 0 && args->T > 0)
        mics_pool_run(pool, groups, 1, grad_groups, (void *)args);
}
