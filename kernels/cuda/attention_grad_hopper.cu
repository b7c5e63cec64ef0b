/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_grad_hopper.cu - the gradient of attention by the matrix products of compute capability 9.0: delta, then the
 * gradients of keys and values, then those of queries; see attention_grad_hopper.cuh.
 *
 * Tolerance against the host: P and dS are rounded to bf16 before they are multiplied, 2^-8 of their largest.
 */
#include "attention_grad_hopper.cuh"

namespace
{

template <bool keys, bool causal>
static cudaError_t launch(struct hopper_backward *g, cudaStream_t stream, unsigned heads)
{
    if (g->f.D <= 64)
        return grad_launch_hopper<hopper_grad_policy<64, keys, causal, 4>>(g, heads, stream);
    return grad_launch_hopper<hopper_grad_policy<128, keys, causal, 3>>(g, heads, stream);
}

/* The maps' boxes. */
static cudaError_t prepare(struct hopper_backward *g, const struct mics_op_attention_grad *args)
{
    const unsigned heads = args->H + 2 * args->H_kv;
    const struct mics_heads qkv = {args->qkv, args->B, args->T,
                                   heads,     args->D, (size_t)heads * args->D};
    const struct mics_heads grad_out = {args->grad_out, args->B, args->T,
                                        args->H,        args->D, (size_t)args->H * args->D};
    const cudaError_t error = mics_tensor_map_make(&g->qkv, qkv, 64);

    g->f = backward_of(args);
    return error == cudaSuccess ? mics_tensor_map_make(&g->grad_out, grad_out, 64) : error;
}

} // namespace

cudaError_t mics_cuda_attention_grad_hopper(const struct mics_cuda_at *at,
                                            const struct mics_op_attention_grad *args)
{
    const unsigned keys = args->B * args->H_kv, queries = args->B * args->H;
    struct hopper_backward g;
    cudaError_t error = prepare(&g, args);

    if (error == cudaSuccess)
        error = mics_attention_delta(args, at->stream);
    if (error == cudaSuccess)
        error = args->causal ? launch<true, true>(&g, at->stream, keys)
                             : launch<true, false>(&g, at->stream, keys);
    if (error == cudaSuccess)
        error = args->causal ? launch<false, true>(&g, at->stream, queries)
                             : launch<false, false>(&g, at->stream, queries);
    return error;
}
