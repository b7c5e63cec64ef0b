/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dir.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum mics_status mics_dir_open(const char *path, struct mics_dir *out, struct mics_err *err)
{
    *out = (struct mics_dir){.stream = opendir(path), .path = path};
    return out->stream ? MICS_OK : mics_err_set_errno(err, "%s", path);
}

enum mics_status mics_dir_open_fd(int fd, const char *path, struct mics_dir *out,
                                  struct mics_err *err)
{
    *out = (struct mics_dir){.stream = fdopendir(fd), .path = path};
    if (out->stream)
        return MICS_OK;
    const enum mics_status status = mics_err_set_errno(err, "%s", path);
    close(fd);
    return status;
}

const char *mics_dir_next(struct mics_dir *dir)
{
    const struct dirent *entry;

    do {
        errno = 0;
        entry = readdir(dir->stream);
    } while (entry && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
    if (!entry)
        dir->code = errno;
    return entry ? entry->d_name : NULL;
}

enum mics_status mics_dir_close(struct mics_dir *dir, enum mics_status status, struct mics_err *err)
{
    if (dir->stream)
        closedir(dir->stream);
    dir->stream = NULL;
    errno = dir->code;
    return status == MICS_OK && dir->code ? mics_err_set_errno(err, "%s: cannot be read", dir->path)
                                          : status;
}
