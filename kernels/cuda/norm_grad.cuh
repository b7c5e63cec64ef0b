/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_grad.cuh - the gradients of layer normalisation, and of root-mean-square normalisation as
 * the same without mean and bias.
 *
 * Blocks stride over the rows. A team reads a row of the input and of grad_out once, takes the
 * means over it of w g and of w g x', where x' is the normalised input, and adds rstd (w g - mean(w
 * g) - x' mean(w g x')) to grad_in. Each thread keeps the sums of g x' and of g of its columns in
 * registers; at the end those of a block's teams are added in order and written to the workspace,
 * and columns.cuh adds up the blocks'.
 */
#ifndef MICS_KERNELS_CUDA_NORM_GRAD_CUH
#define MICS_KERNELS_CUDA_NORM_GRAD_CUH

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
};

#define MICS_NORM_GRAD_BLOCK                                                                       \
    256 /* threads of a block of several teams; then a team has at most half of them */

/* What a thread holds of a row, and of all its rows. */
template <typename T, int W, int N> struct mics_norm_grad_row {
    mics_packed<T, W> x[N], g[N];
    float mean, rstd;
};

template <int W, int N> struct mics_norm_grad_sums {
    float weight[N][W], bias[N][W];
};

template <typename T, int W, int N, bool CENTRED>
__device__ __forceinline__ void mics_norm_grad_read(const struct mics_norm_grad &args, size_t row,
                                                    mics_norm_grad_row<T, W, N> &to)
{
    if (row >= args.rows)
        return;
    to.mean = CENTRED ? args.mean[row] : 0.0f;
    to.rstd = args.rstd[row];
#pragma unroll
    for (int n = 0; n < N; n++) {
        const uint32_t c = (n * blockDim.x + threadIdx.x) * W;

        if (c < args.C) {
            to.x[n] = mics_read<T, W>((const T *)args.in + row * args.C + c);
            to.g[n] = mics_read<T, W>((const T *)args.grad_out + row * args.C + c);
        }
    }
}

/* means[0]: of w g x'; means[1]: of w g. Also adds to the sums. */
template <typename T, int W, int N, bool CENTRED>
__device__ __forceinline__ void
mics_norm_grad_means(const struct mics_norm_grad &args, const mics_norm_grad_row<T, W, N> &row,
                     bool valid, mics_norm_grad_sums<W, N> &sums, float (&means)[2])
{
    float x[W], g[W], w[W];

    means[0] = means[1] = 0;
#pragma unroll
    for (int n = 0; n < N; n++) {
        const uint32_t c = (n * blockDim.x + threadIdx.x) * W;

        if (!valid || c >= args.C)
            continue;
        mics_widen<T, W>(row.x[n], x);
        mics_widen<T, W>(row.g[n], g);
        mics_load<T, W>((const T *)args.weight + c, w);
#pragma unroll
        for (int i = 0; i < W; i++) {
            const float normed = (x[i] - row.mean) * row.rstd;

            sums.weight[n][i] += g[i] * normed;
            sums.bias[n][i] += g[i];
            means[0] += w[i] * g[i] * normed;
            means[1] += w[i] * g[i];
        }
    }
}

/* grad_in of one row. */
template <typename T, int W, int N, bool CENTRED>
__device__ __forceinline__ void mics_norm_grad_write(const struct mics_norm_grad &args, size_t at,
                                                     const mics_norm_grad_row<T, W, N> &row,
                                                     const mics_packed<T, W> (&old)[N],
                                                     const float (&means)[2])
{
    float x[W], g[W], w[W], to[W];

#pragma unroll
    for (int n = 0; n < N; n++) {
        const uint32_t c = (n * blockDim.x + threadIdx.x) * W;

        if (at >= args.rows || c >= args.C)
            continue;
        mics_widen<T, W>(row.x[n], x);
        mics_widen<T, W>(row.g[n], g);
        mics_widen<T, W>(old[n], to);
        mics_load<T, W>((const T *)args.weight + c, w);
#pragma unroll
        for (int i = 0; i < W; i++)
            to[i] += row.rstd * (w[i] * g[i] - (CENTRED ? means[1] : 0.0f) -
                                 (x[i] - row.mean) * row.rstd * means[0]);
        mics_store<T, W>((T *)args.grad_in + at * args.C + c, to);
    }
}

/* Add the sums of the block's teams in order; the first team has them then. */
template <int W, int N>
__device__ __forceinline__ void mics_norm_grad_combine(mics_norm_grad_sums<W, N> &sums,
                                                       float *shared)
{
    const unsigned stride = blockDim.x;

    for (unsigned team = 1; team < blockDim.y; team++) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < N * W; i++)
            if (threadIdx.y == team) {
                shared[i * stride + threadIdx.x] = sums.weight[i / W][i % W];
                shared[(N * W + i) * stride + threadIdx.x] = sums.bias[i / W][i % W];
            }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < N * W; i++)
            if (threadIdx.y == 0) {
                sums.weight[i / W][i % W] += shared[i * stride + threadIdx.x];
                sums.bias[i / W][i % W] += shared[(N * W + i) * stride + threadIdx.x];
            }
    }
}

/* The first team writes the block's sums. */
template <int W, int N, bool CENTRED>
__device__ __forceinline__ void mics_norm_grad_partials(const struct mics_norm_grad &args,
                                                        const mics_norm_grad_sums<W, N> &sums)
{
    float *to = args.partials + (size_t)blockIdx.x * args.C * (CENTRED ? 2 : 1);

#pragma unroll
    for (int n = 0; n < N; n++) {
        const uint32_t c = (n * blockDim.x + threadIdx.x) * W;

        if (threadIdx.y > 0 || c >= args.C)
            continue;
#pragma unroll
        for (int i = 0; i < W; i++) {
            to[c + i] = sums.weight[n][i];
            if (CENTRED)
                to[args.C + c + i] = sums.bias[n][i];
        }
    }
}

/* One block: every gridDim.x-th run of blockDim.y rows. The next row is read before a row's
 * means are known. */
template <typename T, int W, int N, bool CENTRED, int THREADS>
__global__ void __launch_bounds__(THREADS) mics_norm_grad_kernel(struct mics_norm_grad args)
{
    MICS_SHARED(float, means_shared, [2][2 * MICS_WARPS_MAX]);
    MICS_SHARED(float, teams_shared, [N > 2 ? 1 : N * W * MICS_NORM_GRAD_BLOCK]);
    const size_t stride = (size_t)gridDim.x * blockDim.y;
    size_t row = (size_t)blockIdx.x * blockDim.y + threadIdx.y;
    mics_norm_grad_row<T, W, N> now = {}, next = {};
    mics_norm_grad_sums<W, N> sums = {};
    unsigned turn = 0;

    mics_norm_grad_read<T, W, N, CENTRED>(args, row, now);
    for (size_t first = (size_t)blockIdx.x * blockDim.y; first < args.rows;
         first += stride, row += stride) {
        mics_packed<T, W> old[N] = {};
        float means[2];

#pragma unroll
        for (int n = 0; n < N; n++)
            if (row < args.rows && (n * blockDim.x + threadIdx.x) * W < args.C)
                old[n] = mics_read<T, W>((const T *)args.grad_in + row * args.C +
                                         (n * blockDim.x + threadIdx.x) * W);
        mics_norm_grad_read<T, W, N, CENTRED>(args, row + stride, next);
        mics_norm_grad_means<T, W, N, CENTRED>(args, now, row < args.rows, sums, means);
        mics_team_sum<2>(means, means_shared[turn]);
        turn ^= 1;
        means[0] /= (float)args.C;
        means[1] /= (float)args.C;
        mics_norm_grad_write<T, W, N, CENTRED>(args, row, now, old, means);
        now = next;
    }
    mics_norm_grad_combine<W, N>(sums, teams_shared);
    mics_norm_grad_partials<W, N, CENTRED>(args, sums);
}

/* Blocks of the first stage: those that are resident together, as far as rows and workspace go. */
static inline unsigned mics_norm_grad_blocks(const struct mics_cuda_at *at,
                                             const struct mics_norm_grad &args,
                                             const struct mics_rows &rows)
{
    const size_t bytes = (size_t)args.C * (args.grad_bias ? 2 : 1) * sizeof(float);
    const unsigned threads = rows.team * rows.teams;
    size_t blocks = (size_t)at->multiprocessors * (threads < 512 ? 512 / threads : 1);
    const size_t most = ((size_t)args.rows + rows.teams - 1) / rows.teams;

    blocks = blocks < most ? blocks : most;
    return (unsigned)(blocks * bytes < MICS_CUDA_WORKSPACE_BYTES
                          ? blocks
                          : MICS_CUDA_WORKSPACE_BYTES / bytes);
}

template <typename T, int W, int N, bool CENTRED, int THREADS>
static cudaError_t mics_norm_grad_share(const struct mics_cuda_at *at,
                                        const struct mics_norm_grad &args)
{
    const struct mics_rows rows = mics_rows_share(args.C, W, N, MICS_NORM_GRAD_BLOCK, THREADS);
    struct mics_columns columns = {
        args.partials, args.grad_weight, args.grad_bias, 0, CENTRED ? 2 * args.C : args.C, args.C};

    if (rows.team == 0)
        return cudaErrorInvalidValue;
    columns.groups = mics_norm_grad_blocks(at, args, rows);
    const cudaError_t error =
        MICS_LAUNCH((mics_norm_grad_kernel<T, W, N, CENTRED, THREADS>), columns.groups,
                    dim3(rows.team, rows.teams), 0, at->stream, args);

    return error != cudaSuccess ? error : mics_columns_launch(at->stream, columns, args.grad_dtype);
}

/* Rows of up to 2 pieces in each of 512 threads; longer ones take 8 in each of up to 1,024. */
template <typename T, int W, bool CENTRED>
static cudaError_t mics_norm_grad_width(const struct mics_cuda_at *at,
                                        const struct mics_norm_grad &args)
{
    if (args.C <= 512 * 2 * W)
        return mics_norm_grad_share<T, W, 2, CENTRED, 512>(at, args);
    return mics_norm_grad_share<T, W, 8, CENTRED, 1024>(at, args);
}

/* T is the type of the tensors. cudaErrorInvalidValue: C is too large, as in norm.cuh. */
template <typename T, bool CENTRED>
static cudaError_t mics_norm_grad_launch(const struct mics_cuda_at *at,
                                         const struct mics_norm_grad &args)
{
    constexpr int W = mics_width<T>::value;

    if (args.rows == 0 || args.C == 0)
        return cudaSuccess;
    if (args.C % W == 0 && mics_aligned(16, args.grad_in, args.grad_out, args.in, args.weight))
        return mics_norm_grad_width<T, W, CENTRED>(at, args);
    return mics_norm_grad_width<T, 1, CENTRED>(at, args);
}

#endif
