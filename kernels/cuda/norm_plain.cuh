/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_plain.cuh - norms of rows of any length and alignment; and what both ways to them share.
 *
 * A block takes a row, element by element, and goes over it three times: for the mean (and the
 * residual's sum), for the variance, and for the result. The second and third time it comes out of
 * caches.
 */
#ifndef MICS_KERNELS_CUDA_NORM_PLAIN_CUH
#define MICS_KERNELS_CUDA_NORM_PLAIN_CUH

#include "cuda/rows.cuh"
#include "cuda/vector.cuh"

/* What both norms have; mean and bias are NULL for the root mean square. */
struct mics_norm {
    void *out, *sum;
    float *mean, *rstd;
    const void *in, *add, *weight, *bias;
    uint32_t rows, C;
    float eps, share; /* share: 1 / C */
};

/* The row at element `begin` of the tensor that is normalised: `in`, or in + add, which is written to
 * `sum` first. A thread reads only what it wrote itself. */
template <typename T>
__device__ __forceinline__ const T *mics_norm_plain_row(const struct mics_norm &args, size_t begin)
{
    const T *in = (const T *)args.in + begin, *add = (const T *)args.add + begin;
    T *sum = (T *)args.sum + begin;
    float a[1], b[1];

    if (!args.add)
        return in;
    for (uint32_t c = threadIdx.x; c < args.C; c += blockDim.x) {
        mics_load<T, 1>(in + c, a);
        mics_load<T, 1>(add + c, b);
        a[0] += b[0];
        mics_store<T, 1>(sum + c, a);
    }
    return sum;
}

/* The block's mean over a row of x - mean, or with SQUARES of its square. */
template <typename T, bool SQUARES>
__device__ __forceinline__ float mics_norm_plain_mean(const T *row, uint32_t C, float share,
                                                      float mean, float *shared)
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
__global__ void __launch_bounds__(1024) mics_norm_plain_kernel(struct mics_norm args)
{
    MICS_SHARED(float, shared, [2][MICS_WARPS_MAX]);
    const size_t begin = (size_t)blockIdx.x * args.C;
    const T *row = mics_norm_plain_row<T>(args, begin);
    const float mean =
        CENTRED ? mics_norm_plain_mean<T, false>(row, args.C, args.share, 0, shared[0]) : 0.0f;
    const float variance = mics_norm_plain_mean<T, true>(row, args.C, args.share, mean, shared[1]);
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

/* As mics_norm_launch(), which says when. */
template <typename T, bool CENTRED>
static cudaError_t mics_norm_plain_launch(cudaStream_t stream, const struct mics_norm &args)
{
    return MICS_LAUNCH((mics_norm_plain_kernel<T, CENTRED>), args.rows, mics_rows_threads(args.C),
                       0, stream, args);
}

#endif
