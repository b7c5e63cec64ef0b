/* SPDX-License-Identifier: Apache-2.0 */
/*
 * squared_norm.cu - the sum of squares of an array, in double.
 *
 * A block strides over the array in pieces of 16 bytes, four under way in each thread, and writes
 * its sum to the workspace; one block adds those up in order. 4 bytes and 2 flops in double
 * precision per element: bound by memory. Within 1e-13 of the host, relatively. Equal runs on equal
 * devices give equal bits.
 */
#include "cuda/kernels.h"
#include "cuda/reduce.cuh"
#include "cuda/vector.cuh"

#define THREADS  512
#define RESIDENT 4 /* blocks of a multiprocessor */
#define DEPTH    4

template <int W> __device__ __forceinline__ double squares(const mics_packed<float, W> &in)
{
    float x[W];
    double sum = 0;

    mics_widen<float, W>(in, x);
#pragma unroll
    for (int i = 0; i < W; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

/* One block: every gridDim.x-th run of pieces; the first block also the rest of the array. */
template <int W>
__global__ void __launch_bounds__(THREADS)
    squared_norm_kernel(const float *in, uint64_t count, double *partials)
{
    MICS_SHARED(double, shared, [MICS_WARPS_MAX]);
    const uint64_t pieces = count / W, stride = (uint64_t)gridDim.x * THREADS;
    const uint64_t first = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    double sum[1] = {0};

    for (uint64_t at = first; at < pieces; at += stride * DEPTH) {
        mics_packed<float, W> x[DEPTH];

#pragma unroll
        for (int d = 0; d < DEPTH; d++)
            if (at + d * stride < pieces)
                x[d] = mics_read<float, W>(in + (at + d * stride) * W);
#pragma unroll
        for (int d = 0; d < DEPTH; d++)
            if (at + d * stride < pieces)
                sum[0] += squares<W>(x[d]);
    }
    if (W > 1 && first < count % W)
        sum[0] += squares<1>(mics_read<float, 1>(in + pieces * W + first));
    mics_team_sum<1>(sum, shared);
    if (threadIdx.x == 0)
        partials[blockIdx.x] = sum[0];
}

/* One block: *to += the sum of all partials. */
__global__ void __launch_bounds__(THREADS)
    sum_partials_kernel(const double *partials, unsigned count, double *to)
{
    MICS_SHARED(double, shared, [MICS_WARPS_MAX]);
    double sum[1] = {0};

    for (unsigned i = threadIdx.x; i < count; i += THREADS)
        sum[0] += partials[i];
    mics_team_sum<1>(sum, shared);
    if (threadIdx.x == 0)
        *to += sum[0];
}

cudaError_t mics_cuda_squared_norm(const struct mics_cuda_at *at,
                                   const struct mics_op_squared_norm *args)
{
    const bool vectors = mics_aligned(16, args->in);
    const uint64_t each = (uint64_t)THREADS * (vectors ? 4 : 1),
                   needed = (args->count + each - 1) / each;
    const uint64_t resident = (uint64_t)at->multiprocessors * RESIDENT;
    const unsigned blocks = (unsigned)(needed < resident ? needed : resident);
    double *partials = (double *)at->workspace;
    cudaError_t error;

    if (args->count == 0)
        return cudaSuccess;
    error = vectors ? MICS_LAUNCH((squared_norm_kernel<4>), blocks, THREADS, 0, at->stream,
                                  args->in, args->count, partials)
                    : MICS_LAUNCH((squared_norm_kernel<1>), blocks, THREADS, 0, at->stream,
                                  args->in, args->count, partials);
    if (error != cudaSuccess)
        return error;
    return MICS_LAUNCH(sum_partials_kernel, 1, THREADS, 0, at->stream, partials, blocks, args->sum);
}
