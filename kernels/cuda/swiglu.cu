/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swiglu.cu - the gated unit silu(gate) * up (Shazeer 2020).
 *
 * A block takes 256 pieces of 16 bytes of one row's gate and as many of its up. 12 bytes (fp32) or
 * 6 (bf16) per element of the result and about 8 flops: bound by memory. Within 1e-6 (fp32) or one
 * unit of bf16's last place of the host.
 */
#include "cuda/activation.cuh"
#include "cuda/kernels.h"
#include "cuda/tiles.cuh"

template <typename T, int W>
__global__ void __launch_bounds__(MICS_TILE_THREADS)
    swiglu_kernel(struct mics_op_swiglu args, uint32_t tiles)
{
    const size_t row = blockIdx.x / tiles;
    const uint32_t i = (blockIdx.x % tiles * MICS_TILE_THREADS + threadIdx.x) * W;
    const T *in = (const T *)args.in + row * 2 * args.F + i;
    float gate[W], up[W];

    if (i >= args.F)
        return;
    mics_load<T, W>(in, gate);
    mics_load<T, W>(in + args.F, up);
#pragma unroll
    for (int j = 0; j < W; j++)
        up[j] *= mics_silu<T>(gate[j]);
    mics_store<T, W>((T *)args.out + row * args.F + i, up);
}

template <typename T, int W>
static cudaError_t launch(const struct mics_cuda_at *at, const struct mics_op_swiglu *args)
{
    const uint32_t tiles = mics_tiles(args->F, W);

    if (!mics_tiles_fit(args->rows, tiles))
        return cudaErrorInvalidValue;
    return MICS_LAUNCH((swiglu_kernel<T, W>), args->rows * tiles, MICS_TILE_THREADS, 0, at->stream,
                       *args, tiles);
}

template <typename T>
static cudaError_t launch_width(const struct mics_cuda_at *at, const struct mics_op_swiglu *args)
{
    constexpr int W = mics_width<T>::value;

    if (args->rows == 0 || args->F == 0)
        return cudaSuccess;
    if (args->F % W == 0 && mics_aligned(16, args->out, args->in))
        return launch<T, W>(at, args);
    return launch<T, 1>(at, args);
}

cudaError_t mics_cuda_swiglu(const struct mics_cuda_at *at, const struct mics_op_swiglu *args)
{
    return args->dtype == MICS_BF16 ? launch_width<__nv_bfloat16>(at, args)
                                    : launch_width<float>(at, args);
}
