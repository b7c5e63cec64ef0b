/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn_attention_parts.cu - layouts, scores and the causal mask of attention's graphs. */
#include "cuda/cudnn_attention_parts.cuh"

struct mics_cudnn_attention mics_cudnn_attention_of(struct mics_cudnn_graph *graph,
                                                    const struct mics_cudnn_shape *shape)
{
    const int64_t B = shape->B, H = shape->H, T = shape->T, D = shape->D, all = shape->all_H;
    struct mics_cudnn_attention a = {};

    a.graph = graph;
    a.shape = shape;
    a.square = {{B, H, T, T}, {H * T * T, T * T, T, 1}};
    a.rows = {{B, H, T, 1}, {all * T, T, 1, 1}};
    a.heads = {{B, H, T, D}, {T * all * D, D, all * D, 1}};
    a.flat = {{B, H, T, D}, {H * T * D, T * D, D, 1}};
    a.scale = mics_cudnn_number(graph, MICS_CUDNN_SCALE);
    return a;
}

mics_cudnn_descriptor mics_cudnn_part(struct mics_cudnn_attention *a, int64_t uid, int64_t heads)
{
    const struct mics_cudnn_shape *s = a->shape;
    const int64_t row = s->qkv_elements;
    const struct mics_cudnn_layout layout = {{s->B, heads, s->T, s->D}, {s->T * row, s->D, row, 1}};

    return mics_cudnn_tensor(a->graph, uid, CUDNN_DATA_BFLOAT16, &layout);
}

mics_cudnn_descriptor mics_cudnn_part_transposed(struct mics_cudnn_attention *a, int64_t uid)
{
    const struct mics_cudnn_shape *s = a->shape;
    const int64_t row = s->qkv_elements;
    const struct mics_cudnn_layout layout = {{s->B, s->H_kv, s->D, s->T},
                                             {s->T * row, s->D, 1, row}};

    return mics_cudnn_tensor(a->graph, uid, CUDNN_DATA_BFLOAT16, &layout);
}

void mics_cudnn_apply(struct mics_cudnn_graph *graph, cudnnPointwiseMode_t mode,
                      mics_cudnn_descriptor x, mics_cudnn_descriptor b, mics_cudnn_descriptor y)
{
    const struct mics_cudnn_elementwise op = {mode, CUDNN_DATA_FLOAT, 0, x, b, NULL, y};

    mics_cudnn_pointwise(graph, &op);
}

mics_cudnn_descriptor mics_cudnn_square_of(struct mics_cudnn_attention *a,
                                           cudnnPointwiseMode_t mode, mics_cudnn_descriptor x,
                                           mics_cudnn_descriptor b)
{
    const mics_cudnn_descriptor y = mics_cudnn_virtual(a->graph, CUDNN_DATA_FLOAT, &a->square);

    mics_cudnn_apply(a->graph, mode, x, b, y);
    return y;
}

mics_cudnn_descriptor mics_cudnn_scores(struct mics_cudnn_attention *a, mics_cudnn_descriptor q,
                                        mics_cudnn_descriptor k)
{
    const mics_cudnn_descriptor s = mics_cudnn_virtual(a->graph, CUDNN_DATA_FLOAT, &a->square);

    mics_cudnn_matmul(a->graph, q, k, s);
    return mics_cudnn_square_of(a, CUDNN_POINTWISE_MUL, s, a->scale);
}

/* The number of each element's query (axis 2) or key (axis 3). */
static mics_cudnn_descriptor index_along(struct mics_cudnn_attention *a,
                                         mics_cudnn_descriptor scores, int64_t axis)
{
    const mics_cudnn_descriptor y = mics_cudnn_virtual(a->graph, CUDNN_DATA_INT32, &a->square);
    const struct mics_cudnn_elementwise op = {
        CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis, scores, NULL, NULL, y};

    mics_cudnn_pointwise(a->graph, &op);
    return y;
}

mics_cudnn_descriptor mics_cudnn_hide_later(struct mics_cudnn_attention *a,
                                            mics_cudnn_descriptor scores)
{
    const mics_cudnn_descriptor hidden = mics_cudnn_number(a->graph, MICS_CUDNN_HIDDEN);
    const mics_cudnn_descriptor query = index_along(a, scores, 2), key = index_along(a, scores, 3);
    const mics_cudnn_descriptor seen = mics_cudnn_virtual(a->graph, CUDNN_DATA_BOOLEAN, &a->square);
    const mics_cudnn_descriptor y = mics_cudnn_virtual(a->graph, CUDNN_DATA_FLOAT, &a->square);
    const struct mics_cudnn_elementwise compare = {
        CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, 0, query, key, NULL, seen};
    const struct mics_cudnn_elementwise select = {
        CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, 0, scores, hidden, seen, y};

    mics_cudnn_pointwise(a->graph, &compare);
    mics_cudnn_pointwise(a->graph, &select);
    return y;
}
