/* SPDX-License-Identifier: Apache-2.0 */
/*
 * add.cu - the sum of two arrays.
 *
 * A block adds 1,024 pieces of 16 bytes, eight loads under way in each thread. 12 bytes (fp32) or 6
 * (bf16) and 1 flop per element: bound by memory. fp32 equals the host bit for bit; bf16 too,
 * rounded once.
 */
#include "cuda/flat.cuh"
#include "cuda/kernels.h"

template <typename T> struct adding {
    template <int W> struct op {
        struct inputs {
            mics_packed<T, W> a, b;
        };
        struct mics_op_add args;

        __device__ __forceinline__ void load(uint64_t i, inputs &in) const
        {
            in.a = mics_read<T, W>((const T *)args.a + i);
            in.b = mics_read<T, W>((const T *)args.b + i);
        }

        __device__ __forceinline__ void finish(uint64_t i, const inputs &in) const
        {
            float a[W], b[W];

            mics_widen<T, W>(in.a, a);
            mics_widen<T, W>(in.b, b);
#pragma unroll
            for (int j = 0; j < W; j++)
                a[j] += b[j];
            mics_store<T, W>((T *)args.out + i, a);
        }
    };
};

template <typename T>
static cudaError_t launch(const struct mics_cuda_at *at, const struct mics_op_add *args)
{
    return mics_flat_launch<adding<T>::template op, mics_width<T>::value, 4>(
        at->stream, *args, args->count, mics_aligned(16, args->out, args->a, args->b));
}

cudaError_t mics_cuda_add(const struct mics_cuda_at *at, const struct mics_op_add *args)
{
    return args->dtype == MICS_BF16 ? launch<__nv_bfloat16>(at, args) : launch<float>(at, args);
}
