/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/folder.h"

#include "base/file.h"
#include "base/units.h"
#include "ckpt/manifest.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum mics_step_kind {
    MICS_STEP_FINAL,     /* step-000400 */
    MICS_STEP_TEMPORARY, /* step-000400.tmp.TAG, latest.tmp.TAG, shared.tmp.TAG */
};

struct mics_step_name {
    uint64_t step; /* 0 of what has none */
    char name[64];
};

struct mics_step_names {
    struct mics_step_name *items; /* by step */
    size_t count, capacity;
};

enum mics_status mics_step_names_read(const char *folder, enum mics_step_kind kind,
                                      struct mics_step_names *out, struct mics_err *err);
void mics_step_names_free(struct mics_step_names *names); /* of zeros is fine */

#define PREFIX    "step-"
#define TEMPORARY ".tmp."

static bool parse(const char *name, enum mics_step_kind kind, uint64_t *step)
{
    static const char *const others[] = {"latest" TEMPORARY, "shared" TEMPORARY};
    const char *digits = name + strlen(PREFIX);
    char *end;

    *step = 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strncmp(name, others[i], strlen(others[i])) == 0)
            return kind == MICS_STEP_TEMPORARY;
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || !isdigit((unsigned char)*digits))
        return false;
    *step = strtoull(digits, &end, 10);
    return kind == MICS_STEP_FINAL ? *end == '\0' : strncmp(end, TEMPORARY, strlen(TEMPORARY)) == 0;
}

static enum mics_status append(struct mics_step_names *names, uint64_t step, const char *name,
                               struct mics_err *err)
{
    struct mics_step_name *item;

    if (names->count == names->capacity) {
        size_t capacity = names->capacity ? 2 * names->capacity : 16;

        item = realloc(names->items, capacity * sizeof *item);
        if (!item)
            return mics_err_nomem(err);
        names->items = item;
        names->capacity = capacity;
    }
    item = &names->items[names->count++];
    item->step = step;
    snprintf(item->name, sizeof item->name, "%s", name);
    return MICS_OK;
}

static int by_step(const void *a, const void *b)
{
    const struct mics_step_name *x = a, *y = b;

    return (x->step > y->step) - (x->step < y->step);
}

enum mics_status mics_step_names_read(const char *folder, enum mics_step_kind kind,
                                      struct mics_step_names *out, struct mics_err *err)
{
    DIR *dir = opendir(folder);
    enum mics_status status = MICS_OK;
    const struct dirent *entry;
    uint64_t step;

    *out = (struct mics_step_names){0};
    if (!dir)
        return mics_err_set_errno(err, "%s", folder);
    while (status == MICS_OK && (entry = readdir(dir)) != NULL)
        if (strlen(entry->d_name) < sizeof out->items->name && parse(entry->d_name, kind, &step))
            status = append(out, step, entry->d_name, err);
    closedir(dir);
    if (status != MICS_OK)
        mics_step_names_free(out);
    else if (out->count)
        qsort(out->items, out->count, sizeof *out->items, by_step);
    return status;
}

void mics_step_names_free(struct mics_step_names *names)
{
    free(names->items);
    *names = (struct mics_step_names){0};
}

enum mics_status mics_path_format(char *buf, struct mics_err *err, const char *fmt, ...)
{
    va_list args;
    int length;

    va_start(args, fmt);
    length = vsnprintf(buf, MICS_PATH_MAX, fmt, args);
    va_end(args);
    if (length < 0 || length >= MICS_PATH_MAX)
        return mics_err_set(err, MICS_ERR_ARG, "'%.60s...': the path is too long", buf);
    return MICS_OK;
}

static enum mics_status lock_folder(const char *out, int *lock, struct mics_err *err)
{
    int fd = open(out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return mics_err_set_errno(err, "%s", out);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(fd);
        return mics_err_set(err, MICS_ERR_IO, "%s: another run is using this folder", out);
    }
    *lock = fd; /* a file system without locks gives none: then it is the user's care */
    return MICS_OK;
}

static enum mics_status remove_leftovers(const char *out, struct mics_err *err)
{
    struct mics_step_names names = {0};
    enum mics_status status = mics_step_names_read(out, MICS_STEP_TEMPORARY, &names, err);
    char path[MICS_PATH_MAX];

    for (size_t i = 0; status == MICS_OK && i < names.count; i++) {
        status = mics_path_format(path, err, "%s/%s", out, names.items[i].name);
        if (status == MICS_OK)
            status = mics_file_remove_tree(path, err);
    }
    mics_step_names_free(&names);
    return status;
}

enum mics_status mics_run_folder_open(const char *out, int *lock, struct mics_err *err)
{
    enum mics_status status = mics_file_make_folders(out, err);

    if (status == MICS_OK && access(out, W_OK | X_OK) != 0)
        status = mics_err_set_errno(err, "%s", out);
    if (status == MICS_OK)
        status = lock_folder(out, lock, err);
    if (status != MICS_OK)
        return status;
    status = remove_leftovers(out, err);
    if (status != MICS_OK)
        close(*lock);
    return status;
}

bool mics_run_folder_has_checkpoints(const char *out)
{
    struct mics_step_names names = {0};
    bool found = mics_step_names_read(out, MICS_STEP_FINAL, &names, NULL) == MICS_OK && names.count;

    mics_step_names_free(&names);
    return found;
}

static bool holds_manifest(const char *folder)
{
    char path[MICS_PATH_MAX];

    return mics_path_format(path, NULL, "%s/" MICS_MANIFEST_NAME, folder) == MICS_OK &&
           access(path, F_OK) == 0;
}

/* The last step's folder with a manifest; for a run that was killed between its first checkpoint and `latest`. */
static enum mics_status find_newest(const char *out, char *buf, bool *found, struct mics_err *err)
{
    struct mics_step_names names = {0};
    enum mics_status status = MICS_OK;

    if (mics_step_names_read(out, MICS_STEP_FINAL, &names, NULL) != MICS_OK)
        return MICS_OK; /* no such folder: nothing is found */
    for (size_t i = names.count; status == MICS_OK && !*found && i > 0; i--) {
        status = mics_path_format(buf, err, "%s/%s", out, names.items[i - 1].name);
        *found = status == MICS_OK && holds_manifest(buf);
    }
    mics_step_names_free(&names);
    return status;
}

enum mics_status mics_checkpoint_find(const char *path, bool automatic, char *buf, bool *found,
                                      struct mics_err *err)
{
    enum mics_status status = mics_path_format(buf, err, "%s", path);

    *found = status == MICS_OK && holds_manifest(buf);
    if (status != MICS_OK || *found)
        return status;
    status = mics_path_format(buf, err, "%s/latest", path);
    *found = status == MICS_OK && holds_manifest(buf);
    if (status == MICS_OK && !*found)
        status = find_newest(path, buf, found, err);
    if (status != MICS_OK || *found || automatic)
        return status;
    return mics_err_set(err, MICS_ERR_FORMAT, "'%s' holds no checkpoint (neither %s nor latest/%s)",
                        path, MICS_MANIFEST_NAME, MICS_MANIFEST_NAME);
}

enum mics_status mics_checkpoint_paths(const char *out, uint64_t step, char *final, char *temporary,
                                       struct mics_err *err)
{
    enum mics_status status =
        mics_path_format(final, err, "%s/step-%06llu", out, (unsigned long long)step);

    if (status == MICS_OK)
        status = mics_path_format(temporary, err, "%s.tmp.%ld", final, (long)getpid());
    return status;
}

enum mics_status mics_check_space(const char *out, uint64_t bytes, struct mics_err *err)
{
    struct statvfs info;
    char need[32], have[32];
    uint64_t available;

    if (statvfs(out, &info) != 0)
        return mics_err_set_errno(err, "%s", out);
    available = (uint64_t)info.f_bavail * info.f_frsize;
    if (available >= bytes)
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_IO,
                        "%s: no room for the checkpoint: it needs %s, %s are free", out,
                        mics_format_bytes(bytes, need, sizeof need),
                        mics_format_bytes(available, have, sizeof have));
}

static enum mics_status point_latest(const char *out, const char *final, struct mics_err *err)
{
    char link[MICS_PATH_MAX], temporary[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(link, err, "%s/latest", out);

    if (status == MICS_OK)
        status = mics_path_format(temporary, err, "%s/latest.tmp.%ld", out, (long)getpid());
    if (status != MICS_OK)
        return status;
    unlink(temporary);
    if (symlink(strrchr(final, '/') + 1, temporary) != 0)
        return mics_err_set_errno(err, "%s", temporary);
    if (rename(temporary, link) != 0) {
        mics_err_set_errno(err, "%s", link);
        unlink(temporary);
        return MICS_ERR_IO;
    }
    return MICS_OK;
}

/* An older checkpoint of the same step changes places with the new one in one system call, and is
 * then removed under its temporary name. */
static enum mics_status put_in_place(const char *temporary, const char *final, struct mics_err *err)
{
    if (rename(temporary, final) == 0)
        return MICS_OK;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return mics_err_set_errno(err, "%s", final);
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, final, RENAME_EXCHANGE) != 0)
        return mics_err_set_errno(err, "%s: cannot replace the checkpoint there", final);
    return mics_file_remove_tree(temporary, err);
}

enum mics_status mics_checkpoint_publish(const char *out, const char *temporary, const char *final,
                                         struct mics_err *err)
{
    enum mics_status status = mics_file_sync_folder(temporary, err);

    if (status == MICS_OK)
        status = put_in_place(temporary, final, err);
    if (status == MICS_OK)
        status = mics_file_sync_folder(out, err);
    if (status == MICS_OK)
        status = point_latest(out, final, err);
    return status == MICS_OK ? mics_file_sync_folder(out, err) : status;
}

static enum mics_status remove_checkpoint(const char *out, const char *name, struct mics_err *err)
{
    char path[MICS_PATH_MAX], temporary[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(path, err, "%s/%s", out, name);

    if (status == MICS_OK)
        status = mics_path_format(temporary, err, "%s.tmp.%ld", path, (long)getpid());
    if (status != MICS_OK)
        return status;
    if (rename(path, temporary) != 0)
        return mics_err_set_errno(err, "%s", path);
    return mics_file_remove_tree(temporary, err);
}

enum mics_status mics_checkpoint_prune(const char *out, const struct mics_keep *keep,
                                       uint64_t saved, struct mics_err *err)
{
    struct mics_step_names names = {0};
    enum mics_status status = MICS_OK;
    uint64_t newer = 0; /* than the present one, up to the one just saved */

    if (keep->last == 0)
        return MICS_OK;
    status = mics_step_names_read(out, MICS_STEP_FINAL, &names, err);
    for (size_t i = names.count; status == MICS_OK && i > 0; i--) {
        const struct mics_step_name *name = &names.items[i - 1];
        const bool left_over = name->step > saved;

        if (keep->every && name->step % keep->every == 0)
            newer += !left_over;
        else if (left_over || newer++ >= keep->last)
            status = remove_checkpoint(out, name->name, err);
    }
    mics_step_names_free(&names);
    return status;
}
