/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudnn_attention.cuh - attention and its gradient as graphs of cuDNN, in the pattern that its fused kernels know:
 * products, masks and sums that no memory has. (The single operation for it masks only from 9.21 on.)
 *
 * Tensors lie as ops.h says: queries, keys and values are parts of the rows of qkv. cuDNN's statistics are our lse.
 * The gradient of the queries is summed in fp32, in memory, by atomic additions: it differs in its last bits from
 * run to run.
 */
#ifndef MICS_KERNELS_CUDA_CUDNN_ATTENTION_CUH
#define MICS_KERNELS_CUDA_CUDNN_ATTENTION_CUH

#include "cuda/cudnn_graph.cuh"

/* B sequences, and H query heads with their H_kv key heads, of tensors that have more. */
struct mics_cudnn_shape {
    int64_t B, T, H, H_kv, D;
    int64_t all_H;        /* heads of lse and delta, and of the rows of out and its gradient */
    int64_t qkv_elements; /* of a row of qkv and its gradient */
    bool grad, causal;
};

/* Numbers of tensors. */
enum mics_cudnn_uid {
    MICS_CUDNN_Q = 1,
    MICS_CUDNN_K,
    MICS_CUDNN_V,
    MICS_CUDNN_OUT,
    MICS_CUDNN_LSE,
    MICS_CUDNN_SCALE,  /* a number: 1 / sqrt(D) */
    MICS_CUDNN_HIDDEN, /* a number, where causal: minus infinity */
    MICS_CUDNN_GRAD_OUT,
    MICS_CUDNN_GRAD_Q,
    MICS_CUDNN_GRAD_K,
    MICS_CUDNN_GRAD_V,
    MICS_CUDNN_ONE,       /* a number */
    MICS_CUDNN_DELTA,     /* [B, H, T], fp32 scratch */
    MICS_CUDNN_GRAD_Q_SUM /* [B, H, T, D], fp32 scratch */
};

/* Add the operations; the graph is not finished. */
void mics_cudnn_attention_build(struct mics_cudnn_graph *graph,
                                const struct mics_cudnn_shape *shape);

#endif
