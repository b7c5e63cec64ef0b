/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decode.h - what generating text token by token needs besides the operations of ops.h: products of
 * few rows, attention over keys and values of earlier tokens, rotary positions of any row.
 *
 * Everything is fp32. These run in the caller's thread and the pool's, allocate nothing, and cannot
 * fail. The number of threads changes no bit of a result, nor do the other rows of a call.
 */
#ifndef MICS_KERNELS_HOST_DECODE_H
#define MICS_KERNELS_HOST_DECODE_H

#include "host/pool.h"
#include "ops.h"

/* A product of at most this many rows reads the matrix once; for more, mics_host_matmul() is
 * faster. */
#define MICS_SKINNY_ROWS 16

/* out = a b' + bias + add of struct mics_args_matmul: m <= MICS_SKINNY_ROWS, trans_b, all in fp32,
 * without activations. Takes as long as reading b from memory: 4 n k bytes. */
void mics_host_skinny_matmul(struct mics_pool *pool, const struct mics_args_matmul *args);

/* The keys and values that a row attends to: [length, H_kv D], of its sequence, its own last. */
struct mics_kv_cache_rows {
    const float *keys, *values;
    uint32_t length; /* >= 1 */
};

/* out[rows, H D] = attention of the queries at the beginning of each of the rows of
 * qkv[rows, (H + 2 H_kv) D] over cached[rows], as in struct mics_args_attention. At most
 * MICS_HEAD_MAX channels per head. */
struct mics_kv_cache_attention {
    float *out;
    const float *qkv;
    const struct mics_kv_cache_rows *cached;
    uint32_t rows, H, H_kv, D;
};

void mics_host_kv_cache_attention(struct mics_pool *pool,
                                  const struct mics_kv_cache_attention *args);

/* struct mics_args_rope with positions[t] in place of t (embedding.c). */
void mics_host_rope_at(struct mics_pool *pool, const struct mics_args_rope *args,
                       const uint32_t *positions);

#endif
