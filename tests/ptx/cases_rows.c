/* SPDX-License-Identifier: Apache-2.0 */
/* cases_rows.c - operations on rows: norms and their gradients, sums of columns, gated units,
 * rotary positions. */
#include "record.h"

/* Rows of a warp, of several warps, and of odd length or address, which go element by element.
 * Grids are made for 2 multiprocessors, so that a block takes several rows. */
static const struct shape {
    uint32_t rows, C;
    unsigned shift;
} shapes[] = {{7, 136, 0}, {3, 1288, 0}, {5, 33, 0}, {3, 300, 1}};

static void norm_case(struct recorder *r, bool layer, enum mics_dtype dtype, struct shape s)
{
    const size_t count = (size_t)s.rows * s.C;
    struct tensor in, weight, bias = {0}, out, mean = {0}, rstd;

    record_begin(r, 2, "%s_%s_%ux%u", layer ? "layernorm" : "rmsnorm", record_dtype_name(dtype),
                 s.rows, s.C);
    in = record_random(r, "in", dtype, count, 3, 1, s.shift);
    weight = record_random(r, "weight", dtype, s.C, 2, 3, s.shift);
    out = record_output(r, "out", dtype, count, s.shift);
    rstd = record_output(r, "rstd", MICS_F32, s.rows, 0);
    if (layer) {
        bias = record_random(r, "bias", dtype, s.C, 2, 4, s.shift);
        mean = record_output(r, "mean", MICS_F32, s.rows, 0);
    }
    record_ran(
        r, layer ? mics_cuda_layernorm(
                       &r->at, &(struct mics_args_layernorm){out.device, mean.device, rstd.device,
                                                             in.device, weight.device, bias.device,
                                                             s.rows, s.C, 1e-5f, dtype})
                 : mics_cuda_rmsnorm(&r->at, &(struct mics_args_rmsnorm){
                                                 out.device, rstd.device, in.device, weight.device,
                                                 s.rows, s.C, 1e-5f, dtype}));
    if (layer) {
        mics_host_layernorm(r->pool, &(struct mics_args_layernorm){
                                         out.values, mean.values, rstd.values, in.values,
                                         weight.values, bias.values, s.rows, s.C, 1e-5f, MICS_F32});
        record_expect(r, &mean, 1e-6);
    } else {
        mics_host_rmsnorm(r->pool,
                          &(struct mics_args_rmsnorm){out.values, rstd.values, in.values,
                                                      weight.values, s.rows, s.C, 1e-5f, MICS_F32});
    }
    record_expect(r, &out, 4e-6);
    record_expect(r, &rstd, 4e-6);
    record_end(r);
}

static void norm_grad_case(struct recorder *r, bool layer, enum mics_dtype dtype,
                           enum mics_dtype grad_dtype, struct shape s)
{
    const size_t count = (size_t)s.rows * s.C;
    struct tensor in, grad_out, weight, mean = {0}, rstd, grad_in, grad_weight, grad_bias = {0};

    record_begin(r, 2, "%s_grad_%s_%s_%ux%u", layer ? "layernorm" : "rmsnorm",
                 record_dtype_name(dtype), record_dtype_name(grad_dtype), s.rows, s.C);
    in = record_random(r, "in", dtype, count, 3, 1, s.shift);
    grad_out = record_random(r, "grad_out", dtype, count, 1, 2, s.shift);
    weight = record_random(r, "weight", dtype, s.C, 2, 3, s.shift);
    rstd = record_random(r, "rstd", MICS_F32, s.rows, 0.6f, 4, 0);
    grad_in = record_random(r, "grad_in", dtype, count, 1, 5, s.shift);
    grad_weight = record_random(r, "grad_weight", grad_dtype, s.C, 1, 6, 0);
    if (layer) {
        mean = record_random(r, "mean", MICS_F32, s.rows, 0.1f, 7, 0);
        grad_bias = record_random(r, "grad_bias", grad_dtype, s.C, 1, 8, 0);
        record_ran(r, mics_cuda_layernorm_grad(
                          &r->at, &(struct mics_args_layernorm_grad){
                                      grad_in.device, grad_weight.device, grad_bias.device,
                                      grad_out.device, in.device, weight.device, mean.device,
                                      rstd.device, s.rows, s.C, dtype, grad_dtype}));
        mics_host_layernorm_grad(r->pool,
                                 &(struct mics_args_layernorm_grad){
                                     grad_in.values, grad_weight.values, grad_bias.values,
                                     grad_out.values, in.values, weight.values, mean.values,
                                     rstd.values, s.rows, s.C, MICS_F32, MICS_F32});
        record_expect(r, &grad_bias, 2e-5);
    } else {
        record_ran(r,
                   mics_cuda_rmsnorm_grad(
                       &r->at, &(struct mics_args_rmsnorm_grad){
                                   grad_in.device, grad_weight.device, grad_out.device, in.device,
                                   weight.device, rstd.device, s.rows, s.C, dtype, grad_dtype}));
        mics_host_rmsnorm_grad(r->pool,
                               &(struct mics_args_rmsnorm_grad){
                                   grad_in.values, grad_weight.values, grad_out.values, in.values,
                                   weight.values, rstd.values, s.rows, s.C, MICS_F32, MICS_F32});
    }
    record_expect(r, &grad_in, 4e-6);
    record_expect(r, &grad_weight, 2e-5);
    record_end(r);
}

static void bias_grad_case(struct recorder *r, enum mics_dtype dtype, enum mics_dtype grad_dtype,
                           struct shape s)
{
    struct tensor from, sum;

    record_begin(r, 2, "bias_grad_%s_%s_%ux%u", record_dtype_name(dtype),
                 record_dtype_name(grad_dtype), s.rows, s.C);
    from = record_random(r, "grad_out", dtype, (size_t)s.rows * s.C, 1, 1, s.shift);
    sum = record_random(r, "grad_bias", grad_dtype, s.C, 1, 2, 0);
    record_ran(r, mics_cuda_bias_grad(&r->at,
                                      &(struct mics_args_bias_grad){sum.device, from.device, s.rows,
                                                                    s.C, dtype, grad_dtype}));
    mics_host_bias_grad(r->pool, &(struct mics_args_bias_grad){sum.values, from.values, s.rows, s.C,
                                                               MICS_F32, MICS_F32});
    record_expect(r, &sum, 2e-5);
    record_end(r);
}

static void swiglu_case(struct recorder *r, enum mics_dtype dtype, struct shape s)
{
    const size_t count = (size_t)s.rows * s.C;
    struct tensor in, out;

    record_begin(r, 0, "swiglu_%s_%ux%u", record_dtype_name(dtype), s.rows, s.C);
    in = record_random(r, "in", dtype, 2 * count, 6, 1, s.shift);
    out = record_output(r, "out", dtype, count, s.shift);
    record_ran(r, mics_cuda_swiglu(&r->at, &(struct mics_args_swiglu){out.device, in.device, s.rows,
                                                                      s.C, dtype}));
    mics_host_swiglu(r->pool,
                     &(struct mics_args_swiglu){out.values, in.values, s.rows, s.C, MICS_F32});
    record_expect(r, &out, dtype == MICS_BF16 ? 2e-5 : 2e-6);
    record_end(r);
}

/* In the place of `in`. */
static void swiglu_grad_case(struct recorder *r, enum mics_dtype dtype, struct shape s)
{
    const size_t count = (size_t)s.rows * s.C;
    struct tensor in, grad;

    record_begin(r, 0, "swiglu_grad_%s_%ux%u", record_dtype_name(dtype), s.rows, s.C);
    in = record_random(r, "in", dtype, 2 * count, 6, 1, s.shift);
    grad = record_random(r, "grad_out", dtype, count, 1, 2, s.shift);
    record_ran(r, mics_cuda_swiglu_grad(
                      &r->at, &(struct mics_args_swiglu_grad){in.device, in.device, grad.device,
                                                              s.rows, s.C, dtype}));
    mics_host_swiglu_grad(r->pool, &(struct mics_args_swiglu_grad){
                                       in.values, in.values, grad.values, s.rows, s.C, MICS_F32});
    record_expect(r, &in, dtype == MICS_BF16 ? 2e-5 : 4e-6);
    record_end(r);
}

/* Norms of H heads of queries and 1 of keys. */
static void qk_norm_case(struct recorder *r, enum mics_dtype dtype, enum mics_dtype grad_dtype,
                         uint32_t rows, uint32_t H, uint32_t D, uint32_t D_kv)
{
    const size_t count = (size_t)rows * (H * D + 2 * D_kv);
    struct tensor in, q, k, out, rstd, grad, grad_q, grad_k;

    record_begin(r, 2, "qk_norm_%s_%s_%ux%u", record_dtype_name(dtype),
                 record_dtype_name(grad_dtype), rows, D);
    in = record_random(r, "in", dtype, count, 3, 1, 0);
    q = record_random(r, "q_weight", dtype, D, 2, 2, 0);
    k = record_random(r, "k_weight", dtype, D_kv, 2, 3, 0);
    out = record_output(r, "out", dtype, count, 0);
    rstd = record_output(r, "rstd", MICS_F32, (size_t)rows * (H + 1), 0);
    grad = record_random(r, "grad", dtype, count, 1, 4, 0);
    grad_q = record_random(r, "grad_q_weight", grad_dtype, D, 1, 5, 0);
    grad_k = record_random(r, "grad_k_weight", grad_dtype, D_kv, 1, 6, 0);
    record_ran(r, mics_cuda_qk_norm(&r->at, &(struct mics_args_qk_norm){
                                                out.device, rstd.device, in.device, q.device,
                                                k.device, rows, H, 1, D, D_kv, 1e-5f, dtype}));
    record_ran(r, mics_cuda_qk_norm_grad(&r->at, &(struct mics_args_qk_norm_grad){
                                                     grad.device, grad_q.device, grad_k.device,
                                                     in.device, q.device, k.device, rstd.device,
                                                     rows, H, 1, D, D_kv, dtype, grad_dtype}));
    mics_host_qk_norm(r->pool,
                      &(struct mics_args_qk_norm){out.values, rstd.values, in.values, q.values,
                                                  k.values, rows, H, 1, D, D_kv, 1e-5f, MICS_F32});
    mics_host_qk_norm_grad(
        r->pool, &(struct mics_args_qk_norm_grad){grad.values, grad_q.values, grad_k.values,
                                                  in.values, q.values, k.values, rstd.values, rows,
                                                  H, 1, D, D_kv, MICS_F32, MICS_F32});
    record_expect(r, &out, 4e-6);
    record_expect(r, &rstd, 4e-6);
    record_expect(r, &grad, 1e-5);
    record_expect(r, &grad_q, 2e-5);
    record_expect(r, &grad_k, 2e-5);
    record_end(r);
}

/* Heads in pieces of 16 bytes, and odd ones; with rows that have more than the heads. */
static const struct mics_args_rope ropes[] = {
    {.B = 2, .T = 9, .heads = 3, .D = 64, .stride = 256, .base = 10000},
    {.B = 1,
     .T = 5,
     .heads = 2,
     .D = 34,
     .stride = 70,
     .base = 10000,
     .inverse = true,
     .scaling = {.kind = MICS_ROPE_LLAMA3,
                 .original_positions = 512,
                 .factor = 8,
                 .low_freq_factor = 1,
                 .high_freq_factor = 4}},
};

static void rope_case(struct recorder *r, enum mics_dtype dtype, struct mics_args_rope args)
{
    struct tensor data;

    record_begin(r, 0, "rope_%s_%u", record_dtype_name(dtype), args.D);
    data = record_random(r, "data", dtype, (size_t)args.B * args.T * args.stride, 2, args.D, 0);
    args.data = data.device;
    args.dtype = dtype;
    record_ran(r, mics_cuda_rope(&r->at, &args));
    args.data = data.values;
    args.dtype = MICS_F32;
    mics_host_rope(r->pool, &args);
    record_expect(r, &data, 4e-6);
    record_end(r);
}

void record_row_cases(struct recorder *r)
{
    static const struct shape wide[] = {{3, 2056, 0}, {2, 259, 1}};
    static const struct shape sums[] = {{70, 264, 0}, {37, 67, 1}};

    for (size_t d = 0; d < LENGTH(record_dtypes); d++) {
        const enum mics_dtype dtype = record_dtypes[d];

        for (size_t s = 0; s < LENGTH(shapes); s++)
            for (int layer = 0; layer < 2; layer++) {
                norm_case(r, layer, dtype, shapes[s]);
                norm_grad_case(r, layer, dtype, record_dtypes[s % 2], shapes[s]);
            }
        for (size_t s = 0; s < LENGTH(wide); s++) {
            swiglu_case(r, dtype, wide[s]);
            swiglu_grad_case(r, dtype, wide[s]);
            bias_grad_case(r, dtype, record_dtypes[s], sums[s]);
            qk_norm_case(r, dtype, record_dtypes[s], s ? 9 : 5, 3, s ? 34 : 128, s ? 34 : 128);
            qk_norm_case(r, dtype, record_dtypes[s], 3, 1, s ? 300 : 520, s ? 300 : 130);
            rope_case(r, dtype, ropes[s]);
        }
    }
}
