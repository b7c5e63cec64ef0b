/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file_set.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEMBERS_MAX   16
#define JOURNAL_BYTES (64u << 10)
#define JOURNAL_HEAD  "mics file set 1"
#define OLD           "old"    /* folder of the old members, in that of the new ones */
#define WRITTEN       "commit" /* the journal in that folder, before it takes its place */

struct member {
    char name[MICS_PATH_MAX]; /* from the folder that contains the set */
    struct mics_temporary *temporary;
    bool removed; /* the new set has none */
    bool left;    /* the old one is out of the way */
    bool placed;  /* the new one is in its place */
};

struct mics_file_set {
    char name[MICS_PATH_MAX], parent[MICS_PATH_MAX];
    char folder[MICS_PATH_MAX], lock_path[MICS_PATH_MAX], journal[MICS_PATH_MAX];
    struct mics_temporary *temporary, *lock_temporary;
    int lock;           /* -1: not taken, or the file system has none */
    int folder_lock;    /* on the folder, which others then do not take for a stale one */
    bool created, kept; /* the folder is there; it is to stay, to be recovered */
    struct member members[MEMBERS_MAX];
    size_t count;
};

/* ---- paths ---- */

static enum mics_status name_paths(struct mics_file_set *set, const char *name,
                                   struct mics_err *err)
{
    enum mics_status status = mics_path_format(set->name, err, "%s", name);

    if (status == MICS_OK)
        status = mics_path_format(set->lock_path, err, "%s.lock", name);
    if (status == MICS_OK)
        status = mics_path_format(set->journal, err, "%s.commit", name);
    if (status == MICS_OK)
        status = mics_path_format(set->folder, err, "%s.tmp.%ld", name, (long)getpid());
    mics_path_parent(name, set->parent);
    return status;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* The place of a member, where its new file is written, and where its old one goes. */
static enum mics_status member_path(const struct mics_file_set *set, const struct member *member,
                                    char path[MICS_PATH_MAX], struct mics_err *err)
{
    if (strcmp(set->parent, ".") == 0)
        return mics_path_format(path, err, "%s", member->name);
    return mics_path_format(path, err, "%s/%s", set->parent, member->name);
}

static enum mics_status new_path(const struct mics_file_set *set, const struct member *member,
                                 char path[MICS_PATH_MAX], struct mics_err *err)
{
    return mics_path_format(path, err, "%s/%s", set->folder, base_name(member->name));
}

static enum mics_status old_path(const struct mics_file_set *set, const struct member *member,
                                 char path[MICS_PATH_MAX], struct mics_err *err)
{
    return mics_path_format(path, err, "%s/" OLD "/%s", set->folder, base_name(member->name));
}

static bool exists(const char *path)
{
    struct stat info;

    return lstat(path, &info) == 0;
}

/* ---- locks ---- */

static int lock_file(const char *path, int flags, int operation)
{
    const int fd = open(path, flags | O_CLOEXEC, 0666);

    if (fd >= 0 && flock(fd, operation) != 0) {
        const int code = errno;

        close(fd);
        errno = code;
        return -1;
    }
    return fd;
}

/* Is the file that is open the one at `path`? Its last owner may have removed it meanwhile. */
static bool is_current(int fd, const char *path)
{
    struct stat open_file, named;

    return fstat(fd, &open_file) == 0 && stat(path, &named) == 0 &&
           open_file.st_ino == named.st_ino && open_file.st_dev == named.st_dev;
}

static enum mics_status take_lock(struct mics_file_set *set, bool wait, struct mics_err *err)
{
    const int operation = wait ? LOCK_EX : LOCK_EX | LOCK_NB;
    int code;

    do {
        set->lock = lock_file(set->lock_path, O_RDWR | O_CREAT, operation);
        code = errno;
        if (set->lock >= 0 && is_current(set->lock, set->lock_path)) {
            char *copy = strdup(set->lock_path);

            set->lock_temporary = copy ? mics_temporary_add(copy) : NULL;
            if (set->lock_temporary)
                return MICS_OK;
            free(copy);
            return mics_err_nomem(err);
        }
        if (set->lock >= 0)
            close(set->lock);
    } while (set->lock >= 0 || code == EINTR);
    if (code == EWOULDBLOCK)
        return mics_err_set(err, MICS_ERR_IO,
                            "%s: another process is writing it: wait, or choose another name",
                            set->name);
    if (code == ENOLCK || code == EOPNOTSUPP || code == ENOSYS) {
        unlink(set->lock_path);
        return MICS_OK;
    }
    errno = code;
    return mics_err_set_errno(err, "%s", set->lock_path);
}

static void drop_lock(struct mics_file_set *set)
{
    if (set->lock < 0)
        return;
    unlink(set->lock_path); /* before it is given back, so that it is not another one's */
    if (set->lock_temporary)
        mics_temporary_drop(set->lock_temporary);
    close(set->lock);
    set->lock = -1;
    set->lock_temporary = NULL;
}

/* ---- what killed processes left ---- */

/* Is `entry` NAME.tmp.PID? */
static bool is_folder_of(const char *entry, const char *name)
{
    const size_t length = strlen(name);
    const char *digits = entry + length + 5;

    return strncmp(entry, name, length) == 0 && strncmp(entry + length, ".tmp.", 5) == 0 &&
           *digits != '\0' && digits[strspn(digits, "0123456789")] == '\0';
}

static enum mics_status remove_stale(const struct mics_file_set *set, struct mics_err *err)
{
    DIR *parent = opendir(set->parent);
    enum mics_status status = MICS_OK;
    const struct dirent *entry;
    char path[MICS_PATH_MAX];

    if (!parent)
        return mics_err_set_errno(err, "%s", set->parent);
    while (status == MICS_OK && (errno = 0, entry = readdir(parent)) != NULL) {
        if (!is_folder_of(entry->d_name, base_name(set->name)))
            continue;
        status = mics_path_format(path, err, "%s/%s", set->parent, entry->d_name);

        const int lock = status == MICS_OK ? lock_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW,
                                                       LOCK_EX | LOCK_NB)
                                           : -1;

        if (lock < 0)
            continue;
        status = mics_file_remove_tree(path, err);
        close(lock);
    }
    if (status == MICS_OK && errno != 0)
        status = mics_err_set_errno(err, "%s", set->parent);
    closedir(parent);
    return status;
}

/* ---- the journal: NUL-terminated texts ---- */

/* The head, the folder's name, and for each member its name behind + or, if it goes, -. */
static enum mics_status write_journal(const struct mics_file_set *set, struct mics_err *err)
{
    struct mics_file_writer *writer = NULL;
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(path, err, "%s/" WRITTEN, set->folder);

    if (status == MICS_OK)
        status = mics_file_create(path, &writer, err);
    if (status != MICS_OK)
        return status;

    FILE *stream = mics_file_stream(writer);

    fprintf(stream, JOURNAL_HEAD "%c%s%c", '\0', base_name(set->folder), '\0');
    for (size_t i = 0; i < set->count; i++)
        fprintf(stream, "%c%s%c", set->members[i].removed ? '-' : '+', set->members[i].name, '\0');
    status = mics_file_commit(writer, err);
    if (status == MICS_OK && rename(path, set->journal) != 0)
        status = mics_err_set_errno(err, "%s", set->journal);
    return status == MICS_OK ? mics_file_sync_folder(set->parent, err) : status;
}

/* The path comes from a file: it may not leave the folder. */
static bool is_safe_name(const char *name)
{
    return name[0] != '\0' && name[0] != '/' && strlen(name) < MICS_PATH_MAX &&
           strcmp(name, "..") != 0 && strncmp(name, "../", 3) != 0 && !strstr(name, "/../") &&
           (strlen(name) < 3 || strcmp(name + strlen(name) - 3, "/..") != 0);
}

static enum mics_status parse_journal(struct mics_file_set *set, const char *text, size_t size,
                                      struct mics_err *err)
{
    const char *end = text + size, *folder = text + sizeof JOURNAL_HEAD;
    bool valid = size > sizeof JOURNAL_HEAD && end[-1] == '\0' && strcmp(text, JOURNAL_HEAD) == 0 &&
                 is_folder_of(folder, base_name(set->name)) && !strchr(folder, '/');

    for (const char *at = valid ? folder + strlen(folder) + 1 : end; at < end && valid;
         at += strlen(at) + 1) {
        valid = set->count < MEMBERS_MAX && (at[0] == '+' || at[0] == '-') && is_safe_name(at + 1);
        if (!valid)
            break;

        struct member *member = &set->members[set->count++];

        *member = (struct member){.removed = at[0] == '-'};
        strcpy(member->name, at + 1);
    }
    if (!valid || set->count == 0)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "%s: not the list of files that were being replaced: remove it, and "
                            "write '%s' again",
                            set->journal, set->name);
    return mics_path_format(set->folder, err, "%s/%s", set->parent, folder);
}

/* ---- replacing ---- */

static enum mics_status move(const char *from, const char *to, const char *name,
                             struct mics_err *err)
{
    return rename(from, to) == 0 ? MICS_OK : mics_err_set_errno(err, "%s", name);
}

/* Put the old member out of the way, if there is one. */
static enum mics_status leave(struct mics_file_set *set, struct member *member,
                              struct mics_err *err)
{
    char path[MICS_PATH_MAX], old[MICS_PATH_MAX];
    enum mics_status status = member_path(set, member, path, err);

    if (status == MICS_OK)
        status = old_path(set, member, old, err);
    if (status != MICS_OK || !exists(path))
        return status;
    status = move(path, old, path, err);
    member->left = status == MICS_OK;
    return status;
}

static enum mics_status place(struct mics_file_set *set, struct member *member,
                              struct mics_err *err)
{
    char path[MICS_PATH_MAX], new[MICS_PATH_MAX], old[MICS_PATH_MAX];
    struct stat info;
    enum mics_status status = member_path(set, member, path, err);

    if (status == MICS_OK)
        status = new_path(set, member, new, err);
    if (status == MICS_OK)
        status = old_path(set, member, old, err);
    if (status != MICS_OK)
        return status;
    if (member->left && stat(old, &info) == 0 && S_ISREG(info.st_mode))
        (void)chmod(new, info.st_mode & 07777); /* who may read the old one, may read this */
    status = move(new, path, path, err);
    member->placed = status == MICS_OK;
    return status;
}

/* After an error: the old set again. False: it is not possible. */
static bool put_back(struct mics_file_set *set)
{
    char path[MICS_PATH_MAX], other[MICS_PATH_MAX];
    bool done = true;

    for (size_t i = set->count; i-- > 0 && done;) {
        struct member *member = &set->members[i];

        done = member_path(set, member, path, NULL) == MICS_OK;
        if (member->placed)
            done =
                done && new_path(set, member, other, NULL) == MICS_OK && rename(path, other) == 0;
        member->placed = member->placed && !done;
    }
    for (size_t i = 0; i < set->count && done; i++) {
        struct member *member = &set->members[i];

        if (!member->left)
            continue;
        done = member_path(set, member, path, NULL) == MICS_OK &&
               old_path(set, member, other, NULL) == MICS_OK && rename(other, path) == 0;
        member->left = !done;
    }
    return done && unlink(set->journal) == 0;
}

static enum mics_status replace_all(struct mics_file_set *set, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (size_t i = set->count; i-- > 0 && status == MICS_OK;)
        status = leave(set, &set->members[i], err);
    for (size_t i = 0; i < set->count && status == MICS_OK; i++)
        if (!set->members[i].removed)
            status = place(set, &set->members[i], err);
    return status;
}

/* The members are in their places, and the journal goes. */
static enum mics_status end_journal(struct mics_file_set *set, struct mics_err *err)
{
    enum mics_status status = mics_file_sync_folder(set->parent, err);

    for (size_t i = 0; i < set->count && status == MICS_OK; i++) { /* of members in folders */
        char path[MICS_PATH_MAX], folder[MICS_PATH_MAX];

        status = member_path(set, &set->members[i], path, err);
        mics_path_parent(path, folder);
        if (status == MICS_OK && strcmp(folder, set->parent) != 0)
            status = mics_file_sync_folder(folder, err);
    }
    if (status == MICS_OK && unlink(set->journal) != 0)
        status = mics_err_set_errno(err, "%s", set->journal);
    return status == MICS_OK ? mics_file_sync_folder(set->parent, err) : status;
}

/* Members that were written, and those that the new set does not have. */
static enum mics_status look_at_members(struct mics_file_set *set, struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    enum mics_status status = MICS_OK;

    for (size_t i = 0; i < set->count && status == MICS_OK; i++) {
        status = new_path(set, &set->members[i], path, err);
        set->members[i].removed = status == MICS_OK && !exists(path);
    }
    if (status == MICS_OK)
        status = mics_path_format(path, err, "%s/" OLD, set->folder);
    if (status == MICS_OK && mkdir(path, 0777) != 0)
        status = mics_err_set_errno(err, "%s", path);
    return status == MICS_OK ? mics_file_sync_folder(set->folder, err) : status;
}

/* From now on a signal must not remove them. */
static void keep_at_signals(struct mics_file_set *set)
{
    for (size_t i = set->count; i-- > 0;) {
        if (set->members[i].temporary)
            mics_temporary_drop(set->members[i].temporary);
        set->members[i].temporary = NULL;
    }
    if (set->temporary)
        mics_temporary_drop(set->temporary);
    set->temporary = NULL;
}

enum mics_status mics_file_set_commit(struct mics_file_set *set, struct mics_err *err)
{
    enum mics_status status = look_at_members(set, err);

    if (status != MICS_OK)
        return status;
    keep_at_signals(set);
    status = write_journal(set, err);
    if (status != MICS_OK) {
        unlink(set->journal); /* it may be there though its folder could not be synced */
        return status;
    }
    status = replace_all(set, err);
    if (status != MICS_OK && !put_back(set)) {
        char cause[sizeof err->text];

        set->kept = true;
        snprintf(cause, sizeof cause, "%s", err ? err->text : "");
        return mics_err_set(err, status,
                            "%.600s; the new files are complete in '%.300s', and are put in place "
                            "when '%.300s' is opened next",
                            cause, set->folder, set->name);
    }
    if (status != MICS_OK)
        return status;
    status = end_journal(set, err);
    set->kept = status != MICS_OK && exists(set->journal);
    return status;
}

/* ---- beginning and end ---- */

static struct mics_temporary *remember(const char *path)
{
    char *copy = strdup(path);
    struct mics_temporary *temporary = copy ? mics_temporary_add(copy) : NULL;

    if (!temporary)
        free(copy);
    return temporary;
}

static enum mics_status make_folder(struct mics_file_set *set, struct mics_err *err)
{
    if (set->lock < 0) /* without locks: one that an earlier process with this PID left */
        (void)mics_file_remove_tree(set->folder, NULL);
    if (mkdir(set->folder, 0777) != 0)
        return mics_err_set_errno(err, "%s", set->folder);
    set->created = true;
    set->folder_lock = lock_file(set->folder, O_RDONLY | O_DIRECTORY, LOCK_EX | LOCK_NB);
    set->temporary = remember(set->folder);
    return set->temporary ? MICS_OK : mics_err_nomem(err);
}

static struct mics_file_set *new_set(void)
{
    struct mics_file_set *set = calloc(1, sizeof *set);

    if (set)
        set->lock = set->folder_lock = -1;
    return set;
}

enum mics_status mics_file_set_begin(const char *name, struct mics_file_set **out,
                                     struct mics_err *err)
{
    struct mics_file_set *set = new_set();
    enum mics_status status = MICS_OK;

    *out = NULL;
    if (!set)
        return mics_err_nomem(err);
    status = mics_file_set_recover(name, err);
    if (status == MICS_OK)
        status = name_paths(set, name, err);
    if (status == MICS_OK)
        status = take_lock(set, false, err);
    if (status == MICS_OK && set->lock >= 0)
        status = remove_stale(set, err);
    if (status == MICS_OK)
        status = make_folder(set, err);
    if (status != MICS_OK) {
        mics_file_set_free(set);
        return status;
    }
    *out = set;
    return MICS_OK;
}

const char *mics_file_set_folder(const struct mics_file_set *set)
{
    return set->folder;
}

enum mics_status mics_file_set_add(struct mics_file_set *set, const char *member,
                                   char path[MICS_PATH_MAX], struct mics_err *err)
{
    struct member *added = &set->members[set->count];

    if (set->count == MEMBERS_MAX || !is_safe_name(member))
        return mics_err_set(err, MICS_ERR_ARG, "'%s' cannot be a member of a set of files", member);
    *added = (struct member){.removed = false};
    strcpy(added->name, member);

    const enum mics_status status = new_path(set, added, path, err);

    if (status != MICS_OK)
        return status;
    added->temporary = remember(path);
    if (!added->temporary)
        return mics_err_nomem(err);
    set->count++;
    return MICS_OK;
}

void mics_file_set_free(struct mics_file_set *set)
{
    if (!set)
        return;
    if (set->created && !set->kept)
        (void)mics_file_remove_tree(set->folder, NULL);
    keep_at_signals(set);
    if (set->folder_lock >= 0)
        close(set->folder_lock);
    drop_lock(set);
    free(set);
}

/* ---- after a crash ---- */

/* Members whose new file is still in the folder are not in place, and what is there is old. */
static enum mics_status complete(struct mics_file_set *set, struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(path, err, "%s/" OLD, set->folder);

    if (status == MICS_OK && mkdir(path, 0777) != 0 && errno != EEXIST)
        status = mics_err_set_errno(err, "%s", path);
    for (size_t i = 0; i < set->count && status == MICS_OK; i++) {
        struct member *member = &set->members[i];
        const char *lost = NULL;

        status = new_path(set, member, path, err);
        if (status != MICS_OK)
            return status;
        if (member->removed || exists(path)) {
            status = leave(set, member, err);
            if (status == MICS_OK && !member->removed)
                status = place(set, member, err);
            continue;
        }
        lost = path;
        status = member_path(set, member, path, err);
        if (status == MICS_OK && !exists(path))
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "'%s' was being replaced, and is lost: write '%s' again", lost,
                                set->name);
    }
    return status;
}

enum mics_status mics_file_set_recover(const char *name, struct mics_err *err)
{
    struct mics_file_set *set = new_set();
    enum mics_status status = set ? name_paths(set, name, err) : mics_err_nomem(err);
    char *text = NULL;
    size_t size = 0;

    if (status != MICS_OK || !exists(set->journal)) {
        free(set);
        return status;
    }
    status = take_lock(set, true, err);
    if (status == MICS_OK && !exists(set->journal)) { /* its owner was still there */
        mics_file_set_free(set);
        return MICS_OK;
    }
    if (status == MICS_OK)
        status = mics_file_read(set->journal, JOURNAL_BYTES, &text, &size, err);
    if (status == MICS_OK)
        status = parse_journal(set, text, size, err);
    if (status == MICS_OK)
        status = complete(set, err);
    if (status == MICS_OK)
        status = end_journal(set, err);
    if (status == MICS_OK)
        (void)mics_file_remove_tree(set->folder, NULL);
    else
        mics_err_prefix(err, "%s was being replaced when a process ended", name);
    free(text);
    mics_file_set_free(set);
    return status;
}
