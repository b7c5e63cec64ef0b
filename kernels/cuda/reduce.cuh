/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce.cuh - sums over the threads of a warp, a team or a block, in an order that depends on
 * their number only; and the largest of a warp.
 */
#ifndef MICS_KERNELS_CUDA_REDUCE_CUH
#define MICS_KERNELS_CUDA_REDUCE_CUH

#include "cuda/gpu.h"

#define MICS_WARP       32
#define MICS_WARPS_MAX  32 /* of a block */
#define MICS_WHOLE_WARP 0xffffffffu

/* Every lane gets the sum. */
template <typename T> __device__ __forceinline__ T mics_warp_sum(T x)
{
#pragma unroll
    for (int lanes = MICS_WARP / 2; lanes > 0; lanes /= 2)
        x += __shfl_xor_sync(MICS_WHOLE_WARP, x, lanes);
    return x;
}

/* Every lane gets the largest; NaN is passed over unless there is nothing else. */
__device__ __forceinline__ float mics_warp_max(float x)
{
#pragma unroll
    for (int lanes = MICS_WARP / 2; lanes > 0; lanes /= 2)
        x = fmaxf(x, __shfl_xor_sync(MICS_WHOLE_WARP, x, lanes));
    return x;
}

/* A team is the blockDim.x threads, a multiple of 32, that share a threadIdx.y. Every thread of
 * each team gets its team's sums. All threads of the block call it; `shared` has N *
 * MICS_WARPS_MAX elements, which may be written again after the block's next barrier but one:
 * callers alternate between two. */
template <int N, typename T> __device__ __forceinline__ void mics_team_sum(T (&x)[N], T *shared)
{
    const unsigned warps = blockDim.x / MICS_WARP, warp = threadIdx.x / MICS_WARP;
    const unsigned lane = threadIdx.x % MICS_WARP;
    T *mine = shared + threadIdx.y * warps * N;

#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = mics_warp_sum(x[i]);
    if (warps == 1)
        return;
    if (lane == 0)
#pragma unroll
        for (int i = 0; i < N; i++)
            mine[warp * N + i] = x[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = mics_warp_sum(lane < warps ? mine[lane * N + i] : (T)0);
}

/* The lanes of each half warp add up their x; every lane gets its half's sum. */
__device__ __forceinline__ float mics_half_warp_sum(float x)
{
#pragma unroll
    for (int lanes = MICS_WARP / 4; lanes > 0; lanes /= 2)
        x += __shfl_xor_sync(MICS_WHOLE_WARP, x, lanes);
    return x;
}

/* mics_team_sum() of two numbers with half the exchanges: after the first one, the lower half of a
 * warp handles only x[0] and the upper one only x[1]. `shared` as there, for N = 2. */
__device__ __forceinline__ void mics_team_sum_pair(float (&x)[2], float *shared)
{
    const unsigned warps = blockDim.x / MICS_WARP, warp = threadIdx.x / MICS_WARP;
    const unsigned lane = threadIdx.x % MICS_WARP, half = lane / (MICS_WARP / 2);
    float *mine = shared + threadIdx.y * warps * 2 + half;
    float sum = half ? x[1] : x[0];

    sum += __shfl_xor_sync(MICS_WHOLE_WARP, half ? x[0] : x[1], MICS_WARP / 2);
    sum = mics_half_warp_sum(sum);
    if (warps > 1) {
        if (lane % (MICS_WARP / 2) == 0)
            mine[warp * 2] = sum;
        __syncthreads();
        sum = 0;
#pragma unroll
        for (unsigned i = 0; i < MICS_WARPS_MAX; i += MICS_WARP / 2)
            if (i + lane % (MICS_WARP / 2) < warps)
                sum += mine[(i + lane % (MICS_WARP / 2)) * 2];
        sum = mics_half_warp_sum(sum);
    }
    x[0] = __shfl_sync(MICS_WHOLE_WARP, sum, 0);
    x[1] = __shfl_sync(MICS_WHOLE_WARP, sum, MICS_WARP / 2);
}

#endif
