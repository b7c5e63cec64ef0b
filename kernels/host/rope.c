/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rope.c - rotary positions (Su et al. 2021), rotate-half form.
 *
 * A position's sines and cosines are made once and serve all heads of all sequences. Frequencies are computed
 * in double and rounded to fp32; the angle t * frequency and its sine and cosine are of fp32. 8 bytes and 3
 * flops per element in fp32.
 */
#include "rope.h"
#include "host/bf16.h"
#include "host/flat.h"
#include "host/kernels.h"

#include <assert.h>
#include <math.h>

#define GRAIN_FLOATS (16 * 1024) /* of a piece of positions */
#define HALF_MAX     (MICS_HOST_HEAD_MAX / 2)

struct rope {
    const struct mics_op_rope *args;
    float frequency[HALF_MAX];
};

struct turn {
    float cosine[HALF_MAX], sine[HALF_MAX];
};

static void make_turn(const struct rope *rope, uint64_t t, struct turn *turn)
{
    for (uint32_t i = 0; i < rope->args->D / 2; i++) {
        const float angle = (float)t * rope->frequency[i];

        turn->cosine[i] = cosf(angle);
        turn->sine[i] = rope->args->inverse ? -sinf(angle) : sinf(angle);
    }
}

/* One head of one row, from element `at` on. */
MICS_TYPED void turn_head(void *data, uint64_t at, uint32_t half, const struct turn *turn,
                          const enum mics_dtype dtype)
{
    uint32_t i = 0;

    for (; i + MICS_LANES <= half; i += MICS_LANES) {
        const mics_vf x = mics_vload_as(data, at + i, dtype);
        const mics_vf y = mics_vload_as(data, at + half + i, dtype);
        const mics_vf c = mics_vload(turn->cosine + i), s = mics_vload(turn->sine + i);

        mics_vstore_as(data, at + i, x * c - y * s, dtype);
        mics_vstore_as(data, at + half + i, y * c + x * s, dtype);
    }
    for (; i < half; i++) {
        const float x = mics_load_as(data, at + i, dtype);
        const float y = mics_load_as(data, at + half + i, dtype);

        mics_store_as(data, at + i, x * turn->cosine[i] - y * turn->sine[i], dtype);
        mics_store_as(data, at + half + i, y * turn->cosine[i] + x * turn->sine[i], dtype);
    }
}

static void turn_positions(void *context, uint64_t begin, uint64_t end)
{
    const struct rope *rope = context;
    const struct mics_op_rope *args = rope->args;
    struct turn turn;

    for (uint64_t t = begin; t < end; t++) {
        make_turn(rope, t, &turn);
        for (uint64_t b = 0; b < args->B; b++)
            for (uint32_t h = 0; h < args->heads; h++) {
                const uint64_t at = (b * args->T + t) * args->stride + (uint64_t)h * args->D;

                if (args->dtype == MICS_BF16)
                    turn_head(args->data, at, args->D / 2, &turn, MICS_BF16);
                else
                    turn_head(args->data, at, args->D / 2, &turn, MICS_F32);
            }
    }
}

void mics_host_rope(struct mics_pool *pool, const struct mics_op_rope *args)
{
    const uint64_t floats = (uint64_t)args->B * args->heads * args->D;
    struct rope rope = {.args = args};

    assert(args->D % 2 == 0 && args->D <= MICS_HOST_HEAD_MAX);
    for (uint32_t i = 0; i < args->D / 2; i++)
        rope.frequency[i] = mics_rope_frequency(args, i);
    mics_pool_run(pool, args->T, GRAIN_FLOATS / (floats + 1) + 1, turn_positions, &rope);
}
