/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bias_grad.cu - sums of the columns of a gradient.
 *
 * A block owns a strip of 32 pieces of 16 bytes and a chunk of rows; its 8 warps take every 8th
 * row, four under way in each thread, and their sums are added in order and written to the
 * workspace, where columns.cuh adds up the chunks'. 4 bytes (fp32) or 2 (bf16) and 1 flop per
 * element: bound by memory. Within 1e-6 of the host, relative to the sum of magnitudes; bf16 rounds
 * the result once. Equal runs give equal bits.
 */
#include "cuda/columns.cuh"
#include "cuda/kernels.h"

#define LANES    32
#define WARPS    8
#define DEPTH    4
#define RESIDENT 6 /* blocks of a multiprocessor */

/* The sums of a warp's rows of a strip: of every WARPS-th of `rows` from `from` on, which are n
 * elements apart. */
template <typename T, int W>
__device__ __forceinline__ void sum_rows(const T *from, size_t n, uint32_t rows, float (&sum)[W])
{
    for (uint32_t first = threadIdx.y; first < rows; first += WARPS * DEPTH) {
        mics_packed<T, W> in[DEPTH];
        float x[W];

#pragma unroll
        for (int d = 0; d < DEPTH; d++)
            if (first + d * WARPS < rows)
                in[d] = mics_read<T, W>(from + (first + d * WARPS) * n);
#pragma unroll
        for (int d = 0; d < DEPTH; d++)
            if (first + d * WARPS < rows) {
                mics_widen<T, W>(in[d], x);
#pragma unroll
                for (int i = 0; i < W; i++)
                    sum[i] += x[i];
            }
    }
}

template <typename T, int W>
__global__ void __launch_bounds__(LANES *WARPS, RESIDENT)
    bias_grad_kernel(struct mics_op_bias_grad args, float *partials, uint32_t chunk)
{
    MICS_SHARED(float, shared, [WARPS][LANES * W]);
    const uint32_t c = (blockIdx.x * LANES + threadIdx.x) * W;
    const uint32_t first = blockIdx.y * chunk, left = args.rows - first;
    float sum[W] = {};

    if (c < args.n)
        sum_rows<T, W>((const T *)args.grad_out + (size_t)first * args.n + c, args.n,
                       left < chunk ? left : chunk, sum);
#pragma unroll
    for (int i = 0; i < W; i++)
        shared[threadIdx.y][i * LANES + threadIdx.x] = sum[i];
    __syncthreads();
    if (threadIdx.y > 0 || c >= args.n)
        return;
#pragma unroll
    for (int i = 0; i < W; i++)
        for (int warp = 1; warp < WARPS; warp++)
            sum[i] += shared[warp][i * LANES + threadIdx.x];
    mics_store<float, W>(partials + (size_t)blockIdx.y * args.n + c, sum);
}

/* Chunks that fill the device once, as far as rows and workspace go; 1 or more. */
static uint32_t count_chunks(const struct mics_cuda_at *at, const struct mics_op_bias_grad *args,
                             uint32_t strips)
{
    const size_t most = (size_t)MICS_CUDA_WORKSPACE_BYTES / (args->n * sizeof(float));
    const size_t useful = ((size_t)args->rows + WARPS * DEPTH - 1) / (WARPS * DEPTH);
    size_t chunks = (size_t)at->multiprocessors * RESIDENT / strips + 1;

    chunks = chunks < most ? chunks : most;
    chunks = chunks < useful ? chunks : useful;
    return chunks < 1 ? 1 : chunks < 65535 ? (uint32_t)chunks : 65535;
}

template <typename T, int W>
static cudaError_t launch(const struct mics_cuda_at *at, const struct mics_op_bias_grad *args)
{
    const uint32_t strips = (args->n + LANES * W - 1) / (LANES * W);
    const uint32_t chunks = count_chunks(at, args, strips), chunk = (args->rows - 1) / chunks + 1;
    const uint32_t used = (args->rows - 1) / chunk + 1;
    const struct mics_columns columns = {
        (float *)at->workspace, args->grad_bias, NULL, used, args->n, args->n};

    if (args->n * sizeof(float) > MICS_CUDA_WORKSPACE_BYTES)
        return cudaErrorInvalidValue;
    const cudaError_t error =
        MICS_LAUNCH((bias_grad_kernel<T, W>), dim3(strips, used), dim3(LANES, WARPS), 0, at->stream,
                    *args, (float *)at->workspace, chunk);

    return error != cudaSuccess ? error
                                : mics_columns_launch(at->stream, columns, args->grad_dtype);
}

template <typename T>
static cudaError_t launch_width(const struct mics_cuda_at *at, const struct mics_op_bias_grad *args)
{
    constexpr int W = mics_width<T>::value;

    if (args->rows == 0 || args->n == 0)
        return cudaSuccess;
    if (args->n % W == 0 && mics_aligned(16, args->grad_out))
        return launch<T, W>(at, args);
    return launch<T, 1>(at, args);
}

cudaError_t mics_cuda_bias_grad(const struct mics_cuda_at *at, const struct mics_op_bias_grad *args)
{
    return args->dtype == MICS_BF16 ? launch_width<__nv_bfloat16>(at, args)
                                    : launch_width<float>(at, args);
}
