/* SPDX-License-Identifier: Apache-2.0 */
/* clock_ahead.c - preloaded into a program: the time of day is an hour ahead of the kernel's, so
 * that a wait until a time of day lasts an hour too long, as after a clock was set back. */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    const int code = (int)syscall(SYS_clock_gettime, clock, now);

    if (code == 0 && clock == CLOCK_REALTIME)
        now->tv_sec += 3600;
    return code;
}
