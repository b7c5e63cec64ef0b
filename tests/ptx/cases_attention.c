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

struct shape {
    uint32_t B, T, H, H_kv, D;
    bool causal;
    uint32_t document; /* tokens of a document; 0: sequences are not divided */
    uint32_t window;   /* tokens that a token sees; 0: all */
};

/* Whole and partial tiles of 64 and 128 rows; narrow heads, which are filled up to 64 or 128;
 * grouped queries. */
static const struct shape mma_shapes[] = {
    {1, 77, 2, 1, 64, true, 0, 0},    {2, 33, 2, 2, 64, false, 0, 0},
    {1, 200, 1, 1, 40, true, 0, 0},   {1, 77, 2, 1, 128, true, 0, 0},
    {1, 130, 1, 1, 128, false, 0, 0}, {2, 33, 1, 1, 80, true, 0, 0},
    {1, 65, 2, 2, 96, false, 0, 0},   {1, 200, 1, 1, 64, true, 70, 0},
    {1, 77, 1, 1, 128, true, 9, 0},   {1, 200, 2, 1, 64, true, 0, 50},
    {1, 150, 1, 1, 128, true, 0, 3},  {1, 140, 1, 1, 64, true, 90, 65},
};

#if MICS_HOPPER
/* Longer ones also go round the rings of tiles. */
static const struct shape hopper_shapes[] = {
    {1, 77, 2, 1, 64, true, 0, 0},   {1, 390, 1, 1, 64, true, 0, 0},
    {2, 33, 1, 1, 64, false, 0, 0},  {1, 200, 1, 1, 40, false, 0, 0},
    {1, 200, 2, 1, 128, true, 0, 0}, {1, 130, 1, 1, 128, false, 0, 0},
    {1, 33, 2, 1, 80, true, 0, 0},   {1, 129, 1, 1, 96, false, 0, 0},
};
#endif

/* Heads of each width of the kernels, of lengths that the tensor cores do not take. Without those
 * every product is an instruction of its own, so they are small: one goes beyond a tile of 32 rows,
 * one has grouped queries. */
static const struct shape plain_shapes[] = {
    {1, 33, 1, 1, 9, true, 0, 0},  {2, 5, 2, 1, 20, false, 0, 0}, {1, 4, 1, 1, 65, false, 0, 0},
    {1, 3, 1, 1, 129, true, 0, 0}, {1, 33, 1, 1, 9, true, 10, 0}, {1, 34, 1, 1, 9, true, 0, 1},
    {1, 66, 1, 1, 3, true, 0, 20}};

static struct mics_args_attention forward_of(struct shape s)
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
static void begin(struct recorder *r, const char *kernel, const char *direction,
                  enum mics_dtype dtype, struct shape s)
{
    struct mics_err err = {0};

    if (mics_cuda_attention_choose(kernel, r->chip->capability, &r->at.attention, &err) != MICS_OK)
        gpu_die("%s", err.text);
    record_begin(r, 0, "attention%s_%s_%s_%ux%u_heads_%u_%u_of_%u_%s%s%s", direction, kernel,
                 record_dtype_name(dtype), s.B, s.T, s.H, s.H_kv, s.D, s.causal ? "causal" : "full",
                 s.document ? "_documents" : "", s.window ? "_window" : "");
}

/* Where documents end, in sequences of shape `s`; NULL: nowhere. The caller frees it. */
static int32_t *make_targets(struct shape s)
{
    const size_t rows = (size_t)s.B * s.T;
    int32_t *targets = s.document ? calloc(rows, sizeof *targets) : NULL;

    if (s.document && !targets)
        gpu_die("out of memory");
    for (size_t i = 0; targets && i < rows; i++)
        if (i % s.T % s.document == s.document - 1)
            targets[i] = MICS_TARGET_LAST;
    return targets;
}

/* The same on the GPU. */
static const int32_t *send_targets(struct recorder *r, struct shape s, const int32_t *targets)
{
    return targets ? record_bytes(r, "targets", targets, (size_t)s.B * s.T * sizeof *targets)
                   : NULL;
}

static void expect(struct recorder *r, const struct tensor *tensor)
{
    const bool bf16 = tensor->dtype == MICS_BF16;

    record_expect_norm(r, tensor, bf16 ? 6e-3 : 1e-5, bf16 ? 0.1 : 1e-4);
}

static void forward_case(struct recorder *r, const char *kernel, enum mics_dtype dtype,
                         struct shape s)
{
    struct mics_args_attention args = forward_of(s);
    const size_t rows = (size_t)s.B * s.T;
    int32_t *targets = make_targets(s);
    struct tensor qkv, out, lse;

    begin(r, kernel, "", dtype, s);
    qkv = record_random(r, "qkv", dtype, rows * (s.H + 2 * s.H_kv) * s.D, 1.7f, 1, 0);
    out = record_output(r, "out", dtype, rows * s.H * s.D, 0);
    lse = record_output(r, "lse", MICS_F32, rows * s.H, 0);
    args.qkv = qkv.device;
    args.out = out.device;
    args.lse = lse.device;
    args.dtype = dtype;
    args.targets = send_targets(r, s, targets);
    record_ran(r, mics_cuda_attention(&r->at, &args));
    args.qkv = qkv.values;
    args.out = out.values;
    args.lse = lse.values;
    args.dtype = MICS_F32;
    args.targets = targets;
    mics_host_attention(r->pool, &args);
    expect(r, &out);
    record_expect(r, &lse, 1e-5);
    record_end(r);
    free(targets);
}

static void backward_case(struct recorder *r, const char *kernel, enum mics_dtype dtype,
                          struct shape s)
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

    begin(r, kernel, "_grad", dtype, s);
    qkv = record_random(r, "qkv", dtype, rows * (s.H + 2 * s.H_kv) * s.D, 1.7f, 1, 0);
    grad_out = record_random(r, "grad_out", dtype, rows * s.H * s.D, 1.7f, 2, 0);
    out = record_output(r, "out", dtype, rows * s.H * s.D, 0);
    lse = record_output(r, "lse", MICS_F32, rows * s.H, 0);
    grad = record_output(r, "grad_qkv", dtype, qkv.count, 0);
    delta = record_output(r, "delta", MICS_F32, rows * s.H, 0);
    forward.qkv = qkv.values;
    forward.out = out.values;
    forward.lse = lse.values;
    forward.targets = targets;
    mics_host_attention(r->pool, &forward);
    record_send(r, &out);
    record_send(r, &lse);
    args.grad_qkv = grad.device;
    args.delta = delta.device;
    args.grad_out = grad_out.device;
    args.out = out.device;
    args.qkv = qkv.device;
    args.lse = lse.device;
    args.dtype = dtype;
    args.targets = send_targets(r, s, targets);
    record_ran(r, mics_cuda_attention_grad(&r->at, &args));
    args.grad_qkv = grad.values;
    args.delta = delta.values;
    args.grad_out = grad_out.values;
    args.out = out.values;
    args.qkv = qkv.values;
    args.lse = lse.values;
    args.dtype = MICS_F32;
    args.targets = targets;
    mics_host_attention_grad(r->pool, &args);
    expect(r, &grad);
    record_expect(r, &delta, 2e-5);
    record_end(r);
    free(targets);
}

static void both_cases(struct recorder *r, const char *kernel, enum mics_dtype dtype,
                       struct shape s)
{
    forward_case(r, kernel, dtype, s);
    backward_case(r, kernel, dtype, s);
}

void record_attention_cases(struct recorder *r)
{
    for (size_t s = 0; s < LENGTH(mma_shapes); s++)
        both_cases(r, "mma", MICS_BF16, mma_shapes[s]);
    for (size_t s = 0; s < LENGTH(plain_shapes); s++)
        for (size_t d = 0; d < LENGTH(record_dtypes); d++)
            both_cases(r, "plain", record_dtypes[d], plain_shapes[s]);
#if MICS_HOPPER
    for (size_t s = 0; s < LENGTH(hopper_shapes) && r->chip->capability == 90; s++)
        both_cases(r, "hopper", MICS_BF16, hopper_shapes[s]);
#endif
}
