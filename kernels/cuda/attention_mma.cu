/* SPDX-License-Identifier: Apache-2.0 */
/* attention_mma.cu - attention on tensor cores by mma.sync: see attention_mma.cuh. */
#include "attention_mma.cuh"

template <bool causal>
static cudaError_t launch(struct forward *f, unsigned heads, cudaStream_t stream)
{
    if (f->D <= 64)
        return attend_launch<forward_policy<64, causal, 2, 4, 64, true, 2>>(f, heads, stream);
    return attend_launch<forward_policy<128, causal, 2, 4, 64, false, 2>>(f, heads, stream);
}

cudaError_t mics_cuda_attention_mma(const struct mics_cuda_at *at,
                                    const struct mics_op_attention *args)
{
    struct forward f = forward_of(args);

    return args->causal ? launch<true>(&f, args->B * args->H, at->stream)
                        : launch<false>(&f, args->B * args->H, at->stream);
}
