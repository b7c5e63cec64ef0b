/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_grad_plain.cuh - the gradients of norms for rows of any length and alignment; and what both
 * ways to them share.
 *
 * A block takes every so many-th row, element by element, and goes over it twice: for the means and
 * for grad_in. Its sums of columns stand in the workspace from the beginning. 24 bytes (fp32) or 20
 * (bf16) per element, some of it out of caches.
 */
#ifndef MICS_KERNELS_CUDA_NORM_GRAD_PLAIN_CUH
#define MICS_KERNELS_CUDA_NORM_GRAD_PLAIN_CUH

#include "cuda/columns.cuh"
#include "cuda/kernels.h"
#include "cuda/rows.cuh"

/* What both norms have; mean and grad_bias are NULL for the root mean square. */
struct mics_norm_grad {
    void *grad_in, *grad_weight, *grad_bias;
    const void *grad_out, *in, *weight;
    const float *mean, *rstd;
    uint32_t rows, C;
    enum mics_dtype dtype, grad_dtype;
    float *partials; /* [blocks, CENTRED ? 2 : 1, C] */
    float share;     /* 1 / C */
};

struct mics_norm_row {
    float mean, rstd;
};

/* The statistics of a row; of one that is not there, anything. */
template <bool CENTRED>
__device__ __forceinline__ struct mics_norm_row mics_norm_row_of(const struct mics_norm_grad &args,
                                                                 uint32_t row)
{
    struct mics_norm_row of = {0, 0};

    if (row >= args.rows)
        return of;
    if (CENTRED)
        of.mean = args.mean[row];
    of.rstd = args.rstd[row];
    return of;
}

/* One element. */
template <typename T> __device__ __forceinline__ float mics_norm_element(const void *p, size_t at)
{
    float x[1];

    mics_load<T, 1>((const T *)p + at, x);
    return x[0];
}

/* grad_in of a row, which begins at element `begin`, and its part of the sums. */
template <typename T, bool CENTRED>
__device__ __forceinline__ void
mics_norm_grad_plain_write(const struct mics_norm_grad &args, size_t begin,
                           const struct mics_norm_row &row, const float (&means)[2], float *sums)
{
    for (uint32_t c = threadIdx.x; c < args.C; c += blockDim.x) {
        const float g = mics_norm_element<T>(args.grad_out, begin + c);
        const float normed = (mics_norm_element<T>(args.in, begin + c) - row.mean) * row.rstd;
        const float scaled = g * mics_norm_element<T>(args.weight, c);
        float to[1] = {mics_norm_element<T>(args.grad_in, begin + c)};

        to[0] += row.rstd * (scaled - (CENTRED ? means[1] : 0.0f) - normed * means[0]);
        mics_store<T, 1>((T *)args.grad_in + begin + c, to);
        sums[c] += g * normed;
        if (CENTRED)
            sums[args.C + c] += g;
    }
}

/* One block: every gridDim.x-th row. */
template <typename T, bool CENTRED>
__global__ void __launch_bounds__(1024) mics_norm_grad_plain_kernel(struct mics_norm_grad args)
{
    MICS_SHARED(float, shared, [2][2 * MICS_WARPS_MAX]);
    const size_t count = (size_t)args.C * (CENTRED ? 2 : 1);
    float *sums = args.partials + blockIdx.x * count;
    unsigned turn = 0;

    for (uint32_t c = threadIdx.x; c < args.C; c += blockDim.x) {
        sums[c] = 0;
        if (CENTRED)
            sums[args.C + c] = 0;
    }
    for (uint32_t row = blockIdx.x; row < args.rows; row += gridDim.x, turn ^= 1) {
        const struct mics_norm_row of = mics_norm_row_of<CENTRED>(args, row);
        const size_t begin = (size_t)row * args.C;
        float means[2] = {0, 0};

        for (uint32_t c = threadIdx.x; c < args.C; c += blockDim.x) {
            const float normed = (mics_norm_element<T>(args.in, begin + c) - of.mean) * of.rstd;
            const float scaled = mics_norm_element<T>(args.grad_out, begin + c) *
                                 mics_norm_element<T>(args.weight, c);

            means[0] += scaled * normed;
            means[1] += scaled;
        }
        mics_team_sum<2>(means, shared[turn]);
        means[0] *= args.share;
        means[1] *= args.share;
        mics_norm_grad_plain_write<T, CENTRED>(args, begin, of, means, sums);
    }
}

/* Blocks of the first stage: so many for each multiprocessor, as far as rows (`teams` in a block) and
 * workspace go; 0: not even one. */
static inline unsigned mics_norm_grad_blocks(const struct mics_cuda_at *at,
                                             const struct mics_norm_grad &args, unsigned teams,
                                             unsigned for_each)
{
    const size_t bytes = (size_t)args.C * (args.grad_bias ? 2 : 1) * sizeof(float);
    const size_t most = ((size_t)args.rows + teams - 1) / teams;
    size_t blocks = (size_t)at->multiprocessors * for_each;

    blocks = blocks < most ? blocks : most;
    return (unsigned)(blocks * bytes <= MICS_CUDA_WORKSPACE_BYTES
                          ? blocks
                          : MICS_CUDA_WORKSPACE_BYTES / bytes);
}

/* The second stage. */
template <bool CENTRED>
static inline cudaError_t mics_norm_grad_finish(const struct mics_cuda_at *at,
                                                const struct mics_norm_grad &args, unsigned blocks)
{
    const struct mics_columns columns = {
        args.partials, args.grad_weight, args.grad_bias, blocks, CENTRED ? 2 * args.C : args.C,
        args.C};

    return mics_columns_launch(at->stream, columns, args.grad_dtype);
}

/* As mics_norm_grad_launch(), which says when. */
template <typename T, bool CENTRED>
static cudaError_t mics_norm_grad_plain_launch(const struct mics_cuda_at *at,
                                               const struct mics_norm_grad &args)
{
    const unsigned threads = mics_rows_threads(args.C);
    const unsigned blocks = mics_norm_grad_blocks(at, args, 1, 1024 / threads);
    cudaError_t error;

    if (blocks == 0)
        return cudaErrorInvalidValue;
    error = MICS_LAUNCH((mics_norm_grad_plain_kernel<T, CENTRED>), blocks, threads, 0, at->stream,
                        args);
    return error != cudaSuccess ? error : mics_norm_grad_finish<CENTRED>(at, args, blocks);
}

#endif
