/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rmsnorm.cu - root-mean-square normalisation (Zhang and Sennrich 2019), with the residual add
 * before it.
 *
 * A block takes a few rows: see norm.cuh. 8 bytes (fp32) or 4 (bf16) per element, twice as many
 * with an add, and about 5 flops: bound by memory. Within 2e-6 (fp32) or one unit of bf16's last
 * place of the host.
 */
#include "cuda/kernels.h"
#include "cuda/norm.cuh"

cudaError_t mics_cuda_rmsnorm(const struct mics_cuda_at *at, const struct mics_op_rmsnorm *args)
{
    const struct mics_norm norm = {args->out,  args->sum, NULL,         args->rstd,
                                   args->in,   args->add, args->weight, NULL,
                                   args->rows, args->C,   args->eps,    1.0f / (float)args->C};

    if (args->dtype == MICS_BF16)
        return mics_norm_launch<__nv_bfloat16, false>(at->stream, norm);
    return mics_norm_launch<float, false>(at->stream, norm);
}
