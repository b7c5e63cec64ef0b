/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/convert/stale_dirs.h"

#include "base/file.h"
#include "ckpt/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define MARK ".tmp."

/* The lock of a folder, or -1: somebody has it, there is none to be had, or it is no folder. */
static int try_lock(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

enum mics_status mics_leftover_hold(const char *folder, int *lock, struct mics_err *err)
{
    *lock = try_lock(folder);
    if (*lock < 0 && errno == EWOULDBLOCK)
        return mics_err_set(err, MICS_ERR_IO, "%s: another run is using this folder", folder);
    return MICS_OK;
}

static bool is_leftover(const char *entry, const char *name)
{
    const size_t length = strlen(name);
    const char *digits = entry + length + strlen(MARK);

    return strncmp(entry, name, length) == 0 && strncmp(entry + length, MARK, strlen(MARK)) == 0 &&
           *digits && digits[strspn(digits, "0123456789")] == '\0';
}

static enum mics_status remove_one(const char *parent, const char *entry, struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(path, err, "%s/%s", parent, entry);
    const int lock = status == MICS_OK ? try_lock(path) : -1;

    if (lock < 0)
        return status;
    status = mics_file_remove_tree(path, err);
    close(lock);
    return status;
}

enum mics_status mics_leftovers_remove(const char *parent, const char *name, struct mics_err *err)
{
    DIR *folder = opendir(parent);
    enum mics_status status = MICS_OK;

    if (!folder)
        return errno == ENOENT ? MICS_OK : mics_err_set_errno(err, "%s", parent);
    for (struct dirent *entry = readdir(folder); entry && status == MICS_OK;
         entry = readdir(folder))
        if (is_leftover(entry->d_name, name))
            status = remove_one(parent, entry->d_name, err);
    closedir(folder);
    return status;
}
