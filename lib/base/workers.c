/* SPDX-License-Identifier: Apache-2.0 */
#include "base/workers.h"

#include "base/num.h"

#include <pthread.h>
#include <sched.h>

#define MAX_THREADS 16u

unsigned mics_workers_max(uint32_t host_ranks)
{
    cpu_set_t cores;
    uint64_t count = 1;

    if (sched_getaffinity(0, sizeof cores, &cores) == 0)
        count = mics_ceil_div((uint64_t)CPU_COUNT(&cores), mics_max_u64(host_ranks, 1));
    return (unsigned)mics_min_u64(count, MAX_THREADS);
}

void mics_workers_run(void *(*work)(void *context), void *context, uint32_t host_ranks)
{
    const unsigned wanted = mics_workers_max(host_ranks);
    pthread_t threads[MAX_THREADS];
    unsigned started = 0;

    while (started + 1 < wanted && pthread_create(&threads[started], NULL, work, context) == 0)
        started++;
    work(context);
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}
