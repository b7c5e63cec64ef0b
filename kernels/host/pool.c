/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pieces of a region are claimed one by one from an atomic counter, so that a preempted thread
 * delays one piece and not a fixed share.
 *
 * The kernels of a step follow each other within microseconds, while waking a thread takes 5 to 50:
 * so a worker that has nothing to do polls for a while before it sleeps, and so does a caller
 * whose workers still have a piece. Not where the process has fewer cores than threads, because
 * then the core that polls is the one that another thread needs.
 *
 * A piece begins at a multiple of the grain, whatever the number of threads.
 */
#include "host/pool.h"

#include "base/num.h"
#include "host/onednn.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

enum { PIECES_PER_THREAD = 16, POLLS = 2000 /* 30 to 100 microseconds */ };

struct region {
    void (*body)(void *context, uint64_t begin, uint64_t end);
    void *context;
    uint64_t count, piece;
    atomic_uint_fast64_t next; /* first unclaimed item */
};

struct mics_pool {
    unsigned threads; /* the caller's included */
    unsigned started; /* workers that exist: threads - 1 once made */
    pthread_t *workers;
    struct mics_onednn *onednn;

    pthread_mutex_t region_lock; /* held by the caller whose region runs */

    unsigned polls; /* before a thread sleeps */

    pthread_mutex_t lock;            /* guards all below; the atomics are read without it, too */
    pthread_cond_t work;             /* a region was opened, or stop */
    pthread_cond_t left;             /* the last worker left the region */
    atomic_uint_fast64_t generation; /* of regions */
    atomic_uint inside;              /* workers in the region */
    bool open;
    atomic_bool stop;

    struct region region; /* written while no worker is inside */
};

static void claim_pieces(struct region *region)
{
    for (;;) {
        uint64_t begin = atomic_fetch_add(&region->next, region->piece);

        if (begin >= region->count)
            return;
        region->body(region->context, begin, mics_min_u64(begin + region->piece, region->count));
    }
}

static inline void pause_core(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Until a region after generation `seen`, or the end. */
static void poll_for_work(struct mics_pool *pool, uint64_t seen)
{
    for (unsigned i = 0; i < pool->polls; i++) {
        if (atomic_load(&pool->generation) != seen || atomic_load(&pool->stop))
            return;
        pause_core();
    }
}

static void poll_for_leaving(struct mics_pool *pool)
{
    for (unsigned i = 0; i < pool->polls && atomic_load(&pool->inside) > 0; i++)
        pause_core();
}

/* Cores that this process may run on. */
static unsigned usable_cores(void)
{
    cpu_set_t cores;

    return sched_getaffinity(0, sizeof cores, &cores) == 0 ? (unsigned)CPU_COUNT(&cores) : 1;
}

static void *worker_main(void *arg)
{
    struct mics_pool *pool = arg;
    uint64_t seen = 0;

    pthread_mutex_lock(&pool->lock);
    for (;;) {
        pthread_mutex_unlock(&pool->lock);
        poll_for_work(pool, seen);
        pthread_mutex_lock(&pool->lock);
        if (!pool->stop && !pool->open && pool->generation != seen) {
            seen = pool->generation; /* closed already: poll for the next */
            continue;
        }
        while (!pool->stop && (!pool->open || pool->generation == seen))
            pthread_cond_wait(&pool->work, &pool->lock);
        if (pool->stop)
            break;
        seen = pool->generation;
        pool->inside++;
        pthread_mutex_unlock(&pool->lock);
        claim_pieces(&pool->region);
        pthread_mutex_lock(&pool->lock);
        if (--pool->inside == 0)
            pthread_cond_signal(&pool->left);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

struct mics_pool *mics_pool_new(unsigned threads)
{
    struct mics_pool *pool = calloc(1, sizeof *pool);

    if (!pool)
        return NULL;
    pool->threads = threads;
    pool->polls = threads <= usable_cores() ? POLLS : 0;
    pthread_mutex_init(&pool->region_lock, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->left, NULL);
    pool->workers = calloc(threads, sizeof *pool->workers);
    pool->onednn = mics_onednn_new();
    if (!pool->workers || !pool->onednn)
        goto fail;
    for (; pool->started + 1 < threads; pool->started++) {
        pthread_t *worker = &pool->workers[pool->started];

        if (pthread_create(worker, NULL, worker_main, pool) != 0)
            goto fail;
        pthread_setname_np(*worker, "mics-pool");
    }
    return pool;
fail:
    mics_pool_free(pool);
    return NULL;
}

void mics_pool_free(struct mics_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < pool->started; i++)
        pthread_join(pool->workers[i], NULL);
    pthread_cond_destroy(&pool->left);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->region_lock);
    mics_onednn_free(pool->onednn);
    free(pool->workers);
    free(pool);
}

unsigned mics_pool_threads(const struct mics_pool *pool)
{
    return pool->threads;
}

struct mics_onednn *mics_pool_onednn(const struct mics_pool *pool)
{
    return pool->onednn;
}

/* Wake workers, as many as there are pieces for. */
static void open_region(struct mics_pool *pool, uint64_t pieces)
{
    pthread_mutex_lock(&pool->lock);
    pool->open = true;
    pool->generation++;
    if (pieces > pool->started)
        pthread_cond_broadcast(&pool->work);
    else
        for (uint64_t i = 1; i < pieces; i++)
            pthread_cond_signal(&pool->work);
    pthread_mutex_unlock(&pool->lock);
}

/* A worker that wakes later finds the region closed and sleeps again. */
static void close_region(struct mics_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->open = false;
    pthread_mutex_unlock(&pool->lock);
    poll_for_leaving(pool);
    pthread_mutex_lock(&pool->lock);
    while (pool->inside > 0)
        pthread_cond_wait(&pool->left, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

void mics_pool_run(struct mics_pool *pool, uint64_t count, uint64_t grain,
                   void (*body)(void *context, uint64_t begin, uint64_t end), void *context)
{
    if (count == 0)
        return;
    if (pool->threads == 1 || count <= grain) {
        body(context, 0, count);
        return;
    }

    uint64_t share = mics_ceil_div(count, (uint64_t)pool->threads * PIECES_PER_THREAD);
    uint64_t piece = mics_round_up(share, grain);

    pthread_mutex_lock(&pool->region_lock);
    pool->region.body = body;
    pool->region.context = context;
    pool->region.count = count;
    pool->region.piece = piece;
    atomic_store(&pool->region.next, 0);
    open_region(pool, mics_ceil_div(count, piece));
    claim_pieces(&pool->region);
    close_region(pool);
    pthread_mutex_unlock(&pool->region_lock);
}
