/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accumulate.cu - an array of either type added to an fp32 one.
 *
 * A block adds 1,024 pieces of 4 elements, eight loads under way in each thread. 12 bytes (fp32) or
 * 10 (bf16) and 1 flop per element: bound by memory. Equals the host bit for bit.
 */
#include "cuda/flat.cuh"
#include "cuda/kernels.h"

template <typename T> struct accumulating {
    template <int W> struct op {
        struct inputs {
            mics_packed<float, W> sum;
            mics_packed<T, W> in;
        };
        struct mics_op_accumulate args;

        __device__ __forceinline__ void load(uint64_t i, inputs &in) const
        {
            in.sum = mics_read<float, W>(args.sum + i);
            in.in = mics_read<T, W>((const T *)args.in + i);
        }

        __device__ __forceinline__ void finish(uint64_t i, const inputs &in) const
        {
            float sum[W], x[W];

            mics_widen<float, W>(in.sum, sum);
            mics_widen<T, W>(in.in, x);
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] += x[j];
            mics_store<float, W>(args.sum + i, sum);
        }
    };
};

template <typename T>
static cudaError_t launch(const struct mics_cuda_at *at, const struct mics_op_accumulate *args)
{
    return mics_flat_launch<accumulating<T>::template op, 4, 4>(
        at->stream, *args, args->count, mics_aligned(16, args->sum, args->in));
}

cudaError_t mics_cuda_accumulate(const struct mics_cuda_at *at,
                                 const struct mics_op_accumulate *args)
{
    return args->dtype == MICS_BF16 ? launch<__nv_bfloat16>(at, args) : launch<float>(at, args);
}
