/* SPDX-License-Identifier: Apache-2.0 */
/*
 * add.c - the sum of two arrays: 12 bytes (6 in bf16) and 1 flop per element.
 */
#include "host/bf16.h"
#include "host/flat.h"
#include "host/kernels.h"

MICS_TYPED void add_range(const struct mics_op_add *args, uint64_t i, uint64_t stop,
                          const enum mics_dtype type)
{
    for (; i + MICS_LANES <= stop; i += MICS_LANES)
        mics_vstore_as(args->out, i,
                       mics_vload_as(args->a, i, type) + mics_vload_as(args->b, i, type), type);
    for (; i < stop; i++)
        mics_store_as(args->out, i, mics_load_as(args->a, i, type) + mics_load_as(args->b, i, type),
                      type);
}

static void add_blocks(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_add *args = context;
    const uint64_t first = begin * MICS_FLAT_BLOCK, stop = mics_flat_stop(end, args->count);

    if (args->dtype == MICS_BF16)
        add_range(args, first, stop, MICS_BF16);
    else
        add_range(args, first, stop, MICS_F32);
}

void mics_host_add(struct mics_pool *pool, const struct mics_op_add *args)
{
    mics_flat_run(pool, args->count, add_blocks, args);
}
