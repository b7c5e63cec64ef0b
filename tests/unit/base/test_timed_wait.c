/* SPDX-License-Identifier: Apache-2.0 */
/* test_timed_wait.c - waits end in time although the time of day is wrong. */
#include "base/clock.h"
#include "base/timed_wait.h"
#include "tap.h"

#include <sys/syscall.h>
#include <unistd.h>

/* In place of the C library's: the time of day is an hour ahead of the kernel's. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    const int code = (int)syscall(SYS_clock_gettime, clock, now);

    if (code == 0 && clock == CLOCK_REALTIME)
        now->tv_sec += 3600;
    return code;
}

static void conditions_are_waited_for_by_the_monotonic_clock(void)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    const double begin_s = mics_now_s();

    mics_cond_init_timed(&cond);
    pthread_mutex_lock(&lock);
    while (mics_cond_wait_for(&cond, &lock, 0.05))
        continue;
    pthread_mutex_unlock(&lock);
    CHECK(mics_now_s() - begin_s >= 0.05);
    CHECK(mics_now_s() - begin_s < 60);
    pthread_cond_destroy(&cond);
}

static void *lock_in_vain(void *context)
{
    return mics_mutex_lock_for(context, 0.05) ? context : NULL;
}

static void locks_are_waited_for_in_time(void)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread;
    void *locked = &lock;

    CHECK(mics_mutex_lock_for(&lock, 0));
    CHECK_INT(pthread_create(&thread, NULL, lock_in_vain, &lock), 0);
    CHECK_INT(pthread_join(thread, &locked), 0);
    CHECK(locked == NULL);
    pthread_mutex_unlock(&lock);
}

int main(void)
{
    alarm(60); /* SIGALRM ends a wait for an hour */
    TAP_RUN(conditions_are_waited_for_by_the_monotonic_clock);
    TAP_RUN(locks_are_waited_for_in_time);
    return tap_done();
}
