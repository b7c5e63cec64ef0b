/* SPDX-License-Identifier: Apache-2.0 */
/* operation_rows.h - operations on rows: norms and their gradients, sums of columns, gated units,
 * rotary positions. */
#ifndef MICS_TESTS_GPU_OPERATION_ROWS_H
#define MICS_TESTS_GPU_OPERATION_ROWS_H

#include "operation.h"

static void norm_case(struct suite *suite, bool layer, const struct row_case *c,
                      enum mics_dtype dtype)
{
    const uint32_t rows = c->rows, C = c->C;
    const size_t count = (size_t)rows * C;
    struct tensor in, weight, bias, out, mean, rstd;

    case_begin(suite, c->few ? 2 : 0, "%s_%s_%ux%u", layer ? "layernorm" : "rmsnorm",
               dtype_name(dtype), rows, C);
    in = case_random(suite, "in", dtype, count, 3, 1, c->shift);
    weight = case_random(suite, "weight", dtype, C, 2, 3, c->shift);
    out = case_output(suite, "out", dtype, count, c->shift);
    rstd = case_output(suite, "rstd", MICS_F32, rows, 0);
    if (layer) {
        bias = case_random(suite, "bias", dtype, C, 2, 4, c->shift);
        mean = case_output(suite, "mean", MICS_F32, rows, 0);
        OPERATION(suite, layernorm, AT(out), AT(mean), AT(rstd), AT(in), AT(weight), AT(bias), rows,
                  C, 1e-5f, TYPE(dtype));
        case_expect(suite, &mean, 1e-6);
    } else {
        OPERATION(suite, rmsnorm, AT(out), AT(rstd), AT(in), AT(weight), rows, C, 1e-5f,
                  TYPE(dtype));
    }
    case_expect(suite, &out, 4e-6);
    case_expect(suite, &rstd, 4e-6);
    case_end(suite);
}

static void norm_grad_case(struct suite *suite, bool layer, const struct row_case *c,
                           enum mics_dtype dtype, enum mics_dtype grad_dtype)
{
    const uint32_t rows = c->rows, C = c->C;
    const size_t count = (size_t)rows * C;
    struct tensor in, grad_out, weight, mean, rstd, grad_in, grad_weight, grad_bias;

    case_begin(suite, c->few ? 2 : 0, "%s_grad_%s_%s_%ux%u", layer ? "layernorm" : "rmsnorm",
               dtype_name(dtype), dtype_name(grad_dtype), rows, C);
    in = case_random(suite, "in", dtype, count, 3, 1, c->shift);
    grad_out = case_random(suite, "grad_out", dtype, count, 1, 2, c->shift);
    weight = case_random(suite, "weight", dtype, C, 2, 3, c->shift);
    rstd = case_random(suite, "rstd", MICS_F32, rows, 0.6f, 4, 0);
    grad_in = case_random(suite, "grad_in", dtype, count, 1, 5, c->shift);
    grad_weight = case_random(suite, "grad_weight", grad_dtype, C, 1, 6, 0);
    if (layer) {
        mean = case_random(suite, "mean", MICS_F32, rows, 0.1f, 7, 0);
        grad_bias = case_random(suite, "grad_bias", grad_dtype, C, 1, 8, 0);
        OPERATION(suite, layernorm_grad, AT(grad_in), AT(grad_weight), AT(grad_bias), AT(grad_out),
                  AT(in), AT(weight), AT(mean), AT(rstd), rows, C, TYPE(dtype), TYPE(grad_dtype));
        case_expect(suite, &grad_bias, 2e-5);
    } else {
        OPERATION(suite, rmsnorm_grad, AT(grad_in), AT(grad_weight), AT(grad_out), AT(in),
                  AT(weight), AT(rstd), rows, C, TYPE(dtype), TYPE(grad_dtype));
    }
    case_expect(suite, &grad_in, 4e-6);
    case_expect(suite, &grad_weight, 2e-5);
    case_end(suite);
}

static void bias_grad_case(struct suite *suite, const struct row_case *c, enum mics_dtype dtype,
                           enum mics_dtype grad_dtype)
{
    struct tensor from, sum;

    case_begin(suite, c->few ? 2 : 0, "bias_grad_%s_%s_%ux%u", dtype_name(dtype),
               dtype_name(grad_dtype), c->rows, c->C);
    from = case_random(suite, "grad_out", dtype, (size_t)c->rows * c->C, 1, 1, c->shift);
    sum = case_random(suite, "grad_bias", grad_dtype, c->C, 1, 2, 0);
    OPERATION(suite, bias_grad, AT(sum), AT(from), c->rows, c->C, TYPE(dtype), TYPE(grad_dtype));
    case_expect(suite, &sum, 2e-5);
    case_end(suite);
}

static void swiglu_case(struct suite *suite, const struct row_case *c, enum mics_dtype dtype)
{
    const size_t count = (size_t)c->rows * c->C;
    struct tensor in, out;

    case_begin(suite, 0, "swiglu_%s_%ux%u", dtype_name(dtype), c->rows, c->C);
    in = case_random(suite, "in", dtype, 2 * count, 6, 1, c->shift);
    out = case_output(suite, "out", dtype, count, c->shift);
    OPERATION(suite, swiglu, AT(out), AT(in), c->rows, c->C, TYPE(dtype));
    case_expect(suite, &out, mics_dtype_is_half(dtype) ? 2e-5 : 2e-6);
    case_end(suite);
}

/* In the place of `in`, or beside it. */
static void swiglu_grad_case(struct suite *suite, const struct row_case *c, enum mics_dtype dtype,
                             bool in_place)
{
    const size_t count = (size_t)c->rows * c->C;
    struct tensor in, grad, to;

    case_begin(suite, 0, "swiglu_grad_%s_%ux%u", dtype_name(dtype), c->rows, c->C);
    in = case_random(suite, "in", dtype, 2 * count, 6, 1, c->shift);
    grad = case_random(suite, "grad_out", dtype, count, 1, 2, c->shift);
    to = in_place ? in : case_output(suite, "grad_in", dtype, 2 * count, c->shift);
    OPERATION(suite, swiglu_grad, AT(to), AT(in), AT(grad), c->rows, c->C, TYPE(dtype));
    case_expect(suite, &to, activation_tolerance(dtype));
    case_end(suite);
}

static void qk_norm_case(struct suite *suite, const struct head_case *c, enum mics_dtype dtype,
                         enum mics_dtype grad_dtype)
{
    const uint32_t rows = c->rows, H = c->H, H_kv = c->H_kv, D = c->D, D_kv = c->D_kv;
    const size_t count = (size_t)rows * (H * D + 2 * H_kv * D_kv);
    struct tensor in, q, k, out, rstd, grad, grad_q, grad_k;

    case_begin(suite, rows < 10 || D > 256 ? 2 : 0, "qk_norm_%s_%s_%ux%u", dtype_name(dtype),
               dtype_name(grad_dtype), rows, D);
    in = case_random(suite, "in", dtype, count, 3, 1, 0);
    q = case_random(suite, "q_weight", dtype, D, 2, 2, 0);
    k = case_random(suite, "k_weight", dtype, D_kv, 2, 3, 0);
    out = case_output(suite, "out", dtype, count, 0);
    rstd = case_output(suite, "rstd", MICS_F32, (size_t)rows * (H + H_kv), 0);
    grad = case_random(suite, "grad", dtype, count, 1, 4, 0);
    grad_q = case_random(suite, "grad_q_weight", grad_dtype, D, 1, 5, 0);
    grad_k = case_random(suite, "grad_k_weight", grad_dtype, D_kv, 1, 6, 0);
    OPERATION(suite, qk_norm, AT(out), AT(rstd), AT(in), AT(q), AT(k), rows, H, H_kv, D, D_kv,
              1e-5f, TYPE(dtype));
    OPERATION(suite, qk_norm_grad, AT(grad), AT(grad_q), AT(grad_k), AT(in), AT(q), AT(k), AT(rstd),
              rows, H, H_kv, D, D_kv, TYPE(dtype), TYPE(grad_dtype));
    case_expect(suite, &out, 4e-6);
    case_expect(suite, &rstd, 4e-6);
    case_expect(suite, &grad, 1e-5);
    case_expect(suite, &grad_q, 2e-5);
    case_expect(suite, &grad_k, 2e-5);
    case_end(suite);
}

static void rope_case(struct suite *suite, const struct rope_case *c, enum mics_dtype dtype,
                      bool inverse)
{
    struct tensor data;

    case_begin(suite, 0, "rope_%s_%u", dtype_name(dtype), c->D);
    data = case_random(suite, "data", dtype, (size_t)c->B * c->T * c->stride, 2, c->D, 0);
    OPERATION(suite, rope, AT(data), c->B, c->T, c->heads, c->D, c->stride, c->base, inverse,
              TYPE(dtype), rope_scalings[c->scaling]);
    case_expect(suite, &data, 4e-6);
    case_end(suite);
}

#endif
