/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn_attention_parts.cuh - what the graphs of attention and of its gradient share. */
#ifndef MICS_KERNELS_CUDA_CUDNN_ATTENTION_PARTS_CUH
#define MICS_KERNELS_CUDA_CUDNN_ATTENTION_PARTS_CUH

#include "cuda/cudnn_attention.cuh"

struct mics_cudnn_attention {
    struct mics_cudnn_graph *graph;
    const struct mics_cudnn_shape *shape;
    struct mics_cudnn_layout square; /* [B, H, T, T] */
    struct mics_cudnn_layout rows;   /* [B, H, T, 1] */
    struct mics_cudnn_layout heads;  /* [B, H, T, D], as `out` lies */
    struct mics_cudnn_layout flat;   /* [B, H, T, D], one after the other */
    mics_cudnn_descriptor scale;
};

struct mics_cudnn_attention mics_cudnn_attention_of(struct mics_cudnn_graph *graph,
                                                    const struct mics_cudnn_shape *shape);

/* Queries, keys or values, or their gradients, in the rows of qkv: [B, heads, T, D]. */
mics_cudnn_descriptor mics_cudnn_part(struct mics_cudnn_attention *a, int64_t uid, int64_t heads);
/* Keys or values as a right factor: [B, H_kv, D, T]. */
mics_cudnn_descriptor mics_cudnn_part_transposed(struct mics_cudnn_attention *a, int64_t uid);

/* y = mode(x, b) in fp32; b may be NULL. */
void mics_cudnn_apply(struct mics_cudnn_graph *graph, cudnnPointwiseMode_t mode,
                      mics_cudnn_descriptor x, mics_cudnn_descriptor b, mics_cudnn_descriptor y);
/* The same of [B, H, T, T]. */
mics_cudnn_descriptor mics_cudnn_square_of(struct mics_cudnn_attention *a,
                                           cudnnPointwiseMode_t mode, mics_cudnn_descriptor x,
                                           mics_cudnn_descriptor b);

/* q k scale. */
mics_cudnn_descriptor mics_cudnn_scores(struct mics_cudnn_attention *a, mics_cudnn_descriptor q,
                                        mics_cudnn_descriptor k);
/* Minus infinity where the key is later than the query. */
mics_cudnn_descriptor mics_cudnn_hide_later(struct mics_cudnn_attention *a,
                                            mics_cudnn_descriptor scores);

void mics_cudnn_build_grad(struct mics_cudnn_attention *a);

#endif
