/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rope.cu - rotary positions (Su et al. 2021) in place, in the rotate-half form.
 *
 * A block turns the heads of one row: D / 2 of its threads compute the sines and cosines of the
 * row's position, all heads share them, and each thread turns a piece of up to 16 bytes of a first
 * half with the piece of the second half that belongs to it. 8 bytes (fp32) or 4 (bf16) and 3 flops
 * per element, a sine and a cosine for every `heads` pairs: bound by memory. The frequencies come
 * from the host's double precision. Within 2e-6 (fp32; the angle's own rounding, up to T * 6e-8, is
 * the host's, too) or one unit of bf16's last place of the host.
 */
#include "cuda/gpu.h"
#include "cuda/kernels.h"
#include "cuda/vector.cuh"
#include "rope.h"

#define HALF_MAX (MICS_HEAD_MAX / 2)
#define THREADS  128

struct frequencies {
    float of[HALF_MAX];
};

template <typename T, int W>
__global__ void __launch_bounds__(THREADS)
    rope_kernel(const __grid_constant__ struct mics_op_rope args,
                const __grid_constant__ frequencies freq)
{
    MICS_SHARED(float, cosine, [HALF_MAX]);
    MICS_SHARED(float, sine, [HALF_MAX]);
    const uint32_t half = args.D / 2, pieces = half / W;
    T *row = (T *)args.data + (size_t)blockIdx.x * args.stride;

    if (threadIdx.x < half) {
        const float angle = (float)(blockIdx.x % args.T) * freq.of[threadIdx.x];

        sincosf(angle, &sine[threadIdx.x], &cosine[threadIdx.x]);
    }
    __syncthreads();
    for (uint32_t piece = threadIdx.x; piece < args.heads * pieces; piece += THREADS) {
        const uint32_t i = piece % pieces * W;
        T *first = row + piece / pieces * args.D + i;
        float a[W], b[W];

        mics_load<T, W>(first, a);
        mics_load<T, W>(first + half, b);
#pragma unroll
        for (int j = 0; j < W; j++) {
            const float c = cosine[i + j], s = args.inverse ? -sine[i + j] : sine[i + j], x = a[j];

            a[j] = x * c - b[j] * s;
            b[j] = b[j] * c + x * s;
        }
        mics_store<T, W>(first, a);
        mics_store<T, W>(first + half, b);
    }
}

template <typename T, int W>
static cudaError_t launch(const struct mics_cuda_at *at, const struct mics_op_rope *args)
{
    frequencies freq = {};

    for (uint32_t i = 0; i < args->D / 2; i++)
        freq.of[i] = mics_rope_frequency(args, i);
    return MICS_LAUNCH((rope_kernel<T, W>), args->B * args->T, THREADS, 0, at->stream, *args, freq);
}

template <typename T>
static cudaError_t launch_width(const struct mics_cuda_at *at, const struct mics_op_rope *args)
{
    constexpr int W = mics_width<T>::value;

    if (args->B == 0 || args->T == 0 || args->heads == 0 || args->D == 0)
        return cudaSuccess;
    if (args->D % 2 != 0 || args->D > MICS_HEAD_MAX || (uint64_t)args->B * args->T > 0x7fffffff)
        return cudaErrorInvalidValue;
    if (args->D / 2 % W == 0 && args->stride % W == 0 && mics_aligned(16, args->data))
        return launch<T, W>(at, args);
    return launch<T, 1>(at, args);
}

cudaError_t mics_cuda_rope(const struct mics_cuda_at *at, const struct mics_op_rope *args)
{
    return args->dtype == MICS_BF16 ? launch_width<__nv_bfloat16>(at, args)
                                    : launch_width<float>(at, args);
}
