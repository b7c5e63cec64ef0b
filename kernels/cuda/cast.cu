/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast.cu - an array in another type.
 *
 * A block casts 1,024 pieces of 4 elements, four loads under way in each thread. 6 bytes per
 * element, no flops: bound by memory. Exact or rounded to nearest, ties to even: the same bits as
 * the host. Casts to the same type are copies.
 */
#include "cuda/flat.cuh"
#include "cuda/kernels.h"

template <typename To, typename From> struct casting {
    template <int W> struct op {
        struct inputs {
            mics_packed<From, W> from;
        };
        struct mics_op_cast args;

        __device__ __forceinline__ void load(uint64_t i, inputs &in) const
        {
            in.from = mics_read<From, W>((const From *)args.src + i);
        }

        __device__ __forceinline__ void finish(uint64_t i, const inputs &in) const
        {
            float x[W];

            mics_widen<From, W>(in.from, x);
            mics_store<To, W>((To *)args.dst + i, x);
        }
    };
};

template <typename To, typename From>
static cudaError_t launch(const struct mics_cuda_at *at, const struct mics_op_cast *args)
{
    return mics_flat_launch<casting<To, From>::template op, 4, 4>(
        at->stream, *args, args->count, mics_aligned(16, args->dst, args->src));
}

cudaError_t mics_cuda_cast(const struct mics_cuda_at *at, const struct mics_op_cast *args)
{
    if (args->dst_dtype == MICS_F32 && args->src_dtype == MICS_BF16)
        return launch<float, __nv_bfloat16>(at, args);
    if (args->dst_dtype == MICS_BF16 && args->src_dtype == MICS_F32)
        return launch<__nv_bfloat16, float>(at, args);
    if (args->dst_dtype != args->src_dtype)
        return cudaErrorInvalidValue;
    if (args->dst == args->src || args->count == 0)
        return cudaSuccess;
    return cudaMemcpyAsync(args->dst, args->src, args->count * mics_dtype_bytes(args->dst_dtype),
                           cudaMemcpyDeviceToDevice, at->stream);
}
