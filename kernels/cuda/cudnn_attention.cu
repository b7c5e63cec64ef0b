/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn_attention.cu - forward: softmax(q k' scale) v, and the log of the softmax's sum. */
#include "cuda/cudnn_attention_parts.cuh"

/* The softmax of scores in bf16; its statistics to lse. */
static mics_cudnn_descriptor softmax(struct mics_cudnn_attention *a, mics_cudnn_descriptor scores,
                                     mics_cudnn_descriptor lse)
{
    struct mics_cudnn_graph *graph = a->graph;
    const mics_cudnn_descriptor max = mics_cudnn_virtual(graph, CUDNN_DATA_FLOAT, &a->rows);
    const mics_cudnn_descriptor sum = mics_cudnn_virtual(graph, CUDNN_DATA_FLOAT, &a->rows);
    const mics_cudnn_descriptor log = mics_cudnn_virtual(graph, CUDNN_DATA_FLOAT, &a->rows);
    const mics_cudnn_descriptor p = mics_cudnn_virtual(graph, CUDNN_DATA_BFLOAT16, &a->square);
    mics_cudnn_descriptor exp;

    mics_cudnn_reduce(graph, CUDNN_REDUCE_TENSOR_MAX, scores, max);
    exp = mics_cudnn_square_of(a, CUDNN_POINTWISE_SUB, scores, max);
    exp = mics_cudnn_square_of(a, CUDNN_POINTWISE_EXP, exp, NULL);
    mics_cudnn_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, exp, sum);
    mics_cudnn_apply(graph, CUDNN_POINTWISE_LOG, sum, NULL, log);
    mics_cudnn_apply(graph, CUDNN_POINTWISE_ADD, max, log, lse);
    mics_cudnn_apply(graph, CUDNN_POINTWISE_DIV, exp, sum, p);
    return p;
}

static void build_forward(struct mics_cudnn_attention *a)
{
    struct mics_cudnn_graph *graph = a->graph;
    const mics_cudnn_descriptor q = mics_cudnn_part(a, MICS_CUDNN_Q, a->shape->H);
    const mics_cudnn_descriptor k = mics_cudnn_part_transposed(a, MICS_CUDNN_K);
    const mics_cudnn_descriptor v = mics_cudnn_part(a, MICS_CUDNN_V, a->shape->H_kv);
    const mics_cudnn_descriptor out =
        mics_cudnn_tensor(graph, MICS_CUDNN_OUT, CUDNN_DATA_BFLOAT16, &a->heads);
    const mics_cudnn_descriptor lse =
        mics_cudnn_tensor(graph, MICS_CUDNN_LSE, CUDNN_DATA_FLOAT, &a->rows);
    mics_cudnn_descriptor s = mics_cudnn_scores(a, q, k);

    if (a->shape->causal)
        s = mics_cudnn_hide_later(a, s);
    mics_cudnn_matmul(graph, softmax(a, s, lse), v, out);
}

void mics_cudnn_attention_build(struct mics_cudnn_graph *graph,
                                const struct mics_cudnn_shape *shape)
{
    struct mics_cudnn_attention a = mics_cudnn_attention_of(graph, shape);

    if (shape->grad)
        mics_cudnn_build_grad(&a);
    else
        build_forward(&a);
}
