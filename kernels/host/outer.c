/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outer.c - what outer steps need: a scaled difference of two arrays, and the outer update.
 *
 * Bound by memory: 12 bytes per element for a difference, 24 (26 with a copy) for an update. Every
 * element goes through the same arithmetic wherever it stands, also in the last, partial vector.
 */
#include "host/kernels.h"
#include "host/pool.h"
#include "host/vector.h"

static void difference_blocks(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_difference *args = context;
    const uint64_t stop = mics_flat_stop(end, args->count);

    for (uint64_t i = begin * MICS_FLAT_BLOCK; i < stop; i += MICS_LANES) {
        const unsigned count = (unsigned)mics_min_u64(MICS_LANES, stop - i);
        mics_vf x = mics_vload_part(args->a + i, count);

        if (args->b)
            x -= mics_vload_part(args->b + i, count);
        mics_vstore_part(args->dst + i, mics_vset(args->scale) * x, count);
    }
}

void mics_host_difference(struct mics_pool *pool, const struct mics_args_difference *args)
{
    mics_flat_run(pool, args->count, difference_blocks, args);
}

/* Up to MICS_LANES elements from `i` on. */
static inline void outer_lanes(const struct mics_args_outer_update *args, uint64_t i,
                               unsigned count)
{
    const mics_vf mu = mics_vset(args->mu);
    const mics_vf d = mics_vset(args->scale) * mics_vload_part(args->delta + i, count);
    const mics_vf m = mu * mics_vload_part(args->momentum + i, count) + d;
    const mics_vf anchor =
        mics_vload_part(args->anchor + i, count) - mics_vset(args->lr) * (mu * m + d);

    mics_vstore_part(args->momentum + i, m, count);
    mics_vstore_part(args->anchor + i, anchor, count);
    mics_vstore_part(args->param + i, anchor, count);
    for (unsigned j = 0; args->copy && j < count; j++)
        args->copy[i + j] = args->copy_f16 ? mics_f16_round(args->param[i + j])
                                           : mics_bf16_round(args->param[i + j]);
}

static void outer_blocks(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_args_outer_update *args = context;
    const uint64_t stop = mics_flat_stop(end, args->count);

    for (uint64_t i = begin * MICS_FLAT_BLOCK; i < stop; i += MICS_LANES)
        outer_lanes(args, i, (unsigned)mics_min_u64(MICS_LANES, stop - i));
}

void mics_host_outer_update(struct mics_pool *pool, const struct mics_args_outer_update *args)
{
    mics_flat_run(pool, args->count, outer_blocks, args);
}
