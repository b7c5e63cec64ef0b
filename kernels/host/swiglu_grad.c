/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swiglu_grad.c - the gradients of silu(gate) * up.
 *
 * With s the logistic function of gate:
 *     grad_gate = grad_out * up * s (1 + gate (1 - s))
 *     grad_up   = grad_out * gate * s
 * Both elements are read before either is written, so that the result may take their place. 20 bytes and about
 * 30 flops per element of the output in fp32.
 */
#include "host/bf16.h"
#include "host/flat.h"
#include "host/kernels.h"
#include "host/vmath.h"

#define GRAIN_FLOATS (16 * 1024) /* of a piece of rows, of the output */

struct pair {
    mics_vf gate, up;
};

static inline struct pair slopes(mics_vf gate, mics_vf up, mics_vf grad)
{
    const mics_vf s = mics_vsigmoid(gate);

    return (struct pair){
        .gate = grad * up * (s * (1.0f + gate * (1.0f - s))),
        .up = grad * (gate * s),
    };
}

MICS_TYPED void grad_row(const struct mics_op_swiglu_grad *args, uint64_t row,
                         const enum mics_dtype dtype)
{
    const uint32_t F = args->F;
    const uint64_t gate = row * 2 * F, up = gate + F;
    uint32_t f = 0;

    for (; f + MICS_LANES <= F; f += MICS_LANES) {
        const struct pair slope =
            slopes(mics_vload_as(args->in, gate + f, dtype), mics_vload_as(args->in, up + f, dtype),
                   mics_vload_as(args->grad_out, row * F + f, dtype));

        mics_vstore_as(args->grad_in, gate + f, slope.gate, dtype);
        mics_vstore_as(args->grad_in, up + f, slope.up, dtype);
    }
    if (f < F) {
        const unsigned rest = F - f;
        const struct pair slope =
            slopes(mics_vload_part_as(args->in, gate + f, rest, dtype),
                   mics_vload_part_as(args->in, up + f, rest, dtype),
                   mics_vload_part_as(args->grad_out, row * F + f, rest, dtype));

        mics_vstore_part_as(args->grad_in, gate + f, slope.gate, rest, dtype);
        mics_vstore_part_as(args->grad_in, up + f, slope.up, rest, dtype);
    }
}

static void grad_rows(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_swiglu_grad *args = context;

    for (uint64_t row = begin; row < end; row++) {
        if (args->dtype == MICS_BF16)
            grad_row(args, row, MICS_BF16);
        else
            grad_row(args, row, MICS_F32);
    }
}

void mics_host_swiglu_grad(struct mics_pool *pool, const struct mics_op_swiglu_grad *args)
{
    mics_pool_run(pool, args->rows, GRAIN_FLOATS / ((uint64_t)args->F + 1) + 1, grad_rows,
                  (void *)args);
}
