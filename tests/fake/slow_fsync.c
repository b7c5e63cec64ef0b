/* SPDX-License-Identifier: Apache-2.0 */
/* slow_fsync.c - preloaded into a program: fsync() takes 3 seconds, as on a disk that is busy, for
 * files whose paths contain SLOW_FSYNC. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int fsync(int fd)
{
    const char *part = getenv("SLOW_FSYNC");
    int (*next)(int fd);
    char link[64], path[4096];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    if (part && length > 0) {
        path[length] = '\0';
        if (strstr(path, part))
            sleep(3);
    }
    *(void **)&next = dlsym(RTLD_NEXT, "fsync");
    return next(fd);
}
