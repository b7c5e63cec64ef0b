/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_grad_mma.cu - the gradient of attention on tensor cores by mma.sync: first delta, then the gradients of keys and
 * values, then those of queries; see attention_grad.cuh.
 *
 * Tolerance against the host: P and dS are rounded to bf16 before they are multiplied, 2^-8 of their largest.
 */
#include "attention_grad.cuh"

namespace
{

template <bool causal>
static cudaError_t launch_keys(struct backward *f, unsigned heads, cudaStream_t stream)
{
    if (f->D <= 64)
        return grad_launch<grad_policy<64, true, causal, 2, 4, 32, false, 2>>(f, heads, stream);
    return grad_launch<grad_policy<128, true, causal, 1, 8, 32, true, 1>>(f, heads, stream);
}

template <bool causal>
static cudaError_t launch_queries(struct backward *f, unsigned heads, cudaStream_t stream)
{
    if (f->D <= 64)
        return grad_launch<grad_policy<64, false, causal, 2, 4, 32, true, 2>>(f, heads, stream);
    return grad_launch<grad_policy<128, false, causal, 1, 8, 32, true, 1>>(f, heads, stream);
}

} // namespace

cudaError_t mics_cuda_attention_grad_mma(const struct mics_cuda_at *at,
                                         const struct mics_op_attention_grad *args)
{
    unsigned keys = args->B * args->H_kv, queries = args->B * args->H;
    struct backward f = backward_of(args);
    cudaError_t error = mics_attention_delta(args, at->stream);

    if (error == cudaSuccess)
        error = args->causal ? launch_keys<true>(&f, keys, at->stream)
                             : launch_keys<false>(&f, keys, at->stream);
    if (error == cudaSuccess)
        error = args->causal ? launch_queries<true>(&f, queries, at->stream)
                             : launch_queries<false>(&f, queries, at->stream);
    return error;
}
