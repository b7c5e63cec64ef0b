/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm.cu - layer normalisation and root-mean-square normalisation.
 */
#include "cuda/kernels.h"
#include "cuda/rows.cuh"
#include "cuda/vector.cuh"

/*
 * Norms of rows of any length and alignment, and what both implementations share.
 *
 * A block takes a row, element by element, and reads it three times: for the mean, for
 * the variance, and for the result. The second and third time it comes out of
 * caches.
 */

/* Arguments of both norms; mean and bias are NULL for the root mean square. */
struct norm {
    void *out;
    float *mean, *rstd;
    const void *in, *weight, *bias;
    uint32_t rows, C;
    float eps, share; /* share: 1 / C */
};

/* The block's mean over a row of x - mean, or with SQUARES of its square. */
template <typename T, bool SQUARES>
__device__ __forceinline__ float norm_plain_mean(const T *row, uint32_t C, float share, float mean,
                                                 float *shared)
{
    float sum[1] = {0}, x[1];

    for (uint32_t c = threadIdx.x; c < C; c += blockDim.x) {
        mics_load<T, 1>(row + c, x);
        sum[0] += SQUARES ? (x[0] - mean) * (x[0] - mean) : x[0];
    }
    mics_team_sum<1>(sum, shared);
    return sum[0] * share;
}

/* One block: row blockIdx.x. */
template <typename T, bool CENTRED>
__global__ void __launch_bounds__(1024) norm_plain_kernel(struct norm args)
{
    MICS_SHARED(float, shared, [2][MICS_WARPS_MAX]);
    const size_t begin = (size_t)blockIdx.x * args.C;
    const T *row = (const T *)args.in + begin;
    const float mean =
        CENTRED ? norm_plain_mean<T, false>(row, args.C, args.share, 0, shared[0]) : 0.0f;
    const float variance = norm_plain_mean<T, true>(row, args.C, args.share, mean, shared[1]);
    const float rstd = 1.0f / sqrtf(variance + args.eps);
    float x[1], weight[1], bias[1] = {0};

    for (uint32_t c = threadIdx.x; c < args.C; c += blockDim.x) {
        mics_load<T, 1>(row + c, x);
        mics_load<T, 1>((const T *)args.weight + c, weight);
        if (CENTRED)
            mics_load<T, 1>((const T *)args.bias + c, bias);
        x[0] = (x[0] - mean) * rstd * weight[0] + bias[0];
        mics_store<T, 1>((T *)args.out + begin + c, x);
    }
    if (threadIdx.x > 0)
        return;
    if (CENTRED)
        args.mean[blockIdx.x] = mean;
    args.rstd[blockIdx.x] = rstd;
}

/* The fallback of norm_launch(), which documents when it is used. */
template <typename T, bool CENTRED>
static cudaError_t norm_plain_launch(cudaStream_t stream, const struct norm &args)
{
    return MICS_LAUNCH((norm_plain_kernel<T, CENTRED>), args.rows, mics_rows_threads(args.C), 0,
                       stream, args);
}

/*
 * Layer normalisation, and root-mean-square normalisation as the same without mean and
 * bias.
 *
 * A team reads a row once, holds it in registers, takes its mean and then its variance, and writes
 * the result. Rows that do not fit the registers of 1,024 threads, or are not aligned to 16 bytes,
 * go through norm_plain_kernel().
 */

#define NORM_PIECES 4    /* of 16 bytes in each thread */
#define NORM_BLOCK  128  /* threads of a block of several teams */
#define NORM_TEAM   1024 /* the widest */

/* A thread's part of a row. */
template <typename T> struct norm_part {
    float x[NORM_PIECES][mics_width<T>::value];
    uint32_t pieces; /* of the whole row; 0 for a row beyond the last */

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

/* Read a row that begins at element `begin`. All loads are issued before the first is used. */
template <typename T>
__device__ __forceinline__ void norm_read(const struct norm &args, size_t begin,
                                          struct norm_part<T> &to)
{
    constexpr int W = mics_width<T>::value, N = NORM_PIECES;
    mics_packed<T, W> in[N];

#pragma unroll
    for (int n = 0; n < N; n++)
        if (to.has(n))
            in[n] = mics_read<T, W>((const T *)args.in + begin + to.column(n));
#pragma unroll
    for (int n = 0; n < N; n++)
        if (to.has(n))
            mics_widen<T, W>(in[n], to.x[n]);
}

/* The mean over a team's row of x. */
template <typename T>
__device__ __forceinline__ float norm_mean(const struct norm_part<T> &row, float share,
                                           float *shared)
{
    float sum[1] = {0};

#pragma unroll
    for (int n = 0; n < NORM_PIECES; n++)
        if (row.has(n))
#pragma unroll
            for (int i = 0; i < mics_width<T>::value; i++)
                sum[0] += row.x[n][i];
    mics_team_sum<1>(sum, shared);
    return sum[0] * share;
}

/* x -= mean, where CENTRED; the mean of its squares. */
template <typename T, bool CENTRED>
__device__ __forceinline__ float norm_variance(struct norm_part<T> &row, float mean, float share,
                                               float *shared)
{
    float sum[1] = {0};

#pragma unroll
    for (int n = 0; n < NORM_PIECES; n++)
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
__device__ __forceinline__ void norm_write(const struct norm &args, size_t begin,
                                           const struct norm_part<T> &row, float rstd)
{
    constexpr int W = mics_width<T>::value;
    float out[W], weight[W], bias[W] = {};

#pragma unroll
    for (int n = 0; n < NORM_PIECES; n++) {
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
__global__ void __launch_bounds__(NORM_TEAM) norm_kernel(struct norm args)
{
    MICS_SHARED(float, shared, [2][MICS_WARPS_MAX]);
    const uint64_t at = (uint64_t)blockIdx.x * blockDim.y + threadIdx.y;
    struct norm_part<T> row;
    float mean = 0;

    row.pieces = at < args.rows ? args.C / mics_width<T>::value : 0;
    norm_read<T>(args, at * args.C, row);
    if (CENTRED)
        mean = norm_mean<T>(row, args.share, shared[0]);
    const float variance = norm_variance<T, CENTRED>(row, mean, args.share, shared[1]);
    const float rstd = 1.0f / sqrtf(variance + args.eps);
    norm_write<T, CENTRED>(args, at * args.C, row, rstd);
    if (threadIdx.x > 0 || at >= args.rows)
        return;
    if (CENTRED)
        args.mean[at] = mean;
    args.rstd[at] = rstd;
}

/* T is the type of the tensors. cudaErrorInvalidValue: there are 2^31 rows or more. */
template <typename T, bool CENTRED>
static cudaError_t norm_launch(cudaStream_t stream, const struct norm &args)
{
    constexpr int W = mics_width<T>::value;
    const struct mics_row_teams rows =
        mics_rows_share(args.C, W, NORM_PIECES, NORM_BLOCK, NORM_TEAM);

    if (args.rows == 0 || args.C == 0)
        return cudaSuccess;
    if (args.rows > 0x7fffffff)
        return cudaErrorInvalidValue;
    if (rows.team == 0 || args.C % W != 0 ||
        !mics_aligned(16, args.out, args.in, args.weight, args.bias))
        return norm_plain_launch<T, CENTRED>(stream, args);
    return MICS_LAUNCH((norm_kernel<T, CENTRED>), (args.rows + rows.teams - 1) / rows.teams,
                       dim3(rows.team, rows.teams), 0, stream, args);
}

/*
 * Layer normalisation (Ba, Kiros and Hinton 2016).
 *
 * A block takes a few rows. 8 bytes (fp32) or 4 (16 bits) per element and about 8 flops: bound by
 * memory. Within 2e-6 (fp32) or one unit of the last place of the host.
 */

cudaError_t mics_cuda_layernorm(const struct mics_cuda_at *at,
                                const struct mics_args_layernorm *args)
{
    const struct norm norm = {args->out,  args->mean, args->rstd, args->in,  args->weight,
                              args->bias, args->rows, args->C,    args->eps, 1.0f / (float)args->C};

    return mics_launch_typed(
        args->dtype, [&](auto t) { return norm_launch<decltype(t), true>(at->stream, norm); });
}

/*
 * Root-mean-square normalisation (Zhang and Sennrich 2019).
 *
 * A block takes a few rows. 8 bytes (fp32) or 4 (16 bits) per element and about 5 flops: bound by
 * memory. Within 2e-6 (fp32) or one unit of the last place of the host.
 */

cudaError_t mics_cuda_rmsnorm(const struct mics_cuda_at *at, const struct mics_args_rmsnorm *args)
{
    const struct norm norm = {args->out, NULL,       args->rstd, args->in,  args->weight,
                              NULL,      args->rows, args->C,    args->eps, 1.0f / (float)args->C};

    return mics_launch_typed(
        args->dtype, [&](auto t) { return norm_launch<decltype(t), false>(at->stream, norm); });
}

/*
 * Root-mean-square norms of the heads of queries and keys.
 *
 * A warp has a head at a time, of which each lane holds every 32nd element; heads of values are
 * copied. 8 bytes (fp32) or 4 (16 bits) and about 4 flops per element: bound by memory. Within 4e-6
 * of the host; 16 bits round each result once.
 */

#define QK_NORM_WARPS  8 /* of a block */
#define QK_NORM_PIECES (MICS_HEAD_MAX / MICS_WARP)

template <typename T>
__global__ void __launch_bounds__(QK_NORM_WARPS *MICS_WARP)
    qk_norm_kernel(struct mics_args_qk_norm args)
{
    const uint32_t normed = args.H + args.H_kv, heads = normed + args.H_kv;
    const size_t total = (size_t)args.rows * heads, stride = (size_t)gridDim.x * blockDim.y;
    const float share = 1.0f / (float)args.D;

    for (size_t item = (size_t)blockIdx.x * blockDim.y + threadIdx.y; item < total;
         item += stride) {
        const uint32_t head = (uint32_t)(item % heads);
        const T *in = (const T *)args.in + item * args.D;
        const T *weight = (const T *)(head < args.H ? args.q_weight : args.k_weight);
        float x[QK_NORM_PIECES][1], w[1], sum = 0;

#pragma unroll
        for (int i = 0; i < QK_NORM_PIECES; i++) {
            const uint32_t c = i * MICS_WARP + threadIdx.x;

            x[i][0] = 0;
            if (c < args.D)
                mics_load<T, 1>(in + c, x[i]);
            sum = fmaf(x[i][0], x[i][0], sum);
        }
        const float rstd = 1.0f / sqrtf(mics_warp_sum(sum) * share + args.eps);
#pragma unroll
        for (int i = 0; i < QK_NORM_PIECES; i++) {
            const uint32_t c = i * MICS_WARP + threadIdx.x;

            if (c >= args.D)
                continue;
            if (head < normed) {
                mics_load<T, 1>(weight + c, w);
                x[i][0] = x[i][0] * rstd * w[0];
            }
            mics_store<T, 1>((T *)args.out + item * args.D + c, x[i]);
        }
        if (head < normed && threadIdx.x == 0)
            args.rstd[item / heads * normed + head] = rstd;
    }
}

/* Wide heads: a block has one at a time, and reads it again when it knows its mean square. 12 bytes
 * (fp32) or 6 (16 bits) per element, a third of them from the second cache. */
#define QK_WIDE_THREADS 256

template <typename T>
__global__ void __launch_bounds__(QK_WIDE_THREADS)
    qk_norm_wide_kernel(struct mics_args_qk_norm args)
{
    MICS_SHARED(float, shared, [2][MICS_WARPS_MAX]);
    const uint32_t normed = args.H + args.H_kv, heads = normed + args.H_kv;
    const size_t total = (size_t)args.rows * heads, queries = (size_t)args.H * args.D;
    const size_t width = queries + 2 * (size_t)args.H_kv * args.D_kv;
    unsigned turn = 0;

    for (size_t item = blockIdx.x; item < total; item += gridDim.x) {
        const uint32_t head = (uint32_t)(item % heads), D = head < args.H ? args.D : args.D_kv;
        const size_t begin =
            item / heads * width +
            (head < args.H ? (size_t)head * D : queries + (size_t)(head - args.H) * D);
        const T *in = (const T *)args.in + begin;
        const T *weight = (const T *)(head < args.H ? args.q_weight : args.k_weight);
        T *out = (T *)args.out + begin;
        float x[1], w[1], sum[1] = {0};

        for (uint32_t c = threadIdx.x; c < D; c += QK_WIDE_THREADS) {
            mics_load<T, 1>(in + c, x);
            sum[0] = fmaf(x[0], x[0], sum[0]);
        }
        mics_team_sum<1>(sum, shared[turn++ % 2]);
        const float rstd = 1.0f / sqrtf(sum[0] / (float)D + args.eps);
        for (uint32_t c = threadIdx.x; c < D; c += QK_WIDE_THREADS) {
            mics_load<T, 1>(in + c, x);
            if (head < normed) {
                mics_load<T, 1>(weight + c, w);
                x[0] = x[0] * rstd * w[0];
            }
            mics_store<T, 1>(out + c, x);
        }
        if (head < normed && threadIdx.x == 0)
            args.rstd[item / heads * normed + head] = rstd;
    }
}

static cudaError_t qk_norm_wide(cudaStream_t stream, const struct mics_args_qk_norm *args)
{
    const size_t total = (size_t)args->rows * (args->H + 2 * (size_t)args->H_kv);
    const unsigned blocks = total < 0x7fffffff ? (unsigned)total : 0x7fffffff;

    if (total == 0)
        return cudaSuccess;
    return mics_launch_typed(args->dtype, [&](auto t) {
        return MICS_LAUNCH(qk_norm_wide_kernel<decltype(t)>, blocks, QK_WIDE_THREADS, 0, stream,
                           *args);
    });
}

cudaError_t mics_cuda_qk_norm(const struct mics_cuda_at *at, const struct mics_args_qk_norm *args)
{
    const size_t total = (size_t)args->rows * (args->H + 2 * (size_t)args->H_kv);
    const size_t most = (total + QK_NORM_WARPS - 1) / QK_NORM_WARPS;
    const unsigned blocks = most < 0x7fffffff ? (unsigned)most : 0x7fffffff;
    const dim3 block(MICS_WARP, QK_NORM_WARPS);

    if (args->D > MICS_HEAD_MAX || args->D_kv != args->D)
        return qk_norm_wide(at->stream, args);
    if (total == 0 || args->D == 0)
        return cudaSuccess;
    return mics_launch_typed(args->dtype, [&](auto t) {
        return MICS_LAUNCH(qk_norm_kernel<decltype(t)>, blocks, block, 0, at->stream, *args);
    });
}
