/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm.cuh - layer normalisation, and root-mean-square normalisation as the same without mean and
 * bias.
 *
 * A team reads a row once, adds the residual where there is one and writes their sum, holds the row
 * in registers as it is stored, takes its mean and then its variance, and writes the result. Rows
 * that do not fit the registers of 1,024 threads, or are not aligned to 16 bytes, go through
 * norm_plain.cuh.
 */
#ifndef MICS_KERNELS_CUDA_NORM_CUH
#define MICS_KERNELS_CUDA_NORM_CUH

#include "cuda/norm_plain.cuh"

#define MICS_NORM_PIECES 4    /* of 16 bytes in each thread */
#define MICS_NORM_BLOCK  128  /* threads of a block of several teams */
#define MICS_NORM_TEAM   1024 /* the widest */

/* A thread's part of a row. */
template <typename T> struct mics_norm_part {
    float x[MICS_NORM_PIECES][mics_width<T>::value];
    uint32_t pieces; /* of the whole row; 0 for a row that is not there */

    /* Whether the row has this thread's n-th piece, and the column where it begins. */
    __device__ __forceinline__ bool has(int n) const
    {
        return n * blockDim.x + threadIdx.x < pieces;
    }

    static __device__ __forceinline__ uint32_t column(int n)
    {
        return (n * blockDim.x + threadIdx.x) * mics_width<T>::value;
    }
};

/* Read a row that begins at element `begin`: of `in`, or of in + add, which is written to `sum`. All
 * is under way before the first is used. */
template <typename T>
__device__ __forceinline__ void mics_norm_read(const struct mics_norm &args, size_t begin,
                                               struct mics_norm_part<T> &to)
{
    constexpr int W = mics_width<T>::value, N = MICS_NORM_PIECES;
    mics_packed<T, W> in[N], add[N];
    float a[W];

#pragma unroll
    for (int n = 0; n < N; n++)
        if (to.has(n))
            in[n] = mics_read<T, W>((const T *)args.in + begin + to.column(n));
#pragma unroll
    for (int n = 0; n < N; n++)
        if (args.add && to.has(n))
            add[n] = mics_read<T, W>((const T *)args.add + begin + to.column(n));
#pragma unroll
    for (int n = 0; n < N; n++)
        if (args.add && to.has(n)) {
            mics_widen<T, W>(in[n], to.x[n]);
            mics_widen<T, W>(add[n], a);
#pragma unroll
            for (int i = 0; i < W; i++)
                a[i] += to.x[n][i];
            in[n] = mics_narrow<T, W>(a);
            *(uint4 *)((T *)args.sum + begin + to.column(n)) = in[n].all;
        }
#pragma unroll
    for (int n = 0; n < N; n++)
        if (to.has(n))
            mics_widen<T, W>(in[n], to.x[n]);
}

/* The mean over a team's row of x. */
template <typename T>
__device__ __forceinline__ float mics_norm_mean(const struct mics_norm_part<T> &row, float share,
                                                float *shared)
{
    float sum[1] = {0};

#pragma unroll
    for (int n = 0; n < MICS_NORM_PIECES; n++)
        if (row.has(n))
#pragma unroll
            for (int i = 0; i < mics_width<T>::value; i++)
                sum[0] += row.x[n][i];
    mics_team_sum<1>(sum, shared);
    return sum[0] * share;
}

/* x -= mean, where CENTRED; the mean of its squares. */
template <typename T, bool CENTRED>
__device__ __forceinline__ float mics_norm_variance(struct mics_norm_part<T> &row, float mean,
                                                    float share, float *shared)
{
    float sum[1] = {0};

#pragma unroll
    for (int n = 0; n < MICS_NORM_PIECES; n++)
        if (row.has(n))
#pragma unroll
            for (int i = 0; i < mics_width<T>::value; i++) {
                if (CENTRED)
                    row.x[n][i] -= mean;
                sum[0] = fmaf(row.x[n][i], row.x[n][i], sum[0]);
            }
    mics_team_sum<1>(sum, shared);
    return sum[0] * share;
}

/* out = x rstd weight + bias. */
template <typename T, bool CENTRED>
__device__ __forceinline__ void mics_norm_write(const struct mics_norm &args, size_t begin,
                                                const struct mics_norm_part<T> &row, float rstd)
{
    constexpr int W = mics_width<T>::value;
    float out[W], weight[W], bias[W] = {};

#pragma unroll
    for (int n = 0; n < MICS_NORM_PIECES; n++) {
        if (!row.has(n))
            continue;
        mics_load<T, W>((const T *)args.weight + row.column(n), weight);
        if (CENTRED)
            mics_load<T, W>((const T *)args.bias + row.column(n), bias);
#pragma unroll
        for (int i = 0; i < W; i++)
            out[i] = row.x[n][i] * rstd * weight[i] + bias[i];
        mics_store<T, W>((T *)args.out + begin + row.column(n), out);
    }
}

/* One block: blockDim.y rows, one for each team. */
template <typename T, bool CENTRED>
__global__ void __launch_bounds__(MICS_NORM_TEAM) mics_norm_kernel(struct mics_norm args)
{
    MICS_SHARED(float, shared, [2][MICS_WARPS_MAX]);
    const uint64_t at = (uint64_t)blockIdx.x * blockDim.y + threadIdx.y;
    struct mics_norm_part<T> row;
    float mean = 0;

    row.pieces = at < args.rows ? args.C / mics_width<T>::value : 0;
    mics_norm_read<T>(args, at * args.C, row);
    if (CENTRED)
        mean = mics_norm_mean<T>(row, args.share, shared[0]);
    const float variance = mics_norm_variance<T, CENTRED>(row, mean, args.share, shared[1]);
    const float rstd = 1.0f / sqrtf(variance + args.eps);
    mics_norm_write<T, CENTRED>(args, at * args.C, row, rstd);
    if (threadIdx.x > 0 || at >= args.rows)
        return;
    if (CENTRED)
        args.mean[at] = mean;
    args.rstd[at] = rstd;
}

/* T is the type of the tensors. cudaErrorInvalidValue: there are 2^31 rows or more. */
template <typename T, bool CENTRED>
static cudaError_t mics_norm_launch(cudaStream_t stream, const struct mics_norm &args)
{
    constexpr int W = mics_width<T>::value;
    const struct mics_rows rows =
        mics_rows_share(args.C, W, MICS_NORM_PIECES, MICS_NORM_BLOCK, MICS_NORM_TEAM);

    if (args.rows == 0 || args.C == 0)
        return cudaSuccess;
    if (args.rows > 0x7fffffff)
        return cudaErrorInvalidValue;
    if (rows.team == 0 || args.C % W != 0 ||
        !mics_aligned(16, args.out, args.sum, args.in, args.add, args.weight, args.bias))
        return mics_norm_plain_launch<T, CENTRED>(stream, args);
    return MICS_LAUNCH((mics_norm_kernel<T, CENTRED>), (args.rows + rows.teams - 1) / rows.teams,
                       dim3(rows.team, rows.teams), 0, stream, args);
}

#endif
