/* SPDX-License-Identifier: Apache-2.0 */
/*
 * embedding.cu - the rows of a table that tokens name, and of a table of positions.
 *
 * A block takes 8 tokens, one for each warp, whose lanes stride over the row in pieces of 16 bytes, two of
 * each table under way in each thread.
 * 12 bytes (fp32) or 6 (bf16) and 1 flop per element: bound by memory. The same bits as the host.
 */
#include "cuda/gpu.h"
#include "cuda/kernels.h"
#include "cuda/vector.cuh"

#define LANES 32
#define WARPS 8
#define DEPTH 2

/* out = token (+ position) for DEPTH pieces from column c on, as far as the row goes. */
template <typename T, int W>
__device__ __forceinline__ void add_pieces(T *out, const T *token, const T *position, uint32_t c,
                                           uint32_t C)
{
    mics_packed<T, W> in[DEPTH], at[DEPTH];
    float x[W], y[W];

#pragma unroll
    for (int d = 0; d < DEPTH; d++)
        if (c + d * LANES * W < C)
            in[d] = mics_read<T, W>(token + c + d * LANES * W);
#pragma unroll
    for (int d = 0; d < DEPTH; d++)
        if (position && c + d * LANES * W < C)
            at[d] = mics_read<T, W>(position + c + d * LANES * W);
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
        if (c + d * LANES * W >= C)
            break;
        mics_widen<T, W>(in[d], x);
        if (position) {
            mics_widen<T, W>(at[d], y);
#pragma unroll
            for (int i = 0; i < W; i++)
                x[i] += y[i];
        }
        mics_store<T, W>(out + c + d * LANES * W, x);
    }
}

template <typename T, int W>
__global__ void __launch_bounds__(LANES *WARPS)
    embedding_kernel(struct mics_op_embedding args, uint32_t rows)
{
    const uint32_t row = blockIdx.x * WARPS + threadIdx.y;
    T *out = (T *)args.out + (size_t)row * args.C;

    if (row >= rows)
        return;
    const T *token = (const T *)args.wte + (size_t)args.tokens[row] * args.C;
    const T *wpe = args.wpe ? (const T *)args.wpe + (size_t)(row % args.T) * args.C : NULL;
    for (uint32_t c = threadIdx.x * W; c < args.C; c += DEPTH * LANES * W)
        add_pieces<T, W>(out, token, wpe, c, args.C);
}

template <typename T>
static cudaError_t launch(const struct mics_cuda_at *at, const struct mics_op_embedding *args)
{
    constexpr int W = mics_width<T>::value;
    const uint64_t rows = (uint64_t)args->B * args->T, blocks = (rows + WARPS - 1) / WARPS;
    const dim3 block(LANES, WARPS);

    if (rows == 0 || args->C == 0)
        return cudaSuccess;
    if (rows > 0x7fffffff)
        return cudaErrorInvalidValue;
    if (args->C % W == 0 && mics_aligned(16, args->out, args->wte, args->wpe))
        return MICS_LAUNCH((embedding_kernel<T, W>), (unsigned)blocks, block, 0, at->stream, *args,
                           (uint32_t)rows);
    return MICS_LAUNCH((embedding_kernel<T, 1>), (unsigned)blocks, block, 0, at->stream, *args,
                       (uint32_t)rows);
}

cudaError_t mics_cuda_embedding(const struct mics_cuda_at *at, const struct mics_op_embedding *args)
{
    return args->dtype == MICS_BF16 ? launch<__nv_bfloat16>(at, args) : launch<float>(at, args);
}
