/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/format/checksum.h"

#include "base/file.h"
#include "base/num.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* Linux writes at most 2 GiB per call; smaller calls also return sooner after a signal. */
#define WRITE_MAX  ((size_t)64 << 20)
#define READ_PIECE ((size_t)1 << 20)

struct mics_hashed_file {
    char *path;
    int fd;
    uint64_t bytes;
    uint64_t sent; /* bytes whose way to the disk has begun */
    XXH64_state_t *state;
    struct mics_progress *progress; /* or NULL */
};

enum mics_status mics_hashed_file_create(const char *path, struct mics_progress *progress,
                                         struct mics_hashed_file **out, struct mics_err *err)
{
    struct mics_hashed_file *file = calloc(1, sizeof *file);

    if (!file)
        return mics_err_nomem(err);
    file->fd = -1;
    file->progress = progress;
    file->path = strdup(path);
    file->state = XXH64_createState();
    if (!file->path || !file->state) {
        mics_hashed_file_drop(file);
        return mics_err_nomem(err);
    }
    XXH64_reset(file->state, 0);
    file->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file->fd < 0) {
        mics_err_set_errno(err, "%s", path);
        mics_hashed_file_drop(file);
        return MICS_ERR_IO;
    }
    *out = file;
    return MICS_OK;
}

/* Begin to send what is not sent yet to the disk, and wait until it has the piece before. */
static enum mics_status send_piece(struct mics_hashed_file *file, struct mics_err *err)
{
    const off_t begin = (off_t)file->sent, end = (off_t)file->bytes;
    const off_t before = begin > (off_t)WRITE_MAX ? begin - (off_t)WRITE_MAX : 0;

    file->sent = file->bytes;
    if (sync_file_range(file->fd, begin, end - begin, SYNC_FILE_RANGE_WRITE) == 0 &&
        sync_file_range(file->fd, before, begin - before, SYNC_FILE_RANGE_WAIT_BEFORE) == 0)
        return MICS_OK;
    if (errno == EIO || errno == ENOSPC || errno == EDQUOT)
        return mics_err_set_errno(err, "%s", file->path);
    return MICS_OK; /* not a file that can do this: fsync will do it all */
}

enum mics_status mics_hashed_file_write(struct mics_hashed_file *file, const void *data,
                                        size_t size, struct mics_err *err)
{
    const char *at = data;

    XXH64_update(file->state, data, size);
    while (size > 0) {
        const ssize_t done = write(file->fd, at, size < WRITE_MAX ? size : WRITE_MAX);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return mics_err_set_errno(err, "%s", file->path);
        at += done;
        size -= (size_t)done;
        file->bytes += (uint64_t)done;
        if (file->progress)
            mics_progress_add(file->progress, (uint64_t)done);
        if (file->bytes - file->sent >= WRITE_MAX && send_piece(file, err) != MICS_OK)
            return MICS_ERR_IO;
    }
    return MICS_OK;
}

enum mics_status mics_hashed_file_finish(struct mics_hashed_file *file, struct mics_file_sum *sum,
                                         struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (fsync(file->fd) != 0)
        status = mics_err_set_errno(err, "%s", file->path);
    if (close(file->fd) != 0 && status == MICS_OK)
        status = mics_err_set_errno(err, "%s", file->path);
    file->fd = -1;
    *sum = (struct mics_file_sum){.bytes = file->bytes, .xxh64 = XXH64_digest(file->state)};
    mics_hashed_file_drop(file);
    return status;
}

void mics_hashed_file_drop(struct mics_hashed_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    XXH64_freeState(file->state);
    free(file->path);
    free(file);
}

enum mics_status mics_hashed_reader_init(struct mics_hashed_reader *reader, struct mics_err *err)
{
    *reader = (struct mics_hashed_reader){.fd = -1, .state = XXH64_createState()};
    return reader->state ? MICS_OK : mics_err_nomem(err);
}

void mics_hashed_reader_fini(struct mics_hashed_reader *reader)
{
    XXH64_freeState(reader->state);
    reader->state = NULL;
}

void mics_hashed_reader_start(struct mics_hashed_reader *reader, const char *path, int fd)
{
    reader->path = path;
    reader->fd = fd;
    reader->offset = 0;
    XXH64_reset(reader->state, 0);
}

enum mics_status mics_hashed_reader_read(struct mics_hashed_reader *reader, void *dst, size_t size,
                                         struct mics_err *err)
{
    const enum mics_status status = mics_file_read_at(reader->fd, dst, size, reader->offset, err);

    if (status != MICS_OK) {
        mics_err_prefix(err, "%s", reader->path);
        return status;
    }
    XXH64_update(reader->state, dst, size);
    reader->offset += size;
    return MICS_OK;
}

uint64_t mics_hashed_reader_sum(const struct mics_hashed_reader *reader)
{
    return XXH64_digest(reader->state);
}

/* Size and sum of an open file. */
static enum mics_status compare(struct mics_hashed_reader *reader, const struct mics_file_sum *sum,
                                char *buffer, struct mics_progress *progress, struct mics_err *err)
{
    struct stat info;
    enum mics_status status = MICS_OK;

    if (fstat(reader->fd, &info) != 0)
        return mics_err_set_errno(err, "%s", reader->path);
    if ((uint64_t)info.st_size != sum->bytes)
        return mics_err_set(err, MICS_ERR_IO, "%s: has %lld bytes after writing %llu", reader->path,
                            (long long)info.st_size, (unsigned long long)sum->bytes);
    posix_fadvise(reader->fd, 0, 0, POSIX_FADV_DONTNEED);
    while (status == MICS_OK && reader->offset < sum->bytes) {
        const uint64_t piece = mics_min_u64(READ_PIECE, sum->bytes - reader->offset);

        status = mics_hashed_reader_read(reader, buffer, piece, err);
        if (progress)
            mics_progress_add(progress, piece);
    }
    if (status == MICS_OK && mics_hashed_reader_sum(reader) != sum->xxh64)
        status = mics_err_set(err, MICS_ERR_IO,
                              "%s: is damaged: the disk returns other bytes than were written",
                              reader->path);
    return status == MICS_ERR_FORMAT ? MICS_ERR_IO : status;
}

enum mics_status mics_file_read_back(const char *path, const struct mics_file_sum *sum,
                                     struct mics_progress *progress, struct mics_err *err)
{
    char *buffer = malloc(READ_PIECE);
    struct mics_hashed_reader reader;
    enum mics_status status = mics_hashed_reader_init(&reader, err);
    int fd = -1;

    if (status != MICS_OK)
        goto out;
    status = mics_file_open_regular(path, &fd, NULL, err);
    if (status != MICS_OK)
        goto out;
    if (!buffer)
        status = mics_err_nomem(err);
    if (status != MICS_OK)
        goto out;
    mics_hashed_reader_start(&reader, path, fd);
    status = compare(&reader, sum, buffer, progress, err);
out:
    if (fd >= 0)
        close(fd);
    mics_hashed_reader_fini(&reader);
    free(buffer);
    return status;
}
