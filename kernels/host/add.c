/* SPDX-License-Identifier: Apache-2.0 */
/*
 * add.c - the sum of two arrays: 12 bytes and 1 flop per element.
 */
#include "host/flat.h"
#include "host/kernels.h"
#include "host/simd.h"

static void add_blocks(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_op_add *args = context;
    const float *a = args->a, *b = args->b;
    float *out = args->out;
    uint64_t stop = mics_flat_stop(end, args->count), i = begin * MICS_FLAT_BLOCK;

    for (; i + MICS_LANES <= stop; i += MICS_LANES)
        mics_vstore(out + i, mics_vload(a + i) + mics_vload(b + i));
    for (; i < stop; i++)
        out[i] = a[i] + b[i];
}

void mics_host_add(struct mics_pool *pool, const struct mics_op_add *args)
{
    mics_flat_run(pool, args->count, add_blocks, args);
}
