/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products and sums of columns against plain loops in double. */
#include "host/pool.h"
#include "host/products.h"
#include "kernel_cases.h"
#include "kernels.h"

/* The product of `args` in double, as [m][n]. */
static double *reference(const struct mics_args_matmul *args, const float *out)
{
    double *want = zero_doubles((size_t)args->m * args->n);
    const float *a = args->a, *b = args->b, *bias = args->bias;

    for (uint32_t i = 0; i < args->m; i++)
        for (uint32_t j = 0; j < args->n; j++) {
            double sum = bias ? bias[j] : 0;

            if (args->add)
                sum += out[(size_t)i * args->ldout + j];
            for (uint32_t k = 0; k < args->k; k++)
                sum +=
                    (double)
                        a[args->trans_a ? (size_t)k * args->lda + i : (size_t)i * args->lda + k] *
                    b[args->trans_b ? (size_t)j * args->ldb + k : (size_t)k * args->ldb + j];
            want[(size_t)i * args->n + j] = sum;
        }
    return want;
}

typedef void multiplier(const struct mics_args_matmul *args);

static void by_one_thread(const struct mics_args_matmul *args)
{
    mics_host_matmul(pools[0], args);
}

static void by_three_threads(const struct mics_args_matmul *args)
{
    mics_host_matmul(pools[2], args);
}

static void by_our_own(const struct mics_args_matmul *args)
{
    mics_host_matmul_with_method(pools[1], args, MICS_PRODUCT_OWN);
}

static void by_openblas(const struct mics_args_matmul *args)
{
    mics_host_matmul_with_method(pools[2], args, MICS_PRODUCT_OPENBLAS);
}

/* One case: `flags` bit 0 trans_a, 1 trans_b, 2 add, 3 bias, 4 add from another matrix. Rows of all
 * have `gap` more elements than needed, which must stay as they are. */
static void try_product(struct product_case s, unsigned flags, uint32_t gap, multiplier *multiply)
{
    struct mics_args_matmul args = {
        .m = s.m, .n = s.n, .k = s.k, .trans_a = flags & 1, .trans_b = flags & 2};
    float *a = random_floats((size_t)(s.m + gap) * (s.k + gap + 1) + s.m + s.k, 1);
    float *b = random_floats((size_t)(s.n + gap) * (s.k + gap + 1) + s.n + s.k, 2);
    float *bias = random_floats(s.n, 3), *out = random_floats((size_t)s.m * (s.n + gap), 4);
    double *want, worst = 0;

    args.a = a;
    args.b = b;
    args.lda = (args.trans_a ? s.m : s.k) + gap;
    args.ldb = (args.trans_b ? s.k : s.n) + gap;
    args.lda += args.lda == 0;
    args.ldb += args.ldb == 0;
    args.ldout = s.n + gap;
    args.bias = flags & 8 ? bias : NULL;
    float *other = copy_floats(out, (size_t)s.m * args.ldout);
    args.add = !(flags & 4) ? NULL : flags & 16 ? other : out;
    want = reference(&args, out);
    for (uint32_t i = 0; args.add != out && i < s.m; i++)
        for (uint32_t j = 0; j < s.n; j++)
            out[(size_t)i * args.ldout + j] = NAN;
    float *before = copy_floats(out, (size_t)s.m * args.ldout);
    args.out = out;
    multiply(&args);
    for (uint32_t i = 0; i < s.m; i++) {
        worst = fmax(worst, worst_error(out + (size_t)i * args.ldout, want + (size_t)i * s.n, s.n));
        CHECK_SAME_BITS(out + (size_t)i * args.ldout + s.n, before + (size_t)i * args.ldout + s.n,
                        gap);
    }
    CHECK_NEAR(worst, 0, 3e-5);
    free(before);
    free(other);
    free(a);
    free(b);
    free(bias);
    free(out);
    free(want);
}

static void products_of_all_forms_agree_with_plain_loops(void)
{
    for (size_t i = 0; i < LENGTH(product_cases); i++)
        for (unsigned flags = 0; flags < 32; flags++)
            try_product(product_cases[i], flags, 0, flags & 1 ? by_one_thread : by_three_threads);
}

static void longer_rows_are_stepped_over(void)
{
    for (size_t i = 0; i < LENGTH(product_cases); i++)
        for (unsigned flags = 0; flags < 32; flags++)
            try_product(product_cases[i], flags, 5, flags & 1 ? by_three_threads : by_one_thread);
}

static void our_own_product_agrees_with_plain_loops(void)
{
    for (size_t i = 0; i < LENGTH(product_cases); i++)
        for (unsigned flags = 0; flags < 32; flags++)
            try_product(product_cases[i], flags, flags % 2 * 3, by_our_own);
    for (unsigned flags = 0; flags < 32; flags += 5) /* several blocks of rows, of k, of columns */
        try_product((struct product_case){.m = 603, .n = 290, .k = 810}, flags, flags % 3,
                    by_our_own);
}

/* Whoever multiplies by default on this processor. */
static void products_by_openblas_agree_with_plain_loops(void)
{
    for (size_t i = 0; i < LENGTH(product_cases); i++)
        for (unsigned flags = 0; flags < 32; flags++)
            try_product(product_cases[i], flags, flags % 2 * 3, by_openblas);
}

/* Any part of a product has the bits that it has in the whole. */
static void our_own_product_does_not_depend_on_how_it_is_cut(void)
{
    enum { M = 70, N = 100, K = 900 };
    float *a = random_floats(M * K, 1), *b = random_floats(K * N, 2), whole[M * N], part[M * N];
    struct mics_args_matmul args = {
        .out = whole, .a = a, .b = b, .m = M, .n = N, .k = K, .lda = K, .ldb = N, .ldout = N};

    by_our_own(&args);
    for (uint32_t row = 0; row < M; row += 23)
        for (uint32_t column = 0; column < N; column += 19) {
            args.out = part + row * N + column;
            args.a = a + row * K;
            args.b = b + column;
            args.m = M - row < 23 ? M - row : 23;
            args.n = N - column < 19 ? N - column : 19;
            by_our_own(&args);
        }
    CHECK_SAME_BITS(part, whole, M * N);
    free(a);
    free(b);
}

/* A residual from elsewhere, and GELU and its derivative behind the product: the bits of separate
 * passes. */
static void check_fused_epilogue(enum mics_product_method method)
{
    enum { M = 400, N = 331, K = 80, LD = 340 }; /* several pieces in both directions */
    float *a = random_floats(M * K, 1), *b = random_floats(K * N, 2),
          *add = random_floats(M * LD, 3);
    float *x = random_floats(M * LD, 4), *out = random_floats(M * LD, 4), *want;
    float *pre = random_floats(M * LD, 6), *of = random_floats(M * LD, 7);
    struct mics_args_matmul args = {
        .out = x, .a = a, .b = b, .m = M, .n = N, .k = K, .lda = K, .ldb = N, .ldout = LD};

    for (size_t i = 0; i < (size_t)M * LD; i++)
        x[i] = add[i];
    args.add = x;
    mics_host_matmul_with_method(pools[1], &args, method);
    args.out = out;
    args.add = add;
    args.pre_gelu = pre;
    mics_host_matmul_with_method(pools[2], &args, method);
    want = copy_floats(x, M * LD);
    mics_host_gelu(pools[0], &(struct mics_args_gelu){.out = want, .in = x, .count = M * LD});
    for (size_t i = 0; i < M; i++) {
        CHECK_SAME_BITS(out + i * LD, want + i * LD, N);
        CHECK_SAME_BITS(pre + i * LD, x + i * LD, N);
    }
    args.pre_gelu = NULL;
    args.gelu_of = of;
    mics_host_matmul_with_method(pools[0], &args, method);
    mics_host_gelu_grad(pools[0], &(struct mics_args_gelu_grad){
                                      .grad_in = want, .in = of, .grad_out = x, .count = M * LD});
    for (size_t i = 0; i < M; i++)
        CHECK_SAME_BITS(out + i * LD, want + i * LD, N);
    float *all[] = {a, b, add, x, out, want, pre, of};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static void a_fused_epilogue_equals_separate_passes(void)
{
    check_fused_epilogue(MICS_PRODUCT_OWN);
    check_fused_epilogue(MICS_PRODUCT_OPENBLAS);
}

static void an_empty_product_changes_nothing(void)
{
    float one = 7;
    struct mics_args_matmul args = {
        .out = &one, .a = &one, .b = &one, .k = 1, .n = 1, .lda = 1, .ldb = 1, .ldout = 1};

    mics_host_matmul(pools[1], &args);
    args.m = 1;
    args.n = 0;
    mics_host_matmul(pools[1], &args);
    CHECK(one == 7);
}

static void check_threads(enum mics_product_method method, bool trans_a, bool trans_b)
{
    enum { M = 700, N = 150, K = 130 };
    float *a = random_floats(M * K, 1), *b = random_floats(N * K, 2), *first = NULL;

    for (unsigned i = 0; i < POOLS; i++) {
        float *out = random_floats(M * N, 3);
        struct mics_args_matmul args = {.out = out,
                                        .a = a,
                                        .b = b,
                                        .m = M,
                                        .n = N,
                                        .k = K,
                                        .lda = trans_a ? M : K,
                                        .ldb = trans_b ? K : N,
                                        .ldout = N,
                                        .trans_a = trans_a,
                                        .trans_b = trans_b};

        mics_host_matmul_with_method(pools[i], &args, method);
        if (first)
            CHECK_SAME_BITS(out, first, M * N);
        else
            first = copy_floats(out, M * N);
        free(out);
    }
    free(first);
    free(a);
    free(b);
}

static void threads_do_not_change_a_product(void)
{
    for (int form = 0; form < 4; form++) {
        check_threads(MICS_PRODUCT_OWN, form & 1, form & 2);
        check_threads(MICS_PRODUCT_OPENBLAS, form & 1, form & 2);
    }
}

static void nan_passes_through_a_product(void)
{
    float a[2] = {0, NAN}, b[2] = {1, 0}, out = 0;
    struct mics_args_matmul args = {
        .out = &out, .a = a, .b = b, .m = 1, .n = 1, .k = 2, .lda = 2, .ldb = 1, .ldout = 1};

    mics_host_matmul(pools[0], &args);
    CHECK(isnan(out));
}

static void columns_are_added_to_a_bias_gradient(void)
{
    static const uint32_t sizes[] = {1, 2, 31, 32, 33, 64, 65, 129, 300};
    const size_t count = sizeof(sizes) / sizeof(sizes[0]);

    for (size_t at = 0; at < count * count; at++) {
        uint32_t rows = sizes[at / count], n = sizes[at % count];
        float *grad = random_floats((size_t)rows * n, 5), *start = random_floats(n, 6);
        float *bias[POOLS];
        double *want = zero_doubles(n);

        for (uint32_t j = 0; j < n; j++)
            want[j] = start[j];
        for (size_t i = 0; i < (size_t)rows * n; i++)
            want[i % n] += grad[i];
        for (unsigned i = 0; i < POOLS; i++) {
            bias[i] = copy_floats(start, n);
            mics_host_bias_grad(pools[i],
                                &(struct mics_args_bias_grad){
                                    .grad_bias = bias[i], .grad_out = grad, .rows = rows, .n = n});
            CHECK_SAME_BITS(bias[i], bias[0], n);
        }
        CHECK_CLOSE(bias[0], want, n, 1e-5);
        for (unsigned i = 0; i < POOLS; i++)
            free(bias[i]);
        free(grad);
        free(start);
        free(want);
    }
}

static void a_bias_gradient_of_no_rows_stays(void)
{
    float bias[3] = {1, 2, 3}, none = 0;

    mics_host_bias_grad(pools[0], &(struct mics_args_bias_grad){
                                      .grad_bias = bias, .grad_out = &none, .rows = 0, .n = 3});
    CHECK(bias[0] == 1 && bias[1] == 2 && bias[2] == 3);
}

int main(void)
{
    open_pools();
    if (!TAP_TSAN) { /* the threads do the same where they must not change a product */
        TAP_RUN(products_of_all_forms_agree_with_plain_loops);
        TAP_RUN(longer_rows_are_stepped_over);
        TAP_RUN(our_own_product_agrees_with_plain_loops);
        TAP_RUN(products_by_openblas_agree_with_plain_loops);
    }
    TAP_RUN(our_own_product_does_not_depend_on_how_it_is_cut);
    TAP_RUN(a_fused_epilogue_equals_separate_passes);
    TAP_RUN(an_empty_product_changes_nothing);
    TAP_RUN(threads_do_not_change_a_product);
    TAP_RUN(nan_passes_through_a_product);
    TAP_RUN(columns_are_added_to_a_bias_gradient);
    TAP_RUN(a_bias_gradient_of_no_rows_stays);
    return close_pools();
}
