/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gelu_grad.cu - the gradient of GELU, tanh form.
 *
 * A block takes 1,024 pieces of 16 bytes, eight loads under way in each thread. 12 bytes (fp32) or
 * 6 (bf16) and about 25 flops per element: bound by memory. Within 4e-6 (fp32) or one unit of
 * bf16's last place of the host.
 */
#include "cuda/activation.cuh"
#include "cuda/flat.cuh"
#include "cuda/kernels.h"

template <typename T> struct gelu_grad {
    template <int W> struct op {
        struct inputs {
            mics_packed<T, W> x, grad;
        };
        struct mics_op_gelu_grad args;

        __device__ __forceinline__ void load(uint64_t i, inputs &in) const
        {
            in.x = mics_read<T, W>((const T *)args.in + i);
            in.grad = mics_read<T, W>((const T *)args.grad_out + i);
        }

        __device__ __forceinline__ void finish(uint64_t i, const inputs &in) const
        {
            float x[W], grad[W];

            mics_widen<T, W>(in.x, x);
            mics_widen<T, W>(in.grad, grad);
#pragma unroll
            for (int j = 0; j < W; j++)
                grad[j] *= mics_gelu_slope<T>(x[j]);
            mics_store<T, W>((T *)args.grad_in + i, grad);
        }
    };
};

template <typename T>
static cudaError_t launch(const struct mics_cuda_at *at, const struct mics_op_gelu_grad *args)
{
    return mics_flat_launch<gelu_grad<T>::template op, mics_width<T>::value, 4>(
        at->stream, *args, args->count, mics_aligned(16, args->grad_in, args->in, args->grad_out));
}

cudaError_t mics_cuda_gelu_grad(const struct mics_cuda_at *at, const struct mics_op_gelu_grad *args)
{
    return args->dtype == MICS_BF16 ? launch<__nv_bfloat16>(at, args) : launch<float>(at, args);
}
