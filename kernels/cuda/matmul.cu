/* SPDX-License-Identifier: Apache-2.0 */
/*
 * matmul.cu - bias, residual and GELU after a matrix product, where cuBLASLt does not do them; the
 * product itself is in products.c.
 *
 * A block takes 256 pieces of 4 elements of one row. The bytes of what it reads and writes, at most
 * 30 flops per element: bound by memory. An fp32 x is that of the host within the product's own
 * tolerance; a bf16 product was rounded once before.
 */
#include "cuda/activation.cuh"
#include "cuda/products.h"
#include "cuda/tiles.cuh"

/* x += what stands at p, unless p is NULL. */
template <typename T, int W>
__device__ __forceinline__ void add_at(float (&x)[W], const void *p, size_t at)
{
    float y[W];

    if (!p)
        return;
    mics_load<T, W>((const T *)p + at, y);
#pragma unroll
    for (int i = 0; i < W; i++)
        x[i] += y[i];
}

/* In is the type of the operands, Out that of the result. */
template <typename In, typename Out, typename Product, int W>
__global__ void __launch_bounds__(MICS_TILE_THREADS)
    epilogue_kernel(struct mics_epilogue args, uint32_t tiles)
{
    const size_t row = blockIdx.x / tiles;
    const uint32_t c = (blockIdx.x % tiles * MICS_TILE_THREADS + threadIdx.x) * W;
    const size_t at = row * args.ldout + c;
    float x[W] = {}, y[W];

    if (c >= args.n)
        return;
    add_at<Product, W>(x, args.product, row * args.ldproduct + c);
    add_at<Out, W>(x, args.add, at);
    add_at<In, W>(x, args.bias, c);
    if (args.gelu_of) {
        mics_load<In, W>((const In *)args.gelu_of + at, y);
#pragma unroll
        for (int i = 0; i < W; i++)
            x[i] *= mics_gelu_slope<In>(y[i]);
    }
    if (args.pre_gelu) {
        if (args.pre_gelu != args.product || args.add || args.bias || args.gelu_of)
            mics_store<In, W>((In *)args.pre_gelu + at, x);
#pragma unroll
        for (int i = 0; i < W; i++)
            x[i] = mics_gelu_of<In>(mics_rounded<In>(x[i]));
    }
    mics_store<Out, W>((Out *)args.out + at, x);
}

template <typename In, typename Out, typename Product>
static cudaError_t launch(cudaStream_t stream, const struct mics_epilogue *args)
{
    const bool vectors = (args->n | args->ldout | args->ldproduct) % 4 == 0 &&
                         mics_aligned(16, args->out, args->pre_gelu, args->product, args->add,
                                      args->bias, args->gelu_of);
    const uint32_t tiles = mics_tiles(args->n, vectors ? 4 : 1);

    if (!mics_tiles_fit(args->m, tiles))
        return cudaErrorInvalidValue;
    if (vectors)
        return MICS_LAUNCH((epilogue_kernel<In, Out, Product, 4>), args->m * tiles,
                           MICS_TILE_THREADS, 0, stream, *args, tiles);
    return MICS_LAUNCH((epilogue_kernel<In, Out, Product, 1>), args->m * tiles, MICS_TILE_THREADS,
                       0, stream, *args, tiles);
}

cudaError_t mics_epilogue_launch(cudaStream_t stream, const struct mics_epilogue *args)
{
    if (args->dtype == MICS_BF16)
        return args->out_dtype == MICS_BF16
                   ? launch<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16>(stream, args)
                   : launch<__nv_bfloat16, float, float>(stream, args);
    return args->out_dtype == MICS_BF16 ? launch<float, __nv_bfloat16, float>(stream, args)
                                        : launch<float, float, float>(stream, args);
}
