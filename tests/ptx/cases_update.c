/* SPDX-License-Identifier: Apache-2.0 */
/* cases_update.c - the optimizers, the norm of their gradients, and what follows a matrix product.
 */
#include "record.h"

#include "cuda/products.h"

#include <math.h>

/* Aligned with a copy, and element by element without; with clipping, and with a norm that is not
 * finite, when nothing changes. */
static const struct update {
    const char *name;
    uint32_t count, decay_count;
    unsigned shift;
    bool copy;
    double squared_norm;
    float clip;
} updates[] = {{"clipped", 4099, 1030, 0, true, 1e6, 1},
               {"odd", 1033, 1033, 1, false, 1e-3, 0},
               {"kept", 515, 100, 0, true, INFINITY, 1}};

struct slice {
    struct tensor param, first, second, grad, copy;
    struct mics_args_scalars scalars, *device;
};

static struct slice slice_new(struct recorder *r, const struct update *u)
{
    struct slice s = {.scalars = {8, 0, u->squared_norm, 0}};

    s.param = record_random(r, "param", MICS_F32, u->count, 1, 1, u->shift);
    s.first = record_random(r, "first", MICS_F32, u->count, 0.1f, 2, u->shift);
    s.grad = record_random(r, "grad", MICS_F32, u->count, 9, 4, u->shift);
    if (u->copy)
        s.copy = record_output(r, "copy", MICS_BF16, u->count, u->shift);
    s.device = record_bytes(r, "scalars", &s.scalars, sizeof(s.scalars));
    return s;
}

static void slice_expect(struct recorder *r, struct slice *s)
{
    record_expect(r, &s->param, 3e-7);
    record_expect(r, &s->first, 3e-7);
    if (!s->copy.device)
        return;
    for (size_t i = 0; i < s->copy.count; i++)
        s->copy.values[i] = s->param.values[i];
    record_expect(r, &s->copy, 3e-7);
}

static void update_case(struct recorder *r, enum mics_optimizer optimizer, const struct update *u)
{
    struct mics_args_update args = {.optimizer = optimizer,
                                    .step = 7,
                                    .count = u->count,
                                    .decay_count = u->decay_count,
                                    .lr = optimizer == MICS_OPT_SGD ? 1e-2f : 1e-3f,
                                    .settings = {.beta1 = 0.9f,
                                                 .beta2 = 0.95f,
                                                 .eps = 1e-8f,
                                                 .momentum = 0.9f,
                                                 .weight_decay = 0.1f,
                                                 .clip = u->clip}};
    const bool two = mics_optimizer_states(optimizer) > 1;
    struct slice s;

    record_begin(r, 0, "%s_%s", mics_optimizer_name(optimizer), u->name);
    s = slice_new(r, u);
    if (two) {
        s.second = record_random(r, "second", MICS_F32, u->count, 0.1f, 3, u->shift);
        for (size_t i = 0; i < u->count; i++) /* a second moment is not negative */
            s.second.values[i] = fabsf(s.second.values[i]);
        record_ran(r, cudaMemcpy(s.second.device, s.second.values, u->count * sizeof(float),
                                 cudaMemcpyHostToDevice));
    }
    args.param = s.param.device;
    args.state[0] = s.first.device;
    args.state[1] = s.second.device;
    args.copy = s.copy.device;
    args.grad = s.grad.device;
    args.scalars = s.device;
    record_ran(r, mics_cuda_update(&r->at, &args));
    args.param = s.param.values;
    args.state[0] = s.first.values;
    args.state[1] = s.second.values;
    args.copy = NULL;
    args.grad = s.grad.values;
    args.scalars = &s.scalars;
    mics_host_update(r->pool, &args);
    slice_expect(r, &s);
    if (two)
        record_expect(r, &s.second, 3e-7);
    record_end(r);
}

/* On 2 multiprocessors, whose blocks go round more than once. */
static void squared_norm_case(struct recorder *r, uint32_t count, unsigned shift)
{
    double want = 0.5, *sum;
    struct tensor in;

    record_begin(r, 2, "squared_norm_%u", count);
    in = record_random(r, "in", MICS_F32, count, 100, 7, shift);
    sum = record_bytes(r, "sum", &want, sizeof(want));
    record_ran(
        r, mics_cuda_squared_norm(&r->at, &(struct mics_args_squared_norm){sum, in.device, count}));
    mics_host_squared_norm(r->pool, &(struct mics_args_squared_norm){&want, in.values, count});
    record_expect_double(r, sum, want, 1e-13);
    record_end(r);
}

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

static void epilogue_case(struct recorder *r, enum mics_dtype dtype, enum mics_dtype out_dtype,
                          struct epilogue e)
{
    const size_t count = (size_t)(e.m - 1) * e.ldout + e.n, dense = (size_t)e.m * e.n;
    const enum mics_dtype product_dtype = dtype == MICS_BF16 ? out_dtype : MICS_F32;
    struct mics_epilogue args = {.m = e.m,
                                 .n = e.n,
                                 .ldout = e.ldout,
                                 .ldproduct = e.n,
                                 .dtype = dtype,
                                 .out_dtype = out_dtype};
    struct mics_args_matmul host = {.m = e.m, .n = e.n, .ldout = e.ldout, .lda = 1, .ldb = e.n};
    struct tensor product = {0}, add = {0}, bias = {0}, aux = {0}, out;

    record_begin(r, 0, "epilogue_%s_%s_%ux%u", record_dtype_name(dtype),
                 record_dtype_name(out_dtype), e.m, e.n);
    out = record_output(r, "out", out_dtype, count, e.shift);
    if (e.with & PRODUCT)
        product = record_random(r, "product", product_dtype, dense, 1, 1, 0);
    if (e.with & ADD)
        add = record_random(r, "add", out_dtype, count, 1, 2, 0);
    if (e.with & BIAS)
        bias = record_random(r, "bias", dtype, e.n, 1, 3, 0);
    if (e.with & PRE_GELU)
        aux = record_output(r, "pre_gelu", dtype, count, 0);
    if (e.with & GELU_OF)
        aux = record_random(r, "gelu_of", dtype, count, 3, 4, 0);
    args.out = out.device;
    args.product = product.device;
    args.add = add.device;
    args.bias = bias.device;
    *(e.with & PRE_GELU ? &args.pre_gelu : (void **)&args.gelu_of) = aux.device;
    record_ran(r, mics_epilogue_launch(NULL, &args));
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
    mics_host_matmul(r->pool, &host);
    if (e.with & PRE_GELU) { /* GELU is of the stored value */
        record_round(&aux);
        for (size_t row = 0; row < e.m; row++)
            mics_host_gelu(r->pool, &(struct mics_args_gelu){.out = out.values + row * e.ldout,
                                                             .in = aux.values + row * e.ldout,
                                                             .count = e.n});
    }
    record_expect(r, &out, dtype == MICS_BF16 ? 2e-5 : 4e-6);
    if (e.with & PRE_GELU)
        record_expect(r, &aux, 4e-6);
    record_end(r);
}

void record_update_cases(struct recorder *r)
{
    for (size_t u = 0; u < LENGTH(updates); u++)
        for (int optimizer = 0; optimizer < MICS_OPT_COUNT; optimizer++)
            update_case(r, (enum mics_optimizer)optimizer, &updates[u]);
    squared_norm_case(r, 70003, 0);
    squared_norm_case(r, 9001, 1);
    for (size_t d = 0; d < 2 * LENGTH(record_dtypes); d++)
        for (size_t e = 0; e < LENGTH(epilogues); e++)
            epilogue_case(r, record_dtypes[d / 2], record_dtypes[d % 2], epilogues[e]);
}
