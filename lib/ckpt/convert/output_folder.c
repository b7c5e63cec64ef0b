/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"
#include "base/temporaries.h"
#include "base/units.h"
#include "ckpt/convert/target.h"
#include "ckpt/folder.h"
#include "comm/agree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Hold the lock of a folder until *lock is closed; -1 where there are none. */
enum mics_status mics_leftover_hold(const char *folder, int *lock, struct mics_err *err);

/* Remove the folders NAME.tmp.PID in `parent` that nobody holds. */
enum mics_status mics_leftovers_remove(const char *parent, const char *name, struct mics_err *err);

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

/* convert_folder.c - a folder that appears whole or not at all. */
/* The folder that holds `path`; of a path that has none, ".". */
static void parent_of(const char *path, char parent[MICS_PATH_MAX])
{
    char *slash;

    snprintf(parent, MICS_PATH_MAX, "%s", path);
    slash = strrchr(parent, '/');
    if (!slash)
        snprintf(parent, MICS_PATH_MAX, ".");
    else
        slash[slash == parent] = '\0';
}

/* Parents that are not there yet will be on the file system of the nearest that is. */
enum mics_status mics_free_space(const char *path, uint64_t *bytes, struct mics_err *err)
{
    char at[MICS_PATH_MAX], parent[MICS_PATH_MAX];
    struct statvfs info;

    snprintf(at, sizeof at, "%s", path);
    while (statvfs(at, &info) != 0) {
        if (errno != ENOENT || strcmp(at, ".") == 0 || strcmp(at, "/") == 0)
            return mics_err_set_errno(err, "%s", at);
        parent_of(at, parent);
        memcpy(at, parent, sizeof at);
    }
    *bytes = (uint64_t)info.f_bavail * info.f_frsize;
    return MICS_OK;
}

static bool is_empty_folder(const char *path)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    bool empty = dir != NULL;

    while (empty && (entry = readdir(dir)) != NULL)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    if (dir)
        closedir(dir);
    return empty;
}

static enum mics_status check_place(const char *path, uint64_t bytes, struct mics_err *err)
{
    struct stat info;
    char need[32], have[32];
    uint64_t available;
    enum mics_status status;

    if (lstat(path, &info) == 0 && !is_empty_folder(path))
        return mics_err_set(err, MICS_ERR_ARG, "'%s' is there already, and not an empty folder",
                            path);
    status = mics_free_space(path, &available, err);
    if (status != MICS_OK || available >= bytes)
        return status;
    return mics_err_set(err, MICS_ERR_IO, "%s: no room: it needs %s, %s are free", path,
                        mics_format_bytes(bytes, need, sizeof need),
                        mics_format_bytes(available, have, sizeof have));
}

static enum mics_status make(struct mics_new_folder *folder, struct mics_err *err)
{
    char parent[MICS_PATH_MAX];
    enum mics_status status;

    parent_of(folder->final, parent);
    status = mics_file_make_folders(parent, err);
    if (status != MICS_OK)
        return status;
    if (mkdir(folder->temporary, 0777) != 0)
        return mics_err_set_errno(err, "%s", folder->temporary);
    folder->made = true;
    return mics_leftover_hold(folder->temporary, &folder->lock, err);
}

static enum mics_status name_folder(struct mics_new_folder *folder, const char *path,
                                    struct mics_err *err)
{
    enum mics_status status = mics_path_format(folder->final, err, "%s", path);
    size_t length = status == MICS_OK ? strlen(path) : 0;

    while (length > 1 && folder->final[length - 1] == '/')
        folder->final[--length] = '\0';
    return status == MICS_OK ? mics_path_format(folder->temporary, err, "%s.tmp.%ld", folder->final,
                                                (long)getpid())
                             : status;
}

/* What killed runs left takes room that this one may need. */
static enum mics_status clean_up(const struct mics_new_folder *folder, struct mics_err *err)
{
    const char *slash = strrchr(folder->final, '/');
    char parent[MICS_PATH_MAX];

    parent_of(folder->final, parent);
    return mics_leftovers_remove(parent, slash ? slash + 1 : folder->final, err);
}

/* Whichever rank is told to end removes it. */
static enum mics_status remember(struct mics_new_folder *folder, const char *path,
                                 struct mics_err *err)
{
    const size_t bytes = (folder->entry_count + 1) * sizeof *folder->entries;
    struct mics_temporary **entries = realloc(folder->entries, bytes), *entry;
    char *copy = entries ? strdup(path) : NULL;

    if (entries)
        folder->entries = entries;
    entry = copy ? mics_temporary_add(copy) : NULL;
    if (!entry) {
        free(copy);
        return mics_err_nomem(err);
    }
    entries[folder->entry_count++] = entry;
    return MICS_OK;
}

enum mics_status mics_new_folder_remember(struct mics_new_folder *folder, const char *name,
                                          struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(path, err, "%s/%s", folder->temporary, name);

    return status == MICS_OK ? remember(folder, path, err) : status;
}

enum mics_status mics_new_folder_begin(struct mics_new_folder *folder, struct mics_comm *comm,
                                       const char *path, uint64_t bytes, bool dry,
                                       struct mics_err *err)
{
    enum mics_status status = name_folder(folder, path, err);

    folder->lock = -1;
    if (status == MICS_OK && comm->rank == 0 && !dry)
        status = clean_up(folder, err);
    if (status == MICS_OK && comm->rank == 0)
        status = check_place(folder->final, bytes, err);
    status = mics_agree(comm, status, err);
    if (status != MICS_OK || dry)
        return status;
    status = comm->ops->broadcast_now(comm, folder->temporary, sizeof folder->temporary, 0, err);
    if (status == MICS_OK)
        status = remember(folder, folder->temporary, err);
    if (status == MICS_OK && comm->rank == 0)
        status = make(folder, err);
    return mics_agree(comm, status, err);
}

enum mics_status mics_new_folder_commit(struct mics_new_folder *folder, struct mics_err *err)
{
    char parent[MICS_PATH_MAX];
    enum mics_status status = mics_file_sync_folder(folder->temporary, err);

    if (status == MICS_OK && rename(folder->temporary, folder->final) != 0)
        status = mics_err_set_errno(err, "%s", folder->final);
    if (status != MICS_OK)
        return status;
    folder->made = false;
    parent_of(folder->final, parent);
    return mics_file_sync_folder(parent, err);
}

void mics_new_folder_discard(struct mics_new_folder *folder)
{
    if (folder->made)
        mics_file_remove_tree(folder->temporary, NULL);
    for (size_t i = folder->entry_count; i-- > 0;)
        mics_temporary_drop(folder->entries[i]);
    free(folder->entries);
    if (folder->lock >= 0)
        close(folder->lock);
    *folder = (struct mics_new_folder){.lock = -1};
}

enum mics_status mics_new_folder_write(struct mics_new_folder *folder, const char *name,
                                       const void *data, size_t size, struct mics_err *err)
{
    struct mics_file_writer *writer = NULL;
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(path, err, "%s/%s", folder->temporary, name);

    if (status == MICS_OK)
        status = mics_new_folder_remember(folder, name, err);
    if (status == MICS_OK)
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
