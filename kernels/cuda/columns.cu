/* SPDX-License-Identifier: Apache-2.0 */
/* columns.cu - sums over the rows of a tensor: their second stage, and the gradient of biases. */
#include "cuda/columns.cuh"

#include "cuda/reduce.cuh"
#include "cuda/vector.cuh"

/*
 * The second stage: one block adds 32 columns in 32 teams, each of which takes every 32nd group,
 * eight in flight in each thread; then the 32 sums in order.
 */

#define COLUMNS_LANES 32
#define COLUMNS_TEAMS 32
#define COLUMNS_DEPTH 8

template <typename T> __device__ __forceinline__ void columns_add(void *to, uint32_t c, float sum)
{
    float old[1];

    mics_load<T, 1>((const T *)to + c, old);
    old[0] += sum;
    mics_store<T, 1>((T *)to + c, old);
}

/* A team's part of the sum of column c. */
__device__ __forceinline__ float columns_sum(const struct mics_columns &args, uint32_t c)
{
    float sum = 0;

    for (uint32_t first = threadIdx.y; first < args.groups;
         first += COLUMNS_TEAMS * COLUMNS_DEPTH) {
        float part[COLUMNS_DEPTH];

#pragma unroll
        for (uint32_t d = 0; d < COLUMNS_DEPTH; d++) {
            const uint32_t group = first + d * COLUMNS_TEAMS;

            part[d] = group < args.groups ? args.partials[(size_t)group * args.n + c] : 0.0f;
        }
#pragma unroll
        for (int d = 0; d < COLUMNS_DEPTH; d++)
            sum += part[d];
    }
    return sum;
}

template <typename T>
__global__ void __launch_bounds__(COLUMNS_LANES *COLUMNS_TEAMS)
    columns_kernel(struct mics_columns args)
{
    MICS_SHARED(float, sums, [COLUMNS_TEAMS][COLUMNS_LANES]);
    const uint32_t c = blockIdx.x * COLUMNS_LANES + threadIdx.x;
    float sum = c < args.n ? columns_sum(args, c) : 0.0f;

    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || c >= args.n)
        return;
#pragma unroll 8
    for (int team = 1; team < COLUMNS_TEAMS; team++)
        sum += sums[team][threadIdx.x];
    if (c < args.split)
        columns_add<T>(args.first, c, sum);
    else
        columns_add<T>(args.second, c - args.split, sum);
}

cudaError_t mics_columns_launch(cudaStream_t stream, const struct mics_columns *columns,
                                enum mics_dtype dtype)
{
    const unsigned blocks = (columns->n + COLUMNS_LANES - 1) / COLUMNS_LANES;
    const dim3 block(COLUMNS_LANES, COLUMNS_TEAMS);

    if (columns->n == 0)
        return cudaSuccess;
    return mics_launch_typed(dtype, [&](auto t) {
        return MICS_LAUNCH(columns_kernel<decltype(t)>, blocks, block, 0, stream, *columns);
    });
}

/*
 * Sums of the columns of a gradient.
 *
 * A block owns a strip of 32 pieces of 16 bytes and a chunk of rows; its 8 warps take every 8th
 * row, four in flight in each thread, and their sums are added in order and written to the
 * workspace, where columns_kernel() adds up the chunks'. 4 bytes (fp32) or 2 (16 bits) and 1 flop
 * per element: bound by memory. Within 1e-6 of the host, relative to the sum of magnitudes; 16 bits
 * round the result once. Equal runs give equal bits.
 */

#define BIAS_LANES    32
#define BIAS_WARPS    8
#define BIAS_DEPTH    4
#define BIAS_RESIDENT 6 /* blocks of a multiprocessor */

/* The sums of a warp's rows of a strip: of every BIAS_WARPS-th of `rows` from `from` on, which are
 * n elements apart. */
template <typename T, int W>
__device__ __forceinline__ void sum_rows(const T *from, size_t n, uint32_t rows, float (&sum)[W])
{
    for (uint32_t first = threadIdx.y; first < rows; first += BIAS_WARPS * BIAS_DEPTH) {
        mics_packed<T, W> in[BIAS_DEPTH];
        float x[W];

#pragma unroll
        for (int d = 0; d < BIAS_DEPTH; d++)
            if (first + d * BIAS_WARPS < rows)
                in[d] = mics_read<T, W>(from + (first + d * BIAS_WARPS) * n);
#pragma unroll
        for (int d = 0; d < BIAS_DEPTH; d++)
            if (first + d * BIAS_WARPS < rows) {
                mics_widen<T, W>(in[d], x);
#pragma unroll
                for (int i = 0; i < W; i++)
                    sum[i] += x[i];
            }
    }
}

template <typename T, int W>
__global__ void __launch_bounds__(BIAS_LANES *BIAS_WARPS, BIAS_RESIDENT)
    bias_grad_kernel(struct mics_args_bias_grad args, float *partials, uint32_t chunk)
{
    MICS_SHARED(float, shared, [BIAS_WARPS][BIAS_LANES * W]);
    const uint32_t c = (blockIdx.x * BIAS_LANES + threadIdx.x) * W;
    const uint32_t first = blockIdx.y * chunk, left = args.rows - first;
    float sum[W] = {};

    if (c < args.n)
        sum_rows<T, W>((const T *)args.grad_out + (size_t)first * args.n + c, args.n,
                       left < chunk ? left : chunk, sum);
#pragma unroll
    for (int i = 0; i < W; i++)
        shared[threadIdx.y][i * BIAS_LANES + threadIdx.x] = sum[i];
    __syncthreads();
    if (threadIdx.y > 0 || c >= args.n)
        return;
#pragma unroll
    for (int i = 0; i < W; i++)
        for (int warp = 1; warp < BIAS_WARPS; warp++)
            sum[i] += shared[warp][i * BIAS_LANES + threadIdx.x];
    mics_store<float, W>(partials + (size_t)blockIdx.y * args.n + c, sum);
}

/* Chunks that fill the device once, as far as rows and workspace go; 1 or more. */
static uint32_t count_chunks(const struct mics_cuda_at *at, const struct mics_args_bias_grad *args,
                             uint32_t strips)
{
    const size_t most = (size_t)MICS_CUDA_WORKSPACE_BYTES / (args->n * sizeof(float));
    const size_t useful =
        ((size_t)args->rows + BIAS_WARPS * BIAS_DEPTH - 1) / (BIAS_WARPS * BIAS_DEPTH);
    size_t chunks = (size_t)at->multiprocessors * BIAS_RESIDENT / strips + 1;

    chunks = chunks < most ? chunks : most;
    chunks = chunks < useful ? chunks : useful;
    return chunks < 1 ? 1 : chunks < 65535 ? (uint32_t)chunks : 65535;
}

template <typename T, int W>
static cudaError_t bias_grad_launch(const struct mics_cuda_at *at,
                                    const struct mics_args_bias_grad *args)
{
    const uint32_t strips = (args->n + BIAS_LANES * W - 1) / (BIAS_LANES * W);
    const uint32_t chunks = count_chunks(at, args, strips), chunk = (args->rows - 1) / chunks + 1;
    const uint32_t used = (args->rows - 1) / chunk + 1;
    const struct mics_columns columns = {
        (float *)at->workspace, args->grad_bias, NULL, used, args->n, args->n};

    if (args->n * sizeof(float) > MICS_CUDA_WORKSPACE_BYTES)
        return cudaErrorInvalidValue;
    const cudaError_t error =
        MICS_LAUNCH((bias_grad_kernel<T, W>), dim3(strips, used), dim3(BIAS_LANES, BIAS_WARPS), 0,
                    at->stream, *args, (float *)at->workspace, chunk);

    return error != cudaSuccess ? error
                                : mics_columns_launch(at->stream, &columns, args->grad_dtype);
}

template <typename T>
static cudaError_t bias_grad_launch_width(const struct mics_cuda_at *at,
                                          const struct mics_args_bias_grad *args)
{
    constexpr int W = mics_width<T>::value;

    if (args->rows == 0 || args->n == 0)
        return cudaSuccess;
    if (args->n % W == 0 && mics_aligned(16, args->grad_out))
        return bias_grad_launch<T, W>(at, args);
    return bias_grad_launch<T, 1>(at, args);
}

cudaError_t mics_cuda_bias_grad(const struct mics_cuda_at *at,
                                const struct mics_args_bias_grad *args)
{
    return mics_launch_typed(args->dtype,
                             [&](auto t) { return bias_grad_launch_width<decltype(t)>(at, args); });
}
