/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast.c - an array in another type, and an array of either type added to one of fp32.
 *
 * 6 bytes per element from one type to the other; 10 (bf16) or 12 to accumulate. Bound by memory.
 */
#include "host/bf16.h"
#include "host/flat.h"
#include "host/kernels.h"

#include <assert.h>

MICS_TYPED void cast_range(const struct mics_op_cast *args, uint64_t i, uint64_t stop,
                           const enum mics_dtype to, const enum mics_dtype from)
{
    for (; i + MICS_LANES <= stop; i += MICS_LANES)
        mics_vstore_as(args->dst, i, mics_vload_as(args->src, i, from), to);
    for (; i < stop; i++)
        mics_store_as(args->dst, i, mics_load_as(args->src, i, from), to);
}

static void cast_blocks(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_cast *args = context;
    const uint64_t first = begin * MICS_FLAT_BLOCK, stop = mics_flat_stop(end, args->count);

    if (args->dst_dtype == MICS_BF16)
        cast_range(args, first, stop, MICS_BF16, MICS_F32);
    else
        cast_range(args, first, stop, MICS_F32, MICS_BF16);
}

void mics_host_cast(struct mics_pool *pool, const struct mics_op_cast *args)
{
    const uint64_t bytes = args->count * mics_dtype_bytes(args->src_dtype);

    assert(args->dst_dtype != MICS_F64 && args->src_dtype != MICS_F64);
    if (args->dst_dtype == args->src_dtype)
        mics_host_copy(pool, &(struct mics_op_copy){args->dst, args->src, bytes});
    else
        mics_flat_run(pool, args->count, cast_blocks, args);
}

MICS_TYPED void accumulate_range(const struct mics_op_accumulate *args, uint64_t i, uint64_t stop,
                                 const enum mics_dtype dtype)
{
    for (; i + MICS_LANES <= stop; i += MICS_LANES)
        mics_vstore(args->sum + i, mics_vload(args->sum + i) + mics_vload_as(args->in, i, dtype));
    for (; i < stop; i++)
        args->sum[i] += mics_load_as(args->in, i, dtype);
}

static void accumulate_blocks(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_accumulate *args = context;
    const uint64_t first = begin * MICS_FLAT_BLOCK, stop = mics_flat_stop(end, args->count);

    if (args->dtype == MICS_BF16)
        accumulate_range(args, first, stop, MICS_BF16);
    else
        accumulate_range(args, first, stop, MICS_F32);
}

void mics_host_accumulate(struct mics_pool *pool, const struct mics_op_accumulate *args)
{
    assert(args->dtype != MICS_F64);
    mics_flat_run(pool, args->count, accumulate_blocks, args);
}
