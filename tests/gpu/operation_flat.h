/* SPDX-License-Identifier: Apache-2.0 */
/* operation_flat.h - operations on long arrays: casts, sums, GELU, outer updates, norms. */
#ifndef MICS_TESTS_GPU_OPERATION_FLAT_H
#define MICS_TESTS_GPU_OPERATION_FLAT_H

#include "operation.h"

static void cast_case(struct suite *suite, const struct flat_case *c, enum mics_dtype dtype,
                      enum mics_dtype to_dtype)
{
    struct tensor from, to;

    case_begin(suite, 0, "cast_%s_%s_%u", dtype_name(dtype), dtype_name(to_dtype), c->count);
    from = case_random(suite, "src", dtype, c->count, 9, 1, c->shift);
    to = case_output(suite, "dst", to_dtype, c->count, c->shift);
    OPERATION(suite, cast, AT(to), AT(from), c->count, TYPE(to_dtype), TYPE(dtype));
    case_round(&to);
    case_expect(suite, &to, 0);
    case_end(suite);
}

static void accumulate_case(struct suite *suite, const struct flat_case *c, enum mics_dtype dtype)
{
    struct tensor in, sum;

    case_begin(suite, 0, "accumulate_%s_%u", dtype_name(dtype), c->count);
    in = case_random(suite, "in", dtype, c->count, 9, 1, c->shift);
    sum = case_random(suite, "sum", MICS_F32, c->count, 9, 2, c->shift);
    OPERATION(suite, accumulate, AT(sum), AT(in), c->count, TYPE(dtype));
    case_expect(suite, &sum, 0);
    case_end(suite);
}

/* In both forms. */
static void gelu_case(struct suite *suite, const struct flat_case *c, enum mics_dtype dtype)
{
    for (int exact = 0; exact < 2; exact++) {
        struct tensor in, out;

        case_begin(suite, 0, "gelu%s_%s_%u", exact ? "_exact" : "", dtype_name(dtype), c->count);
        in = case_random(suite, "in", dtype, c->count, 8, 5, c->shift);
        out = case_output(suite, "out", dtype, c->count, c->shift);
        OPERATION(suite, gelu, AT(out), AT(in), c->count, TYPE(dtype), exact != 0);
        case_expect(suite, &out, activation_tolerance(dtype));
        case_end(suite);
    }
}

/* In the place of grad_out, in both forms. */
static void gelu_grad_case(struct suite *suite, const struct flat_case *c, enum mics_dtype dtype)
{
    for (int exact = 0; exact < 2; exact++) {
        struct tensor in, grad;

        case_begin(suite, 0, "gelu_grad%s_%s_%u", exact ? "_exact" : "", dtype_name(dtype),
                   c->count);
        in = case_random(suite, "in", dtype, c->count, 8, 5, c->shift);
        grad = case_random(suite, "grad", dtype, c->count, 1, 6, c->shift);
        OPERATION(suite, gelu_grad, AT(grad), AT(in), AT(grad), c->count, TYPE(dtype), exact != 0);
        case_expect(suite, &grad, activation_tolerance(dtype));
        case_end(suite);
    }
}

/* In the place of its first array. */
static void difference_case(struct suite *suite, const struct flat_case *c)
{
    struct tensor a, b;

    case_begin(suite, 0, "difference_%u", c->count);
    a = case_random(suite, "a", MICS_F32, c->count, 9, 1, c->shift);
    b = case_random(suite, "b", MICS_F32, c->count, 9, 2, c->shift);
    OPERATION(suite, difference, AT(a), AT(a), AT(b), c->count, 0.25f);
    case_expect(suite, &a, 0);
    case_end(suite);
}

static void outer_update_case_to(struct suite *suite, const struct flat_case *c,
                                 enum mics_dtype copy_dtype)
{
    struct tensor anchor, delta, momentum, param, copy;

    case_begin(suite, 0, "outer_update_%u%s", c->count, copy_dtype == MICS_F16 ? "_f16" : "");
    anchor = case_random(suite, "anchor", MICS_F32, c->count, 9, 1, c->shift);
    delta = case_random(suite, "delta", MICS_F32, c->count, 9, 2, c->shift);
    momentum = case_random(suite, "momentum", MICS_F32, c->count, 9, 3, c->shift);
    param = case_output(suite, "param", MICS_F32, c->count, c->shift);
    copy = case_output(suite, "copy", copy_dtype, c->count, c->shift);
    OPERATION(suite, outer_update, AT(param), AT(anchor), AT(momentum), PLACE(copy.device, NULL),
              AT(delta), c->count, 0.25f, 0.7f, 0.9f, copy_dtype == MICS_F16);
    case_expect(suite, &param, 2e-6);
    case_expect(suite, &anchor, 2e-6);
    case_expect(suite, &momentum, 1e-6);
    case_expect_copy(suite, &copy, &param, copy_dtype == MICS_F16 ? 0.0006 : 0.004);
    case_end(suite);
}

static void outer_update_case(struct suite *suite, const struct flat_case *c)
{
    outer_update_case_to(suite, c, MICS_BF16);
    outer_update_case_to(suite, c, MICS_F16);
}

/* Finite: nothing is added. */
static void check_only_case(struct suite *suite, const struct flat_case *c)
{
    double want = 0.5, *sum;
    struct tensor in;

    case_begin(suite, 2, "squared_norm_check_%u", c->count);
    in = case_random(suite, "in", MICS_F32, c->count, 100, 7, c->shift);
    sum = case_bytes(suite, "sum", &want, sizeof want, 0);
    OPERATION(suite, squared_norm, PLACE(sum, &want), AT(in), c->count, true);
    case_expect_double(suite, sum, 0.5, 0);
    case_end(suite);
}

static void squared_norm_case(struct suite *suite, const struct flat_case *c)
{
    double want = 0.5, *sum;
    struct tensor in;

    case_begin(suite, 2, "squared_norm_%u", c->count);
    in = case_random(suite, "in", MICS_F32, c->count, 100, 7, c->shift);
    sum = case_bytes(suite, "sum", &want, sizeof want, 0);
    OPERATION(suite, squared_norm, PLACE(sum, &want), AT(in), c->count, false);
    case_expect_double(suite, sum, want, 1e-13);
    case_end(suite);
}

#endif
