/* SPDX-License-Identifier: Apache-2.0 */
/*
 * embedding.c - embeddings of tokens and positions: the lookup, its gradient, and rotary positions.
 */
#include "host/decode.h"
#include "host/kernels.h"
#include "host/pool.h"
#include "host/vector.h"
#include "rope.h"

#include <assert.h>
#include <math.h>

/* The lookup: 12 bytes (6 in bf16 or fp16) per element. */

#define ROWS_GRAIN 32

MICS_TYPED void embed_row(const struct mics_args_embedding *args, uint64_t row,
                          const enum mics_dtype dtype)
{
    const uint64_t token = (uint64_t)args->tokens[row] * args->C,
                   position = row % args->T * args->C;

    for (uint32_t c = 0; c < args->C; c++) {
        float value = mics_load_as(args->wte, token + c, dtype);

        if (args->wpe)
            value += mics_load_as(args->wpe, position + c, dtype);
        if (args->each)
            value += mics_load_as(args->each, c, dtype);
        mics_store_as(args->out, row * args->C + c, value, dtype);
    }
}

static void embed_rows(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_embedding *args = context;

    for (uint64_t row = begin; row < end; row++) {
        if (args->dtype == MICS_BF16)
            embed_row(args, row, MICS_BF16);
        else if (args->dtype == MICS_F16)
            embed_row(args, row, MICS_F16);
        else
            embed_row(args, row, MICS_F32);
    }
}

void mics_host_embedding(struct mics_pool *pool, const struct mics_args_embedding *args)
{
    uint64_t rows = (uint64_t)args->B * args->T;

    if (rows > 0)
        mics_pool_run(pool, rows, ROWS_GRAIN, embed_rows, (void *)args);
}

/*
 * The gradients of the tables of tokens and positions.
 *
 * They are computed in strips of channels: one thread goes through all rows, in order, for its
 * strip, so that each token's gradients are summed by one thread in one order. For sums in two
 * bytes rows are sorted by token first, those of one token in their own order, so that a token's
 * sum is held in fp32 and rounded once; the rows of one position are T apart. The sorted order is
 * held for GROUP rows at a time, which fit the caller's stack: a sum over more rows is rounded once
 * per group.
 */

#define STRIP 64
#define GROUP 32768 /* rows whose order is held at a time: 256 KiB */

struct group {
    const struct mics_args_embedding_grad *args;
    uint64_t first, rows;
    uint64_t order[GROUP]; /* token in the upper half, row - first in the lower */
};

/* Sift order[at] down in a heap of `count`. */
static void sift(uint64_t *order, uint64_t at, uint64_t count)
{
    const uint64_t moving = order[at];

    for (uint64_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && order[child + 1] > order[child])
            child++;
        if (order[child] <= moving)
            break;
        order[at] = order[child];
        at = child;
    }
    order[at] = moving;
}

/* Heapsort: in place, and as fast when few tokens are distinct. */
static void sort(uint64_t *order, uint64_t count)
{
    for (uint64_t at = count / 2; at-- > 0;)
        sift(order, at, count);
    for (uint64_t last = count; last-- > 1;) {
        const uint64_t largest = order[0];

        order[0] = order[last];
        order[last] = largest;
        sift(order, 0, last);
    }
}

/* sum[0 .. width) += row `row` of grad_out from channel `c` on. */
MICS_TYPED void add_row(const struct mics_args_embedding_grad *args, float *sum, uint64_t row,
                        uint64_t c, uint32_t width, const enum mics_dtype dtype)
{
    const uint64_t at = row * args->C + c;

    for (uint32_t i = 0; i < width; i++)
        sum[i] += mics_load_as(args->grad_out, at + i, dtype);
}

/* A strip of fp32 gradients, accumulated in place. */
MICS_TYPED void add_in_place(const struct mics_args_embedding_grad *args, uint64_t c,
                             uint32_t width, const enum mics_dtype dtype)
{
    float *wte = (float *)args->grad_wte + c, *wpe = args->grad_wpe;

    for (uint64_t row = 0; row < (uint64_t)args->B * args->T; row++) {
        float *token = wte + (uint64_t)args->tokens[row] * args->C;
        float *position = wpe ? wpe + row % args->T * args->C + c : NULL;

        if (!position)
            add_row(args, token, row, c, width, dtype);
        for (uint32_t i = 0; position && i < width; i++) {
            const float grad = mics_load_as(args->grad_out, row * args->C + c + i, dtype);

            token[i] += grad;
            position[i] += grad;
        }
    }
}

static uint32_t strip_width(const struct mics_args_embedding_grad *args, uint64_t strip)
{
    return (uint32_t)mics_min_u64(STRIP, args->C - strip * STRIP);
}

static void add_strips_in_place(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_embedding_grad *args = context;

    for (uint64_t strip = begin; strip < end; strip++) {
        if (args->dtype == MICS_BF16)
            add_in_place(args, strip * STRIP, strip_width(args, strip), MICS_BF16);
        else if (args->dtype == MICS_F16)
            add_in_place(args, strip * STRIP, strip_width(args, strip), MICS_F16);
        else
            add_in_place(args, strip * STRIP, strip_width(args, strip), MICS_F32);
    }
}

MICS_TYPED void load_sum(float *sum, const uint16_t *from, uint32_t width,
                         const enum mics_dtype grad)
{
    for (uint32_t i = 0; i < width; i++)
        sum[i] = mics_load_as(from, i, grad);
}

MICS_TYPED void store_sum(uint16_t *to, const float *sum, uint32_t width,
                          const enum mics_dtype grad)
{
    for (uint32_t i = 0; i < width; i++)
        mics_store_as(to, i, sum[i], grad);
}

MICS_TYPED void add_tokens(const struct group *group, uint64_t c, uint32_t width,
                           const enum mics_dtype dtype, const enum mics_dtype grad)
{
    const struct mics_args_embedding_grad *args = group->args;
    float sum[STRIP];

    for (uint64_t i = 0, next; i < group->rows; i = next) {
        const uint64_t token = group->order[i] >> 32;
        uint16_t *to = (uint16_t *)args->grad_wte + token * args->C + c;

        load_sum(sum, to, width, grad);
        for (next = i; next < group->rows && group->order[next] >> 32 == token; next++)
            add_row(args, sum, group->first + (uint32_t)group->order[next], c, width, dtype);
        store_sum(to, sum, width, grad);
    }
}

MICS_TYPED void add_positions(const struct group *group, uint64_t c, uint32_t width,
                              const enum mics_dtype dtype, const enum mics_dtype grad)
{
    const struct mics_args_embedding_grad *args = group->args;
    float sum[STRIP];

    for (uint64_t i = 0; args->grad_wpe && i < mics_min_u64(args->T, group->rows); i++) {
        uint16_t *to = (uint16_t *)args->grad_wpe + (group->first + i) % args->T * args->C + c;

        load_sum(sum, to, width, grad);
        for (uint64_t row = i; row < group->rows; row += args->T)
            add_row(args, sum, group->first + row, c, width, dtype);
        store_sum(to, sum, width, grad);
    }
}

MICS_TYPED void add_strip(const struct group *group, uint64_t strip, const enum mics_dtype dtype,
                          const enum mics_dtype grad)
{
    const uint32_t width = strip_width(group->args, strip);

    add_tokens(group, strip * STRIP, width, dtype, grad);
    add_positions(group, strip * STRIP, width, dtype, grad);
}

static void add_strips(void *context, uint64_t begin, uint64_t end)
{
    const struct group *group = context;
    const bool f16 = group->args->grad_dtype == MICS_F16;

    for (uint64_t strip = begin; strip < end; strip++) {
        if (group->args->dtype == MICS_BF16)
            add_strip(group, strip, MICS_BF16, MICS_BF16);
        else if (group->args->dtype == MICS_F16)
            add_strip(group, strip, MICS_F16, MICS_F16);
        else if (f16)
            add_strip(group, strip, MICS_F32, MICS_F16);
        else
            add_strip(group, strip, MICS_F32, MICS_BF16);
    }
}

static void add_in_order(struct mics_pool *pool, const struct mics_args_embedding_grad *args)
{
    const uint64_t rows = (uint64_t)args->B * args->T;
    struct group group = {.args = args};

    for (; group.first < rows; group.first += group.rows) {
        group.rows = mics_min_u64(rows - group.first, GROUP);
        for (uint64_t i = 0; i < group.rows; i++)
            group.order[i] = (uint64_t)args->tokens[group.first + i] << 32 | i;
        sort(group.order, group.rows);
        mics_pool_run(pool, mics_ceil_div(args->C, STRIP), 1, add_strips, &group);
    }
}

void mics_host_embedding_grad(struct mics_pool *pool, const struct mics_args_embedding_grad *args)
{
    if (args->C == 0)
        return;
    if (mics_dtype_is_half(args->grad_dtype))
        add_in_order(pool, args);
    else
        mics_pool_run(pool, mics_ceil_div(args->C, STRIP), 1, add_strips_in_place, (void *)args);
}

/*
 * Rotary positions (Su et al. 2021), rotate-half form.
 *
 * The sines and cosines of a position are computed once for all heads of all sequences. Frequencies
 * are computed in double and rounded to fp32; the angle t * frequency, its sine and its cosine are
 * computed in fp32. 8 bytes and 3 flops per element in fp32.
 */

#define ROPE_GRAIN (16 * 1024) /* of a piece of positions */
#define HALF_MAX   (MICS_HOST_HEAD_MAX / 2)

struct rope {
    const struct mics_args_rope *args;
    const uint32_t *positions; /* [T]; NULL: 0 to T - 1 */
    float frequency[HALF_MAX];
};

struct rotation {
    float cosine[HALF_MAX], sine[HALF_MAX];
};

static void rotation_at(const struct rope *rope, uint64_t t, struct rotation *rotation)
{
    const float amplitude = mics_rope_amplitude(rope->args);

    for (uint32_t i = 0; i < rope->args->D / 2; i++) {
        const float angle = (float)t * rope->frequency[i];

        rotation->cosine[i] = cosf(angle) * amplitude;
        rotation->sine[i] = (rope->args->inverse ? -sinf(angle) : sinf(angle)) * amplitude;
    }
}

/* One head of one row, from element `at` on. */
MICS_TYPED void rotate_head(void *data, uint64_t at, uint32_t half, const struct rotation *rotation,
                            const enum mics_dtype dtype)
{
    uint32_t i = 0;

    for (; i + MICS_LANES <= half; i += MICS_LANES) {
        const mics_vf x = mics_vload_as(data, at + i, dtype);
        const mics_vf y = mics_vload_as(data, at + half + i, dtype);
        const mics_vf c = mics_vload(rotation->cosine + i), s = mics_vload(rotation->sine + i);

        mics_vstore_as(data, at + i, x * c - y * s, dtype);
        mics_vstore_as(data, at + half + i, y * c + x * s, dtype);
    }
    for (; i < half; i++) {
        const float x = mics_load_as(data, at + i, dtype);
        const float y = mics_load_as(data, at + half + i, dtype);

        mics_store_as(data, at + i, x * rotation->cosine[i] - y * rotation->sine[i], dtype);
        mics_store_as(data, at + half + i, y * rotation->cosine[i] + x * rotation->sine[i], dtype);
    }
}

static void rotate_positions(void *context, uint64_t begin, uint64_t end)
{
    const struct rope *rope = context;
    const struct mics_args_rope *args = rope->args;
    struct rotation rotation;

    for (uint64_t t = begin; t < end; t++) {
        rotation_at(rope, rope->positions ? rope->positions[t] : t, &rotation);
        for (uint64_t b = 0; b < args->B; b++)
            for (uint32_t h = 0; h < args->heads; h++) {
                const uint64_t at = (b * args->T + t) * args->stride + (uint64_t)h * args->D;

                if (args->dtype == MICS_BF16)
                    rotate_head(args->data, at, args->D / 2, &rotation, MICS_BF16);
                else if (args->dtype == MICS_F16)
                    rotate_head(args->data, at, args->D / 2, &rotation, MICS_F16);
                else
                    rotate_head(args->data, at, args->D / 2, &rotation, MICS_F32);
            }
    }
}

void mics_host_rope_at(struct mics_pool *pool, const struct mics_args_rope *args,
                       const uint32_t *positions)
{
    const uint64_t floats = (uint64_t)args->B * args->heads * args->D;
    struct rope rope = {.args = args, .positions = positions};

    assert(args->D % 2 == 0 && args->D <= MICS_HOST_HEAD_MAX);
    for (uint32_t i = 0; i < args->D / 2; i++)
        rope.frequency[i] = mics_rope_frequency(args, i);
    mics_pool_run(pool, args->T, ROPE_GRAIN / (floats + 1) + 1, rotate_positions, &rope);
}

void mics_host_rope(struct mics_pool *pool, const struct mics_args_rope *args)
{
    mics_host_rope_at(pool, args, NULL);
}
