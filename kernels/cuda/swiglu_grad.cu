/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swiglu_grad.cu - the gradient of the gated unit silu(gate) * up.
 *
 * With s the logistic of gate: d/d gate = g up s (1 + gate (1 - s)), d/d up = g gate s. A block
 * takes 256 pieces of 16 bytes of one row's gate, up and grad_out. 20 bytes (fp32) or 10 (bf16) per
 * element of grad_out and about 15 flops: bound by memory. Within 2e-6 (fp32) or one unit of bf16's
 * last place of the host.
 */
#include "cuda/activation.cuh"
#include "cuda/kernels.h"
#include "cuda/tiles.cuh"

template <typename T, int W>
__global__ void __launch_bounds__(MICS_TILE_THREADS)
    swiglu_grad_kernel(struct mics_op_swiglu_grad args, uint32_t tiles)
{
    const size_t row = blockIdx.x / tiles;
    const uint32_t i = (blockIdx.x % tiles * MICS_TILE_THREADS + threadIdx.x) * W;
    const T *in = (const T *)args.in + row * 2 * args.F + i;
    T *to = (T *)args.grad_in + row * 2 * args.F + i;
    float gate[W], up[W], grad[W];

    if (i >= args.F)
        return;
    mics_load<T, W>(in, gate);
    mics_load<T, W>(in + args.F, up);
    mics_load<T, W>((const T *)args.grad_out + row * args.F + i, grad);
#pragma unroll
    for (int j = 0; j < W; j++) {
        const float x = gate[j], s = mics_logistic<T>(x), silu = mics_silu<T>(x);

        gate[j] = grad[j] * up[j] * (s + silu * (1.0f - s));
        up[j] = grad[j] * silu;
    }
    mics_store<T, W>(to, gate);
    mics_store<T, W>(to + args.F, up);
}

template <typename T, int W>
static cudaError_t launch(const struct mics_cuda_at *at, const struct mics_op_swiglu_grad *args)
{
    const uint32_t tiles = mics_tiles(args->F, W);

    if (!mics_tiles_fit(args->rows, tiles))
        return cudaErrorInvalidValue;
    return MICS_LAUNCH((swiglu_grad_kernel<T, W>), args->rows * tiles, MICS_TILE_THREADS, 0,
                       at->stream, *args, tiles);
}

template <typename T>
static cudaError_t launch_width(const struct mics_cuda_at *at,
                                const struct mics_op_swiglu_grad *args)
{
    constexpr int W = mics_width<T>::value;

    if (args->rows == 0 || args->F == 0)
        return cudaSuccess;
    if (args->F % W == 0 && mics_aligned(16, args->grad_in, args->in, args->grad_out))
        return launch<T, W>(at, args);
    return launch<T, 1>(at, args);
}

cudaError_t mics_cuda_swiglu_grad(const struct mics_cuda_at *at,
                                  const struct mics_op_swiglu_grad *args)
{
    return args->dtype == MICS_BF16 ? launch_width<__nv_bfloat16>(at, args)
                                    : launch_width<float>(at, args);
}
