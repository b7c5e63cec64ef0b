/* SPDX-License-Identifier: Apache-2.0 */
/* output_folder.c - a folder that appears complete or not at all. */
#include "ckpt/convert/target.h"

#include "base/dir.h"
#include "base/file.h"
#include "ckpt/folder.h"
#include "comm/agree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMPORARY ".tmp."

/* The lock of a folder, until the descriptor is closed. -1 with errno: another process has the
 * lock, the file system has no locks, or `path` is not a folder. While a folder is written, it is
 * called NAME.tmp.PID and its writer has the lock: a folder that can be locked is stale. Stale
 * folders stay on a file system without locks. */
static int try_lock(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        const int code = errno;

        close(fd);
        errno = code;
        return -1;
    }
    return fd;
}

/* Is `entry` NAME.tmp.PID? */
static bool is_temporary_of(const char *entry, const char *name)
{
    const size_t length = strlen(name), mark = strlen(TEMPORARY);
    const char *digits;

    if (strncmp(entry, name, length) != 0 || strncmp(entry + length, TEMPORARY, mark) != 0)
        return false;
    digits = entry + length + mark;
    return *digits && digits[strspn(digits, "0123456789")] == '\0';
}

static enum mics_status remove_if_stale(const char *parent, const char *entry, struct mics_err *err)
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

/* Remove the stale folders NAME.tmp.PID beside `path`, which ends with NAME. */
static enum mics_status remove_stale(const char *path, struct mics_err *err)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *entry;
    char parent[MICS_PATH_MAX];
    struct mics_dir dir;
    enum mics_status status;

    mics_path_parent(path, parent);
    if (access(parent, F_OK) != 0 && errno == ENOENT)
        return MICS_OK;
    status = mics_dir_open(parent, &dir, err);
    while (status == MICS_OK && (entry = mics_dir_next(&dir)) != NULL)
        if (is_temporary_of(entry, name))
            status = remove_if_stale(parent, entry, err);
    return mics_dir_close(&dir, status, err);
}

static bool is_empty_folder(const char *path)
{
    struct mics_dir dir;
    enum mics_status status = mics_dir_open(path, &dir, NULL);
    const bool empty = status == MICS_OK && !mics_dir_next(&dir);

    return mics_dir_close(&dir, status, NULL) == MICS_OK && empty;
}

static enum mics_status make_folder(struct mics_output_folder *folder, struct mics_err *err)
{
    char parent[MICS_PATH_MAX];
    enum mics_status status;

    mics_path_parent(folder->final, parent);
    status = mics_file_make_folders(parent, err);
    if (status != MICS_OK)
        return status;
    if (mkdir(folder->temporary, 0777) != 0)
        return mics_err_set_errno(err, "%s", folder->temporary);
    folder->created = true;
    folder->lock = try_lock(folder->temporary);
    if (folder->lock < 0 && errno == EWOULDBLOCK)
        return mics_err_set(err, MICS_ERR_IO, "%s: another run is using this folder",
                            folder->temporary);
    return MICS_OK;
}

/* A signal may reach any of the ranks. */
enum mics_status mics_output_folder_register(struct mics_output_folder *folder, const char *name,
                                             struct mics_err *err)
{
    const size_t bytes = (folder->entry_count + 1) * sizeof *folder->entries;
    struct mics_temporary **entries = realloc(folder->entries, bytes), *entry = NULL;
    char path[MICS_PATH_MAX], *copy;

    if (!entries)
        return mics_err_nomem(err);
    folder->entries = entries;
    const enum mics_status status =
        mics_path_format(path, err, "%s%s%s", folder->temporary, name ? "/" : "", name ? name : "");
    if (status != MICS_OK)
        return status;
    copy = strdup(path);
    if (copy)
        entry = mics_temporary_add(copy);
    if (!entry) {
        free(copy);
        return mics_err_nomem(err);
    }
    entries[folder->entry_count++] = entry;
    return MICS_OK;
}

/* Rank 0, for all: is there a place for the folder? */
static enum mics_status check_place(const struct mics_output_folder *folder, uint64_t bytes,
                                    bool dry_run, struct mics_err *err)
{
    struct stat info;

    if (!dry_run) { /* stale folders take up space */
        const enum mics_status status = remove_stale(folder->final, err);

        if (status != MICS_OK)
            return status;
    }
    if (lstat(folder->final, &info) == 0 && folder->single)
        return mics_err_set(err, MICS_ERR_ARG, "'%s' exists", folder->final);
    if (lstat(folder->final, &info) == 0) {
        struct stat around, here;
        char parent[MICS_PATH_MAX];

        if (!is_empty_folder(folder->final))
            return mics_err_set(err, MICS_ERR_ARG, "'%s' exists and is not an empty folder",
                                folder->final);
        if (stat(".", &here) == 0 && here.st_dev == info.st_dev && here.st_ino == info.st_ino)
            return mics_err_set(err, MICS_ERR_ARG,
                                "'%s' is the current folder, which cannot be replaced: name a "
                                "folder in it",
                                folder->final);
        mics_path_parent(folder->final, parent);
        if (stat(parent, &around) == 0 && around.st_dev != info.st_dev)
            return mics_err_set(err, MICS_ERR_ARG,
                                "'%s' is a mount point, which cannot be replaced: name a folder "
                                "in it",
                                folder->final);
    }
    return mics_check_space(folder->final, bytes, "the result", err);
}

/* The folder that exists by this name, such as "link" or "disk/.": a link stays, and the folder
 * that it leads to is written. */
static enum mics_status resolve(struct mics_output_folder *folder, struct mics_err *err)
{
    char *target;
    enum mics_status status;

    if (folder->single || !is_empty_folder(folder->final)) /* as check_place() says */
        return MICS_OK;
    target = realpath(folder->final, NULL);
    if (!target) /* new, or a link that leads nowhere, which check_place() refuses */
        return MICS_OK;
    status = mics_path_format(folder->final, err, "%s", target);
    free(target);
    return status;
}

enum mics_status mics_output_folder_create(struct mics_output_folder *folder,
                                           struct mics_comm *comm, const char *path, uint64_t bytes,
                                           bool dry_run, struct mics_err *err)
{
    enum mics_status status = mics_path_format(folder->final, err, "%s", path);
    size_t length = status == MICS_OK ? strlen(path) : 0;

    folder->lock = -1;
    while (length > 1 &&
           (folder->final[length - 1] == '/' || strcmp(folder->final + length - 2, "/.") == 0))
        folder->final[--length] = '\0';
    if (status == MICS_OK)
        status = resolve(folder, err);
    if (status == MICS_OK)
        status =
            mics_path_format(folder->temporary, err, "%s.tmp.%ld", folder->final, (long)getpid());
    if (status == MICS_OK && comm->rank == 0)
        status = check_place(folder, bytes, dry_run, err);
    status = mics_agree(comm, status, err);
    if (status != MICS_OK || dry_run)
        return status;
    status = mics_comm_broadcast_now(comm, folder->temporary, sizeof folder->temporary, 0, err);
    if (status == MICS_OK)
        status = mics_output_folder_register(folder, NULL, err);
    if (status == MICS_OK && comm->rank == 0)
        status = make_folder(folder, err);
    return mics_agree(comm, status, err);
}

/* Give a file its final name, at which another process may have written meanwhile. */
static enum mics_status place_file(const char *file, const char *final, struct mics_err *err)
{
    struct stat info;
    bool done = renameat2(AT_FDCWD, file, AT_FDCWD, final, RENAME_NOREPLACE) == 0;

    if (!done && errno != EEXIST) /* a file system without that; the first name goes later */
        done = link(file, final) == 0;
    if (!done && errno != EEXIST && lstat(final, &info) != 0) /* and without links */
        done = rename(file, final) == 0;
    if (!done && errno == EEXIST)
        return mics_err_set(err, MICS_ERR_IO,
                            "'%s' was written by another process meanwhile, and is not replaced",
                            final);
    return done ? MICS_OK : mics_err_set_errno(err, "%s", final);
}

enum mics_status mics_output_folder_commit(struct mics_output_folder *folder, struct mics_err *err)
{
    char parent[MICS_PATH_MAX], file[MICS_PATH_MAX];
    enum mics_status status = mics_file_sync_folder(folder->temporary, err);

    if (status == MICS_OK)
        status = mics_path_format(file, err, "%s%s", folder->temporary,
                                  folder->single ? "/" MICS_SINGLE_FILE : "");
    if (status != MICS_OK)
        return status;
    if (folder->single)
        status = place_file(file, folder->final, err);
    else if (rename(file, folder->final) != 0)
        status = mics_err_set_errno(err, "%s", folder->final);
    if (status != MICS_OK)
        return status;
    folder->created = folder->single; /* then the empty folder is left */
    mics_path_parent(folder->final, parent);
    return mics_file_sync_folder(parent, err);
}

void mics_output_folder_discard(struct mics_output_folder *folder)
{
    if (folder->created)
        mics_file_remove_tree(folder->temporary, NULL);
    for (size_t i = folder->entry_count; i-- > 0;)
        mics_temporary_drop(folder->entries[i]);
    free(folder->entries);
    if (folder->lock >= 0)
        close(folder->lock);
    *folder = (struct mics_output_folder){.lock = -1};
}

enum mics_status mics_output_folder_write(struct mics_output_folder *folder, const char *name,
                                          const void *data, size_t size, struct mics_err *err)
{
    struct mics_file_writer *writer = NULL;
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(path, err, "%s/%s", folder->temporary, name);

    if (status != MICS_OK)
        return status;
    status = mics_output_folder_register(folder, name, err);
    if (status != MICS_OK)
        return status;
    status = mics_file_create(path, &writer, err);
    if (status != MICS_OK)
        return status;
    if (fwrite(data, 1, size, mics_file_stream(writer)) != size) {
        status = mics_err_set_errno(err, "%s", path);
        mics_file_discard(writer);
        return status;
    }
    return mics_file_commit(writer, err);
}
