/* SPDX-License-Identifier: Apache-2.0 */
/* cases_epilogue.c - what follows a matrix product. */
#include "record.h"

#include "cuda/products.h"

/* What a product has besides its operands. */
enum { PRODUCT = 1, ADD = 2, BIAS = 4, PRE_GELU = 8, GELU_OF = 16 };

static const struct epilogue {
    uint32_t m, n, ldout;
    unsigned shift; /* of `out` */
    int with;
} epilogues[] = {
    {3, 1028, 1032, 0, PRODUCT | BIAS | PRE_GELU},
    {5, 36, 36, 0, PRODUCT | ADD | GELU_OF},
    {2, 132, 136, 0, ADD | BIAS},
    {3, 37, 39, 0, PRODUCT | ADD | BIAS | PRE_GELU},
    {2, 261, 261, 1, BIAS | GELU_OF},
};

static void epilogue_case(struct suite *suite, enum mics_dtype dtype, enum mics_dtype out_dtype,
                          struct epilogue e)
{
    const size_t count = (size_t)(e.m - 1) * e.ldout + e.n, dense = (size_t)e.m * e.n;
    const enum mics_dtype product_dtype = dtype == MICS_F32 ? MICS_F32 : out_dtype;
    struct mics_epilogue args = {.m = e.m,
                                 .n = e.n,
                                 .ldout = e.ldout,
                                 .ldproduct = e.n,
                                 .dtype = dtype,
                                 .out_dtype = out_dtype};
    struct mics_args_matmul host = {.m = e.m, .n = e.n, .ldout = e.ldout, .lda = 1, .ldb = e.n};
    struct tensor product = {0}, add = {0}, bias = {0}, aux = {0}, out;

    case_begin(suite, 0, "epilogue_%s_%s_%ux%u", dtype_name(dtype), dtype_name(out_dtype), e.m,
               e.n);
    out = case_output(suite, "out", out_dtype, count, e.shift);
    if (e.with & PRODUCT)
        product = case_random(suite, "product", product_dtype, dense, 1, 1, 0);
    if (e.with & ADD)
        add = case_random(suite, "add", out_dtype, count, 1, 2, 0);
    if (e.with & BIAS)
        bias = case_random(suite, "bias", dtype, e.n, 1, 3, 0);
    if (e.with & PRE_GELU)
        aux = case_output(suite, "pre_gelu", dtype, count, 0);
    if (e.with & GELU_OF)
        aux = case_random(suite, "gelu_of", dtype, count, 3, 4, 0);
    args.out = out.device;
    args.product = product.device;
    args.add = add.device;
    args.bias = bias.device;
    *(e.with & PRE_GELU ? &args.pre_gelu : (void **)&args.gelu_of) = aux.device;
    case_ran(suite, mics_epilogue_launch(NULL, &args));
    /* A product over k = 0, to which this one's is added. */
    for (size_t i = 0; (e.with & PRODUCT) && i < dense; i++) {
        const size_t at = i / e.n * e.ldout + i % e.n;

        if (e.with & ADD)
            add.values[at] += product.values[i];
        else
            out.values[at] = product.values[i];
    }
    host.out = out.values;
    host.add = e.with & ADD ? add.values : e.with & PRODUCT ? out.values : NULL;
    host.bias = bias.values;
    *(e.with & PRE_GELU ? &host.pre_gelu : (void **)&host.gelu_of) = aux.values;
    host.a = host.b = out.values;
    mics_host_matmul(suite->pool, &host);
    if (e.with & PRE_GELU) { /* GELU is of the stored value */
        case_round(&aux);
        for (size_t row = 0; row < e.m; row++)
            mics_host_gelu(suite->pool, &(struct mics_args_gelu){.out = out.values + row * e.ldout,
                                                                 .in = aux.values + row * e.ldout,
                                                                 .count = e.n});
    }
    case_expect(suite, &out, activation_tolerance(dtype));
    if (e.with & PRE_GELU)
        case_expect(suite, &aux, 4e-6);
    case_end(suite);
}

void record_epilogue_cases(struct suite *suite)
{
    for (size_t d = 0; d < LENGTH(dtypes); d++)
        for (int form = 0; form < grad_types(dtypes[d]); form++)
            for (size_t e = 0; e < LENGTH(epilogues); e++)
                epilogue_case(suite, dtypes[d], grad_type(dtypes[d], form), epilogues[e]);
}
