/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elementwise.c - operations on each element of an array or of a row: fills and copies, casts, sums
 * and activation functions.
 *
 * All are bound by memory. The last, partial vector of a range goes through the same arithmetic as
 * the others: an element's result does not depend on where a range begins or ends.
 */
#include "host/kernels.h"
#include "host/pool.h"
#include "host/vector.h"
#include "host/vmath.h"

#include <assert.h>
#include <string.h>

enum { GRAIN_BYTES = 256 * 1024 }; /* bytes: for less, waking a thread costs more than it saves */

static void zero_piece(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_zero *args = context;

    memset((char *)args->dst + begin, 0, end - begin);
}

void mics_host_zero(struct mics_pool *pool, const struct mics_args_zero *args)
{
    struct mics_args_zero own = *args;

    mics_pool_run(pool, own.bytes, GRAIN_BYTES, zero_piece, &own);
}

static void copy_piece(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_copy *args = context;

    memcpy((char *)args->dst + begin, (const char *)args->src + begin, end - begin);
}

void mics_host_copy(struct mics_pool *pool, const struct mics_args_copy *args)
{
    struct mics_args_copy own = *args;

    if (own.dst != own.src)
        mics_pool_run(pool, own.bytes, GRAIN_BYTES, copy_piece, &own);
}

void mics_host_call(struct mics_pool *pool, const struct mics_args_call *args)
{
    (void)pool;
    args->fn(args->context ? args->context : (void *)args->payload);
}

/*
 * An array in another type, and an array of any type added to one in fp32. 6 bytes per element
 * from one type to the other; 10 (bf16, fp16) or 12 to accumulate.
 */

MICS_TYPED void cast_range(const struct mics_args_cast *args, uint64_t i, uint64_t stop,
                           const enum mics_dtype to, const enum mics_dtype from)
{
    for (; i + MICS_LANES <= stop; i += MICS_LANES)
        mics_vstore_as(args->dst, i, mics_vload_as(args->src, i, from), to);
    for (; i < stop; i++)
        mics_store_as(args->dst, i, mics_load_as(args->src, i, from), to);
}

static void cast_blocks(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_cast *args = context;
    const uint64_t first = begin * MICS_FLAT_BLOCK, stop = mics_flat_stop(end, args->count);

    if (args->dst_dtype == MICS_BF16)
        cast_range(args, first, stop, MICS_BF16, MICS_F32);
    else if (args->dst_dtype == MICS_F16)
        cast_range(args, first, stop, MICS_F16, MICS_F32);
    else if (args->src_dtype == MICS_F16)
        cast_range(args, first, stop, MICS_F32, MICS_F16);
    else
        cast_range(args, first, stop, MICS_F32, MICS_BF16);
}

void mics_host_cast(struct mics_pool *pool, const struct mics_args_cast *args)
{
    const uint64_t bytes = args->count * mics_dtype_bytes(args->src_dtype);

    assert(args->dst_dtype != MICS_F64 && args->src_dtype != MICS_F64);
    assert(args->dst_dtype == args->src_dtype || args->dst_dtype == MICS_F32 ||
           args->src_dtype == MICS_F32);
    if (args->dst_dtype == args->src_dtype)
        mics_host_copy(pool, &(struct mics_args_copy){args->dst, args->src, bytes});
    else
        mics_flat_run(pool, args->count, cast_blocks, args);
}

MICS_TYPED void accumulate_range(const struct mics_args_accumulate *args, uint64_t i, uint64_t stop,
                                 const enum mics_dtype dtype)
{
    for (; i + MICS_LANES <= stop; i += MICS_LANES)
        mics_vstore(args->sum + i, mics_vload(args->sum + i) + mics_vload_as(args->in, i, dtype));
    for (; i < stop; i++)
        args->sum[i] += mics_load_as(args->in, i, dtype);
}

static void accumulate_blocks(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_accumulate *args = context;
    const uint64_t first = begin * MICS_FLAT_BLOCK, stop = mics_flat_stop(end, args->count);

    if (args->dtype == MICS_BF16)
        accumulate_range(args, first, stop, MICS_BF16);
    else if (args->dtype == MICS_F16)
        accumulate_range(args, first, stop, MICS_F16);
    else
        accumulate_range(args, first, stop, MICS_F32);
}

void mics_host_accumulate(struct mics_pool *pool, const struct mics_args_accumulate *args)
{
    assert(args->dtype != MICS_F64);
    mics_flat_run(pool, args->count, accumulate_blocks, args);
}

/*
 * The Gaussian error linear unit and its gradient: 8 bytes per element forward, 12 backward (half
 * of it in bf16), about 30 flops in tanh form, 40 in the exact one.
 */

/* The form is a constant in each of the loops. */
MICS_TYPED mics_vf gelu_of(mics_vf x, bool exact)
{
    return exact ? mics_vgelu_exact(x) : mics_vgelu(x);
}

MICS_TYPED mics_vf gelu_slope_of(mics_vf x, bool exact)
{
    return exact ? mics_vgelu_exact_slope(x) : mics_vgelu_slope(x);
}

MICS_TYPED void gelu_range(const struct mics_args_gelu *args, uint64_t i, uint64_t stop,
                           const bool exact, const enum mics_dtype dtype)
{
    for (; i + MICS_LANES <= stop; i += MICS_LANES)
        mics_vstore_as(args->out, i, gelu_of(mics_vload_as(args->in, i, dtype), exact), dtype);
    if (i < stop) {
        const unsigned rest = (unsigned)(stop - i);
        const mics_vf in = mics_vload_part_as(args->in, i, rest, dtype);

        mics_vstore_part_as(args->out, i, gelu_of(in, exact), rest, dtype);
    }
}

static void gelu_blocks(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_gelu *args = context;
    const uint64_t first = begin * MICS_FLAT_BLOCK, stop = mics_flat_stop(end, args->count);

    if (args->dtype == MICS_BF16 && args->exact)
        gelu_range(args, first, stop, true, MICS_BF16);
    else if (args->dtype == MICS_BF16)
        gelu_range(args, first, stop, false, MICS_BF16);
    else if (args->dtype == MICS_F16 && args->exact)
        gelu_range(args, first, stop, true, MICS_F16);
    else if (args->dtype == MICS_F16)
        gelu_range(args, first, stop, false, MICS_F16);
    else if (args->exact)
        gelu_range(args, first, stop, true, MICS_F32);
    else
        gelu_range(args, first, stop, false, MICS_F32);
}

MICS_TYPED void gelu_grad_range(const struct mics_args_gelu_grad *args, uint64_t i, uint64_t stop,
                                const bool exact, const enum mics_dtype dtype)
{
    for (; i + MICS_LANES <= stop; i += MICS_LANES) {
        const mics_vf slope = gelu_slope_of(mics_vload_as(args->in, i, dtype), exact);

        mics_vstore_as(args->grad_in, i, mics_vload_as(args->grad_out, i, dtype) * slope, dtype);
    }
    if (i < stop) {
        const unsigned rest = (unsigned)(stop - i);
        const mics_vf slope = gelu_slope_of(mics_vload_part_as(args->in, i, rest, dtype), exact);
        const mics_vf grad = mics_vload_part_as(args->grad_out, i, rest, dtype);

        mics_vstore_part_as(args->grad_in, i, grad * slope, rest, dtype);
    }
}

static void gelu_grad_blocks(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_gelu_grad *args = context;
    const uint64_t first = begin * MICS_FLAT_BLOCK, stop = mics_flat_stop(end, args->count);

    if (args->dtype == MICS_BF16 && args->exact)
        gelu_grad_range(args, first, stop, true, MICS_BF16);
    else if (args->dtype == MICS_BF16)
        gelu_grad_range(args, first, stop, false, MICS_BF16);
    else if (args->dtype == MICS_F16 && args->exact)
        gelu_grad_range(args, first, stop, true, MICS_F16);
    else if (args->dtype == MICS_F16)
        gelu_grad_range(args, first, stop, false, MICS_F16);
    else if (args->exact)
        gelu_grad_range(args, first, stop, true, MICS_F32);
    else
        gelu_grad_range(args, first, stop, false, MICS_F32);
}

void mics_host_gelu(struct mics_pool *pool, const struct mics_args_gelu *args)
{
    mics_flat_run(pool, args->count, gelu_blocks, args);
}

void mics_host_gelu_grad(struct mics_pool *pool, const struct mics_args_gelu_grad *args)
{
    mics_flat_run(pool, args->count, gelu_grad_blocks, args);
}

/*
 * SwiGLU: silu(gate) * up. 12 bytes and about 25 flops per element of the output in fp32.
 */

#define SWIGLU_GRAIN (16 * 1024) /* of a piece of rows, of the output */

static inline mics_vf swiglu(mics_vf gate, mics_vf up)
{
    return gate / mics_vlogistic_divisor(gate) * up;
}

MICS_TYPED void swiglu_row(const struct mics_args_swiglu *args, uint64_t row,
                           const enum mics_dtype dtype)
{
    const uint32_t F = args->F;
    const uint64_t gate = row * 2 * F, up = gate + F;
    uint32_t f = 0;

    for (; f + MICS_LANES <= F; f += MICS_LANES)
        mics_vstore_as(args->out, row * F + f,
                       swiglu(mics_vload_as(args->in, gate + f, dtype),
                              mics_vload_as(args->in, up + f, dtype)),
                       dtype);
    if (f < F)
        mics_vstore_part_as(args->out, row * F + f,
                            swiglu(mics_vload_part_as(args->in, gate + f, F - f, dtype),
                                   mics_vload_part_as(args->in, up + f, F - f, dtype)),
                            F - f, dtype);
}

static void swiglu_rows(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_swiglu *args = context;

    for (uint64_t row = begin; row < end; row++) {
        if (args->dtype == MICS_BF16)
            swiglu_row(args, row, MICS_BF16);
        else if (args->dtype == MICS_F16)
            swiglu_row(args, row, MICS_F16);
        else
            swiglu_row(args, row, MICS_F32);
    }
}

void mics_host_swiglu(struct mics_pool *pool, const struct mics_args_swiglu *args)
{
    mics_pool_run(pool, args->rows, SWIGLU_GRAIN / ((uint64_t)args->F + 1) + 1, swiglu_rows,
                  (void *)args);
}

/*
 * The gradients of SwiGLU. With s the logistic function of gate:
 *     grad_gate = grad_out * up * s (1 + gate (1 - s))
 *     grad_up   = grad_out * gate * s
 * Both elements are read before either is written, so that grad_in may be in. 20 bytes and about 30
 * flops per element of the output in fp32.
 */

struct swiglu_slopes {
    mics_vf gate, up;
};

static inline struct swiglu_slopes swiglu_slopes_of(mics_vf gate, mics_vf up, mics_vf grad)
{
    const mics_vf s = mics_vsigmoid(gate);

    return (struct swiglu_slopes){
        .gate = grad * up * (s * (1.0f + gate * (1.0f - s))),
        .up = grad * (gate * s),
    };
}

MICS_TYPED void swiglu_grad_row(const struct mics_args_swiglu_grad *args, uint64_t row,
                                const enum mics_dtype dtype)
{
    const uint32_t F = args->F;
    const uint64_t gate = row * 2 * F, up = gate + F;
    uint32_t f = 0;

    for (; f + MICS_LANES <= F; f += MICS_LANES) {
        const struct swiglu_slopes slope = swiglu_slopes_of(
            mics_vload_as(args->in, gate + f, dtype), mics_vload_as(args->in, up + f, dtype),
            mics_vload_as(args->grad_out, row * F + f, dtype));

        mics_vstore_as(args->grad_in, gate + f, slope.gate, dtype);
        mics_vstore_as(args->grad_in, up + f, slope.up, dtype);
    }
    if (f < F) {
        const unsigned rest = F - f;
        const struct swiglu_slopes slope =
            swiglu_slopes_of(mics_vload_part_as(args->in, gate + f, rest, dtype),
                             mics_vload_part_as(args->in, up + f, rest, dtype),
                             mics_vload_part_as(args->grad_out, row * F + f, rest, dtype));

        mics_vstore_part_as(args->grad_in, gate + f, slope.gate, rest, dtype);
        mics_vstore_part_as(args->grad_in, up + f, slope.up, rest, dtype);
    }
}

static void swiglu_grad_rows(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_swiglu_grad *args = context;

    for (uint64_t row = begin; row < end; row++) {
        if (args->dtype == MICS_BF16)
            swiglu_grad_row(args, row, MICS_BF16);
        else if (args->dtype == MICS_F16)
            swiglu_grad_row(args, row, MICS_F16);
        else
            swiglu_grad_row(args, row, MICS_F32);
    }
}

void mics_host_swiglu_grad(struct mics_pool *pool, const struct mics_args_swiglu_grad *args)
{
    mics_pool_run(pool, args->rows, SWIGLU_GRAIN / ((uint64_t)args->F + 1) + 1, swiglu_grad_rows,
                  (void *)args);
}
