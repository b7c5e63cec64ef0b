/* SPDX-License-Identifier: Apache-2.0 */
/*
 * embedding_grad.c - the gradients of token and position embeddings.
 *
 * They run over strips of channels: a thread walks all rows, in order, for its strip, so that equal tokens meet in
 * one thread and in one order. For sums in bf16 rows are put in the order of their tokens first, those of one
 * token as they come, so that a token's sum is held in fp32 and rounded once; a position's rows lie T apart.
 * That order is made for so many rows at a time as the caller's stack has room for: only beyond that is a
 * sum rounded again.
 */
#include "host/bf16.h"
#include "host/flat.h"
#include "host/kernels.h"

#define STRIP 64
#define GROUP 32768 /* rows whose order is held at a time: 256 KiB */

struct group {
    const struct mics_op_embedding_grad *args;
    uint64_t first, rows;
    uint64_t order[GROUP]; /* token in the upper half, row behind `first` in the lower */
};

/* Move order[at] down to its place in a heap of `count`. */
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

/* Heapsort: in place, and no worse for texts of few words. */
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
MICS_TYPED void add_row(const struct mics_op_embedding_grad *args, float *sum, uint64_t row,
                        uint64_t c, uint32_t width, const enum mics_dtype type)
{
    const uint64_t at = row * args->C + c;

    for (uint32_t i = 0; i < width; i++)
        sum[i] += mics_load_as(args->grad_out, at + i, type);
}

/* A strip of gradients in fp32, where they are. */
MICS_TYPED void add_in_place(const struct mics_op_embedding_grad *args, uint64_t c, uint32_t width,
                             const enum mics_dtype type)
{
    float *wte = (float *)args->grad_wte + c, *wpe = args->grad_wpe;

    for (uint64_t row = 0; row < (uint64_t)args->B * args->T; row++) {
        float *token = wte + (uint64_t)args->tokens[row] * args->C;
        float *position = wpe ? wpe + row % args->T * args->C + c : NULL;

        if (!position)
            add_row(args, token, row, c, width, type);
        for (uint32_t i = 0; position && i < width; i++) {
            const float grad = mics_load_as(args->grad_out, row * args->C + c + i, type);

            token[i] += grad;
            position[i] += grad;
        }
    }
}

static uint32_t strip_width(const struct mics_op_embedding_grad *args, uint64_t strip)
{
    return (uint32_t)mics_min_u64(STRIP, args->C - strip * STRIP);
}

static void add_strips_in_place(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_embedding_grad *args = context;

    for (uint64_t strip = begin; strip < end; strip++) {
        if (args->dtype == MICS_BF16)
            add_in_place(args, strip * STRIP, strip_width(args, strip), MICS_BF16);
        else
            add_in_place(args, strip * STRIP, strip_width(args, strip), MICS_F32);
    }
}

static void load_sum(float *sum, const uint16_t *from, uint32_t width)
{
    for (uint32_t i = 0; i < width; i++)
        sum[i] = mics_bf16_widen(from[i]);
}

static void store_sum(uint16_t *to, const float *sum, uint32_t width)
{
    for (uint32_t i = 0; i < width; i++)
        to[i] = mics_bf16_round(sum[i]);
}

MICS_TYPED void add_tokens(const struct group *group, uint64_t c, uint32_t width,
                           const enum mics_dtype type)
{
    const struct mics_op_embedding_grad *args = group->args;
    float sum[STRIP];

    for (uint64_t i = 0, next; i < group->rows; i = next) {
        const uint64_t token = group->order[i] >> 32;
        uint16_t *to = (uint16_t *)args->grad_wte + token * args->C + c;

        load_sum(sum, to, width);
        for (next = i; next < group->rows && group->order[next] >> 32 == token; next++)
            add_row(args, sum, group->first + (uint32_t)group->order[next], c, width, type);
        store_sum(to, sum, width);
    }
}

MICS_TYPED void add_positions(const struct group *group, uint64_t c, uint32_t width,
                              const enum mics_dtype type)
{
    const struct mics_op_embedding_grad *args = group->args;
    float sum[STRIP];

    for (uint64_t i = 0; args->grad_wpe && i < mics_min_u64(args->T, group->rows); i++) {
        uint16_t *to = (uint16_t *)args->grad_wpe + (group->first + i) % args->T * args->C + c;

        load_sum(sum, to, width);
        for (uint64_t row = i; row < group->rows; row += args->T)
            add_row(args, sum, group->first + row, c, width, type);
        store_sum(to, sum, width);
    }
}

static void add_strips(void *context, uint64_t begin, uint64_t end)
{
    const struct group *group = context;

    for (uint64_t strip = begin; strip < end; strip++) {
        const uint32_t width = strip_width(group->args, strip);

        if (group->args->dtype == MICS_BF16) {
            add_tokens(group, strip * STRIP, width, MICS_BF16);
            add_positions(group, strip * STRIP, width, MICS_BF16);
        } else {
            add_tokens(group, strip * STRIP, width, MICS_F32);
            add_positions(group, strip * STRIP, width, MICS_F32);
        }
    }
}

static void add_in_order(struct mics_pool *pool, const struct mics_op_embedding_grad *args)
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

void mics_host_embedding_grad(struct mics_pool *pool, const struct mics_op_embedding_grad *args)
{
    if (args->C == 0)
        return;
    if (args->grad_dtype == MICS_BF16)
        add_in_order(pool, args);
    else
        mics_pool_run(pool, mics_ceil_div(args->C, STRIP), 1, add_strips_in_place, (void *)args);
}
