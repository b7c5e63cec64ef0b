/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Direct I/O writes whole blocks: the last piece is padded with zeros, and the file is truncated to
 * its size afterwards. If the file system refuses direct I/O at any time, the following writes are
 * buffered.
 */
#include "ckpt/format/direct_file.h"

#include "base/num.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Local file systems only: over a network each direct write would wait for a round trip. Magic
 * numbers of statfs(2). */
static const uint64_t direct_types[] = {
    0xef53,     /* ext4 */
    0x58465342, /* XFS */
    0xf2f52010, /* F2FS */
};

static bool supports_direct(int fd)
{
    struct statfs info;

    if (fstatfs(fd, &info) != 0)
        return false;
    for (size_t i = 0; i < sizeof direct_types / sizeof *direct_types; i++)
        if ((uint64_t)info.f_type == direct_types[i])
            return true;
    return false;
}

static bool set_direct(int fd, bool direct)
{
    const int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

/* False: the disk is full. A file system that cannot reserve space is no error. */
static bool reserve(int fd, uint64_t bytes)
{
    int code;

    do
        code = bytes ? fallocate(fd, 0, 0, (off_t)bytes) : 0;
    while (code != 0 && errno == EINTR);
    return code == 0 || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL;
}

enum mics_status mics_direct_file_open(const char *path, uint64_t bytes, bool create,
                                       struct mics_direct_file *file, struct mics_err *err)
{
    file->path = path;
    file->bytes = bytes;
    file->fd = open(path, O_WRONLY | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0), 0666);
    if (file->fd < 0)
        return mics_err_set_errno(err, "%s", path);
    if (create && !reserve(file->fd, bytes))
        return mics_err_set_errno(err, "%s", path);
    atomic_store(&file->direct, supports_direct(file->fd) && set_direct(file->fd, true));
    return MICS_OK;
}

/* Pad with zeros to a whole block; the padded size. */
static size_t pad(char *data, size_t size)
{
    const size_t whole = (size_t)mics_round_up(size, MICS_DIRECT_ALIGN);

    memset(data + size, 0, whole - size);
    return whole;
}

enum mics_status mics_direct_file_write(struct mics_direct_file *file, char *data, size_t size,
                                        uint64_t offset, struct mics_err *err)
{
    const uint64_t end = offset + size;
    bool padded = false;

    while (offset < end) {
        const bool direct = atomic_load(&file->direct);
        const size_t rest = (size_t)(end - offset), length = direct ? pad(data, rest) : rest;
        const ssize_t done = pwrite(file->fd, data, length, (off_t)offset);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0 && !(errno == EINVAL && direct))
            return mics_err_set_errno(err, "%s", file->path);
        if (direct && (done < 0 || done % (ssize_t)MICS_DIRECT_ALIGN != 0)) {
            atomic_store(&file->direct, false);
            set_direct(file->fd, false);
        }
        data += done > 0 ? done : 0;
        offset += done > 0 ? (uint64_t)done : 0;
        padded = padded || offset > end;
    }
    if (padded && ftruncate(file->fd, (off_t)file->bytes) != 0)
        return mics_err_set_errno(err, "%s", file->path);
    return MICS_OK;
}

enum mics_status mics_direct_file_close(struct mics_direct_file *file, bool discard,
                                        struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (file->fd < 0)
        return MICS_OK;
    if (!discard && fsync(file->fd) != 0)
        status = mics_err_set_errno(err, "%s", file->path);
    if (close(file->fd) != 0 && status == MICS_OK && !discard)
        status = mics_err_set_errno(err, "%s", file->path);
    file->fd = -1;
    return status;
}
