/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rmsnorm_grad.cu - the gradients of root-mean-square normalisation.
 *
 * A block takes every so many-th few rows: see norm_grad.cuh. 16 bytes (fp32) or 8 (bf16) and about
 * 15 flops per element: bound by memory. Within 1e-5 of the host, of sums relative to their terms'
 * magnitudes; bf16 rounds each result once. Equal runs give equal bits.
 */
#include "cuda/norm_grad.cuh"

cudaError_t mics_cuda_rmsnorm_grad(const struct mics_cuda_at *at,
                                   const struct mics_op_rmsnorm_grad *args)
{
    const struct mics_norm_grad grad = {args->grad_in,
                                        args->grad_weight,
                                        NULL,
                                        args->grad_out,
                                        args->in,
                                        args->weight,
                                        NULL,
                                        args->rstd,
                                        args->rows,
                                        args->C,
                                        args->dtype,
                                        args->grad_dtype,
                                        (float *)at->workspace,
                                        1.0f / (float)args->C};

    if (args->dtype == MICS_BF16)
        return mics_norm_grad_launch<__nv_bfloat16, false>(at, grad);
    return mics_norm_grad_launch<float, false>(at, grad);
}
