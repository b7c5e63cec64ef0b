/* SPDX-License-Identifier: Apache-2.0 */
#include "base/progress.h"

#include "base/clock.h"

#define REPORT_INTERVAL_S 0.1

void mics_progress_init(struct mics_progress *progress, mics_progress_callback *callback,
                        void *context, uint64_t total)
{
    progress->callback = callback;
    progress->context = context;
    progress->total = total;
    atomic_init(&progress->done, 0);
    progress->reporter = pthread_self();
    progress->reported_s = mics_now_s();
}

void mics_progress_add(struct mics_progress *progress, uint64_t bytes)
{
    const uint64_t done = atomic_fetch_add(&progress->done, bytes) + bytes;
    double now_s;

    if (!progress->callback || !pthread_equal(pthread_self(), progress->reporter))
        return;
    now_s = mics_now_s();
    if (now_s - progress->reported_s < REPORT_INTERVAL_S)
        return;
    progress->reported_s = now_s;
    progress->callback(progress->context, done, progress->total);
}
