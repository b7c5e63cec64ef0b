/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gelu.cu - the Gaussian error linear unit, tanh form.
 *
 * A block takes 1,024 pieces of 16 bytes, four loads under way in each thread. 8 bytes (fp32) or 4
 * (bf16) and about 15 flops per element: bound by memory. Within 1e-6 (fp32) or one unit of bf16's
 * last place of the host.
 */
#include "cuda/activation.cuh"
#include "cuda/flat.cuh"
#include "cuda/kernels.h"

template <typename T> struct gelu {
    template <int W> struct op {
        struct inputs {
            mics_packed<T, W> x;
        };
        struct mics_op_gelu args;

        __device__ __forceinline__ void load(uint64_t i, inputs &in) const
        {
            in.x = mics_read<T, W>((const T *)args.in + i);
        }

        __device__ __forceinline__ void finish(uint64_t i, const inputs &in) const
        {
            float x[W];

            mics_widen<T, W>(in.x, x);
#pragma unroll
            for (int j = 0; j < W; j++)
                x[j] = mics_gelu_of<T>(x[j]);
            mics_store<T, W>((T *)args.out + i, x);
        }
    };
};

template <typename T>
static cudaError_t launch(const struct mics_cuda_at *at, const struct mics_op_gelu *args)
{
    return mics_flat_launch<gelu<T>::template op, mics_width<T>::value, 4>(
        at->stream, *args, args->count, mics_aligned(16, args->out, args->in));
}

cudaError_t mics_cuda_gelu(const struct mics_cuda_at *at, const struct mics_op_gelu *args)
{
    return args->dtype == MICS_BF16 ? launch<__nv_bfloat16>(at, args) : launch<float>(at, args);
}
