/* SPDX-License-Identifier: Apache-2.0 */
/* broken_readdir.c - preloaded into a program: reading a folder fails after its first three
 * entries, as on a broken disk. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

struct dirent *readdir(DIR *folder)
{
    static int count;
    struct dirent *(*next)(DIR * folder);

    if (++count > 3) {
        errno = EIO;
        return NULL;
    }
    *(void **)&next = dlsym(RTLD_NEXT, "readdir");
    return next(folder);
}
