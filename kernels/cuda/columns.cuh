/* SPDX-License-Identifier: Apache-2.0 */
/*
 * columns.cuh - the second stage of sums over rows: adding up what each block of the first stage
 * wrote.
 *
 * `partials` is [groups, n] in fp32; column c < split of its sum is added to first[c], another to
 * second[c - split]. One block adds 32 columns in 32 teams, each of which takes every 32nd group, eight
 * under way in each thread; then the 32 sums in order.
 */
#ifndef MICS_KERNELS_CUDA_COLUMNS_CUH
#define MICS_KERNELS_CUDA_COLUMNS_CUH

#include "cuda/gpu.h"
#include "cuda/vector.cuh"

#define MICS_COLUMNS_LANES 32
#define MICS_COLUMNS_TEAMS 32
#define MICS_COLUMNS_DEPTH 8

struct mics_columns {
    const float *partials;
    void *first, *second;
    uint32_t groups, n, split;
};

template <typename T>
__device__ __forceinline__ void mics_columns_add(void *to, uint32_t c, float sum)
{
    float old[1];

    mics_load<T, 1>((const T *)to + c, old);
    old[0] += sum;
    mics_store<T, 1>((T *)to + c, old);
}

/* A team's part of the sum of column c. */
__device__ __forceinline__ float mics_columns_sum(const struct mics_columns &args, uint32_t c)
{
    float sum = 0;

    for (uint32_t first = threadIdx.y; first < args.groups;
         first += MICS_COLUMNS_TEAMS * MICS_COLUMNS_DEPTH) {
        float part[MICS_COLUMNS_DEPTH];

#pragma unroll
        for (uint32_t d = 0; d < MICS_COLUMNS_DEPTH; d++) {
            const uint32_t group = first + d * MICS_COLUMNS_TEAMS;

            part[d] = group < args.groups ? args.partials[(size_t)group * args.n + c] : 0.0f;
        }
#pragma unroll
        for (int d = 0; d < MICS_COLUMNS_DEPTH; d++)
            sum += part[d];
    }
    return sum;
}

template <typename T>
__global__ void __launch_bounds__(MICS_COLUMNS_LANES *MICS_COLUMNS_TEAMS)
    mics_columns_kernel(struct mics_columns args)
{
    MICS_SHARED(float, sums, [MICS_COLUMNS_TEAMS][MICS_COLUMNS_LANES]);
    const uint32_t c = blockIdx.x * MICS_COLUMNS_LANES + threadIdx.x;
    float sum = c < args.n ? mics_columns_sum(args, c) : 0.0f;

    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || c >= args.n)
        return;
#pragma unroll 8
    for (int team = 1; team < MICS_COLUMNS_TEAMS; team++)
        sum += sums[team][threadIdx.x];
    if (c < args.split)
        mics_columns_add<T>(args.first, c, sum);
    else
        mics_columns_add<T>(args.second, c - args.split, sum);
}

/* `grad_dtype` is that of first and second. */
static inline cudaError_t mics_columns_launch(cudaStream_t stream, const struct mics_columns &args,
                                              enum mics_dtype grad_dtype)
{
    const unsigned blocks = (args.n + MICS_COLUMNS_LANES - 1) / MICS_COLUMNS_LANES;
    const dim3 block(MICS_COLUMNS_LANES, MICS_COLUMNS_TEAMS);

    if (args.n == 0)
        return cudaSuccess;
    if (grad_dtype == MICS_BF16)
        return MICS_LAUNCH((mics_columns_kernel<__nv_bfloat16>), blocks, block, 0, stream, args);
    return MICS_LAUNCH((mics_columns_kernel<float>), blocks, block, 0, stream, args);
}

#endif
