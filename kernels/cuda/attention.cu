/* SPDX-License-Identifier: Apache-2.0 */
/* attention.cu - attention, by the variant that is right for its shape: see attention_choice.cuh. */
#include "cuda/attention_choice.cuh"

cudaError_t mics_cuda_attention(const struct mics_cuda_at *at, const struct mics_op_attention *args)
{
    const struct mics_attention_task task = {at, args, NULL};

    if (args->B == 0 || args->T == 0 || args->H == 0)
        return cudaSuccess;
    return mics_attention_run(&task);
}
