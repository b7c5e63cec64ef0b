/* SPDX-License-Identifier: Apache-2.0 */
#include "base/progress.h"

#include "base/clock.h"

#define EVERY_S 0.1

void mics_meter_init(struct mics_meter *meter, mics_progress *progress, void *context,
                     uint64_t total)
{
    meter->progress = progress;
    meter->context = context;
    meter->total = total;
    atomic_init(&meter->done, 0);
    meter->teller = pthread_self();
    meter->told_s = mics_now_s();
}

void mics_meter_add(struct mics_meter *meter, uint64_t bytes)
{
    const uint64_t done = atomic_fetch_add(&meter->done, bytes) + bytes;
    double now_s;

    if (!meter->progress || !pthread_equal(pthread_self(), meter->teller))
        return;
    now_s = mics_now_s();
    if (now_s - meter->told_s < EVERY_S)
        return;
    meter->told_s = now_s;
    meter->progress(meter->context, done, meter->total);
}
