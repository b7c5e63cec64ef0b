/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heads.h - what both directions of attention share: the blocks, and moving rows of a head in and out
 * of them.
 *
 * A block is MICS_HEAD_BLOCK queries by as many keys. Inside a block the *queries* lie along the vectors:
 * scores are held as [key][query], so that the softmax's maxima and sums run down columns, without
 * any sum across a vector, and keys and values are used where they lie, one number at a time; those in bf16
 * are widened a block at a time.
 */
#ifndef MICS_KERNELS_HOST_HEADS_H
#define MICS_KERNELS_HOST_HEADS_H

#include "host/bf16.h"
#include "host/kernels.h"

#include <math.h>
#include <stdbool.h>

#define MICS_HEAD_BLOCK   64
#define MICS_HEAD_VECTORS (MICS_HEAD_BLOCK / MICS_LANES)

/* One head of one sequence. `query`, `key`, `value`: where it begins, in elements of qkv. Rows of them are `ld`
 * apart; of outputs, ld_out. Heads of a group have their keys and values in common. */
struct mics_head {
    const void *qkv;
    enum mics_dtype dtype;
    size_t query, key, value;
    size_t ld, ld_out;
    uint32_t T, D;
    bool causal;
};

static inline struct mics_head mics_head_at(const void *qkv, enum mics_dtype dtype, uint32_t b,
                                            uint32_t h, uint32_t T, uint32_t H, uint32_t H_kv,
                                            uint32_t D)
{
    const size_t ld = ((size_t)H + 2 * (size_t)H_kv) * D, row = (size_t)b * T * ld;
    const size_t key = row + ((size_t)H + h / (H / H_kv)) * D;

    return (struct mics_head){
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

/* Up to MICS_HEAD_BLOCK rows of D in fp32, `ld` apart. */
struct mics_rows {
    const float *at;
    size_t ld;
};

/* Rows from element `first` of `from` on: where they lie, or widened in `room` (a block by D). */
static inline struct mics_rows mics_head_rows(const void *from, size_t first, size_t ld,
                                              uint32_t rows, uint32_t D, enum mics_dtype dtype,
                                              float *room)
{
    if (dtype != MICS_BF16)
        return (struct mics_rows){(const float *)from + first, ld};
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t d = 0; d < D; d++)
            room[i * D + d] = mics_load_as(from, first + i * ld + d, MICS_BF16);
    return (struct mics_rows){room, D};
}

static inline uint32_t mics_head_block_size(uint32_t T, uint32_t first)
{
    return T - first < MICS_HEAD_BLOCK ? T - first : MICS_HEAD_BLOCK;
}

/* to[d][i] = scale * from[i][d] for `rows` rows of D; the block's other columns become 0. */
static inline void mics_head_transpose_in(float *to, struct mics_rows from, uint32_t rows,
                                          uint32_t D, float scale)
{
    for (uint32_t d = 0; d < D; d++, to += MICS_HEAD_BLOCK) {
        for (uint32_t i = 0; i < rows; i++)
            to[i] = scale * from.at[i * from.ld + d];
        for (uint32_t i = rows; i < MICS_HEAD_BLOCK; i++)
            to[i] = 0;
    }
}

/* to[first + i * ld + d] = from[d][i] for `rows` rows of D. */
static inline void mics_head_transpose_out(void *to, size_t first, size_t ld, const float *from,
                                           uint32_t rows, uint32_t D, enum mics_dtype dtype)
{
    for (uint32_t i = 0; dtype == MICS_BF16 && i < rows; i++)
        for (uint32_t d = 0; d < D; d++)
            mics_store_as(to, first + i * ld + d, from[d * MICS_HEAD_BLOCK + i], MICS_BF16);
    for (uint32_t i = 0; dtype != MICS_BF16 && i < rows; i++)
        for (uint32_t d = 0; d < D; d++)
            mics_store_as(to, first + i * ld + d, from[d * MICS_HEAD_BLOCK + i], MICS_F32);
}

/* Keys of a block from key `from` on that are multiplied in one go. On the diagonal of a causal mask it is
 * a vector's worth, whose scores are needed from query `from` on only; elsewhere all. */
static inline uint32_t mics_head_span(bool diagonal, uint32_t keys, uint32_t from)
{
    return diagonal && keys - from > MICS_LANES ? MICS_LANES : keys - from;
}

/* Hide keys from the queries before them, in a block on the diagonal: what mics_head_span() left there. */
static inline void mics_head_mask(float *scores, uint32_t keys)
{
    for (uint32_t j = 0; j < keys; j++)
        for (uint32_t i = j / MICS_LANES * MICS_LANES; i < j; i++)
            scores[j * MICS_HEAD_BLOCK + i] = -INFINITY;
}

/* Keys that a vector of queries sees of a block. */
static inline uint32_t mics_head_seen(bool diagonal, uint32_t keys, unsigned v)
{
    return diagonal && keys > (v + 1) * MICS_LANES ? (v + 1) * MICS_LANES : keys;
}

#endif
