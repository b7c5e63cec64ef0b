/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum_blocks.c - sums of arrays, and conversions, where arrays may be in blocks of 8 or 4 bits.
 *
 * A block is summed in fp32 in the first cache, then written. Every loop is over a whole block and
 * is vectorised by the compiler; the Makefile compiles this file without contraction of products
 * and sums, so that all instruction sets and the GPU give the same bits.
 */
#include "base/philox.h"
#include "host/kernels.h"
#include "host/numbers.h"
#include "host/vector.h"

#include <assert.h>

/* Blocks of the smallest piece: as MICS_FLAT_GRAIN. */
enum { GRAIN = MICS_FLAT_GRAIN * MICS_FLAT_BLOCK / MICS_BLOCK };

enum { SUB_BLOCKS = MICS_BLOCK / MICS_SUB_BLOCK, HALF = MICS_SUB_BLOCK / 2 };

#define INFINITE_BITS 0x7f800000u
#define NAN_BITS      0x7fc00000u
#define NORMAL_BITS   0x00800000u /* of the smallest normal number */

/* 1.5 * 2^23: added to a number below 2^22, it leaves the nearest integer in the low bits. */
#define ROUNDER 12582912.0f

typedef uint8_t mics_vb __attribute__((vector_size(MICS_LANES)));

/* Reading ------------------------------------------------------------------------------------ */

MICS_TYPED void read_plain(float *x, const void *src, unsigned count, const enum mics_dtype dtype)
{
    unsigned i = 0;

    for (; i + MICS_LANES <= count; i += MICS_LANES)
        mics_vstore(x + i, mics_vload_as(src, i, dtype));
    for (; i < count; i++)
        x[i] = mics_load_as(src, i, dtype);
}

static inline void read_int8(float *restrict x, const struct mics_int8_block *restrict block)
{
    const float scale = block->scale;

    for (unsigned i = 0; i < MICS_BLOCK; i++)
        x[i] = scale * (float)block->steps[i];
}

/* Elements i of the lower halves and of the upper ones, MICS_LANES of each. */
static inline void read_halves(float *x, const uint8_t *steps, mics_vf scale)
{
    mics_vb bytes;

    memcpy(&bytes, steps, sizeof bytes);
    const mics_vi wide = (mics_vi)(__builtin_convertvector(bytes, mics_vu) << 24);

    mics_vstore(x, scale * __builtin_convertvector((mics_vi)((mics_vu)wide << 4) >> 28, mics_vf));
    mics_vstore(x + HALF, scale * __builtin_convertvector(wide >> 28, mics_vf));
}

static inline void read_int4(float *x, const struct mics_int4_block *block)
{
    for (unsigned s = 0; s < SUB_BLOCKS; s++, x += MICS_SUB_BLOCK) {
        const mics_vf scale = mics_vset(mics_bf16_widen(block->scale[s]));

        for (unsigned i = 0; i < HALF; i += MICS_LANES)
            read_halves(x + i, block->steps[s] + i, scale);
    }
}

/* The elements that a block of `count` has; of blocks in 8 or 4 bits, all. */
MICS_TYPED void read_block(float *x, const void *src, unsigned count, const enum mics_dtype dtype)
{
    if (dtype == MICS_INT8)
        read_int8(x, src);
    else if (dtype == MICS_INT4)
        read_int4(x, src);
    else
        read_plain(x, src, count, dtype);
}

/* Writing ------------------------------------------------------------------------------------ */

struct steps {
    float scale;   /* as it is stored */
    float inverse; /* 0: all steps are 0 */
};

/* `largest`: the bits of the largest |x|; as integers they are ordered as the numbers, with
 * infinity and NaN above all others. */
static inline struct steps steps_for(uint32_t largest, float most, uint32_t dropped_bits)
{
    const uint32_t bits =
        (mics_float_bits(mics_bits_float(largest) / most) + dropped_bits) & ~dropped_bits;

    if (largest >= INFINITE_BITS)
        return (struct steps){.scale = mics_bits_float(NAN_BITS)};
    if (bits < NORMAL_BITS)
        return (struct steps){0};
    return (struct steps){mics_bits_float(bits), 1 / mics_bits_float(bits)};
}

static inline uint32_t largest_bits(const float *x, const unsigned count)
{
    uint32_t largest = 0;

    for (unsigned i = 0; i < count; i++) {
        const uint32_t bits = mics_float_bits(x[i]) & 0x7fffffffu;

        largest = bits > largest ? bits : largest;
    }
    return largest;
}

/* Random numbers of a block: element i has 16 bits, of word i / 64 of Philox block i % 32, the
 * lower half where i / 32 is even. */
struct draws {
    uint32_t words[4 * MICS_SUB_BLOCK];
};

static void draw_block(const struct mics_args_sum_blocks *args, uint64_t block, struct draws *out)
{
    const uint64_t stream = (uint64_t)1 << 63 | (uint64_t)args->replica << 32 | args->step;

    mics_philox_lanes(args->seed, stream, (args->first / MICS_BLOCK + block) * MICS_SUB_BLOCK,
                      MICS_SUB_BLOCK, out->words);
}

/* The steps of `count` elements, a multiple of a sub-block, as integers. */
static inline void round_nearest(int32_t *restrict to, const float *restrict x, float inverse,
                                 const unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        to[i] = (int32_t)(mics_float_bits(x[i] * inverse + ROUNDER) - mics_float_bits(ROUNDER));
}

/* |x| / scale + u, u uniform in (0, 1), without its fraction. The quotient is exact for a whole
 * number of steps, and the sum stays below the next one. */
static inline void round_randomly(int32_t *restrict to, const float *restrict x, float scale,
                                  const struct draws *draws, const unsigned sub_block)
{
    const uint32_t *words = draws->words + sub_block / 2 * MICS_SUB_BLOCK;
    const unsigned shift = sub_block % 2 ? 16 : 0;

    for (unsigned i = 0; i < MICS_SUB_BLOCK; i++) {
        const float u = (float)(int32_t)(words[i] >> shift & 0xffffu) * 0x1p-16f + 0x1p-17f;
        const uint32_t sign = mics_float_bits(x[i]) & 0x80000000u;

        to[i] = (int32_t)(x[i] / scale + mics_bits_float(mics_float_bits(u) | sign));
    }
}

MICS_TYPED void write_int8(struct mics_int8_block *restrict block, const float *restrict x,
                           const struct draws *draws)
{
    const struct steps steps = steps_for(largest_bits(x, MICS_BLOCK), MICS_INT8_MAX, 0x7f);
    int32_t q[MICS_BLOCK];

    block->scale = steps.scale;
    if (steps.inverse == 0) {
        memset(block->steps, 0, sizeof block->steps);
        return;
    }
    if (draws)
        for (unsigned s = 0; s < SUB_BLOCKS; s++)
            round_randomly(q + s * MICS_SUB_BLOCK, x + s * MICS_SUB_BLOCK, steps.scale, draws, s);
    else
        round_nearest(q, x, steps.inverse, MICS_BLOCK);
    for (unsigned i = 0; i < MICS_BLOCK; i++)
        block->steps[i] = (int8_t)q[i];
}

MICS_TYPED void write_int4(struct mics_int4_block *restrict block, const float *restrict x,
                           const struct draws *draws)
{
    for (unsigned s = 0; s < SUB_BLOCKS; s++, x += MICS_SUB_BLOCK) {
        const struct steps steps =
            steps_for(largest_bits(x, MICS_SUB_BLOCK), MICS_INT4_MAX, 0xffff);
        int32_t q[MICS_SUB_BLOCK];

        block->scale[s] = (uint16_t)(mics_float_bits(steps.scale) >> 16);
        if (steps.inverse == 0) {
            memset(block->steps[s], 0, HALF);
            continue;
        }
        if (draws)
            round_randomly(q, x, steps.scale, draws, s);
        else
            round_nearest(q, x, steps.inverse, MICS_SUB_BLOCK);
        for (unsigned i = 0; i < HALF; i++)
            block->steps[s][i] = (uint8_t)((q[i] & 15) | (q[HALF + i] & 15) << 4);
    }
}

MICS_TYPED void write_plain(void *dst, const float *x, unsigned count, const enum mics_dtype dtype)
{
    unsigned i = 0;

    for (; i + MICS_LANES <= count; i += MICS_LANES)
        mics_vstore_as(dst, i, mics_vload(x + i), dtype);
    for (; i < count; i++)
        mics_store_as(dst, i, x[i], dtype);
}

MICS_TYPED void write_block(void *dst, float *x, unsigned count, const struct draws *draws,
                            const enum mics_dtype dtype)
{
    if (!mics_dtype_is_blocks(dtype)) {
        write_plain(dst, x, count, dtype);
        return;
    }
    if (dtype == MICS_INT8)
        write_int8(dst, x, draws);
    else
        write_int4(dst, x, draws);
}

/* Sums --------------------------------------------------------------------------------------- */

MICS_TYPED void sum_block(const struct mics_args_sum_blocks *args, uint64_t block,
                          const enum mics_dtype from, const enum mics_dtype to,
                          const bool stochastic)
{
    const char *src = mics_element(args->src, block * MICS_BLOCK, from);
    const uint64_t left = args->count - block * MICS_BLOCK;
    const unsigned count = left < MICS_BLOCK ? (unsigned)left : MICS_BLOCK;
    float sum[MICS_BLOCK], x[MICS_BLOCK];
    struct draws draws;

    memset(sum, 0, count < MICS_BLOCK ? sizeof sum : 0);
    memset(x, 0, count < MICS_BLOCK ? sizeof x : 0);
    read_block(sum, src, count, from);
    for (uint32_t part = 1; part < args->parts; part++) {
        src += args->stride;
        read_block(x, src, count, from);
        for (unsigned i = 0; i < MICS_BLOCK; i++)
            sum[i] += x[i];
    }
    memset(sum + count, 0, (MICS_BLOCK - count) * sizeof *sum);
    if (stochastic)
        draw_block(args, block, &draws);
    write_block(mics_element(args->dst, block * MICS_BLOCK, to), sum, count,
                stochastic ? &draws : NULL, to);
}

MICS_TYPED void sum_range(const struct mics_args_sum_blocks *args, uint64_t begin, uint64_t end,
                          const enum mics_dtype from, const enum mics_dtype to)
{
    if (args->stochastic && mics_dtype_is_blocks(to))
        for (uint64_t block = begin; block < end; block++)
            sum_block(args, block, from, to, true);
    else
        for (uint64_t block = begin; block < end; block++)
            sum_block(args, block, from, to, false);
}

MICS_TYPED void sum_from(const struct mics_args_sum_blocks *args, uint64_t begin, uint64_t end,
                         const enum mics_dtype from)
{
    if (args->dst_dtype == MICS_INT8)
        sum_range(args, begin, end, from, MICS_INT8);
    else if (args->dst_dtype == MICS_INT4)
        sum_range(args, begin, end, from, MICS_INT4);
    else if (args->dst_dtype == MICS_BF16)
        sum_range(args, begin, end, from, MICS_BF16);
    else if (args->dst_dtype == MICS_F16)
        sum_range(args, begin, end, from, MICS_F16);
    else
        sum_range(args, begin, end, from, MICS_F32);
}

static void sum_blocks(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_sum_blocks *args = context;

    if (args->src_dtype == MICS_INT8)
        sum_from(args, begin, end, MICS_INT8);
    else if (args->src_dtype == MICS_INT4)
        sum_from(args, begin, end, MICS_INT4);
    else if (args->src_dtype == MICS_BF16)
        sum_from(args, begin, end, MICS_BF16);
    else if (args->src_dtype == MICS_F16)
        sum_from(args, begin, end, MICS_F16);
    else
        sum_from(args, begin, end, MICS_F32);
}

void mics_host_sum_blocks(struct mics_pool *pool, const struct mics_args_sum_blocks *args)
{
    assert(args->parts >= 1 && args->first % MICS_BLOCK == 0);
    assert(args->dst_dtype != MICS_F64 && args->dst_dtype != MICS_U8);
    assert(args->src_dtype != MICS_F64 && args->src_dtype != MICS_U8);
    if (args->count > 0)
        mics_pool_run(pool, mics_ceil_div(args->count, MICS_BLOCK), GRAIN, sum_blocks,
                      (void *)args);
}
