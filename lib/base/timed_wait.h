/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timed_wait.h - waits with a limit, by the monotonic clock: setting the time of day neither ends
 * nor prolongs them. Inline, because the GPU's plug-in waits, too.
 */
#ifndef MICS_BASE_TIMED_WAIT_H
#define MICS_BASE_TIMED_WAIT_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

/* A condition whose waits mics_cond_wait_until() and mics_cond_wait_for() limit. */
static inline void mics_cond_init_timed(pthread_cond_t *cond)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* The time in `seconds`, 0 to 1e6. */
static inline struct timespec mics_deadline(double seconds)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return until;
}

/* Wait until `cond` is signalled, but not longer than `until`; false: that time has come. It may
 * return early, as any wait for a condition. The caller holds `lock`. */
static inline bool mics_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock,
                                        const struct timespec *until)
{
    return pthread_cond_timedwait(cond, lock, until) == 0;
}

static inline bool mics_cond_wait_for(pthread_cond_t *cond, pthread_mutex_t *lock, double seconds)
{
    const struct timespec until = mics_deadline(seconds);

    return mics_cond_wait_until(cond, lock, &until);
}

/* Lock within `seconds`; false: another thread has held it for so long. It is tried every
 * millisecond. */
static inline bool mics_mutex_lock_for(pthread_mutex_t *lock, double seconds)
{
    const struct timespec until = mics_deadline(seconds), pause = {.tv_nsec = 1000000};
    struct timespec now;

    while (pthread_mutex_trylock(lock) != 0) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec > until.tv_sec ||
            (now.tv_sec == until.tv_sec && now.tv_nsec >= until.tv_nsec))
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

#endif
