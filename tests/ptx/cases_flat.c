/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases_flat.c - operations on long arrays: casts, accumulation, GELU and its gradient,
 * outer updates.
 */
#include "record.h"

#include <string.h>

/* More than one block's pieces, with a rest; and what is not aligned, element by element. */
static const struct size {
    uint32_t count;
    unsigned shift;
} sizes[] = {{9001, 0}, {1031, 1}};

static void cast_case(struct recorder *r, enum mics_dtype to_dtype, enum mics_dtype dtype,
                      struct size size)
{
    struct tensor from, to;

    record_begin(r, 0, "cast_%s_%s_%u", record_dtype_name(dtype), record_dtype_name(to_dtype),
                 size.count);
    from = record_random(r, "src", dtype, size.count, 9, 1, size.shift);
    to = record_output(r, "dst", to_dtype, size.count, size.shift);
    record_ran(r, mics_cuda_cast(&r->at, &(struct mics_args_cast){to.device, from.device,
                                                                  size.count, to_dtype, dtype}));
    mics_host_cast(
        r->pool, &(struct mics_args_cast){to.values, from.values, size.count, MICS_F32, MICS_F32});
    record_round(&to);
    record_expect(r, &to, 0);
    record_end(r);
}

static void accumulate_case(struct recorder *r, enum mics_dtype dtype, struct size size)
{
    struct tensor in, sum;

    record_begin(r, 0, "accumulate_%s_%u", record_dtype_name(dtype), size.count);
    in = record_random(r, "in", dtype, size.count, 9, 1, size.shift);
    sum = record_random(r, "sum", MICS_F32, size.count, 9, 2, size.shift);
    record_ran(r, mics_cuda_accumulate(&r->at, &(struct mics_args_accumulate){sum.device, in.device,
                                                                              size.count, dtype}));
    mics_host_accumulate(
        r->pool, &(struct mics_args_accumulate){sum.values, in.values, size.count, MICS_F32});
    record_expect(r, &sum, 0);
    record_end(r);
}

/* The bf16 exponential and reciprocal are within 2e-5 of the number: activation.cuh. */
static double activation_tolerance(enum mics_dtype dtype)
{
    return dtype == MICS_BF16 ? 2e-5 : 4e-6;
}

static void gelu_case(struct recorder *r, enum mics_dtype dtype, struct size size)
{
    struct tensor in, out;

    record_begin(r, 0, "gelu_%s_%u", record_dtype_name(dtype), size.count);
    in = record_random(r, "in", dtype, size.count, 8, 5, size.shift);
    out = record_output(r, "out", dtype, size.count, size.shift);
    record_ran(r, mics_cuda_gelu(
                      &r->at, &(struct mics_args_gelu){out.device, in.device, size.count, dtype}));
    mics_host_gelu(r->pool, &(struct mics_args_gelu){out.values, in.values, size.count, MICS_F32});
    record_expect(r, &out, activation_tolerance(dtype));
    record_end(r);
}

/* In the place of grad_out. */
static void gelu_grad_case(struct recorder *r, enum mics_dtype dtype, struct size size)
{
    struct tensor in, grad;

    record_begin(r, 0, "gelu_grad_%s_%u", record_dtype_name(dtype), size.count);
    in = record_random(r, "in", dtype, size.count, 8, 5, size.shift);
    grad = record_random(r, "grad", dtype, size.count, 1, 6, size.shift);
    record_ran(r, mics_cuda_gelu_grad(&r->at, &(struct mics_args_gelu_grad){grad.device, in.device,
                                                                            grad.device, size.count,
                                                                            dtype}));
    mics_host_gelu_grad(r->pool, &(struct mics_args_gelu_grad){grad.values, in.values, grad.values,
                                                               size.count, MICS_F32});
    record_expect(r, &grad, activation_tolerance(dtype));
    record_end(r);
}

/* A difference in the place of its first array, and an outer update with a copy in bf16. */
static void outer_cases(struct recorder *r, struct size size)
{
    struct tensor a, b, param, copy, momentum;

    record_begin(r, 0, "difference_%u", size.count);
    a = record_random(r, "a", MICS_F32, size.count, 9, 1, size.shift);
    b = record_random(r, "b", MICS_F32, size.count, 9, 2, size.shift);
    record_ran(
        r, mics_cuda_difference(&r->at, &(struct mics_args_difference){a.device, a.device, b.device,
                                                                       size.count, 0.25f}));
    mics_host_difference(
        r->pool, &(struct mics_args_difference){a.values, a.values, b.values, size.count, 0.25f});
    record_expect(r, &a, 0);
    record_end(r);

    record_begin(r, 0, "outer_update_%u", size.count);
    a = record_random(r, "anchor", MICS_F32, size.count, 9, 1, size.shift);
    b = record_random(r, "delta", MICS_F32, size.count, 9, 2, size.shift);
    momentum = record_random(r, "momentum", MICS_F32, size.count, 9, 3, size.shift);
    param = record_output(r, "param", MICS_F32, size.count, size.shift);
    copy = record_output(r, "copy", MICS_BF16, size.count, size.shift);
    record_ran(r, mics_cuda_outer_update(
                      &r->at, &(struct mics_args_outer_update){.param = param.device,
                                                               .anchor = a.device,
                                                               .momentum = momentum.device,
                                                               .copy = copy.device,
                                                               .delta = b.device,
                                                               .count = size.count,
                                                               .scale = 0.25f,
                                                               .lr = 0.7f,
                                                               .mu = 0.9f}));
    mics_host_outer_update(r->pool, &(struct mics_args_outer_update){.param = param.values,
                                                                     .anchor = a.values,
                                                                     .momentum = momentum.values,
                                                                     .delta = b.values,
                                                                     .count = size.count,
                                                                     .scale = 0.25f,
                                                                     .lr = 0.7f,
                                                                     .mu = 0.9f});
    memcpy(copy.values, param.values, size.count * sizeof(float));
    record_expect(r, &param, 1e-6);
    record_expect(r, &a, 1e-6);
    record_expect(r, &momentum, 1e-6);
    record_expect(r, &copy, 0.004);
    record_end(r);
}

void record_flat_cases(struct recorder *r)
{
    for (size_t s = 0; s < LENGTH(sizes); s++)
        outer_cases(r, sizes[s]);
    for (size_t d = 0; d < LENGTH(record_dtypes); d++)
        for (size_t s = 0; s < LENGTH(sizes); s++) {
            const enum mics_dtype dtype = record_dtypes[d];

            cast_case(r, record_dtypes[!d], dtype, sizes[s]);
            accumulate_case(r, dtype, sizes[s]);
            gelu_case(r, dtype, sizes[s]);
            gelu_grad_case(r, dtype, sizes[s]);
        }
}
