/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layernorm.cu - layer normalisation (Ba, Kiros and Hinton 2016), with the residual add before it.
 *
 * A block takes a few rows: see norm.cuh. 8 bytes (fp32) or 4 (bf16) per element, twice as many
 * with an add, and about 8 flops: bound by memory. Within 2e-6 (fp32) or one unit of bf16's last
 * place of the host.
 */
#include "cuda/kernels.h"
#include "cuda/norm.cuh"

cudaError_t mics_cuda_layernorm(const struct mics_cuda_at *at, const struct mics_op_layernorm *args)
{
    const struct mics_norm norm = {args->out,  args->sum, args->mean,   args->rstd,
                                   args->in,   args->add, args->weight, args->bias,
                                   args->rows, args->C,   args->eps,    1.0f / (float)args->C};

    if (args->dtype == MICS_BF16)
        return mics_norm_launch<__nv_bfloat16, true>(at->stream, norm);
    return mics_norm_launch<float, true>(at->stream, norm);
}
