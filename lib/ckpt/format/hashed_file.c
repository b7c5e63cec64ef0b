/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/format/hashed_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
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
