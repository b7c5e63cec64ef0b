/* SPDX-License-Identifier: Apache-2.0 */
/* attention_hopper.cu - attention's forward on compute capability 9.0: see attention_hopper.cuh. */
#include "cuda/hopper/attention_hopper.cuh"

template <bool causal>
static cudaError_t launch(const CUtensorMap &map, struct hopper_forward *f, unsigned heads,
                          cudaStream_t stream)
{
    if (f->D <= 64)
        return hopper_launch<hopper_policy<64, causal, 3, 128, 2, 160>>(map, f, heads, stream);
    return hopper_launch<hopper_policy<128, causal, 2, 128, 2, 240>>(map, f, heads, stream);
}

cudaError_t mics_cuda_attention_hopper(const struct mics_cuda_at *at,
                                       const struct mics_args_attention *args)
{
    struct hopper_forward f;
    cudaError_t error;
    CUtensorMap map;

    if (args->B == 0 || args->T == 0 || args->H == 0)
        return cudaSuccess;
    f = hopper_forward_of(args);
    error = hopper_map_of(&map, args);
    if (error != cudaSuccess)
        return error;
    return args->causal ? launch<true>(map, &f, args->B * args->H, at->stream)
                        : launch<false>(map, &f, args->B * args->H, at->stream);
}
