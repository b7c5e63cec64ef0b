/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h - counts the bytes that threads have processed and reports them to a callback. */
#ifndef MICS_BASE_PROGRESS_H
#define MICS_BASE_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* `done` of `total` bytes are processed. Called by one thread only. */
typedef void mics_progress_callback(void *context, uint64_t done, uint64_t total);

struct mics_progress {
    mics_progress_callback *callback; /* or NULL */
    void *context;
    uint64_t total; /* bytes */
    _Atomic uint64_t done;
    pthread_t reporter; /* the thread that called mics_progress_init() */
    double reported_s;
};

/* Only the calling thread will call `callback`, from its own mics_progress_add(). */
void mics_progress_init(struct mics_progress *progress, mics_progress_callback *callback,
                        void *context, uint64_t total);

/* Count `bytes` more. Any thread. The callback is called at most ten times a second. */
void mics_progress_add(struct mics_progress *progress, uint64_t bytes);

#endif
