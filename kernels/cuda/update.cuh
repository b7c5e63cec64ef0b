/* SPDX-License-Identifier: Apache-2.0 */
/*
 * update.cuh - what the optimizers share: the scale of the gradient, when to leave all as it is,
 * and the kernel.
 *
 * A thread computes the scale, which needs a square root and divisions in double, while its loads
 * are under way. The arithmetic is that of host/update.h.
 */
#ifndef MICS_KERNELS_CUDA_UPDATE_CUH
#define MICS_KERNELS_CUDA_UPDATE_CUH

#include "cuda/gpu.h"
#include "cuda/vector.cuh"
#include "ops.h"

#define MICS_UPDATE_THREADS 256
#define MICS_UPDATE_WIDTH   4
#define MICS_UPDATE_DEPTH   2

/* What the summed gradients are multiplied by: 1 / targets * min(1, clip / (norm + 1e-6)).
 * false: nothing may be changed, because there are no targets, or clipping is on and the norm is
 * not finite. */
__device__ __forceinline__ bool mics_update_scale(const struct mics_op_scalars *scalars, float clip,
                                                  float *scale)
{
    double factor, norm;

    if (scalars->targets == 0)
        return false;
    factor = 1.0 / scalars->targets;
    if (clip > 0) {
        norm = sqrt(scalars->squared_norm) * factor;
        if (!isfinite(norm))
            return false;
        if (clip < norm + 1e-6)
            factor *= clip / (norm + 1e-6);
    }
    *scale = (float)factor;
    return true;
}

/* Elements [i, i + W) of the copy in bf16, where there is one. */
template <int W>
__device__ __forceinline__ void mics_update_copy(uint16_t *copy, uint64_t i,
                                                 const float (&param)[W])
{
    if (copy)
        mics_store<__nv_bfloat16, W>((__nv_bfloat16 *)copy + i, param);
}

/* One piece of WIDTH elements. */
template <typename Op>
__device__ __forceinline__ void mics_update_piece(const Op &op, uint64_t i, typename Op::inputs &in,
                                                  bool change, float scale)
{
    if (change)
        op.finish(i, in, scale);
    else
        op.keep(i, in);
}

/* One block: MICS_UPDATE_THREADS * MICS_UPDATE_DEPTH pieces of a slice; the first block also its
 * rest. Op is as in flat.cuh; its finish() also takes the scale, and keep() writes the copy of
 * what is left unchanged. */
template <template <int> class Op, int WIDTH>
__global__ void __launch_bounds__(MICS_UPDATE_THREADS)
    mics_update_kernel(Op<WIDTH> op, Op<1> rest, uint64_t count)
{
    const uint64_t pieces = count / WIDTH, block = MICS_UPDATE_THREADS * MICS_UPDATE_DEPTH;
    const uint64_t first = blockIdx.x * block + threadIdx.x;
    typename Op<WIDTH>::inputs in[MICS_UPDATE_DEPTH];
    float scale = 0;

#pragma unroll
    for (int d = 0; d < MICS_UPDATE_DEPTH; d++)
        if (first + d * MICS_UPDATE_THREADS < pieces)
            op.load((first + d * MICS_UPDATE_THREADS) * WIDTH, in[d]);
    const bool change = mics_update_scale(op.args.scalars, op.args.clip, &scale);
#pragma unroll
    for (int d = 0; d < MICS_UPDATE_DEPTH; d++)
        if (first + d * MICS_UPDATE_THREADS < pieces)
            mics_update_piece(op, (first + d * MICS_UPDATE_THREADS) * WIDTH, in[d], change, scale);
    if (WIDTH > 1 && first < count % WIDTH) {
        typename Op<1>::inputs one;

        rest.load(pieces * WIDTH + first, one);
        mics_update_piece(rest, pieces * WIDTH + first, one, change, scale);
    }
}

template <template <int> class Op, int WIDTH>
static cudaError_t mics_update_launch(cudaStream_t stream, const Op<WIDTH> &op, const Op<1> &rest,
                                      uint64_t count)
{
    const uint64_t each = (uint64_t)MICS_UPDATE_THREADS * MICS_UPDATE_DEPTH * WIDTH;
    const uint64_t blocks = (count + each - 1) / each;

    if (count == 0)
        return cudaSuccess;
    if (blocks > 0x7fffffff)
        return cudaErrorInvalidValue;
    return MICS_LAUNCH((mics_update_kernel<Op, WIDTH>), (unsigned)blocks, MICS_UPDATE_THREADS, 0,
                       stream, op, rest, count);
}

#endif
