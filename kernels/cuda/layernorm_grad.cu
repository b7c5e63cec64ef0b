/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layernorm_grad.cu - the gradients of layer normalisation.
 *
 * A block takes every so many-th few rows: see norm_grad.cuh. 16 bytes (fp32) or 8 (bf16) and about
 * 20 flops per element: bound by memory. Within 1e-5 of the host, of sums relative to their terms'
 * magnitudes; bf16 rounds each result once. Equal runs give equal bits.
 */
#include "cuda/norm_grad.cuh"

cudaError_t mics_cuda_layernorm_grad(const struct mics_cuda_at *at,
                                     const struct mics_op_layernorm_grad *args)
{
    const struct mics_norm_grad grad = {args->grad_in,
                                        args->grad_weight,
                                        args->grad_bias,
                                        args->grad_out,
                                        args->in,
                                        args->weight,
                                        args->mean,
                                        args->rstd,
                                        args->rows,
                                        args->C,
                                        args->dtype,
                                        args->grad_dtype,
                                        (float *)at->workspace,
                                        1.0f / (float)args->C};

    if (args->dtype == MICS_BF16)
        return mics_norm_grad_launch<__nv_bfloat16, true>(at, grad);
    return mics_norm_grad_launch<float, true>(at, grad);
}
