/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define LOCK_FILE   "/.lock"
#define OWNER_FILE  "/.lock-owner"
#define OWNER_LIMIT ((size_t)512)

enum outcome { LOCKED, IN_USE, UNSUPPORTED };

/* A lock that another process has, as the two calls report it; anything else is a lack of support:
 * ENOLCK, EOPNOTSUPP, ENOSYS and EINVAL, and on some network file systems EBADF, as a folder cannot
 * be open for writing. */
static enum outcome outcome_of(int code)
{
    if (code == 0)
        return LOCKED;
    return errno == EWOULDBLOCK || errno == EACCES ? IN_USE : UNSUPPORTED;
}

/* *fd = an open file whose lock was tried; -1 unless it is LOCKED. */
static enum outcome try_method(const char *folder, enum mics_lock_method method, int *fd,
                               enum mics_status *status, struct mics_err *err)
{
    const bool whole = method == MICS_LOCK_FLOCK;
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[MICS_PATH_MAX];

    *status = mics_path_format(path, err, "%s%s", folder, whole ? "" : LOCK_FILE);
    if (*status != MICS_OK)
        return UNSUPPORTED;
    *fd = whole ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                : open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (*fd < 0) {
        *status = mics_err_set_errno(err, "%s", path);
        return UNSUPPORTED;
    }
    const enum outcome outcome =
        outcome_of(whole ? flock(*fd, LOCK_EX | LOCK_NB) : fcntl(*fd, F_OFD_SETLK, &range));

    if (outcome == LOCKED)
        return LOCKED;
    close(*fd);
    *fd = -1;
    if (outcome == UNSUPPORTED && !whole)
        unlink(path);
    return outcome;
}

/* When a process began, in clock ticks since the system's start; 0: there is no such process. */
static uint64_t start_of(long pid)
{
    char path[64], *text = NULL;
    uint64_t start = 0;
    size_t size = 0;

    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    if (mics_file_read(path, 4096, &text, &size, NULL) != MICS_OK)
        return kill((pid_t)pid, 0) == 0 || errno == EPERM ? UINT64_MAX : 0;
    const char *at = strrchr(text, ')'); /* the name may have blanks */

    for (int i = 0; at && i < 20; i++)
        at = strchr(at + 1, ' ');
    if (at)
        start = strtoull(at, NULL, 10);
    free(text);
    return start;
}

static void host_name(char name[256])
{
    name[0] = '\0';
    if (gethostname(name, 256) != 0 || !name[0])
        snprintf(name, 256, "localhost");
    name[255] = '\0';
}

/* Is the owner a process of this host that has ended? Else the error says who it is, also of one
 * that is just writing the file. */
static bool is_stale(const char *path, const char *folder, struct mics_err *err)
{
    char host[256], own[256], *text = NULL;
    uint64_t start = 0;
    size_t size = 0;
    long pid = 0;

    host_name(own);
    if (mics_file_read(path, OWNER_LIMIT, &text, &size, NULL) != MICS_OK ||
        sscanf(text, "%255s %ld %" SCNu64, host, &pid, &start) != 3) {
        free(text);
        mics_err_set(err, MICS_ERR_IO, "%s: another run is using this folder; if not, remove '%s'",
                     folder, path);
        return false;
    }
    free(text);
    if (strcmp(host, own) == 0 && start_of(pid) != start)
        return true;
    mics_err_set(err, MICS_ERR_IO,
                 "%s: another run is using this folder: process %ld on %s; if that has ended, "
                 "remove '%s'",
                 folder, pid, host, path);
    return false;
}

static enum mics_status create_owner(const char *path, bool *exists, struct mics_err *err)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    char host[256], text[OWNER_LIMIT];

    *exists = fd < 0 && errno == EEXIST;
    if (fd < 0)
        return *exists ? MICS_OK : mics_err_set_errno(err, "%s", path);
    host_name(host);
    const int length = snprintf(text, sizeof text, "%s %ld %" PRIu64 "\n", host, (long)getpid(),
                                start_of((long)getpid()));
    const bool written = write(fd, text, (size_t)length) == length;
    const enum mics_status status = written ? MICS_OK : mics_err_set_errno(err, "%s", path);

    close(fd);
    if (!written)
        unlink(path);
    return status;
}

static enum mics_status lock_owner(const char *folder, struct mics_lock *out, struct mics_err *err)
{
    bool exists = false;
    enum mics_status status = mics_path_format(out->path, err, "%s" OWNER_FILE, folder);

    for (int attempt = 0; status == MICS_OK && attempt < 2; attempt++) {
        status = create_owner(out->path, &exists, err);
        if (status != MICS_OK || !exists)
            break;
        if (attempt > 0 || !is_stale(out->path, folder, err) || unlink(out->path) != 0)
            status = MICS_ERR_IO;
    }
    if (status != MICS_OK) {
        out->path[0] = '\0';
        return status;
    }
    char *copy = strdup(out->path);

    out->owner = copy ? mics_temporary_add(copy) : NULL;
    if (copy && !out->owner)
        free(copy);
    return MICS_OK;
}

enum mics_status mics_lock_folder(const char *folder, enum mics_lock_method first,
                                  struct mics_lock *out, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    *out = MICS_LOCK_NONE;
    for (out->method = first; out->method < MICS_LOCK_OWNER; out->method++) {
        const enum outcome outcome = try_method(folder, out->method, &out->fd, &status, err);

        if (status != MICS_OK || outcome == LOCKED)
            return status;
        if (outcome == IN_USE)
            return mics_err_set(err, MICS_ERR_IO, "%s: another run is using this folder", folder);
    }
    return lock_owner(folder, out, err);
}

void mics_unlock(struct mics_lock *lock)
{
    if (lock->path[0])
        unlink(lock->path);
    if (lock->owner)
        mics_temporary_drop(lock->owner);
    if (lock->fd >= 0)
        close(lock->fd);
    *lock = MICS_LOCK_NONE;
}
