/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm.cuh - layer normalisation, and root-mean-square normalisation as the same without mean and
 * bias.
 *
 * A team reads a row once, adds the residual where there is one and writes their sum, holds the row
 * in registers as it is stored, takes its mean and then its variance, and writes the result.
 */
#ifndef MICS_KERNELS_CUDA_NORM_CUH
#define MICS_KERNELS_CUDA_NORM_CUH

#include "cuda/rows.cuh"
#include "cuda/vector.cuh"

/* What both norms have; mean and bias are NULL for the root mean square. */
struct mics_norm {
    void *out, *sum;
    float *mean, *rstd;
    const void *in, *add, *weight, *bias;
    uint32_t rows, C;
    float eps;
    enum mics_dtype dtype;
};

/* One piece of the row: of `in`, or of in + add, which is written to `sum`. */
template <typename T, int W>
__device__ __forceinline__ mics_packed<T, W> mics_norm_read(const struct mics_norm &args, size_t at)
{
    mics_packed<T, W> x = mics_read<T, W>((const T *)args.in + at);
    float a[W], b[W];

    if (!args.add)
        return x;
    mics_widen<T, W>(x, a);
    mics_load<T, W>((const T *)args.add + at, b);
#pragma unroll
    for (int i = 0; i < W; i++)
        a[i] += b[i];
    x = mics_narrow<T, W>(a);
    *(typename mics_packed<T, W>::word *)((T *)args.sum + at) = x.all;
    return x;
}

/* out = (x - mean) rstd weight + bias for one piece at column c. */
template <typename T, int W, bool CENTRED>
__device__ __forceinline__ void mics_norm_write(const struct mics_norm &args,
                                                const mics_packed<T, W> &x, size_t row, uint32_t c,
                                                float mean, float rstd)
{
    float out[W], weight[W], bias[W];

    mics_widen<T, W>(x, out);
    mics_load<T, W>((const T *)args.weight + c, weight);
    if (CENTRED)
        mics_load<T, W>((const T *)args.bias + c, bias);
#pragma unroll
    for (int i = 0; i < W; i++)
        out[i] = CENTRED ? (out[i] - mean) * rstd * weight[i] + bias[i] : out[i] * rstd * weight[i];
    mics_store<T, W>((T *)args.out + row * args.C + c, out);
}

/* The sum over a team's row of x - mean, or with SQUARES of its square. */
template <typename T, int W, int N, bool SQUARES>
__device__ __forceinline__ float mics_norm_sum(const mics_packed<T, W> (&x)[N], uint32_t pieces,
                                               float mean, float *shared)
{
    float sum[1] = {0}, one[W];

#pragma unroll
    for (int n = 0; n < N; n++)
        if (n * blockDim.x + threadIdx.x < pieces) {
            mics_widen<T, W>(x[n], one);
#pragma unroll
            for (int i = 0; i < W; i++)
                sum[0] += SQUARES ? (one[i] - mean) * (one[i] - mean) : one[i];
        }
    mics_team_sum<1>(sum, shared);
    return sum[0];
}

/* One block: blockDim.y rows, one for each team; N pieces of W elements in each thread. */
template <typename T, int W, int N, bool CENTRED, int THREADS>
__global__ void __launch_bounds__(THREADS) mics_norm_kernel(struct mics_norm args)
{
    MICS_SHARED(float, shared, [2][MICS_WARPS_MAX]);
    const size_t row = (size_t)blockIdx.x * blockDim.y + threadIdx.y;
    const uint32_t pieces = row < args.rows ? args.C / W : 0;
    mics_packed<T, W> x[N];
    float mean = 0, rstd;

#pragma unroll
    for (int n = 0; n < N; n++)
        if (n * blockDim.x + threadIdx.x < pieces)
            x[n] = mics_norm_read<T, W>(args, row * args.C + (n * blockDim.x + threadIdx.x) * W);
    if (CENTRED)
        mean = mics_norm_sum<T, W, N, false>(x, pieces, 0, shared[0]) / (float)args.C;
    rstd = mics_norm_sum<T, W, N, true>(x, pieces, mean, shared[1]) / (float)args.C;
    rstd = 1.0f / sqrtf(rstd + args.eps);
#pragma unroll
    for (int n = 0; n < N; n++)
        if (n * blockDim.x + threadIdx.x < pieces)
            mics_norm_write<T, W, CENTRED>(args, x[n], row, (n * blockDim.x + threadIdx.x) * W,
                                           mean, rstd);
    if (threadIdx.x > 0 || row >= args.rows)
        return;
    if (CENTRED)
        args.mean[row] = mean;
    args.rstd[row] = rstd;
}

template <typename T, int W, int N, bool CENTRED, int THREADS>
static cudaError_t mics_norm_share(cudaStream_t stream, const struct mics_norm &args)
{
    const struct mics_rows rows = mics_rows_share(args.C, W, N, 128, THREADS);

    if (rows.team == 0)
        return cudaErrorInvalidValue;
    return MICS_LAUNCH((mics_norm_kernel<T, W, N, CENTRED, THREADS>),
                       (args.rows + rows.teams - 1) / rows.teams, dim3(rows.team, rows.teams), 0,
                       stream, args);
}

/* Rows of up to 4 pieces in each of 256 threads; longer ones take 8 in each of up to 1,024. */
template <typename T, int W, bool CENTRED>
static cudaError_t mics_norm_width(cudaStream_t stream, const struct mics_norm &args)
{
    if (args.C <= 256 * 4 * W)
        return mics_norm_share<T, W, 4, CENTRED, 256>(stream, args);
    return mics_norm_share<T, W, 8, CENTRED, 1024>(stream, args);
}

/* T is the type of the tensors. cudaErrorInvalidValue: C is above 65,536 (bf16) or 32,768
 * (fp32), or above 8,192 where rows are not aligned to 16 bytes. */
template <typename T, bool CENTRED>
static cudaError_t mics_norm_launch(cudaStream_t stream, const struct mics_norm &args)
{
    constexpr int W = mics_width<T>::value;

    if (args.rows == 0 || args.C == 0)
        return cudaSuccess;
    if (args.C % W == 0 &&
        mics_aligned(16, args.out, args.sum, args.in, args.add, args.weight, args.bias))
        return mics_norm_width<T, W, CENTRED>(stream, args);
    return mics_norm_width<T, 1, CENTRED>(stream, args);
}

#endif
