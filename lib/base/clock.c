/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <errno.h>
#include <time.h>

static double read_clock(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double mics_now_s(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double mics_process_cpu_s(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

void mics_sleep_s(double seconds)
{
    struct timespec left = {.tv_sec = (time_t)seconds};

    left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}
