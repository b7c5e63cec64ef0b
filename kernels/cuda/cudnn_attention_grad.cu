/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudnn_attention_grad.cu - the gradient: with P the probabilities and dP = grad_out v',
 *
 *     delta = sum over d of grad_out out, dS = P (dP - delta) scale,
 *     grad_v = P' grad_out, grad_k = dS' q, grad_q = dS k.
 */
#include "cuda/cudnn_attention_parts.cuh"

/* What both halves read. */
struct grad {
    struct mics_cudnn_attention *a;
    mics_cudnn_descriptor q, k, grad_out, delta;
};

static mics_cudnn_descriptor delta_of(struct mics_cudnn_attention *a,
                                      mics_cudnn_descriptor grad_out)
{
    struct mics_cudnn_graph *graph = a->graph;
    const mics_cudnn_descriptor out =
        mics_cudnn_tensor(graph, MICS_CUDNN_OUT, CUDNN_DATA_BFLOAT16, &a->heads);
    const mics_cudnn_descriptor product = mics_cudnn_virtual(graph, CUDNN_DATA_FLOAT, &a->flat);
    const mics_cudnn_descriptor sum = mics_cudnn_virtual(graph, CUDNN_DATA_FLOAT, &a->rows);
    const mics_cudnn_descriptor one = mics_cudnn_number(graph, MICS_CUDNN_ONE);
    const mics_cudnn_descriptor delta =
        mics_cudnn_tensor(graph, MICS_CUDNN_DELTA, CUDNN_DATA_FLOAT, &a->rows);

    mics_cudnn_apply(graph, CUDNN_POINTWISE_MUL, grad_out, out, product);
    mics_cudnn_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, product, sum);
    mics_cudnn_apply(graph, CUDNN_POINTWISE_MUL, sum, one, delta); /* the pattern wants a factor */
    return delta;
}

/* P, from the scores and lse. The mask comes after lse is taken off. */
static mics_cudnn_descriptor probabilities(struct grad *g)
{
    struct mics_cudnn_attention *a = g->a;
    const mics_cudnn_descriptor lse =
        mics_cudnn_tensor(a->graph, MICS_CUDNN_LSE, CUDNN_DATA_FLOAT, &a->rows);
    mics_cudnn_descriptor s = mics_cudnn_scores(a, g->q, g->k);

    s = mics_cudnn_square_of(a, CUDNN_POINTWISE_SUB, s, lse);
    if (a->shape->causal)
        s = mics_cudnn_hide_later(a, s);
    return mics_cudnn_square_of(a, CUDNN_POINTWISE_EXP, s, NULL);
}

/* The gradient `uid` of keys or values: left' right, summed over the query heads that share a head. */
static void add_transposed_product(struct mics_cudnn_attention *a, mics_cudnn_descriptor left,
                                   mics_cudnn_descriptor right, int64_t uid)
{
    struct mics_cudnn_graph *graph = a->graph;
    const struct mics_cudnn_shape *s = a->shape;
    const int64_t H = s->H, T = s->T;
    const struct mics_cudnn_layout turned = {{s->B, H, T, T}, {H * T * T, T * T, 1, T}};
    const mics_cudnn_descriptor left_turned =
        mics_cudnn_virtual(graph, CUDNN_DATA_BFLOAT16, &turned);
    const mics_cudnn_descriptor grad = mics_cudnn_part(a, uid, s->H_kv);
    const mics_cudnn_descriptor to =
        H == s->H_kv ? grad : mics_cudnn_virtual(graph, CUDNN_DATA_BFLOAT16, &a->flat);

    mics_cudnn_reshape(graph, left, left_turned);
    mics_cudnn_matmul(graph, left_turned, right, to);
    if (to != grad)
        mics_cudnn_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, to, grad);
}

/* dS from P. */
static mics_cudnn_descriptor score_grads(struct grad *g, mics_cudnn_descriptor p)
{
    struct mics_cudnn_attention *a = g->a;
    const mics_cudnn_descriptor v = mics_cudnn_part_transposed(a, MICS_CUDNN_V);
    const mics_cudnn_descriptor dp = mics_cudnn_virtual(a->graph, CUDNN_DATA_FLOAT, &a->square);
    mics_cudnn_descriptor ds;

    mics_cudnn_matmul(a->graph, g->grad_out, v, dp);
    ds = mics_cudnn_square_of(a, CUDNN_POINTWISE_SUB, dp, g->delta);
    ds = mics_cudnn_square_of(a, CUDNN_POINTWISE_MUL, ds, p);
    return mics_cudnn_square_of(a, CUDNN_POINTWISE_MUL, ds, a->scale);
}

/* dS k, summed in memory. */
static void add_query_grads(struct grad *g, mics_cudnn_descriptor ds)
{
    struct mics_cudnn_attention *a = g->a;
    struct mics_cudnn_graph *graph = a->graph;
    const struct mics_cudnn_shape *s = a->shape;
    const int64_t row = s->qkv_elements;
    const struct mics_cudnn_layout keys = {{s->B, s->H_kv, s->T, s->D}, {s->T * row, s->D, row, 1}};
    const mics_cudnn_descriptor k = mics_cudnn_virtual(graph, CUDNN_DATA_FLOAT, &keys);
    const mics_cudnn_descriptor sum =
        mics_cudnn_tensor(graph, MICS_CUDNN_GRAD_Q_SUM, CUDNN_DATA_FLOAT, &a->flat);

    mics_cudnn_reshape(graph, g->k, k);
    mics_cudnn_matmul(graph, ds, k, sum);
    mics_cudnn_apply(graph, CUDNN_POINTWISE_IDENTITY, sum, NULL,
                     mics_cudnn_part(a, MICS_CUDNN_GRAD_Q, s->H));
}

void mics_cudnn_build_grad(struct mics_cudnn_attention *a)
{
    struct grad g = {
        a, mics_cudnn_part(a, MICS_CUDNN_Q, a->shape->H),
        mics_cudnn_part_transposed(a, MICS_CUDNN_K),
        mics_cudnn_tensor(a->graph, MICS_CUDNN_GRAD_OUT, CUDNN_DATA_BFLOAT16, &a->heads), NULL};
    mics_cudnn_descriptor p, ds;

    g.delta = delta_of(a, g.grad_out);
    p = probabilities(&g);
    add_transposed_product(a, p, g.grad_out, MICS_CUDNN_GRAD_V);
    ds = score_grads(&g, p);
    add_transposed_product(a, ds, g.q, MICS_CUDNN_GRAD_K);
    add_query_grads(&g, ds);
}
