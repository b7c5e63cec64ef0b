/* SPDX-License-Identifier: Apache-2.0 */
/* attention_grad.cu - the gradient of attention, by the variant that is right for its shape: see
 * attention_choice.cuh. */
#include "cuda/attention_choice.cuh"

cudaError_t mics_cuda_attention_grad(const struct mics_cuda_at *at,
                                     const struct mics_op_attention_grad *args)
{
    const struct mics_attention_task task = {at, NULL, args};

    if (args->B == 0 || args->T == 0 || args->H == 0)
        return cudaSuccess;
    return mics_attention_run(&task);
}
