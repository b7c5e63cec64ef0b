/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_host_products.c - matrix products and attention. */
#include "kernels_host.h"

static void product(struct arrays *x, uint32_t m, uint32_t n, uint32_t k, bool trans_a,
                    bool trans_b)
{
    mics_host_matmul(x->pool, &(struct mics_op_matmul){.dtype = x->dtype,
                                                       .out_dtype = trans_a ? MICS_F32 : x->dtype,
                                                       .out = x->c,
                                                       .a = x->a,
                                                       .b = x->b,
                                                       .m = m,
                                                       .n = n,
                                                       .k = k,
                                                       .lda = trans_a ? m : k,
                                                       .ldb = trans_b ? k : n,
                                                       .ldout = n,
                                                       .trans_a = trans_a,
                                                       .trans_b = trans_b,
                                                       .bias = trans_a ? NULL : x->d,
                                                       .add = trans_a ? x->c : NULL});
}

static void run_forward(struct arrays *x)
{
    product(x, x->model->B * x->model->T, 4 * x->model->C, x->model->C, false, false);
}

static void run_grad_in(struct arrays *x)
{
    product(x, x->model->B * x->model->T, x->model->C, 4 * x->model->C, false, true);
}

static void run_grad_weight(struct arrays *x)
{
    product(x, x->model->C, 4 * x->model->C, x->model->B * x->model->T, true, false);
}

static double mlp_flops(const struct model *m)
{
    return 2 * rows(m) * m->C * 4 * m->C;
}

static void run_head(struct arrays *x)
{
    product(x, x->model->chunk, x->model->V, x->model->C, false, true);
}

static double head_flops(const struct model *m)
{
    return 2.0 * m->chunk * m->V * m->C;
}

static void run_attention(struct arrays *x)
{
    const struct model *m = x->model;

    mics_host_attention(x->pool, &(struct mics_op_attention){.dtype = x->dtype,
                                                             .out = x->c,
                                                             .lse = x->d,
                                                             .qkv = x->a,
                                                             .B = m->B,
                                                             .T = m->T,
                                                             .H = m->H,
                                                             .H_kv = m->H,
                                                             .D = m->C / m->H,
                                                             .causal = true});
}

static double attention_flops(const struct model *m)
{
    return 2 * rows(m) * (m->T + 1) * m->C;
}

static void run_attention_grad(struct arrays *x)
{
    const struct model *m = x->model;
    size_t C = m->C, count = (size_t)m->B * m->T;

    mics_host_attention_grad(x->pool, &(struct mics_op_attention_grad){.dtype = x->dtype,
                                                                       .grad_qkv = x->b,
                                                                       .delta = x->d + count * m->H,
                                                                       .grad_out = x->c,
                                                                       .out = x->c,
                                                                       .qkv = x->a,
                                                                       .lse = x->d,
                                                                       .B = m->B,
                                                                       .T = m->T,
                                                                       .H = m->H,
                                                                       .H_kv = m->H,
                                                                       .D = (uint32_t)C / m->H,
                                                                       .causal = true});
}

static double attention_grad_flops(const struct model *m)
{
    return 2.5 * attention_flops(m);
}

const struct entry bench_products[] = {
    {"matmul, MLP forward", run_forward, mlp_flops, NULL, false},
    {"matmul, MLP grad in", run_grad_in, mlp_flops, NULL, false},
    {"matmul, MLP grad weight", run_grad_weight, mlp_flops, NULL, false},
    {"matmul, head chunk", run_head, head_flops, NULL, false},
    {"attention", run_attention, attention_flops, NULL, false},
    {"attention_grad", run_attention_grad, attention_grad_flops, NULL, false},
    {0},
};
