/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flat.h - long arrays, cut into blocks of one size for the pool.
 */
#ifndef MICS_KERNELS_HOST_FLAT_H
#define MICS_KERNELS_HOST_FLAT_H

#include "base/num.h"
#include "host/pool.h"

/* Elements of a block: 16 KiB of floats, so that a few arrays' blocks fit the first cache together. */
#define MICS_FLAT_BLOCK 4096

/* Blocks that make a piece worth a thread's waking: about ten microseconds of memory traffic. */
#define MICS_FLAT_GRAIN 8

/* The first element past block end - 1 of an array of `count`. */
static inline uint64_t mics_flat_stop(uint64_t end, uint64_t count)
{
    return mics_min_u64(end * MICS_FLAT_BLOCK, count);
}

/* Call body(context, first block, last block + 1) until all of an array of `count` is done. */
static inline void mics_flat_run(struct mics_pool *pool, uint64_t count,
                                 void (*body)(void *context, uint64_t begin, uint64_t end),
                                 const void *context)
{
    if (count > 0)
        mics_pool_run(pool, mics_ceil_div(count, MICS_FLAT_BLOCK), MICS_FLAT_GRAIN, body,
                      (void *)context);
}

#endif
