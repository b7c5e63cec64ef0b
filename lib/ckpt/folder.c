/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/folder.h"

#include "base/dir.h"
#include "base/file.h"
#include "base/units.h"
#include "ckpt/foreign/foreign.h"
#include "ckpt/manifest.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PREFIX    "step-"
#define TEMPORARY ".tmp."
#define ASIDE     ".old"

/* A link that a run leaves which began in the place of another, with what `latest` pointed to then:
 * while the two are equal, the new run has no checkpoint, and `latest` is one of the old run. */
#define OVERWRITTEN   "overwritten"
#define NO_CHECKPOINT "none" /* there was no `latest` */

enum step_kind {
    STEP_FINAL,     /* step-000400, or step-000400.old without it */
    STEP_ASIDE,     /* step-000400.old */
    STEP_TEMPORARY, /* step-000400.tmp.PID, latest.tmp.PID, shared.tmp.PID,
                     * plan.mp.tmp.PID */
};

struct step_name {
    uint64_t step; /* 0 for names without a step */
    char name[64];
};

/* The entries of a run's folder of one kind, sorted by step. */
struct step_names {
    struct step_name *items;
    size_t count, capacity;
};

static bool parse_step_name(const char *name, enum step_kind kind, uint64_t *step)
{
    static const char *const others[] = {"latest" TEMPORARY, OVERWRITTEN TEMPORARY,
                                         "shared" TEMPORARY, "plan.mp" TEMPORARY};
    const char *digits = name + strlen(PREFIX);
    char *end;

    *step = 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strncmp(name, others[i], strlen(others[i])) == 0)
            return kind == STEP_TEMPORARY;
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || !isdigit((unsigned char)*digits))
        return false;
    *step = strtoull(digits, &end, 10);
    if (kind == STEP_TEMPORARY)
        return strstr(end, TEMPORARY) != NULL;
    return strcmp(end, ASIDE) == 0 || (kind == STEP_FINAL && *end == '\0');
}

static enum mics_status append_step_name(struct step_names *names, uint64_t step, const char *name,
                                         struct mics_err *err)
{
    struct step_name *item;

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
    snprintf(item->name, sizeof item->name, "%.*s", (int)sizeof item->name - 1, name);
    return MICS_OK;
}

static int by_step(const void *a, const void *b)
{
    const struct step_name *x = a, *y = b;

    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return (int)strlen(y->name) - (int)strlen(x->name); /* the one aside first */
}

static void free_step_names(struct step_names *names)
{
    free(names->items);
    *names = (struct step_names){0};
}

static enum mics_status read_step_names(const char *folder, enum step_kind kind,
                                        struct step_names *out, struct mics_err *err)
{
    struct mics_dir dir;
    enum mics_status status = mics_dir_open(folder, &dir, err);
    const char *name;
    uint64_t step;

    *out = (struct step_names){0};
    while (status == MICS_OK && (name = mics_dir_next(&dir)) != NULL)
        if (strlen(name) < sizeof out->items->name && parse_step_name(name, kind, &step))
            status = append_step_name(out, step, name, err);
    status = mics_dir_close(&dir, status, err);
    if (status != MICS_OK)
        free_step_names(out);
    else if (out->count)
        qsort(out->items, out->count, sizeof *out->items, by_step);
    return status;
}

static enum mics_status remove_stale_dirs(const char *out, struct mics_err *err)
{
    struct step_names names = {0};
    enum mics_status status = read_step_names(out, STEP_TEMPORARY, &names, err);
    char path[MICS_PATH_MAX];

    for (size_t i = 0; status == MICS_OK && i < names.count; i++) {
        status = mics_path_format(path, err, "%s/%s", out, names.items[i].name);
        if (status == MICS_OK)
            status = mics_file_remove_tree(path, err);
    }
    free_step_names(&names);
    return status;
}

static bool holds_manifest(const char *folder)
{
    char path[MICS_PATH_MAX];

    return mics_path_format(path, NULL, "%s/" MICS_MANIFEST_NAME, folder) == MICS_OK &&
           access(path, F_OK) == 0;
}

/* A run was killed while it replaced a checkpoint: put the old one back, or remove it if the new
 * one is in its place. */
static enum mics_status restore_aside(const char *out, const char *name, struct mics_err *err)
{
    char path[MICS_PATH_MAX], final[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(path, err, "%s/%s", out, name);

    if (status != MICS_OK)
        return status;
    status = mics_path_format(final, err, "%.*s", (int)(strlen(path) - strlen(ASIDE)), path);
    if (status != MICS_OK)
        return status;
    if (holds_manifest(final))
        return mics_file_remove_tree(path, err);
    return rename(path, final) == 0 ? MICS_OK : mics_err_set_errno(err, "%s", path);
}

static enum mics_status restore_all_aside(const char *out, struct mics_err *err)
{
    struct step_names names = {0};
    enum mics_status status = read_step_names(out, STEP_ASIDE, &names, err);

    for (size_t i = 0; status == MICS_OK && i < names.count; i++)
        status = restore_aside(out, names.items[i].name, err);
    free_step_names(&names);
    return status;
}

void mics_checkpoint_locate(char *path)
{
    const size_t length = strlen(path), suffix = strlen(ASIDE);

    if (length > suffix && strcmp(path + length - suffix, ASIDE) == 0 && access(path, F_OK) != 0)
        path[length - suffix] = '\0';
}

enum mics_status mics_run_folder_open(const char *out, struct mics_lock *lock, struct mics_err *err)
{
    enum mics_status status = mics_file_make_folders(out, err);

    if (status != MICS_OK)
        return status;
    if (access(out, W_OK | X_OK) != 0)
        return mics_err_set_errno(err, "%s", out);
    status = mics_lock_folder(out, MICS_LOCK_FLOCK, lock, err);
    if (status != MICS_OK)
        return status;
    status = restore_all_aside(out, err);
    if (status == MICS_OK)
        status = remove_stale_dirs(out, err);
    if (status != MICS_OK)
        mics_unlock(lock);
    return status;
}

/* name[64] = what a link in OUT points to; empty: nothing. */
static void read_link(const char *out, const char *link_name, char name[64])
{
    char link[MICS_PATH_MAX];
    ssize_t length = -1;

    if (mics_path_format(link, NULL, "%s/%s", out, link_name) == MICS_OK)
        length = readlink(link, name, 63);
    name[length > 0 ? length : 0] = '\0';
}

/* Has a run begun in the place of the one that `latest` is of? */
static bool is_overwritten(const char *out, const char *latest)
{
    char overwritten[64];

    read_link(out, OVERWRITTEN, overwritten);
    return strcmp(overwritten, *latest ? latest : NO_CHECKPOINT) == 0;
}

enum mics_status mics_run_folder_has_checkpoints(const char *out, bool *has, struct mics_err *err)
{
    struct step_names names = {0};
    char latest[64];

    *has = false;
    read_link(out, "latest", latest);
    if (is_overwritten(out, latest))
        return MICS_OK;
    const enum mics_status status = read_step_names(out, STEP_FINAL, &names, err);

    *has = status == MICS_OK && names.count;
    free_step_names(&names);
    return status;
}

/* The newest folder that has a manifest, for a run that was killed before it created the first
 * `latest`. */
static enum mics_status find_newest(const char *out, char *buf, bool *found, struct mics_err *err)
{
    struct step_names names = {0};
    enum mics_status status = MICS_OK;

    if (access(out, F_OK) != 0) /* a run that has not begun */
        return MICS_OK;
    status = read_step_names(out, STEP_FINAL, &names, err);
    for (size_t i = names.count; status == MICS_OK && !*found && i > 0; i--) {
        status = mics_path_format(buf, err, "%s/%s", out, names.items[i - 1].name);
        *found = status == MICS_OK && holds_manifest(buf);
    }
    free_step_names(&names);
    return status;
}

/* What a folder is instead, and which command reads it. */
static enum mics_status not_a_checkpoint(const char *path, struct mics_err *err)
{
    static const char *const kinds[] = {
        [MICS_FOREIGN_TORCH_SAVE] = "a model in files of torch.save",
        [MICS_FOREIGN_DCP] = "a checkpoint of torch.distributed.checkpoint",
        [MICS_FOREIGN_DCP_SAFETENSORS] = "a checkpoint of torch.distributed.checkpoint",
        [MICS_FOREIGN_DEEPSPEED] = "a checkpoint of DeepSpeed",
    };

    if (mics_hf_is_folder(path))
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "'%s' is a model in Hugging Face files: 'mics-shard list' shows its "
                            "tensors, and 'mics-shard split' makes a checkpoint of it",
                            path);
    const enum mics_foreign_format format = mics_foreign_recognize(&path, 1);

    if (format != MICS_FOREIGN_NONE)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "'%s' is %s: 'mics-shard split' makes a checkpoint of it", path,
                            kinds[format]);
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "'%s' is no checkpoint: it has neither %s nor latest/%s, and no "
                        "model.safetensors either",
                        path, MICS_MANIFEST_NAME, MICS_MANIFEST_NAME);
}

enum mics_status mics_checkpoint_find(const char *path, bool automatic, char *buf, bool *found,
                                      struct mics_err *err)
{
    enum mics_status status = mics_path_format(buf, err, "%s", path);
    char latest[64];

    *found = status == MICS_OK && holds_manifest(buf);
    if (status != MICS_OK || *found)
        return status;
    read_link(path, "latest", latest);
    if (automatic && is_overwritten(path, latest))
        return MICS_OK;
    status = mics_path_format(buf, err, "%s/latest", path);
    *found = status == MICS_OK && holds_manifest(buf);
    if (status == MICS_OK && !*found) {
        status = mics_path_format(buf, err, "%s/%s" ASIDE, path, latest);
        *found = status == MICS_OK && *latest && holds_manifest(buf);
        if (status == MICS_OK && !*found)
            status = find_newest(path, buf, found, err);
    }
    if (status != MICS_OK || *found || automatic)
        return status;
    return not_a_checkpoint(path, err);
}

enum mics_status mics_checkpoint_paths(const char *out, uint64_t step, char *final, char *temporary,
                                       struct mics_err *err)
{
    enum mics_status status =
        mics_path_format(final, err, "%s/step-%06llu", out, (unsigned long long)step);

    if (status != MICS_OK)
        return status;
    return mics_path_format(temporary, err, "%s.tmp.%ld", final, (long)getpid());
}

enum mics_status mics_free_space(const char *path, uint64_t *bytes, struct mics_err *err)
{
    char at[MICS_PATH_MAX], parent[MICS_PATH_MAX];
    struct statvfs info;

    snprintf(at, sizeof at, "%s", path);
    while (statvfs(at, &info) != 0) {
        if (errno != ENOENT || strcmp(at, ".") == 0 || strcmp(at, "/") == 0)
            return mics_err_set_errno(err, "%s", at);
        mics_path_parent(at, parent);
        memcpy(at, parent, sizeof at);
    }
    *bytes = (uint64_t)info.f_bavail * info.f_frsize;
    return MICS_OK;
}

enum mics_status mics_check_space(const char *path, uint64_t bytes, const char *what,
                                  struct mics_err *err)
{
    char need[32], have[32];
    uint64_t available = 0;
    const enum mics_status status = mics_free_space(path, &available, err);

    if (status != MICS_OK || available >= bytes)
        return status;
    return mics_err_set(err, MICS_ERR_IO, "%s: no room for %s: it needs %s, %s are free", path,
                        what, mics_format_bytes(bytes, need, sizeof need),
                        mics_format_bytes(available, have, sizeof have));
}

/* Replace the link `link_name` in OUT, or create it. */
static enum mics_status set_link(const char *out, const char *link_name, const char *name,
                                 struct mics_err *err)
{
    char link[MICS_PATH_MAX], temporary[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(link, err, "%s/%s", out, link_name);

    if (status != MICS_OK)
        return status;
    status = mics_path_format(temporary, err, "%s.tmp.%ld", link, (long)getpid());
    if (status != MICS_OK)
        return status;
    unlink(temporary);
    if (symlink(name, temporary) != 0)
        return mics_err_set_errno(err, "%s", temporary);
    if (rename(temporary, link) != 0) {
        mics_err_set_errno(err, "%s", link);
        unlink(temporary);
        return MICS_ERR_IO;
    }
    return MICS_OK;
}

/* For file systems that cannot exchange two folders, as NFS and Lustre. At each moment the old or
 * the new checkpoint is there, under its own name or aside. */
static enum mics_status replace_in_turn(const char *temporary, const char *final,
                                        struct mics_err *err)
{
    char aside[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(aside, err, "%s" ASIDE, final);

    if (status != MICS_OK)
        return status;
    status = mics_file_remove_tree(aside, err); /* `final` is there: this one is older */
    if (status != MICS_OK)
        return status;
    if (rename(final, aside) != 0)
        return mics_err_set_errno(err, "%s", final);
    if (rename(temporary, final) != 0) {
        mics_err_set_errno(err, "%s", final);
        return rename(aside, final) == 0 ? MICS_ERR_IO
                                         : mics_err_set_errno(err, "%s: left there", aside);
    }
    return mics_file_remove_tree(aside, err);
}

/* If there is a checkpoint of the same step, exchange the two atomically where the file system can;
 * the old one is then removed under the temporary name. */
static enum mics_status move_into_place(const char *temporary, const char *final,
                                        struct mics_err *err)
{
    if (rename(temporary, final) == 0)
        return MICS_OK;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return mics_err_set_errno(err, "%s", final);
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, final, RENAME_EXCHANGE) == 0)
        return mics_file_remove_tree(temporary, err);
    if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP)
        return replace_in_turn(temporary, final, err);
    return mics_err_set_errno(err, "%s: cannot replace the checkpoint there", final);
}

static enum mics_status remove_overwritten(const char *out, struct mics_err *err)
{
    char link[MICS_PATH_MAX];
    const enum mics_status status = mics_path_format(link, err, "%s/" OVERWRITTEN, out);

    if (status == MICS_OK && unlink(link) != 0 && errno != ENOENT)
        return mics_err_set_errno(err, "%s", link);
    return status;
}

enum mics_status mics_checkpoint_publish(const char *out, const char *temporary, const char *final,
                                         struct mics_err *err)
{
    enum mics_status status = mics_file_sync_folder(temporary, err);

    if (status != MICS_OK)
        return status;
    status = move_into_place(temporary, final, err);
    if (status != MICS_OK)
        return status;
    status = mics_file_sync_folder(out, err);
    if (status != MICS_OK)
        return status;
    status = set_link(out, "latest", strrchr(final, '/') + 1, err);
    if (status != MICS_OK)
        return status;
    status = remove_overwritten(out, err);
    if (status != MICS_OK)
        return status;
    return mics_file_sync_folder(out, err);
}

static enum mics_status remove_checkpoint(const char *out, const char *name, struct mics_err *err)
{
    char path[MICS_PATH_MAX], temporary[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(path, err, "%s/%s", out, name);

    if (status != MICS_OK)
        return status;
    status = mics_path_format(temporary, err, "%s.tmp.%ld", path, (long)getpid());
    if (status != MICS_OK)
        return status;
    if (rename(path, temporary) != 0)
        return mics_err_set_errno(err, "%s", path);
    return mics_file_remove_tree(temporary, err);
}

enum mics_status mics_run_folder_begin(const char *out, struct mics_err *err)
{
    char latest[64];

    read_link(out, "latest", latest);
    const enum mics_status status =
        set_link(out, OVERWRITTEN, *latest ? latest : NO_CHECKPOINT, err);

    return status == MICS_OK ? mics_file_sync_folder(out, err) : status;
}

enum mics_status mics_checkpoint_prune(const char *out, const struct mics_keep *keep,
                                       uint64_t before, uint64_t saved, struct mics_err *err)
{
    struct step_names names = {0};
    enum mics_status status = MICS_OK;
    uint64_t newer = 0; /* checkpoints of this run that are newer than this one */

    if (keep->last == 0 && !keep->discard_later)
        return MICS_OK;
    status = read_step_names(out, STEP_FINAL, &names, err);
    for (size_t i = names.count; status == MICS_OK && i > 0; i--) {
        const struct step_name *name = &names.items[i - 1];
        const bool is_later = name->step > saved;
        const bool is_passed = name->step < saved && name->step > before;

        if (is_later ? !keep->discard_later : keep->last == 0)
            continue;
        if (keep->every && name->step % keep->every == 0)
            newer += !is_later && !is_passed;
        else if (is_later || is_passed || newer++ >= keep->last)
            status = remove_checkpoint(out, name->name, err);
    }
    free_step_names(&names);
    return status;
}
