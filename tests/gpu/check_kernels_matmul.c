/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's matrix products against the host's: every transposition, type and epilogue, in every
 * form. */
#include "check.h"

/* What a product may have besides its operands. */
enum { ADD = 1, IN_PLACE = 2, BIAS = 4, PRE_GELU = 8, GELU_OF = 16 };

static const int extras[] = {0,
                             ADD,
                             ADD | IN_PLACE,
                             BIAS,
                             BIAS | ADD,
                             PRE_GELU,
                             PRE_GELU | BIAS,
                             PRE_GELU | BIAS | ADD | IN_PLACE,
                             GELU_OF,
                             GELU_OF | BIAS | ADD};

struct product {
    struct tensor a, b, bias, add, aux, out;
    struct mics_args_matmul args;
    int with;
};

/* An array of rows of `ld`, the last no longer than `columns`. */
static size_t extent(uint32_t rows, uint32_t columns, uint32_t ld)
{
    return rows && columns ? (size_t)(rows - 1) * ld + columns : 0;
}

static struct product product_new(struct product_case s, int trans, enum mics_dtype dtype,
                                  enum mics_dtype out_dtype, int with)
{
    const bool trans_a = trans & 1, trans_b = trans & 2;
    const uint32_t a_rows = trans_a ? s.k : s.m, a_columns = trans_a ? s.m : s.k;
    const uint32_t b_rows = trans_b ? s.n : s.k, b_columns = trans_b ? s.k : s.n;
    const uint32_t ldout = s.n + s.extra;
    const size_t out_count = extent(s.m, s.n, ldout);
    struct product p = {
        .a = array_random(dtype, extent(a_rows, a_columns, a_columns + s.extra), 1, 1, s.shift),
        .b = array_random(dtype, extent(b_rows, b_columns, b_columns + s.extra), 1, 2, s.shift),
        .bias = array_random(dtype, s.n, 1, 3, s.shift),
        .add = array_random(out_dtype, out_count, 1, 4, s.shift),
        .aux = array_random(dtype, out_count, 3, 5, s.shift),
        .out = with & IN_PLACE ? array_random(out_dtype, out_count, 1, 4, s.shift)
                               : array_output(out_dtype, out_count, s.shift),
        .with = with,
    };

    p.args = (struct mics_args_matmul){.m = s.m,
                                       .n = s.n,
                                       .k = s.k,
                                       .lda = a_columns + s.extra,
                                       .ldb = b_columns + s.extra,
                                       .ldout = ldout,
                                       .trans_a = trans_a,
                                       .trans_b = trans_b,
                                       .dtype = dtype,
                                       .out_dtype = out_dtype};
    return p;
}

/* The operation on the device, or on the values of the arrays. */
static struct mics_args_matmul on(const struct product *p, bool device)
{
    struct mics_args_matmul args = p->args;

    args.a = AT(p->a);
    args.b = AT(p->b);
    args.out = AT(p->out);
    args.bias = p->with & BIAS ? AT(p->bias) : NULL;
    args.add = p->with & IN_PLACE ? args.out : p->with & ADD ? AT(p->add) : NULL;
    args.pre_gelu = p->with & PRE_GELU ? AT(p->aux) : NULL;
    args.gelu_of = p->with & GELU_OF ? AT(p->aux) : NULL;
    if (!device)
        args.dtype = args.out_dtype = MICS_F32;
    return args;
}

static void product_free(struct product *p)
{
    ARRAYS_FREE(&p->a, &p->b, &p->bias, &p->add, &p->aux, &p->out);
}

/* Between rows nothing is written. */
static void check_gaps(const struct product *p)
{
    const size_t each = mics_dtype_bytes(p->out.dtype), ld = p->args.ldout, n = p->args.n;

    for (uint32_t i = 0; i + 1 < p->args.m; i++)
        CHECK(memcmp(p->out.got + (i * ld + n) * each, p->out.begin + (i * ld + n) * each,
                     (ld - n) * each) == 0);
}

/* Products of numbers in [-1, 1): the error grows as the square root of k, times some. A result
 * in 16 bits that had a pass of its own is rounded twice; where a bias that is not aligned has one,
 * too, the first rounding is that of a number that may be many times as large. cuBLASLt 13.0 on an
 * H100 rounds a product before it adds, as in PyTorch's addmm, too. GELU is of a number
 * that is rounded to the type of the operands, which the reference's is not. */
static double tolerance_of(const struct product *p, struct product_case s)
{
    const double unit = p->aux.dtype == MICS_F16 || p->out.dtype == MICS_F16 ? 0.125 : 1;
    const bool added = p->with & ADD && p->out.dtype != MICS_F32;
    const bool passed = p->with & PRE_GELU
                            ? p->aux.dtype != MICS_F32
                            : p->out.dtype != MICS_F32 && p->with & ~(ADD | IN_PLACE);

    if (passed)
        return unit * ((s.shift * 2 % 16 == 0 ? 0.008 : 0.02) + (added ? 0.004 : 0));
    return added ? unit * 0.008 : 4e-6;
}

static void check_product(struct product *p, struct product_case s)
{
    const struct mics_args_matmul device = on(p, true), host = on(p, false);
    const double tolerance = tolerance_of(p, s);

    RUN(matmul, &device, &p->out, &p->aux);
    mics_host_matmul(gpu.pool, &host);
    if (p->args.m > 0 && p->args.n > 0) {
        for (uint32_t i = 0; i + 1 < p->args.m;
             i++) /* elements between rows are not compared here */
            for (uint32_t j = p->args.n; j < p->args.ldout; j++)
                p->out.values[(size_t)i * p->args.ldout + j] =
                    array_at(&p->out, p->out.begin, (size_t)i * p->args.ldout + j);
        CHECK_ARRAY(&p->out, p->out.values, tolerance);
        CHECK_ARRAY(&p->aux, p->aux.values, p->with & PRE_GELU ? tolerance : 0);
        check_gaps(p);
    }
}

static void check_all(enum mics_dtype dtype, enum mics_dtype out_dtype, int trans)
{
    for (size_t s = 0; s < LENGTH(product_cases); s++)
        for (size_t e = 0; e < LENGTH(extras) && product_cases[s].suites & GPU;
             e += trans ? 2 : 1) {
            /* The first product of a shape determines what is cached: test either order. */
            const int with = extras[trans < 2 ? e : LENGTH(extras) - 1 - e];
            struct product p = product_new(product_cases[s], trans, dtype, out_dtype, with);
            const int bad = tap_bad;

            check_product(&p, product_cases[s]);
            if (tap_bad > bad)
                printf("# m %u n %u k %u, extra %u, trans %d, types %d %d, with %d\n", p.args.m,
                       p.args.n, p.args.k, product_cases[s].extra, trans, dtype, out_dtype, with);
            product_free(&p);
        }
}

static void products_agree_in_fp32(void)
{
    for (int trans = 0; trans < 4; trans++)
        check_all(MICS_F32, MICS_F32, trans);
}

static void products_agree_in_16_bits(void)
{
    for (int trans = 0; trans < 4; trans++)
        for (size_t d = 1; d < LENGTH(dtypes); d++)
            check_all(dtypes[d], dtypes[d], trans);
}

static void products_of_16_bits_agree_in_fp32(void)
{
    for (int trans = 0; trans < 4; trans++)
        for (size_t d = 1; d < LENGTH(dtypes); d++)
            check_all(dtypes[d], MICS_F32, trans);
}

static void products_of_fp32_agree_in_16_bits(void)
{
    for (int trans = 0; trans < 4; trans++)
        for (size_t d = 1; d < LENGTH(dtypes); d++)
            check_all(MICS_F32, dtypes[d], trans);
}

/* A result larger than half of the workspace goes in slabs. */
static void large_products_of_fp32_go_to_bf16_in_slabs(void)
{
    const struct product_case s = {300, 16500, 2, 0, 0, GPU};
    struct product p = product_new(s, 1, MICS_F32, MICS_BF16, ADD | IN_PLACE);

    check_product(&p, s);
    product_free(&p);
}

/* With GPT-2's vocabulary and its spare rows. */
static void the_products_of_a_head_agree(void)
{
    static const struct {
        struct product_case shape;
        int trans, with;
    } head[] = {
        {{24, 50304, 16, 0, 0, GPU}, 2, 0},              /* logits */
        {{24, 16, 50304, 0, 0, GPU}, 0, 0},              /* back from them */
        {{50304, 16, 24, 0, 0, GPU}, 1, ADD | IN_PLACE}, /* the gradient of the matrix */
    };

    for (size_t i = 0; i < LENGTH(head); i++) {
        struct product p =
            product_new(head[i].shape, head[i].trans, MICS_BF16, MICS_BF16, head[i].with);

        check_product(&p, head[i].shape);
        product_free(&p);
    }
}

/* Choose among the proposals for all shapes, on operands that are dropped; then all products again.
 */
static void check_prepared(enum mics_dtype dtype, enum mics_dtype out_dtype)
{
    for (size_t s = 0; s < LENGTH(product_cases); s++)
        for (size_t e = 0; e < LENGTH(extras) && product_cases[s].suites & GPU; e++) {
            struct product p = product_new(product_cases[s], 0, dtype, out_dtype, extras[e]);
            const struct mics_args_matmul args = on(&p, true);
            struct mics_matmul_choice choice;

            CHECK_INT(mics_cuda_products_prepare(&gpu.at, &args, 1, false, &choice), cudaSuccess);
            product_free(&p);
        }
    check_all(dtype, out_dtype, 0);
}

static void products_chosen_by_time_agree(void)
{
    setenv("XDG_CACHE_HOME", "/dev/null", 1); /* no cache */
    check_prepared(MICS_F32, MICS_F32);
    check_prepared(MICS_BF16, MICS_BF16);
    check_prepared(MICS_BF16, MICS_F32);
    check_prepared(MICS_F16, MICS_F16);
    unsetenv("XDG_CACHE_HOME");
}

int main(void)
{
    open_gpu();
    TAP_RUN(products_agree_in_fp32);
    TAP_RUN(products_agree_in_16_bits);
    TAP_RUN(products_of_16_bits_agree_in_fp32);
    TAP_RUN(products_of_fp32_agree_in_16_bits);
    TAP_RUN(large_products_of_fp32_go_to_bf16_in_slabs);
    TAP_RUN(the_products_of_a_head_agree);
    TAP_RUN(products_chosen_by_time_agree);
    return close_gpu();
}
