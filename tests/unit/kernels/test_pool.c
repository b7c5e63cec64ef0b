/* SPDX-License-Identifier: Apache-2.0 */
#include "host/pool.h"
#include "tap.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { COUNT = 100003 };

struct marks {
    atomic_uchar seen[COUNT];
    atomic_uint misaligned;
    uint64_t grain;
};

static void mark(void *context, uint64_t begin, uint64_t end)
{
    struct marks *marks = context;

    if (begin % marks->grain != 0 || (end != COUNT && end - begin < marks->grain))
        atomic_fetch_add(&marks->misaligned, 1);
    for (uint64_t i = begin; i < end; i++)
        atomic_fetch_add(&marks->seen[i], 1);
}

static void check_marks(unsigned threads, uint64_t grain)
{
    struct marks *marks = calloc(1, sizeof *marks);
    struct mics_pool *pool = mics_pool_new(threads);
    int wrong = 0;

    marks->grain = grain;
    mics_pool_run(pool, COUNT, grain, mark, marks);
    for (int i = 0; i < COUNT; i++)
        wrong += marks->seen[i] != 1;
    CHECK_INT(wrong, 0);
    CHECK_INT(marks->misaligned, 0);
    mics_pool_free(pool);
    free(marks);
}

static void every_item_is_visited_once_in_pieces_that_begin_at_the_grain(void)
{
    for (unsigned threads = 1; threads <= 5; threads++) {
        check_marks(threads, 1);
        check_marks(threads, 64);
        check_marks(threads, 1000);
        check_marks(threads, 200000);
    }
}

static void never(void *context, uint64_t begin, uint64_t end)
{
    (void)begin, (void)end;
    *(int *)context = 1;
}

static void an_empty_region_calls_nothing(void)
{
    struct mics_pool *pool = mics_pool_new(3);
    int called = 0;

    mics_pool_run(pool, 0, 1, never, &called);
    CHECK_INT(called, 0);
    CHECK_INT(mics_pool_threads(pool), 3);
    mics_pool_free(pool);
    mics_pool_free(NULL);
}

struct caller {
    struct mics_pool *pool;
    uint64_t total;
    int rounds;
};

struct sum {
    atomic_uint_fast64_t total;
};

static void add_up(void *context, uint64_t begin, uint64_t end)
{
    struct sum *sum = context;

    for (uint64_t i = begin; i < end; i++)
        atomic_fetch_add(&sum->total, i);
}

static void *run_regions(void *context)
{
    struct caller *caller = context;

    for (int i = 0; i < caller->rounds; i++) {
        struct sum sum = {0};

        mics_pool_run(caller->pool, 1000, 10, add_up, &sum);
        caller->total += sum.total;
    }
    return NULL;
}

static void regions_of_several_callers_take_turns(void)
{
    enum { CALLERS = 4, ROUNDS = 200 };
    struct mics_pool *pool = mics_pool_new(3);
    struct caller callers[CALLERS];
    pthread_t threads[CALLERS];

    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){.pool = pool, .rounds = ROUNDS};
        pthread_create(&threads[i], NULL, run_regions, &callers[i]);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
        CHECK_INT(callers[i].total, ROUNDS * 499500);
    }
    mics_pool_free(pool);
}

int main(void)
{
    TAP_RUN(every_item_is_visited_once_in_pieces_that_begin_at_the_grain);
    TAP_RUN(an_empty_region_calls_nothing);
    TAP_RUN(regions_of_several_callers_take_turns);
    return tap_done();
}
