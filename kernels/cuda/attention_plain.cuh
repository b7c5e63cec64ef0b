/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_plain.cuh - what both directions of attention without tensor cores share.
 *
 * For fp32, whose products are not to be rounded, and for bf16 heads that the tensor cores do not take. A block
 * of 256 threads has 32 rows of one head, 8 threads a row, and walks tiles of 32 rows of the other side, all
 * in shared memory as fp32. A thread has every eighth column of its row.
 */
#ifndef MICS_KERNELS_CUDA_ATTENTION_PLAIN_CUH
#define MICS_KERNELS_CUDA_ATTENTION_PLAIN_CUH

#include "attention.cuh"

namespace
{

enum { TILE = 32, SHARE = 8, PLAIN_THREADS = TILE * SHARE, COLUMNS = TILE / SHARE };

/* Length of a row in shared memory: odd, so that rows begin in different banks. */
static __host__ __device__ inline unsigned plain_ld(unsigned D)
{
    return D | 1;
}

static inline size_t plain_bytes(unsigned tiles, unsigned squares, unsigned D)
{
    return (tiles * TILE * plain_ld(D) + squares * TILE * (TILE + 1)) * sizeof(float);
}

static __device__ __forceinline__ float plain_get(float value)
{
    return value;
}

static __device__ __forceinline__ float plain_get(mics_bf16 value)
{
    return __bfloat162float(value);
}

static __device__ __forceinline__ void plain_set(float *to, float value)
{
    *to = value;
}

static __device__ __forceinline__ void plain_set(mics_bf16 *to, float value)
{
    *to = __float2bfloat16_rn(value);
}

/* tile[i] = row first + i of `from`, zeros from row T on. */
template <typename T>
static __device__ void plain_load(float *tile, const T *from, size_t stride, unsigned first,
                                  unsigned count, unsigned D)
{
    for (unsigned i = threadIdx.x / 32; i < TILE; i += PLAIN_THREADS / 32)
        for (unsigned d = threadIdx.x % 32; d < D; d += 32)
            tile[i * plain_ld(D) + d] =
                first + i < count ? plain_get(from[(first + i) * stride + d]) : 0;
}

static __device__ __forceinline__ float plain_dot(const float *a, const float *b, unsigned D)
{
    float sum = 0;

    for (unsigned d = 0; d < D; d++)
        sum = fmaf(a[d], b[d], sum);
    return sum;
}

/* sum[j] += row[TILE] tile, for columns share + 8 j of D. */
template <int width>
static __device__ __forceinline__ void plain_add(float (&sum)[width / SHARE], const float *row,
                                                 const float *tile, unsigned D)
{
    unsigned share = threadIdx.x % SHARE;

    for (unsigned c = 0; c < TILE; c++) {
        float p = row[c];

#pragma unroll
        for (int j = 0; j < width / SHARE; j++)
            if (share + (unsigned)j * SHARE < D)
                sum[j] = fmaf(p, tile[c * plain_ld(D) + share + (unsigned)j * SHARE], sum[j]);
    }
}

template <int width, typename T>
static __device__ __forceinline__ void plain_store(T *to, const float (&sum)[width / SHARE],
                                                   float factor, unsigned D)
{
    unsigned share = threadIdx.x % SHARE;

#pragma unroll
    for (int j = 0; j < width / SHARE; j++)
        if (share + (unsigned)j * SHARE < D)
            plain_set(to + share + (unsigned)j * SHARE, sum[j] * factor);
}

/* The sum, or the largest, over the threads of a row. */
static __device__ __forceinline__ float plain_row_sum(float value)
{
    for (int step = SHARE / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(~0u, value, step);
    return value;
}

static __device__ __forceinline__ float plain_row_max(float value)
{
    for (int step = SHARE / 2; step > 0; step /= 2)
        value = fmaxf(value, __shfl_xor_sync(~0u, value, step));
    return value;
}

/* Blocks of TILE rows of all heads. */
static inline unsigned plain_blocks(unsigned T)
{
    return (T + TILE - 1) / TILE;
}

} // namespace

#endif
