/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products by oneDNN against plain loops in double: in fp32 on any processor, in bf16 where it
 * multiplies that in hardware; and our own products of bf16. Shapes are small, and few, so that an
 * emulated processor can run this.
 */
#include "host/numbers.h"
#include "host/onednn.h"
#include "host/pool.h"
#include "host/products.h"
#include "kernels.h"

#include <stdio.h>

enum { TRANS_A = 1, TRANS_B = 2, ADD = 4, BIAS = 8, ELSEWHERE = 16, PRE_GELU = 32, GELU_OF = 64 };

struct product {
    uint32_t m, n, k, gap; /* elements between rows */
    unsigned flags;
    enum mics_dtype dtype, out_dtype;
};

/* A matrix in fp32, and the same numbers in the type of the product. */
struct matrix {
    float *wide;
    void *data;
    size_t count;
    enum mics_dtype dtype;
};

static struct matrix new_matrix(size_t count, uint64_t seed, enum mics_dtype dtype)
{
    struct matrix x = {random_floats(count, seed), calloc(count + 1, sizeof(float)), count, dtype};

    if (dtype == MICS_BF16) {
        mics_numbers_from_f32(MICS_STORAGE_BF16, x.wide, x.data, count);
        mics_numbers_to_f32(MICS_STORAGE_BF16, x.data, x.wide, count);
    } else {
        memcpy(x.data, x.wide, count * sizeof(float));
    }
    return x;
}

/* `data` as fp32. The caller frees it. */
static float *widened(const struct matrix *x)
{
    float *out = copy_floats(x->wide, x->count);

    if (x->dtype == MICS_BF16)
        mics_numbers_to_f32(MICS_STORAGE_BF16, x->data, out, x->count);
    else
        memcpy(out, x->data, x->count * sizeof(float));
    return out;
}

enum { A, B, OUT, FROM, BIASES, PRE, OF, MATRICES };

static struct mics_args_matmul open_product(const struct product *p, struct matrix x[MATRICES])
{
    const size_t area = (size_t)p->m * (p->n + p->gap);
    struct mics_args_matmul args = {.m = p->m,
                                    .n = p->n,
                                    .k = p->k,
                                    .lda = (p->flags & TRANS_A ? p->m : p->k) + p->gap,
                                    .ldb = (p->flags & TRANS_B ? p->k : p->n) + p->gap,
                                    .ldout = p->n + p->gap,
                                    .trans_a = p->flags & TRANS_A,
                                    .trans_b = p->flags & TRANS_B,
                                    .dtype = p->dtype,
                                    .out_dtype = p->out_dtype};

    x[A] = new_matrix((size_t)(p->flags & TRANS_A ? p->k : p->m) * args.lda, 1, p->dtype);
    x[B] = new_matrix((size_t)(p->flags & TRANS_B ? p->n : p->k) * args.ldb, 2, p->dtype);
    x[OUT] = new_matrix(area, 3, p->out_dtype);
    x[FROM] = new_matrix(area, 4, p->out_dtype);
    x[BIASES] = new_matrix(p->n, 5, p->dtype);
    x[PRE] = new_matrix(area, 6, p->dtype);
    x[OF] = new_matrix(area, 7, p->dtype);
    args.a = x[A].data;
    args.b = x[B].data;
    args.out = x[OUT].data;
    args.add = p->flags & ELSEWHERE ? x[FROM].data : p->flags & ADD ? args.out : NULL;
    args.bias = p->flags & BIAS ? x[BIASES].data : NULL;
    args.pre_gelu = p->flags & PRE_GELU ? x[PRE].data : NULL;
    args.gelu_of = p->flags & GELU_OF ? x[OF].data : NULL;
    return args;
}

static void close_product(struct matrix x[MATRICES])
{
    for (int i = 0; i < MATRICES; i++) {
        free(x[i].wide);
        free(x[i].data);
    }
}

/* Element [i][j] before the activation, from the numbers as they were at first. */
static double sum_of(const struct mics_args_matmul *args, const struct matrix x[MATRICES],
                     unsigned flags, uint32_t i, uint32_t j)
{
    const size_t at = (size_t)i * args->ldout + j;
    double sum = flags & BIAS ? x[BIASES].wide[j] : 0;

    if (flags & (ADD | ELSEWHERE))
        sum += x[flags & ELSEWHERE ? FROM : OUT].wide[at];
    for (size_t k = 0; k < args->k; k++)
        sum += (double)x[A].wide[args->trans_a ? k * args->lda + i : i * args->lda + k] *
               x[B].wide[args->trans_b ? j * args->ldb + k : k * args->ldb + j];
    return sum;
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    const double step = 1e-5;

    return (gelu(x + step) - gelu(x - step)) / (2 * step);
}

/* |got - want| in units of what is allowed: one rounding of the stored type, and `slack`. */
static double excess(double got, double want, enum mics_dtype dtype)
{
    const double slack = 1e-4 * fmax(1, fabs(want));
    const double error = fabs(got - want) / (slack + (dtype == MICS_BF16 ? fabs(want) / 256 : 0));

    return isnan(error) ? INFINITY : error;
}

/* Every element, and that what lies between the rows has not changed. */
static void check_result(const struct product *p, const struct mics_args_matmul *args,
                         const struct matrix x[MATRICES])
{
    float *out = widened(&x[OUT]), *pre = widened(&x[PRE]);
    double worst = 0;

    for (uint32_t i = 0; i < p->m; i++)
        for (uint32_t j = 0; j < args->ldout; j++) {
            const size_t at = (size_t)i * args->ldout + j;

            if (j >= p->n) {
                CHECK(out[at] == x[OUT].wide[at] && pre[at] == x[PRE].wide[at]);
                continue;
            }
            double want = sum_of(args, x, p->flags, i, j);
            if (p->flags & PRE_GELU) {
                worst = fmax(worst, excess(pre[at], want, p->dtype));
                want = gelu(pre[at]);
            } else if (p->flags & GELU_OF) {
                want *= gelu_slope(x[OF].wide[at]);
            }
            worst = fmax(worst, excess(out[at], want, p->out_dtype));
        }
    CHECK_NEAR(worst, 0, 1);
    free(out);
    free(pre);
}

static void check_no_failure(struct mics_pool *pool)
{
    struct mics_err err = {""};

    CHECK_INT(mics_onednn_failure(mics_pool_onednn(pool), &err), MICS_OK);
    CHECK_STR(err.text, "");
}

static void check_product(const struct product *p, unsigned pool, enum mics_product_method method)
{
    struct matrix x[MATRICES];
    const struct mics_args_matmul args = open_product(p, x);

    mics_host_matmul_with_method(pools[pool], &args, method);
    check_no_failure(pools[pool]);
    check_result(p, &args, x);
    close_product(x);
}

/* The last ones are cut into pieces, or into blocks of k. */
static const uint32_t shapes[][3] = {
    {1, 1, 1},    {1, 33, 31},   {32, 1, 33},   {33, 31, 32},   {64, 64, 64},   {7, 130, 96},
    {130, 70, 6}, {2, 200, 128}, {40, 70, 901}, {96, 720, 640}, {700, 80, 640},
};

enum { SHAPES = sizeof shapes / sizeof shapes[0], CUT = SHAPES - 2 };

static void check_all(enum mics_product_method method, enum mics_dtype dtype,
                      enum mics_dtype out_dtype, const unsigned *flags, size_t count)
{
    for (size_t i = 0; i < SHAPES; i++)
        for (size_t j = 0; j < count; j++) {
            const struct product p = {
                shapes[i][0], shapes[i][1], shapes[i][2], (uint32_t)((i + j) % 3),
                flags[j],     dtype,        out_dtype};

            if (i < CUT || j % 4 == i % 4)
                check_product(&p, (unsigned)(i + j) % POOLS, method);
        }
}

static bool can_run(void)
{
    return mics_onednn_is_built();
}

static bool can_run_bf16(void)
{
    return mics_onednn_can_bf16();
}

#define NEEDS_ONEDNN                                                                               \
    if (!can_run())                                                                                \
    TAP_SKIP("this build is without oneDNN")
#define NEEDS_BF16                                                                                 \
    if (!can_run_bf16())                                                                           \
    TAP_SKIP("no oneDNN, or the processor does not multiply bf16")
#define NEEDS_PAIRS                                                                                \
    if (!mics_product_has_pairs())                                                                 \
    TAP_SKIP("kernels are compiled for a processor without AVX512-BF16")

static void products_in_fp32_agree_with_plain_loops(void)
{
    NEEDS_ONEDNN;
    static const unsigned flags[] = {0,
                                     TRANS_A,
                                     TRANS_B,
                                     TRANS_A | TRANS_B,
                                     ADD,
                                     BIAS,
                                     ADD | BIAS,
                                     ELSEWHERE | BIAS,
                                     TRANS_A | ADD,
                                     TRANS_B | BIAS,
                                     PRE_GELU | BIAS,
                                     TRANS_B | GELU_OF};

    check_all(MICS_PRODUCT_ONEDNN, MICS_F32, MICS_F32, flags, sizeof flags / sizeof flags[0]);
}

static void check_into_bf16(enum mics_product_method method)
{
    static const unsigned flags[] = {0,
                                     TRANS_A,
                                     TRANS_B,
                                     TRANS_A | TRANS_B | BIAS,
                                     ADD | BIAS,
                                     TRANS_B | ELSEWHERE | BIAS,
                                     PRE_GELU | BIAS,
                                     TRANS_B | GELU_OF,
                                     ADD | BIAS | GELU_OF};

    check_all(method, MICS_BF16, MICS_BF16, flags, sizeof flags / sizeof flags[0]);
}

static void check_into_fp32(enum mics_product_method method)
{
    static const unsigned flags[] = {0,          TRANS_A | ADD,   TRANS_B, TRANS_A,
                                     ADD | BIAS, PRE_GELU | BIAS, GELU_OF};

    check_all(method, MICS_BF16, MICS_F32, flags, sizeof flags / sizeof flags[0]);
}

static void products_of_bf16_into_bf16_are_rounded_once(void)
{
    NEEDS_BF16;
    check_into_bf16(MICS_PRODUCT_ONEDNN);
}

static void products_of_bf16_into_fp32_agree_with_plain_loops(void)
{
    NEEDS_BF16;
    check_into_fp32(MICS_PRODUCT_ONEDNN);
}

static void our_own_products_of_pairs_agree_with_plain_loops(void)
{
    NEEDS_PAIRS;
    check_into_bf16(MICS_PRODUCT_PAIRS);
    check_into_fp32(MICS_PRODUCT_PAIRS);
}

static void our_own_products_in_fp32_arithmetic_agree_with_plain_loops(void)
{
    check_into_bf16(MICS_PRODUCT_OWN);
    check_into_fp32(MICS_PRODUCT_OWN);
}

/* With and without the primitives being made beforehand. */
static void check_threads(enum mics_product_method method, enum mics_dtype dtype,
                          enum mics_dtype out_dtype)
{
    for (unsigned flags = 0; flags < 4; flags++) {
        const uint32_t *shape = shapes[CUT + flags % 2];
        const struct product p = {
            shape[0], shape[1], shape[2], 0, flags | (flags & TRANS_A ? ADD : 0), dtype, out_dtype};
        float *first = NULL;

        for (unsigned i = 0; i < POOLS; i++) {
            struct matrix x[MATRICES];
            const struct mics_args_matmul args = open_product(&p, x);

            if (i == 1)
                CHECK_INT(mics_host_matmul_prepare(pools[i], &args, NULL), MICS_OK);
            mics_host_matmul_with_method(pools[i], &args, method);
            check_no_failure(pools[i]);
            float *out = widened(&x[OUT]);
            if (first)
                CHECK_SAME_BITS(out, first, x[OUT].count);
            else
                first = copy_floats(out, x[OUT].count);
            free(out);
            close_product(x);
        }
        free(first);
    }
}

static void threads_do_not_change_a_product_of_onednn(void)
{
    NEEDS_ONEDNN;
    check_threads(MICS_PRODUCT_ONEDNN, MICS_F32, MICS_F32);
}

static void threads_do_not_change_a_product_of_bf16(void)
{
    NEEDS_BF16;
    check_threads(MICS_PRODUCT_ONEDNN, MICS_BF16, MICS_BF16);
    check_threads(MICS_PRODUCT_ONEDNN, MICS_BF16, MICS_F32);
}

static void threads_do_not_change_a_product_of_pairs(void)
{
    NEEDS_PAIRS;
    check_threads(MICS_PRODUCT_PAIRS, MICS_BF16, MICS_BF16);
    check_threads(MICS_PRODUCT_PAIRS, MICS_BF16, MICS_F32);
}

/* The oldest primitives are dropped, and made again. */
static void more_shapes_than_are_kept_can_be_used(void)
{
    NEEDS_ONEDNN;
    for (uint32_t m = 1; m <= 300; m++)
        check_product(&(struct product){m % 299 + 1, 3, 2, 0, 0, MICS_F32, MICS_F32}, 0,
                      MICS_PRODUCT_ONEDNN);
}

/* Rows that overlap: oneDNN refuses to write them. */
static void a_product_that_fails_names_the_switch(void)
{
    NEEDS_ONEDNN;
    struct mics_pool *pool = mics_pool_new(2);
    float data[64] = {0};
    const struct mics_args_matmul args = {
        .out = data, .a = data, .b = data, .m = 4, .n = 4, .k = 4, .lda = 4, .ldb = 4, .ldout = 1};
    struct mics_err err = {""}, again = {""};

    CHECK(!mics_onednn_multiply(mics_pool_onednn(pool), &args));
    CHECK_INT(mics_onednn_failure(mics_pool_onednn(pool), &err), MICS_ERR_DEVICE);
    CHECK_STR(err.text, "oneDNN: a product of 4 x 4 x 4 in fp32 cannot be prepared: invalid "
                        "arguments; MICS_ONEDNN=0 computes without oneDNN");
    CHECK_INT(mics_onednn_prepare(mics_pool_onednn(pool), &args, 2, &again), MICS_ERR_DEVICE);
    CHECK_STR(again.text, err.text);
    mics_pool_free(pool);
}

/* The method of a pool made with MICS_ONEDNN=value. */
static enum mics_product_method method_with(const char *value, enum mics_dtype dtype,
                                            enum mics_dtype out_dtype)
{
    const struct mics_args_matmul args = {
        .m = 1, .n = 1, .k = 1, .dtype = dtype, .out_dtype = out_dtype};

    setenv("MICS_ONEDNN", value, 1);
    struct mics_pool *pool = mics_pool_new(1);
    const enum mics_product_method method = mics_product_method(pool, &args);
    mics_pool_free(pool);
    unsetenv("MICS_ONEDNN");
    return method;
}

static void the_switch_decides_about_bf16_only(void)
{
    NEEDS_ONEDNN;
    CHECK_INT(method_with("0", MICS_BF16, MICS_BF16), MICS_PRODUCT_OWN);
    CHECK_INT(method_with("1", MICS_BF16, MICS_BF16), MICS_PRODUCT_ONEDNN);
    CHECK_INT(method_with("1", MICS_BF16, MICS_F32), MICS_PRODUCT_ONEDNN);
    CHECK_INT(method_with("1", MICS_F32, MICS_BF16), MICS_PRODUCT_OWN);
    CHECK(method_with("1", MICS_F32, MICS_F32) != MICS_PRODUCT_ONEDNN);
    const enum mics_product_method method = method_with("", MICS_BF16, MICS_BF16);
    if (mics_product_has_pairs())
        CHECK(method == MICS_PRODUCT_PAIRS || (can_run_bf16() && method == MICS_PRODUCT_ONEDNN));
    else
        CHECK_INT(method, can_run_bf16() ? MICS_PRODUCT_ONEDNN : MICS_PRODUCT_OWN);
}

/* A processor without AVX512-BF16 is not used in another way behind the user's back. */
static void insisting_on_bf16_fails_without_the_hardware(void)
{
    NEEDS_ONEDNN;
    if (can_run_bf16())
        TAP_SKIP("the processor multiplies bf16");
    setenv("MICS_ONEDNN", "1", 1);
    struct mics_pool *pool = mics_pool_new(1);
    unsetenv("MICS_ONEDNN");
    const struct product p = {4, 4, 4, 0, 0, MICS_BF16, MICS_BF16};
    struct matrix x[MATRICES];
    const struct mics_args_matmul args = open_product(&p, x);
    struct mics_err err = {""};

    CHECK_INT(mics_host_matmul_prepare(pool, &args, &err), MICS_ERR_UNSUPPORTED);
    CHECK(strstr(err.text, "oneDNN does not use AVX512-BF16 here, but "));
    mics_host_matmul(pool, &args);
    CHECK_INT(mics_onednn_failure(mics_pool_onednn(pool), &err), MICS_ERR_UNSUPPORTED);
    CHECK(strstr(err.text, "; MICS_ONEDNN=0 computes without oneDNN"));
    close_product(x);
    mics_pool_free(pool);
}

static void other_values_of_the_switch_are_refused(void)
{
    struct mics_err err = {""};

    setenv("MICS_ONEDNN", "yes", 1);
    CHECK_INT(mics_onednn_check_switch(&err), MICS_ERR_ARG);
    CHECK_STR(err.text, "MICS_ONEDNN: expected 0 or 1, found \"yes\"");
    setenv("MICS_ONEDNN", "1", 1);
    CHECK_INT(mics_onednn_check_switch(&err), can_run() ? MICS_OK : MICS_ERR_UNSUPPORTED);
    setenv("MICS_ONEDNN", "0", 1);
    CHECK_INT(mics_onednn_check_switch(&err), MICS_OK);
    unsetenv("MICS_ONEDNN");
    CHECK_INT(mics_onednn_check_switch(&err), MICS_OK);
}

/* To compare with what the plan counts: MICS_ONEDNN_BYTES of plan/memory.h. */
static long resident_kib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    if (!file || fscanf(file, "%*d %ld", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * 4;
}

int main(void)
{
    char text[128] = "none";

    open_pools();
    const long before_kib = resident_kib();
    if (mics_onednn_is_built())
        (void)mics_onednn_describe(mics_pool_onednn(pools[0]), text, sizeof text, NULL);
    printf("# %s; bf16 in hardware: %s\n", text, can_run_bf16() ? "yes" : "no");
    const long opened_kib = resident_kib();
    TAP_RUN(products_in_fp32_agree_with_plain_loops);
    TAP_RUN(products_of_bf16_into_bf16_are_rounded_once);
    TAP_RUN(products_of_bf16_into_fp32_agree_with_plain_loops);
    TAP_RUN(threads_do_not_change_a_product_of_onednn);
    TAP_RUN(threads_do_not_change_a_product_of_bf16);
    TAP_RUN(a_product_that_fails_names_the_switch);
    TAP_RUN(the_switch_decides_about_bf16_only);
    TAP_RUN(insisting_on_bf16_fails_without_the_hardware);
    TAP_RUN(other_values_of_the_switch_are_refused);
    printf("# KiB resident: %ld before, %ld with the library, %ld now\n", before_kib, opened_kib,
           resident_kib());
    TAP_RUN(more_shapes_than_are_kept_can_be_used);
    TAP_RUN(our_own_products_of_pairs_agree_with_plain_loops);
    TAP_RUN(our_own_products_in_fp32_arithmetic_agree_with_plain_loops);
    TAP_RUN(threads_do_not_change_a_product_of_pairs);
    return close_pools();
}
