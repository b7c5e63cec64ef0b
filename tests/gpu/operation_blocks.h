/* SPDX-License-Identifier: Apache-2.0 */
/* operation_blocks.h - sums and conversions of arrays in blocks, which have the host's bits. */
#ifndef MICS_TESTS_GPU_OPERATION_BLOCKS_H
#define MICS_TESTS_GPU_OPERATION_BLOCKS_H

#include "operation.h"

#include <math.h>

static const char *wire_name(enum mics_dtype dtype)
{
    return dtype == MICS_INT8 ? "int8" : dtype == MICS_INT4 ? "int4" : dtype_name(dtype);
}

/* `parts` arrays of a type, one behind the other, whose sums fp16 holds. One block has only zeros
 * where types are in blocks; with `awkward` one has an infinity, one a NaN, and one numbers whose
 * scale is below the normal ones. */
static char *new_parts(struct suite *suite, enum mics_dtype dtype, uint32_t count, uint32_t parts,
                       bool awkward)
{
    const uint64_t bytes = mics_wire_bytes(dtype, count);
    char *out = new_zeros(parts * bytes);
    float *x = new_zeros(count * sizeof *x);
    uint32_t state = 1;

    for (uint32_t part = 0; part < parts; part++) {
        for (uint32_t i = 0; i < count; i++) {
            state = state * 1664525 + 1013904223;
            x[i] = ((float)(int32_t)state * 0x1p-31f) * (float)(1 << i / 100 % 14);
            if (mics_dtype_is_blocks(dtype) && i / MICS_BLOCK == 2)
                x[i] = 0;
            if (awkward)
                x[i] = i == 300                  ? INFINITY
                       : i == 900                ? NAN
                       : i / MICS_BLOCK % 8 == 7 ? x[i] * 0x1p-140f
                                                 : x[i];
        }
        mics_host_sum_blocks(suite->pool, &(struct mics_args_sum_blocks){.dst = out + part * bytes,
                                                                         .src = x,
                                                                         .count = count,
                                                                         .parts = 1,
                                                                         .dst_dtype = dtype});
    }
    free(x);
    return out;
}

/* `shift`: bytes from an aligned address. */
static void sum_blocks_case(struct suite *suite, enum mics_dtype from, enum mics_dtype to,
                            uint32_t count, uint32_t parts, bool stochastic, bool awkward,
                            unsigned shift)
{
    const uint64_t bytes = mics_wire_bytes(from, count), out_bytes = mics_wire_bytes(to, count);
    char *in = new_parts(suite, from, count, parts, awkward), *want = new_zeros(out_bytes);
    void *src, *dst;

    case_begin(suite, 0, "sum_blocks_%u_%s_%s%s", parts, wire_name(from), wire_name(to),
               stochastic ? "_stochastic" : "");
    src = case_bytes(suite, "src", in, parts * bytes, shift);
    dst = case_bytes(suite, "dst", NULL, out_bytes, shift);
    OPERATION(suite, sum_blocks, .dst = PLACE(dst, want), .src = PLACE(src, in), .count = count,
              .stride = bytes, .parts = parts, .dst_dtype = to, .src_dtype = from,
              .stochastic = stochastic, .replica = 3, .seed = 0xfedcba9876543u, .step = 12,
              .first = 1024);
    case_expect_numbers(suite, dst, want, count, to);
    case_end(suite);
    free(in);
    free(want);
}

#endif
