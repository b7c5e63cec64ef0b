/* SPDX-License-Identifier: Apache-2.0 */
/* folder.c - making, removing and syncing folders. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* 0 if `path` is a folder now, else -1 with errno. */
static int make_one(const char *path)
{
    struct stat found;

    if (mkdir(path, 0777) == 0)
        return 0;
    if (errno != EEXIST)
        return -1;
    if (stat(path, &found) != 0)
        return -1;
    errno = ENOTDIR;
    return S_ISDIR(found.st_mode) ? 0 : -1;
}

enum mics_status mics_file_make_folders(const char *path, struct mics_err *err)
{
    char *copy = strdup(path);
    int made = 0;

    if (!copy)
        return mics_err_nomem(err);
    for (char *slash = strchr(copy + (*copy == '/'), '/'); slash && made == 0;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        made = make_one(copy);
        *slash = '/';
    }
    if (made == 0)
        made = make_one(copy);
    free(copy);
    return made == 0 ? MICS_OK : mics_err_set_errno(err, "%s", path);
}

static int remove_entry(int parent, const char *name);

/* Remove all entries of an open folder; `fd` is closed. 0, or -1 with errno of the last failure. */
static int empty_folder(int fd)
{
    DIR *folder = fdopendir(fd);
    int result = 0;

    if (!folder) {
        close(fd);
        return -1;
    }
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (remove_entry(dirfd(folder), entry->d_name) != 0)
            result = errno;
    }
    closedir(folder);
    errno = result;
    return result ? -1 : 0;
}

/* Remove `name`, which is relative to the folder `parent`. What is no folder (a link, too) is unlinked. */
static int remove_entry(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        return unlinkat(parent, name, 0);
    if (fd < 0)
        return errno == ENOENT ? 0 : -1;
    if (empty_folder(fd) != 0)
        return -1;
    return unlinkat(parent, name, AT_REMOVEDIR);
}

enum mics_status mics_file_remove_tree(const char *path, struct mics_err *err)
{
    if (remove_entry(AT_FDCWD, path) != 0)
        return mics_err_set_errno(err, "%s", path);
    return MICS_OK;
}

enum mics_status mics_file_sync_folder(const char *path, struct mics_err *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return mics_err_set_errno(err, "%s", path);
    /* Some network file systems cannot sync a folder, and say so with EINVAL. */
    bool failed = fsync(fd) != 0 && errno != EINVAL;
    enum mics_status status = failed ? mics_err_set_errno(err, "%s: fsync", path) : MICS_OK;
    close(fd);
    return status;
}
