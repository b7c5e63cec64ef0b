/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer.c - whole files out: written beside their place, fsynced, renamed.
 *
 * A link is followed first, so that it stays a link. What is no regular file (/dev/null, a pipe) is written
 * directly: renaming over it would replace the device.
 */
#include "base/file.h"
#include "base/temporaries.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct mics_file_writer {
    FILE *stream;
    char *name;   /* as the caller wrote it, for messages */
    char *target; /* with links followed */
    char
        *scratch; /* NULL: the target is written directly. Owned by `temporary` once that is set. */
    struct mics_temporary *temporary;
};

static void writer_free(struct mics_file_writer *writer)
{
    if (writer->temporary)
        mics_temporary_drop(writer->temporary);
    else
        free(writer->scratch);
    free(writer->target);
    free(writer->name);
    free(writer);
}

/* Create the scratch file. One left by a dead process of the same number is replaced; one that another writer
 * of this process has open is not. */
static int create_scratch(const char *scratch, mode_t mode)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    int fd = open(scratch, flags, mode);

    if (fd >= 0 || errno != EEXIST || mics_temporary_known(scratch))
        return fd;
    if (unlink(scratch) != 0)
        return -1;
    return open(scratch, flags, mode);
}

/* Open the scratch file and enter it in the list of temporaries. -1 with errno. */
static int open_scratch(struct mics_file_writer *writer, const struct stat *old)
{
    if (asprintf(&writer->scratch, "%s.tmp.%ld", writer->target, (long)getpid()) < 0) {
        writer->scratch = NULL;
        errno = ENOMEM;
        return -1;
    }
    int fd = create_scratch(writer->scratch, 0666);
    if (fd < 0)
        return -1;
    writer->temporary = mics_temporary_add(writer->scratch);
    if (!writer->temporary || (old && fchmod(fd, old->st_mode & 07777) != 0)) {
        unlink(writer->scratch);
        close(fd);
        return -1;
    }
    return fd;
}

/* Open what will be written to. -1 with errno. */
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
    return open_scratch(writer, exists ? &old : NULL);
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
            unlink(writer->scratch);
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

/* Flush, fsync and close the stream, which is gone afterwards. 0, or -1 with errno. */
static int finish_stream(struct mics_file_writer *writer)
{
    FILE *stream = writer->stream;
    int code = 0;

    if (fflush(stream) != 0)
        code = errno;
    else if (ferror(stream))
        code = EIO;
    else if (writer->temporary && fsync(fileno(stream)) != 0)
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

enum mics_status mics_file_commit(struct mics_file_writer *writer, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (finish_stream(writer) != 0 ||
        (writer->temporary && rename(writer->scratch, writer->target) != 0)) {
        status = mics_err_set_errno(err, "%s", writer->name);
        mics_file_discard(writer);
        return status;
    }
    if (writer->temporary)
        status = sync_parent(writer->target, err);
    writer_free(writer);
    return status;
}

void mics_file_discard(struct mics_file_writer *writer)
{
    if (!writer)
        return;
    if (writer->stream)
        fclose(writer->stream);
    if (writer->temporary)
        unlink(writer->scratch);
    writer_free(writer);
}
