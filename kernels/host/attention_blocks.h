/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_blocks.h - blocks of queries and keys, for attention (attention.c) and its gradient
 * (attention_grad.c): how they are packed, and which keys a query sees.
 *
 * A block is BLOCK queries by as many keys. Inside a block the *queries* lie along the vectors:
 * scores are held as [key][query], so that the maxima and sums of the softmax run down columns,
 * without a sum across a vector, and keys and values are read one number at a time. All rows of a
 * block are copied to the thread's stack first, which widens those in bf16: in memory they are so
 * far apart, often by a multiple of 1024 bytes, that the first cache cannot hold the block.
 *
 * Where the processor multiplies pairs of bf16, scores and the gradients of probabilities, which
 * are products of two operands in bf16, are computed so: keys and values lie in pairs along D then,
 * and queries and gradients of outputs as [D / 2][query]. The other products have one operand in
 * fp32, which would have to be rounded first.
 */
#ifndef MICS_KERNELS_HOST_ATTENTION_BLOCKS_H
#define MICS_KERNELS_HOST_ATTENTION_BLOCKS_H

#include "host/kernels.h"
#include "host/pool.h"
#include "host/products.h"
#include "host/tile.h"
#include "host/vector.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define BLOCK   64 /* queries, and keys, of a block */
#define VECTORS (BLOCK / MICS_LANES)

/* Rows of a block are an odd number of cache lines apart: a column of them is in as many sets of
 * the first cache as there are rows. */
#define LINE     16 /* floats */
#define BLOCK_LD (BLOCK + LINE)
#define HEAD_LD  (MICS_HOST_HEAD_MAX + LINE) /* the most */

/* One head of one sequence. `query`, `key`, `value`: where it begins, in elements of qkv. Rows
 * of them are `step` apart; of outputs, step_out. Heads of a group have their keys and values in
 * common. */
struct head {
    const void *qkv;
    enum mics_dtype dtype;
    size_t query, key, value;
    size_t step, step_out;
    uint32_t T, D;
    uint32_t width, ld;     /* D up to whole vectors; from one row of a block to the next */
    bool causal, pairs;     /* pairs of bf16 are multiplied */
    const int32_t *targets; /* [T] of the sequence; NULL: it is one document */
    uint32_t window;        /* keys that a query sees, its own included; 0: all */
};

static inline struct head head_at(const void *qkv, enum mics_dtype dtype, uint32_t b, uint32_t h,
                                  uint32_t T, uint32_t H, uint32_t H_kv, uint32_t D)
{
    const size_t step = ((size_t)H + 2 * (size_t)H_kv) * D, row = (size_t)b * T * step;
    const size_t key = row + ((size_t)H + h / (H / H_kv)) * D;

    return (struct head){
        .qkv = qkv,
        .dtype = dtype,
        .query = row + (size_t)h * D,
        .key = key,
        .value = key + (size_t)H_kv * D,
        .step = step,
        .step_out = (size_t)H * D,
        .T = T,
        .D = D,
        .width = (uint32_t)mics_round_up(D, MICS_LANES),
        .ld = ((D + LINE - 1) / LINE | 1) * LINE,
    };
}

static inline uint32_t block_size(uint32_t T, uint32_t first)
{
    return T - first < BLOCK ? T - first : BLOCK;
}

MICS_TYPED void pack_typed(float *to, const struct head *head, const void *from, size_t first,
                           size_t step, uint32_t rows, float scale, const enum mics_dtype dtype)
{
    const uint32_t D = head->D;

    for (uint32_t i = 0; i < rows; i++, to += head->ld, first += step) {
        uint32_t d = 0;

        for (; d + MICS_LANES <= D; d += MICS_LANES)
            mics_vstore(to + d, scale * mics_vload_as(from, first + d, dtype));
        if (d < D)
            mics_vstore(to + d, scale * mics_vload_part_as(from, first + d, D - d, dtype));
    }
}

/* to[i][d] = scale * from[first + i * step + d] for `rows` rows of D; 0 up to the width. */
static inline void pack(float *to, const struct head *head, const void *from, size_t first,
                        size_t step, uint32_t rows, float scale)
{
    if (head->dtype == MICS_BF16)
        pack_typed(to, head, from, first, step, rows, scale, MICS_BF16);
    else if (head->dtype == MICS_F16)
        pack_typed(to, head, from, first, step, rows, scale, MICS_F16);
    else
        pack_typed(to, head, from, first, step, rows, scale, MICS_F32);
}

/* The same of a block of queries or of gradients of outputs; rows that are missing are 0. */
static inline void pack_block(float *to, const struct head *head, const void *from, size_t first,
                              size_t step, uint32_t rows, float scale)
{
    pack(to, head, from, first, step, rows, scale);
    memset(to + rows * head->ld, 0, (BLOCK - rows) * head->ld * sizeof(float));
}

/* Rows of keys, or of values, from position t on. */
static inline void pack_rows(float *to, const struct head *head, size_t part, uint32_t t,
                             uint32_t rows)
{
    pack(to, head, head->qkv, part + t * head->step, head->step, rows, 1.0f);
}

MICS_TYPED void unpack_typed(void *to, const struct head *head, size_t first, size_t step,
                             const float *from, uint32_t rows, const enum mics_dtype dtype)
{
    const uint32_t D = head->D;

    for (uint32_t i = 0; i < rows; i++, from += head->ld, first += step) {
        uint32_t d = 0;

        for (; d + MICS_LANES <= D; d += MICS_LANES)
            mics_vstore_as(to, first + d, mics_vload(from + d), dtype);
        if (d < D)
            mics_vstore_part_as(to, first + d, mics_vload(from + d), D - d, dtype);
    }
}

/* to[first + i * step + d] = from[i][d] for `rows` rows of D. */
static inline void unpack(void *to, const struct head *head, size_t first, size_t step,
                          const float *from, uint32_t rows)
{
    if (head->dtype == MICS_BF16)
        unpack_typed(to, head, first, step, from, rows, MICS_BF16);
    else if (head->dtype == MICS_F16)
        unpack_typed(to, head, first, step, from, rows, MICS_F16);
    else
        unpack_typed(to, head, first, step, from, rows, MICS_F32);
}

static inline bool uses_pairs(const struct mics_pool *pool, enum mics_dtype dtype, uint32_t D)
{
    return dtype == MICS_BF16 && D % 2 == 0 && mics_product_pairs_bf16(pool);
}

/* As pack_block(), of numbers in bf16, which stay as they are; `of` rows. */
static inline void pack_pairs(float *to, const struct head *head, const void *from, size_t first,
                              size_t step, uint32_t rows, uint32_t of)
{
    const size_t bytes = head->D * sizeof(uint16_t), all = head->width * sizeof(uint16_t);

    for (uint32_t i = 0; i < of; i++, to += head->ld, first += step) {
        if (i < rows)
            memcpy(to, (const uint16_t *)from + first, bytes);
        else
            memset(to, 0, bytes);
        memset((char *)to + bytes, 0, all - bytes);
    }
}

/* to[d][i] = from[i][d], of a block of queries; to has rows of BLOCK_LD. */
static inline void transpose_block(float *to, const float *from, const struct head *head)
{
    const uint32_t width = head->pairs ? head->width / 2 : head->width;

    for (uint32_t i = 0; i < BLOCK; i += MICS_SQUARE)
        for (uint32_t d = 0; d < width; d += MICS_SQUARE)
            mics_transpose_square(to + d * BLOCK_LD + i, BLOCK_LD, from + i * head->ld + d,
                                  head->ld);
}

/* The opposite. */
static inline void transpose_back(float *to, const float *from, const struct head *head)
{
    for (uint32_t i = 0; i < BLOCK; i += MICS_SQUARE)
        for (uint32_t d = 0; d < head->width; d += MICS_SQUARE)
            mics_transpose_square(to + i * head->ld + d, head->ld, from + d * BLOCK_LD + i,
                                  BLOCK_LD);
}

/* A product of which both operands are in pairs, if any are. */
static inline void product_of_pairs(const struct head *head, struct mics_tile *tile)
{
    tile->depth = head->D;
    if (!head->pairs) {
        mics_tile_product(tile);
        return;
    }
    tile->depth = head->D / 2;
    mics_tile_product_pairs(tile);
}

/* What scores are multiplied by: pairs are of queries that are not scaled. */
static inline float score_scale(const struct head *head)
{
    return head->pairs ? 1.0f / sqrtf((float)head->D) : 1;
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
            scores[j * BLOCK_LD + i] = -INFINITY;
}

/*
 * Documents and windows. A query sees keys from the first token of its document, and of its window,
 * on, and unless causal up to the last token of its document. The score of another key becomes a
 * number instead of an infinity, because a query may see none of the first block of keys of its
 * block of queries: its sums, which are then of equal scores, are multiplied by 0 when the first
 * key follows that it sees. Blocks of which no query sees a key are left out.
 */

#define HIDDEN (-1e30f)

/* The first token of the window of token t. */
static inline uint32_t window_begin(const struct head *head, uint32_t t)
{
    return head->window > 0 && t >= head->window ? t - head->window + 1 : 0;
}

/* The keys [first, end) that each query of a block sees, but for the causal mask; both ascend. */
struct seen {
    uint32_t first[BLOCK], end[BLOCK];
};

/* The first token of the document of token t, if it is not before `least`. */
static inline uint32_t document_begin(const struct head *head, uint32_t t, uint32_t least)
{
    while (t > least && head->targets[t - 1] != MICS_TARGET_LAST)
        t--;
    return t;
}

/* Where the documents of queries [query, query + rows) end; unless causal. */
static inline void find_ends(uint32_t end[BLOCK], const struct head *head, uint32_t query,
                             uint32_t rows)
{
    uint32_t after = query + rows;

    while (after < head->T && head->targets[after - 1] != MICS_TARGET_LAST)
        after++;
    for (uint32_t i = BLOCK; i-- > 0;) {
        if (i < rows && head->targets[query + i] == MICS_TARGET_LAST)
            after = query + i + 1;
        end[i] = after;
    }
}

static inline void find_seen(struct seen *seen, const struct head *head, uint32_t query)
{
    const uint32_t rows = block_size(head->T, query), begin_first = window_begin(head, query);
    uint32_t begin = head->targets ? document_begin(head, query, begin_first) : begin_first;

    for (uint32_t i = 0; i < BLOCK; i++) {
        const uint32_t windowed = window_begin(head, query + i);

        seen->first[i] = begin > windowed ? begin : windowed;
        seen->end[i] = head->T;
        if (head->targets && i < rows && head->targets[query + i] == MICS_TARGET_LAST)
            begin = query + i + 1;
    }
    if (head->targets && !head->causal)
        find_ends(seen->end, head, query, rows);
}

/* The key behind the last one that `rows` queries from `query` on see. */
static inline uint32_t keys_end(const struct head *head, const struct seen *seen, uint32_t query,
                                uint32_t rows)
{
    return head->causal ? query + rows : seen->end[rows - 1];
}

/* In a block of keys from `key` on, hide those that a query does not see. */
static inline void hide_unseen(float *scores, const struct seen *seen, uint32_t key, uint32_t keys)
{
    if (seen->first[BLOCK - 1] <= key && seen->end[0] >= key + keys)
        return;
    for (uint32_t j = 0; j < keys; j++)
        for (uint32_t i = 0; i < BLOCK; i++)
            if (key + j < seen->first[i] || key + j >= seen->end[i])
                scores[j * BLOCK_LD + i] = HIDDEN;
}

/* Keys that a vector of queries sees of a block. */
static inline uint32_t keys_seen(bool diagonal, uint32_t keys, unsigned v)
{
    return diagonal && keys > (v + 1) * MICS_LANES ? (v + 1) * MICS_LANES : keys;
}

#endif
