/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases_attention.c - attention and its gradient.
 *
 * The gradient starts from what the host's forward pass gives, rounded to the type. Tolerances are
 * those of tests/gpu/check_attention.cc: probabilities and their gradients are rounded to bf16
 * before they are multiplied.
 */
#include "record.h"

#include <stdlib.h>

static struct mics_args_attention forward_of(struct attention_dims s)
{
    return (struct mics_args_attention){.B = s.B,
                                        .T = s.T,
                                        .H = s.H,
                                        .H_kv = s.H_kv,
                                        .D = s.D,
                                        .causal = s.causal,
                                        .window = s.window};
}

/* By the kernel of that name in attention.cc's table, as MICS_CUDA_ATTENTION=NAME. */
static void begin(struct suite *suite, const char *kernel, const char *direction,
                  enum mics_dtype dtype, struct attention_dims s)
{
    struct mics_err err = {0};

    if (mics_cuda_attention_choose(kernel, suite->chip->capability, &suite->at.attention, &err) !=
        MICS_OK)
        gpu_die("%s", err.text);
    case_begin(suite, 0, "attention%s_%s_%s_%ux%u_heads_%u_%u_of_%u_%s%s%s", direction, kernel,
               dtype_name(dtype), s.B, s.T, s.H, s.H_kv, s.D, s.causal ? "causal" : "full",
               s.documents ? "_documents" : "", s.window ? "_window" : "");
}

/* Where documents end, in sequences of shape `s`; NULL: nowhere. The caller frees it. */
static int32_t *make_targets(struct attention_dims s)
{
    const size_t rows = (size_t)s.B * s.T;
    int32_t *targets = s.documents ? calloc(rows, sizeof *targets) : NULL;

    if (s.documents && !targets)
        gpu_die("out of memory");
    for (size_t i = 0; targets && i < rows; i++)
        if (i % s.T % s.documents == s.documents - 1)
            targets[i] = MICS_TARGET_LAST;
    return targets;
}

/* The same on the GPU. */
static const int32_t *send_targets(struct suite *suite, struct attention_dims s,
                                   const int32_t *targets)
{
    return targets ? case_bytes(suite, "targets", targets, (size_t)s.B * s.T * sizeof *targets, 0)
                   : NULL;
}

static void expect(struct suite *suite, const struct tensor *tensor)
{
    const double unit = tensor->dtype == MICS_F16 ? 0.125 : 1;
    const bool half = tensor->dtype != MICS_F32;

    case_expect_norm(suite, tensor, half ? 6e-3 * unit : 1e-5, half ? 0.1 * unit : 1e-4);
}

static void forward_case(struct suite *suite, const char *kernel, enum mics_dtype dtype,
                         struct attention_dims s)
{
    struct mics_args_attention args = forward_of(s);
    const size_t rows = (size_t)s.B * s.T;
    int32_t *targets = make_targets(s);
    struct tensor qkv, out, lse;

    begin(suite, kernel, "", dtype, s);
    qkv = case_random(suite, "qkv", dtype, rows * (s.H + 2 * s.H_kv) * s.D, 1.7f, 1, 0);
    out = case_output(suite, "out", dtype, rows * s.H * s.D, 0);
    lse = case_output(suite, "lse", MICS_F32, rows * s.H, 0);
    args.qkv = qkv.device;
    args.out = out.device;
    args.lse = lse.device;
    args.dtype = dtype;
    args.targets = send_targets(suite, s, targets);
    case_ran(suite, mics_cuda_attention(&suite->at, &args));
    args.qkv = qkv.values;
    args.out = out.values;
    args.lse = lse.values;
    args.dtype = MICS_F32;
    args.targets = targets;
    mics_host_attention(suite->pool, &args);
    expect(suite, &out);
    case_expect(suite, &lse, 1e-5);
    case_end(suite);
    free(targets);
}

static void backward_case(struct suite *suite, const char *kernel, enum mics_dtype dtype,
                          struct attention_dims s)
{
    struct mics_args_attention forward = forward_of(s);
    struct mics_args_attention_grad args = {.B = s.B,
                                            .T = s.T,
                                            .H = s.H,
                                            .H_kv = s.H_kv,
                                            .D = s.D,
                                            .causal = s.causal,
                                            .window = s.window};
    const size_t rows = (size_t)s.B * s.T;
    int32_t *targets = make_targets(s);
    struct tensor qkv, out, lse, grad_out, grad, delta;

    begin(suite, kernel, "_grad", dtype, s);
    qkv = case_random(suite, "qkv", dtype, rows * (s.H + 2 * s.H_kv) * s.D, 1.7f, 1, 0);
    grad_out = case_random(suite, "grad_out", dtype, rows * s.H * s.D, 1.7f, 2, 0);
    out = case_output(suite, "out", dtype, rows * s.H * s.D, 0);
    lse = case_output(suite, "lse", MICS_F32, rows * s.H, 0);
    grad = case_output(suite, "grad_qkv", dtype, qkv.count, 0);
    delta = case_output(suite, "delta", MICS_F32, rows * s.H, 0);
    forward.qkv = qkv.values;
    forward.out = out.values;
    forward.lse = lse.values;
    forward.targets = targets;
    mics_host_attention(suite->pool, &forward);
    case_send(suite, &out);
    case_send(suite, &lse);
    args.grad_qkv = grad.device;
    args.delta = delta.device;
    args.grad_out = grad_out.device;
    args.out = out.device;
    args.qkv = qkv.device;
    args.lse = lse.device;
    args.dtype = dtype;
    args.targets = send_targets(suite, s, targets);
    case_ran(suite, mics_cuda_attention_grad(&suite->at, &args));
    args.grad_qkv = grad.values;
    args.delta = delta.values;
    args.grad_out = grad_out.values;
    args.out = out.values;
    args.qkv = qkv.values;
    args.lse = lse.values;
    args.dtype = MICS_F32;
    args.targets = targets;
    mics_host_attention_grad(suite->pool, &args);
    expect(suite, &grad);
    case_expect(suite, &delta, 2e-5);
    case_end(suite);
    free(targets);
}

static void both_cases(struct suite *suite, const char *kernel, enum mics_dtype dtype,
                       struct attention_dims s)
{
    forward_case(suite, kernel, dtype, s);
    backward_case(suite, kernel, dtype, s);
}

void record_attention_cases(struct suite *suite)
{
    for (const struct attention_dims *s = attention_cases;
         s < attention_cases + LENGTH(attention_cases); s++) {
        if (s->suites & PTX_MMA)
            for (size_t d = 1; d < LENGTH(dtypes); d++)
                if (tensor_cores_take(suite, dtypes[d]))
                    both_cases(suite, "mma", dtypes[d], *s);
        /* Compute capability 7.5 has no room for wide heads. */
        const bool fits = s->D <= 64 || suite->chip->capability >= 80;

        for (size_t d = 0; d < LENGTH(dtypes) && s->suites & PTX_PLAIN && fits; d++)
            both_cases(suite, "plain", dtypes[d], *s);
#if MICS_HOPPER
        if (s->suites & PTX_HOPPER && suite->chip->capability == 90)
            both_cases(suite, "hopper", MICS_BF16, *s);
#endif
    }
}
