/* SPDX-License-Identifier: Apache-2.0 */
/* meter.h - how far the threads of a long work are, told now and then. */
#ifndef MICS_BASE_PROGRESS_H
#define MICS_BASE_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* Called by one thread only. */
typedef void mics_progress(void *context, uint64_t done, uint64_t total);

struct mics_meter {
    mics_progress *progress; /* or NULL */
    void *context;
    uint64_t total; /* bytes */
    _Atomic uint64_t done;
    pthread_t teller; /* who made it tells, if it works too */
    double told_s;
};

void mics_meter_init(struct mics_meter *meter, mics_progress *progress, void *context,
                     uint64_t total);

/* So many bytes more are done. Any thread; tells ten times a second at most. */
void mics_meter_add(struct mics_meter *meter, uint64_t bytes);

#endif
