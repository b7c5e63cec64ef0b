/* SPDX-License-Identifier: Apache-2.0 */
/* attention_mma.cu - attention on tensor cores by mma.sync: see attention_mma.cuh. */
#include "attention_mma.cuh"

template <typename T>
static cudaError_t run(const struct mics_cuda_at *at, const struct mics_args_attention *args)
{
    struct forward f = forward_of(args);
    unsigned heads = args->B * args->H;

    if (args->D <= 64)
        return attend_launch<forward_policy<T, 64, 2, 4, 64, true, 2>>(&f, heads, at->stream);
    if constexpr (mics_has_small_blocks())
        if (!mics_block_fits(forward_policy<T, 128, 2, 4, 64, false, 2>::shared_bytes))
            return attend_launch<forward_policy<T, 128, 2, 4, 32, false, 1>>(&f, heads, at->stream);
    return attend_launch<forward_policy<T, 128, 2, 4, 64, false, 2>>(&f, heads, at->stream);
}

cudaError_t mics_cuda_attention_mma(const struct mics_cuda_at *at,
                                    const struct mics_args_attention *args)
{
    return args->dtype == MICS_F16 ? run<mics_f16>(at, args) : run<mics_bf16>(at, args);
}
