/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_host_products.c - matrix products, by each method that can compute them; attention. */
#include "kernels_host.h"

#include "host/onednn.h"
#include "host/pool.h"
#include "host/products.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 25 };

#define TURN_FLOPS 2e9

/* Operands in rows without gaps; the gradient of a weight is added to what is there, in fp32. */
static struct mics_args_matmul product_of(const struct arrays *x, uint32_t m, uint32_t n,
                                          uint32_t k, bool trans_a, bool trans_b)
{
    return (struct mics_args_matmul){.dtype = x->dtype,
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
                                     .add = trans_a ? x->c : NULL};
}

static struct mics_args_matmul forward(const struct arrays *x)
{
    const struct model *m = x->model;

    return product_of(x, m->B * m->T, 4 * m->C, m->C, false, false);
}

static struct mics_args_matmul grad_in(const struct arrays *x)
{
    const struct model *m = x->model;

    return product_of(x, m->B * m->T, m->C, 4 * m->C, false, true);
}

static struct mics_args_matmul grad_weight(const struct arrays *x)
{
    const struct model *m = x->model;

    return product_of(x, m->C, 4 * m->C, m->B * m->T, true, false);
}

static struct mics_args_matmul head(const struct arrays *x)
{
    return product_of(x, x->model->chunk, x->model->V, x->model->C, false, true);
}

static void run_forward(struct arrays *x)
{
    const struct mics_args_matmul args = forward(x);

    mics_host_matmul(x->pool, &args);
}

static void run_grad_in(struct arrays *x)
{
    const struct mics_args_matmul args = grad_in(x);

    mics_host_matmul(x->pool, &args);
}

static void run_grad_weight(struct arrays *x)
{
    const struct mics_args_matmul args = grad_weight(x);

    mics_host_matmul(x->pool, &args);
}

static void run_head(struct arrays *x)
{
    const struct mics_args_matmul args = head(x);

    mics_host_matmul(x->pool, &args);
}

static double mlp_flops(const struct model *m)
{
    return 2 * rows(m) * m->C * 4 * m->C;
}

static double head_flops(const struct model *m)
{
    return 2.0 * m->chunk * m->V * m->C;
}

static bool can_multiply(const struct arrays *x, enum mics_product_method method)
{
    const bool bf16 = x->dtype == MICS_BF16;

    if (method == MICS_PRODUCT_ONEDNN)
        return bf16 ? mics_onednn_can_bf16() : mics_onednn_is_built();
    if (method == MICS_PRODUCT_PAIRS)
        return bf16 && mics_product_has_pairs();
    return method == MICS_PRODUCT_OWN || !bf16;
}

static int by_value(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return a < b ? -1 : a > b;
}

/* seconds[method][round], of the methods in turns. */
static void time_methods(const struct arrays *x, const struct mics_args_matmul *args,
                         double seconds[][ROUNDS])
{
    for (int round = -1; round < ROUNDS; round++)
        for (int method = 0; method <= MICS_PRODUCT_ONEDNN; method++) {
            if (!can_multiply(x, (enum mics_product_method)method))
                continue;
            const double before = bench_clock_s(x);

            mics_host_matmul_with_method(x->pool, args, (enum mics_product_method)method);
            if (round >= 0)
                seconds[method][round] = bench_clock_s(x) - before;
        }
}

/* The speed of each method over that of the first which can multiply these types. */
static void compare_methods(const struct arrays *x, const char *name,
                            const struct mics_args_matmul *args, double flops)
{
    static const char *const methods[] = {"OpenBLAS", "own", "own in pairs", "oneDNN"};
    double seconds[MICS_PRODUCT_ONEDNN + 1][ROUNDS], ratios[ROUNDS], sorted[ROUNDS];
    const int first = x->dtype == MICS_BF16 ? MICS_PRODUCT_OWN : MICS_PRODUCT_OPENBLAS;

    time_methods(x, args, seconds);
    memcpy(sorted, seconds[first], sizeof sorted);
    qsort(sorted, ROUNDS, sizeof sorted[0], by_value);
    printf("%-26s %s %.1f GFLOP/s", name, methods[first], flops / sorted[ROUNDS / 2] / 1e9);
    for (int method = first + 1; method <= MICS_PRODUCT_ONEDNN; method++) {
        if (!can_multiply(x, (enum mics_product_method)method))
            continue;
        for (int i = 0; i < ROUNDS; i++)
            ratios[i] = seconds[first][i] / seconds[method][i];
        qsort(ratios, ROUNDS, sizeof ratios[0], by_value);
        printf("; %s %.2f (%.2f, %.2f)", methods[method], ratios[ROUNDS / 2], ratios[ROUNDS / 4],
               ratios[ROUNDS * 3 / 4]);
    }
    printf("\n");
}

static const struct {
    const char *name;
    struct mics_args_matmul (*args)(const struct arrays *x);
    double (*flops)(const struct model *m);
} products[] = {{"MLP forward, a b", forward, mlp_flops},
                {"MLP grad in, a b'", grad_in, mlp_flops},
                {"MLP grad weight, a' b", grad_weight, mlp_flops},
                {"head chunk, a b'", head, head_flops}};

void bench_compare_products(const struct arrays *x)
{
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        const struct mics_args_matmul args = products[i].args(x);

        compare_methods(x, products[i].name, &args, products[i].flops(x->model));
    }
}

void bench_make_products(const struct arrays *x)
{
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        const struct mics_args_matmul args = products[i].args(x);

        for (double flops = 0; flops < TURN_FLOPS; flops += products[i].flops(x->model))
            mics_host_matmul(x->pool, &args);
        printf("%s: %s\n", x->model->name, products[i].name);
        fflush(stdout);
    }
}

static void run_attention(struct arrays *x)
{
    const struct model *m = x->model;

    mics_host_attention(x->pool, &(struct mics_args_attention){.dtype = x->dtype,
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

    mics_host_attention_grad(x->pool,
                             &(struct mics_args_attention_grad){.dtype = x->dtype,
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
