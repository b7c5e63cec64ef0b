/* SPDX-License-Identifier: Apache-2.0 */
/* cases_blocks.c - sums and conversions of arrays in blocks, which have the bits of the host. */
#include "record.h"

#include <stdlib.h>
#include <string.h>

/* More than the blocks of one block of threads, with a rest. */
enum { COUNT = 9 * MICS_BLOCK + 77 };

static const enum mics_dtype types[] = {MICS_F32, MICS_BF16, MICS_INT8, MICS_INT4};
static const char *const names[] = {"f32", "bf16", "int8", "int4"};

static void *need_bytes(size_t bytes)
{
    void *memory = malloc(bytes);

    if (!memory)
        gpu_die("out of memory");
    return memory;
}

/* `parts` arrays of a type, one behind the other. A block has a NaN, another one only zeros, where
 * types are in blocks. */
static char *make_parts(struct mics_pool *pool, enum mics_dtype dtype, uint32_t parts)
{
    const uint64_t bytes = mics_wire_bytes(dtype, COUNT);
    char *out = need_bytes(parts * bytes);
    float *x = need_bytes(COUNT * sizeof(float));
    uint32_t state = 1;

    for (uint32_t part = 0; part < parts; part++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            state = state * 1664525 + 1013904223;
            x[i] = ((float)(int32_t)state * 0x1p-31f) * (float)(1 << i / 100 % 20);
            if (mics_dtype_is_blocks(dtype) && i / MICS_BLOCK == 2)
                x[i] = 0;
        }
        mics_host_sum_blocks(pool, &(struct mics_args_sum_blocks){.dst = out + part * bytes,
                                                                  .src = x,
                                                                  .count = COUNT,
                                                                  .parts = 1,
                                                                  .dst_dtype = dtype});
    }
    free(x);
    return out;
}

static void sum_case(struct recorder *r, int from, int to, uint32_t parts, bool stochastic)
{
    const uint64_t bytes = mics_wire_bytes(types[from], COUNT);
    const uint64_t out_bytes = mics_wire_bytes(types[to], COUNT);
    char *in = make_parts(r->pool, types[from], parts), *want = need_bytes(out_bytes);
    struct mics_args_sum_blocks args = {.count = COUNT,
                                        .stride = bytes,
                                        .parts = parts,
                                        .dst_dtype = types[to],
                                        .src_dtype = types[from],
                                        .stochastic = stochastic,
                                        .replica = 3,
                                        .seed = 0xfedcba9876543u,
                                        .step = 12,
                                        .first = 1024};

    record_begin(r, 0, "sum_blocks_%u_%s_%s%s", parts, names[from], names[to],
                 stochastic ? "_stochastic" : "");
    args.src = record_bytes(r, "src", in, parts * bytes);
    args.dst = record_bytes(r, "dst", NULL, out_bytes);
    record_ran(r, mics_cuda_sum_blocks(&r->at, &args));
    void *const device = args.dst;
    args.src = in;
    args.dst = want;
    mics_host_sum_blocks(r->pool, &args);
    record_expect_bytes(r, device, want, out_bytes);
    record_end(r);
    free(in);
    free(want);
}

void record_block_cases(struct recorder *r)
{
    for (int from = 0; from < (int)LENGTH(types); from++)
        for (int to = 0; to < (int)LENGTH(types); to++) {
            sum_case(r, from, to, from % 2 ? 1 : 3, false);
            if (mics_dtype_is_blocks(types[to]))
                sum_case(r, from, to, from % 2 ? 2 : 1, true);
        }
}
