/* SPDX-License-Identifier: Apache-2.0 */
#include "device/device.h"

#include "base/cgroup.h"

#include <errno.h>
#include <stdlib.h>

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

    unsigned threads = mics_processors() / (local_size ? local_size : 1);
    if (threads < 1)
        return 1;
    return threads < MICS_THREADS_MAX ? threads : MICS_THREADS_MAX;
}
