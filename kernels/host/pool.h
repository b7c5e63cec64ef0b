/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h - the compute pool of a rank: the threads that its host kernels share.
 *
 * One parallel region at a time; regions from different streams take turns (the second waits, it
 * does not spin). A pool of 1 thread runs everything in the caller. Results must not depend on the
 * number of threads: each output element is computed by one thread, or partial sums have fixed blocks.
 */
#ifndef MICS_KERNELS_HOST_POOL_H
#define MICS_KERNELS_HOST_POOL_H

#include <stdint.h>

struct mics_pool;

/* `threads` >= 1, the caller's included. NULL: out of memory or threads. */
struct mics_pool *mics_pool_new(unsigned threads);
void mics_pool_free(struct mics_pool *pool);
unsigned mics_pool_threads(const struct mics_pool *pool);

/* Call body(context, begin, end) over pieces of [0, count), each of at least `grain` (>= 1) items
 * except the last and beginning at a multiple of it; returns when all are done. Allocates nothing.
 * `body` must not call mics_pool_run() of the same pool. */
void mics_pool_run(struct mics_pool *pool, uint64_t count, uint64_t grain,
                   void (*body)(void *context, uint64_t begin, uint64_t end), void *context);

#endif
