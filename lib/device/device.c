/* SPDX-License-Identifier: Apache-2.0 */
#include "device/device.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

/* Cores that this process may run on. */
static unsigned allowed_cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return (unsigned)CPU_COUNT(&set);

    long online = sysconf(_SC_NPROCESSORS_ONLN); /* more cores than a cpu_set_t holds */
    return online > 0 ? (unsigned)online : 1;
}

unsigned mics_threads_per_rank(unsigned local_size)
{
    const char *text = getenv("MICS_THREADS");

    if (text && *text) {
        char *end;

        errno = 0;
        long threads = strtol(text, &end, 10);
        return !*end && !errno && threads >= 1 && threads <= MICS_THREADS_MAX ? (unsigned)threads
                                                                              : 0;
    }

    unsigned threads = allowed_cores() / (local_size ? local_size : 1);
    if (threads < 1)
        return 1;
    return threads < MICS_THREADS_MAX ? threads : MICS_THREADS_MAX;
}
