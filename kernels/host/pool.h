/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h - the compute pool of a rank: the threads that its host kernels share.
 *
 * One parallel region runs at a time; a region of another stream waits asleep. A pool of 1 thread
 * runs everything in the caller. Results must not depend on the number of threads: each output
 * element is computed by one thread, or partial sums have fixed blocks.
 */
#ifndef MICS_KERNELS_HOST_POOL_H
#define MICS_KERNELS_HOST_POOL_H

#include "base/num.h"

#include <stdint.h>

struct mics_pool;
struct mics_onednn;

/* `threads` >= 1, the caller's included. NULL: out of memory or threads. */
struct mics_pool *mics_pool_new(unsigned threads);
void mics_pool_free(struct mics_pool *pool);
unsigned mics_pool_threads(const struct mics_pool *pool);

/* What the pool's products by oneDNN keep from call to call; freed with the pool. */
struct mics_onednn *mics_pool_onednn(const struct mics_pool *pool);

/* Call body(context, begin, end) over pieces of [0, count), each of at least `grain` (>= 1) items
 * except the last and beginning at a multiple of it; returns when all are done. Allocates nothing.
 * `body` must not call mics_pool_run() of the same pool. */
void mics_pool_run(struct mics_pool *pool, uint64_t count, uint64_t grain,
                   void (*body)(void *context, uint64_t begin, uint64_t end), void *context);

/*
 * Long arrays, cut into blocks of one size.
 */

/* Elements of a block: 16 KiB of floats, so that a few arrays' blocks fit the first cache
 * together. */
#define MICS_FLAT_BLOCK 4096

/* Blocks of the smallest piece: about ten microseconds of memory traffic, more than waking a thread
 * costs. */
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
