/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include "base/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIRST_BUFFER = 16384 };

/* Double the buffer, but to no more than one byte beyond `limit` and a NUL. */
static enum mics_status grow(char **data, size_t *capacity, size_t limit, struct mics_err *err)
{
    size_t next = *capacity < FIRST_BUFFER ? FIRST_BUFFER : *capacity * 2;

    if (*capacity > SIZE_MAX / 4)
        return mics_err_nomem(err);
    if (limit < SIZE_MAX - 1 && next > limit + 2)
        next = limit + 2;
    char *bigger = realloc(*data, next);
    if (!bigger)
        return mics_err_nomem(err);
    *data = bigger;
    *capacity = next;
    return MICS_OK;
}

/* Read to the end, keeping one byte of the buffer for the NUL. */
static enum mics_status read_to_end(FILE *in, size_t limit, char **data, size_t *size,
                                    struct mics_err *err)
{
    size_t capacity = 0;
    size_t got = 0;

    do {
        *size += got;
        if (*size > limit)
            return mics_err_set(err, MICS_ERR_FORMAT, "more than %zu bytes", limit);
        if (*size + 1 >= capacity) {
            enum mics_status status = grow(data, &capacity, limit, err);
            if (status != MICS_OK)
                return status;
        }
        got = fread(*data + *size, 1, capacity - *size - 1, in);
    } while (got > 0);
    if (ferror(in))
        return mics_err_set_errno(err, "read failed");
    (*data)[*size] = '\0';
    return MICS_OK;
}

static enum mics_status read_stream(FILE *in, size_t limit, char **data, size_t *size,
                                    struct mics_err *err)
{
    char *bytes = NULL;
    size_t count = 0;
    enum mics_status status = read_to_end(in, limit, &bytes, &count, err);

    if (status != MICS_OK) {
        free(bytes);
        return status;
    }
    *data = bytes;
    *size = count;
    return MICS_OK;
}

enum mics_status mics_file_read(const char *path, size_t limit, char **data, size_t *size,
                                struct mics_err *err)
{
    const bool is_stdin = strcmp(path, "-") == 0;
    FILE *in = is_stdin ? stdin : fopen(path, "rbe");

    if (!in)
        return mics_err_set_errno(err, "%s", path);
    enum mics_status status = read_stream(in, limit, data, size, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", is_stdin ? "standard input" : path);
    if (!is_stdin)
        fclose(in);
    return status;
}

enum mics_status mics_file_open_regular(const char *path, int *fd, uint64_t *bytes,
                                        struct mics_err *err)
{
    struct stat info;
    const int opened = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe would wait */

    if (opened < 0)
        return mics_err_set_errno(err, "%s", path);
    if (fstat(opened, &info) != 0) {
        const enum mics_status status = mics_err_set_errno(err, "%s", path);

        close(opened);
        return status;
    }
    if (!S_ISREG(info.st_mode)) {
        close(opened);
        return mics_err_set(err, MICS_ERR_IO, "%s: is %s, not a file", path,
                            S_ISDIR(info.st_mode)    ? "a folder"
                            : S_ISFIFO(info.st_mode) ? "a pipe"
                                                     : "a device");
    }
    *fd = opened;
    if (bytes)
        *bytes = (uint64_t)info.st_size;
    return MICS_OK;
}

enum mics_status mics_file_read_regular(const char *path, size_t limit, char **data, size_t *size,
                                        struct mics_err *err)
{
    int fd = -1;
    enum mics_status status = mics_file_open_regular(path, &fd, NULL, err);

    if (status != MICS_OK)
        return status;
    FILE *in = fdopen(fd, "rb");
    if (!in) {
        status = mics_err_set_errno(err, "%s", path);
        close(fd);
        return status;
    }
    status = read_stream(in, limit, data, size, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", path);
    fclose(in);
    return status;
}

enum mics_status mics_file_exists(const char *path, bool *exists, struct mics_err *err)
{
    struct stat info;

    *exists = lstat(path, &info) == 0;
    if (*exists || errno == ENOENT || errno == ENOTDIR)
        return MICS_OK;
    return mics_err_set_errno(err, "%s", path);
}

/*
 * The list of temporary files can be walked by a signal handler at any moment: entries are added at
 * the front and never removed; only their paths are set and cleared. Exchanging a path for NULL
 * takes ownership of it. The handler then removes the file, and mics_temporary_drop() frees the
 * string.
 */

struct mics_temporary {
    _Atomic(char *) path; /* NULL: the entry is free */
    struct mics_temporary *next;
};

static _Atomic(struct mics_temporary *) list;
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER; /* not taken by signal handlers */

static struct mics_temporary *find_free(void)
{
    struct mics_temporary *entry = atomic_load(&list);

    while (entry && atomic_load(&entry->path))
        entry = entry->next;
    return entry;
}

static struct mics_temporary *push(char *path)
{
    struct mics_temporary *entry = malloc(sizeof *entry);

    if (!entry)
        return NULL;
    atomic_init(&entry->path, path);
    entry->next = atomic_load(&list);
    atomic_store(&list, entry);
    return entry;
}

struct mics_temporary *mics_temporary_add(char *path)
{
    pthread_mutex_lock(&list_lock);
    struct mics_temporary *entry = find_free();
    if (entry)
        atomic_store(&entry->path, path);
    else
        entry = push(path);
    pthread_mutex_unlock(&list_lock);
    return entry;
}

void mics_temporary_drop(struct mics_temporary *temporary)
{
    pthread_mutex_lock(&list_lock);
    free(atomic_exchange(&temporary->path, NULL));
    pthread_mutex_unlock(&list_lock);
}

static bool is_temporary(const char *path)
{
    bool known = false;

    pthread_mutex_lock(&list_lock);
    for (struct mics_temporary *entry = atomic_load(&list); entry && !known; entry = entry->next) {
        const char *other = atomic_load(&entry->path);
        known = other && strcmp(other, path) == 0;
    }
    pthread_mutex_unlock(&list_lock);
    return known;
}

void mics_temporary_remove_all(void)
{
    for (struct mics_temporary *entry = atomic_load(&list); entry; entry = entry->next) {
        char *path = atomic_exchange(&entry->path, NULL);
        if (path && unlink(path) != 0)
            rmdir(path); /* the files in it were added later, so they are removed already */
    }
}

/* Symbolic links are resolved before writing, so that the rename does not replace them. Nor may it
 * replace a device or a pipe, so a path that is not a regular file is written directly. */
struct mics_file_writer {
    FILE *stream;
    char *name;   /* as given, for messages */
    char *target; /* with links resolved */
    char
        *temp_path; /* NULL: the target is written directly. Owned by `temporary` if that is set. */
    struct mics_temporary *temporary;
};

static void writer_free(struct mics_file_writer *writer)
{
    if (writer->temporary)
        mics_temporary_drop(writer->temporary);
    else
        free(writer->temp_path);
    free(writer->target);
    free(writer->name);
    free(writer);
}

/* Create the temporary file, replacing one that a dead process with the same PID left behind, but
 * not one that another writer of this process has open. */
static int create_temp_file(const char *path, mode_t mode)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    int fd = open(path, flags, mode);

    if (fd >= 0 || errno != EEXIST || is_temporary(path))
        return fd;
    if (unlink(path) != 0)
        return -1;
    return open(path, flags, mode);
}

/* Create the temporary file and add it to the list. -1 with errno. */
static int open_temp_file(struct mics_file_writer *writer, const struct stat *old)
{
    if (asprintf(&writer->temp_path, "%s.tmp.%ld", writer->target, (long)getpid()) < 0) {
        writer->temp_path = NULL;
        errno = ENOMEM;
        return -1;
    }
    int fd = create_temp_file(writer->temp_path, 0666);
    if (fd < 0)
        return -1;
    writer->temporary = mics_temporary_add(writer->temp_path);
    if (!writer->temporary || (old && fchmod(fd, old->st_mode & 07777) != 0)) {
        unlink(writer->temp_path);
        close(fd);
        return -1;
    }
    return fd;
}

/* Open the temporary file or, if the path is not a regular file, the path itself. -1 with errno. */
static int open_output(struct mics_file_writer *writer)
{
    struct stat old;
    const bool exists = stat(writer->name, &old) == 0;

    writer->target = exists ? realpath(writer->name, NULL) : strdup(writer->name);
    if (!writer->target)
        return -1;
    if (exists && S_ISDIR(old.st_mode)) {
        errno = EISDIR;
        return -1;
    }
    if (exists && !S_ISREG(old.st_mode))
        return open(writer->target, O_WRONLY | O_CLOEXEC);
    return open_temp_file(writer, exists ? &old : NULL);
}

enum mics_status mics_file_create(const char *path, struct mics_file_writer **out,
                                  struct mics_err *err)
{
    struct mics_file_writer *writer = calloc(1, sizeof *writer);

    if (!writer)
        return mics_err_nomem(err);
    writer->name = strdup(path);
    int fd = writer->name ? open_output(writer) : -1;
    writer->stream = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (!writer->stream) {
        enum mics_status status = mics_err_set_errno(err, "%s", path);
        if (fd >= 0)
            close(fd);
        if (fd >= 0 && writer->temporary)
            unlink(writer->temp_path);
        writer_free(writer);
        return status;
    }
    *out = writer;
    return MICS_OK;
}

FILE *mics_file_stream(struct mics_file_writer *writer)
{
    return writer->stream;
}

/* Flush, fsync if `durable`, and close the stream. 0, or -1 with errno. */
static int finish_stream(struct mics_file_writer *writer, bool durable)
{
    FILE *stream = writer->stream;
    int code = 0;

    if (fflush(stream) != 0)
        code = errno;
    else if (ferror(stream))
        code = EIO;
    else if (durable && writer->temporary && fsync(fileno(stream)) != 0)
        code = errno;
    if (fclose(stream) != 0 && code == 0)
        code = errno;
    writer->stream = NULL;
    errno = code;
    return code ? -1 : 0;
}

/* fsync the folder that holds `path`. */
static enum mics_status sync_parent(const char *path, struct mics_err *err)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX] = ".";

    if (slash == path)
        snprintf(folder, sizeof folder, "/");
    else if (slash)
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    return mics_file_sync_folder(folder, err);
}

static enum mics_status finish(struct mics_file_writer *writer, bool durable, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (finish_stream(writer, durable) != 0 ||
        (writer->temporary && rename(writer->temp_path, writer->target) != 0)) {
        status = mics_err_set_errno(err, "%s", writer->name);
        mics_file_discard(writer);
        return status;
    }
    if (durable && writer->temporary)
        status = sync_parent(writer->target, err);
    writer_free(writer);
    return status;
}

enum mics_status mics_file_commit(struct mics_file_writer *writer, struct mics_err *err)
{
    return finish(writer, true, err);
}

enum mics_status mics_file_publish(struct mics_file_writer *writer, struct mics_err *err)
{
    return finish(writer, false, err);
}

void mics_file_discard(struct mics_file_writer *writer)
{
    if (!writer)
        return;
    if (writer->stream)
        fclose(writer->stream);
    if (writer->temporary)
        unlink(writer->temp_path);
    writer_free(writer);
}

/* Create a folder that may exist. 0, or -1 with errno. */
static int make_folder(const char *path)
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
    int result = 0;

    if (!copy)
        return mics_err_nomem(err);
    for (char *slash = strchr(copy + (*copy == '/'), '/'); slash && result == 0;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        result = make_folder(copy);
        *slash = '/';
    }
    if (result == 0)
        result = make_folder(copy);
    free(copy);
    return result == 0 ? MICS_OK : mics_err_set_errno(err, "%s", path);
}

static int remove_entry(int parent, const char *name);

/* Remove all entries of the folder `fd`, and close it. 0, or -1 with the errno of the last
 * failure. */
static int empty_folder(int fd)
{
    struct mics_dir folder;
    const char *name;
    int result = 0;

    if (mics_dir_open_fd(fd, "", &folder, NULL) != MICS_OK)
        return -1;
    while ((name = mics_dir_next(&folder)) != NULL)
        if (remove_entry(fd, name) != 0)
            result = errno;
    result = result ? result : folder.code;
    mics_dir_close(&folder, MICS_OK, NULL);
    errno = result;
    return result ? -1 : 0;
}

/* Remove `name`, relative to the folder `parent`. Anything but a folder, symbolic links included,
 * is unlinked. */
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

bool mics_file_is_same(const char *a, const char *b)
{
    struct stat of_a, of_b;

    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && S_ISREG(of_a.st_mode) &&
           of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

enum mics_status mics_file_sync_folder(const char *path, struct mics_err *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return mics_err_set_errno(err, "%s", path);
    /* Some network file systems cannot sync a folder and fail with EINVAL. */
    bool failed = fsync(fd) != 0 && errno != EINVAL;
    enum mics_status status = failed ? mics_err_set_errno(err, "%s: fsync", path) : MICS_OK;
    close(fd);
    return status;
}

enum mics_status mics_file_read_at(int fd, void *dst, size_t size, uint64_t offset,
                                   struct mics_err *err)
{
    char *at = dst;

    while (size > 0) {
        const ssize_t got = pread(fd, at, size, (off_t)offset);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return mics_err_set_errno(err, "cannot read");
        if (got == 0)
            return mics_err_set(err, MICS_ERR_FORMAT, "ends early");
        at += got;
        offset += (uint64_t)got;
        size -= (size_t)got;
    }
    return MICS_OK;
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

void mics_path_parent(const char *path, char parent[MICS_PATH_MAX])
{
    char *slash;

    snprintf(parent, MICS_PATH_MAX, "%s", path);
    slash = strrchr(parent, '/');
    if (!slash)
        snprintf(parent, MICS_PATH_MAX, ".");
    else
        slash[slash == parent] = '\0';
}

enum mics_status mics_file_check_output(const char *path, struct mics_err *err)
{
    char parent[MICS_PATH_MAX];
    struct stat info;
    const bool exists = stat(path, &info) == 0;

    if (exists && S_ISDIR(info.st_mode))
        return mics_err_set(err, MICS_ERR_IO, "%s: is a folder", path);
    if (exists && !S_ISREG(info.st_mode))
        return access(path, W_OK) == 0 ? MICS_OK : mics_err_set_errno(err, "%s", path);
    mics_path_parent(path, parent);
    return access(parent, W_OK | X_OK) == 0
               ? MICS_OK
               : mics_err_set_errno(err, "%s: cannot be written into '%s'", path, parent);
}
