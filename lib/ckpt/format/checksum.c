/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/format/checksum.h"

#include "base/num.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* Linux writes at most 2 GiB at once; smaller pieces also notice signals sooner. */
#define WRITE_MAX ((size_t)64 << 20)

struct mics_hashed_file {
    char *path;
    int fd;
    uint64_t bytes;
    XXH64_state_t *state;
};

enum mics_status mics_hashed_file_create(const char *path, struct mics_hashed_file **out,
                                         struct mics_err *err)
{
    struct mics_hashed_file *file = calloc(1, sizeof *file);

    if (!file)
        return mics_err_nomem(err);
    file->fd = -1;
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

enum mics_status mics_hashed_file_write(struct mics_hashed_file *file, const void *data,
                                        size_t size, struct mics_err *err)
{
    const char *at = data;

    XXH64_update(file->state, data, size);
    file->bytes += size;
    while (size > 0) {
        ssize_t done = write(file->fd, at, size < WRITE_MAX ? size : WRITE_MAX);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return mics_err_set_errno(err, "%s", file->path);
        at += done;
        size -= (size_t)done;
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

#define PIECE ((size_t)1 << 20)

enum mics_status mics_file_open_sized(const char *path, uint64_t bytes, int *fd,
                                      struct mics_err *err)
{
    struct stat info;
    int opened = open(path, O_RDONLY | O_CLOEXEC);

    if (opened < 0 || fstat(opened, &info) != 0) {
        mics_err_set_errno(err, "%s: cannot open", path);
        if (opened >= 0)
            close(opened);
        return MICS_ERR_FORMAT;
    }
    if ((uint64_t)info.st_size != bytes) {
        close(opened);
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: has %lld bytes, the manifest says %llu",
                            path, (long long)info.st_size, (unsigned long long)bytes);
    }
    *fd = opened;
    return MICS_OK;
}

static enum mics_status sum_pieces(const char *path, int fd, uint64_t bytes, XXH64_state_t *state,
                                   char *buffer, struct mics_err *err)
{
    for (uint64_t left = bytes; left > 0;) {
        const ssize_t got = read(fd, buffer, (size_t)mics_min_u64(PIECE, left));

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return mics_err_set_errno(err, "%s", path);
        if (got == 0)
            return mics_err_set(err, MICS_ERR_FORMAT, "%s: became shorter meanwhile", path);
        XXH64_update(state, buffer, (size_t)got);
        left -= (uint64_t)got;
    }
    return MICS_OK;
}

enum mics_status mics_file_sum_check(const char *path, const struct mics_file_sum *sum,
                                     bool from_disk, struct mics_err *err)
{
    char *buffer = malloc(PIECE);
    XXH64_state_t *state = XXH64_createState();
    int fd = -1;
    enum mics_status status = buffer && state ? MICS_OK : mics_err_nomem(err);

    if (status == MICS_OK)
        status = mics_file_open_sized(path, sum->bytes, &fd, err);
    if (status == MICS_OK) {
        XXH64_reset(state, 0);
        if (from_disk)
            posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        status = sum_pieces(path, fd, sum->bytes, state, buffer, err);
    }
    if (status == MICS_OK && XXH64_digest(state) != sum->xxh64)
        status = mics_err_set(err, MICS_ERR_FORMAT, "%s: is damaged: its sum is not the manifest's",
                              path);
    if (fd >= 0)
        close(fd);
    XXH64_freeState(state);
    free(buffer);
    return status;
}
