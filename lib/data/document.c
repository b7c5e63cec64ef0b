/* SPDX-License-Identifier: Apache-2.0 */
#include "data/document.h"

#include "base/num.h"
#include "base/units.h"
#include "data/decompress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Text is judged whole up to SAMPLES * SAMPLE_BYTES, of more by so many samples. */
#define SAMPLES      64
#define SAMPLE_BYTES ((uint64_t)64 << 10)

/* The part of a file system that decompressed text leaves free, and how often that is checked. */
#define RESERVE_FRACTION 20
#define RESERVE_MAX      ((uint64_t)2 << 30)
#define LOOK_BYTES       ((uint64_t)16 << 20)

static enum mics_status open_path(const struct mics_document *document, int *fd,
                                  struct mics_err *err)
{
    *fd = open(document->path, O_RDONLY | O_CLOEXEC);
    return *fd >= 0 ? MICS_OK : mics_err_set_errno(err, "'%s'", document->path);
}

/* As many bytes from the beginning of a file as there are, up to `size`; < 0: an error. */
static ssize_t read_head(int fd, unsigned char *head, size_t size)
{
    size_t used = 0;

    while (used < size) {
        const ssize_t got = pread(fd, head + used, size - used, (off_t)used);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return got;
        if (got == 0)
            break;
        used += (size_t)got;
    }
    return (ssize_t)used;
}

enum mics_status mics_document_recognize(struct mics_document *document, bool binary,
                                         struct mics_err *err)
{
    unsigned char head[MICS_FORMAT_HEAD];
    enum mics_status status;
    int fd;

    if (binary) {
        document->format = mics_format_by_name(document->path);
        return MICS_OK;
    }
    status = open_path(document, &fd, err);
    if (status != MICS_OK)
        return status;
    const ssize_t size = read_head(fd, head, sizeof head);

    status = size < 0 ? mics_err_set_errno(err, "'%s'", document->path)
                      : mics_format_recognize(document->path, head, (size_t)size, &document->format,
                                              err);
    close(fd);
    return status;
}

/*
 * Decompressed text.
 */

/* A file without a name. *folder: where it is. */
static int open_unnamed(const char **folder)
{
    const char *folders[] = {getenv("TMPDIR"), "/var/tmp", "/tmp"};
    int fd = -1;

    for (size_t i = folders[0] && folders[0][0] ? 0 : 1; fd < 0 && i < 3; i++) {
        char path[4096];

        *folder = folders[i];
        fd = open(*folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (fd >= 0 || (size_t)snprintf(path, sizeof path, "%s/mics-XXXXXX", *folder) >=
                           sizeof path) /* NFS, for example, has no such files */
            continue;
        fd = mkostemp(path, O_CLOEXEC);
        if (fd >= 0)
            unlink(path);
        if (i == 0)
            break; /* where the user said, or nowhere */
    }
    return fd;
}

struct spool {
    int fd;
    const char *folder;
    uint64_t size, room; /* bytes that may follow before the file system is looked at again */
};

static enum mics_status refuse_space(const struct spool *spool, struct mics_err *err)
{
    char size[32];

    return mics_err_set(err, MICS_ERR_IO,
                        "no space in '%s' for the text, of which %s were decompressed: "
                        "TMPDIR=FOLDER chooses another",
                        spool->folder, mics_format_bytes(spool->size, size, sizeof size));
}

/* Set spool->room. */
static enum mics_status look_for_room(struct spool *spool, struct mics_err *err)
{
    struct statvfs info;

    if (fstatvfs(spool->fd, &info) != 0)
        return mics_err_set_errno(err, "'%s'", spool->folder);
    const uint64_t free_bytes = (uint64_t)info.f_bavail * info.f_frsize;
    const uint64_t reserve =
        mics_min_u64((uint64_t)info.f_blocks * info.f_frsize / RESERVE_FRACTION, RESERVE_MAX);

    if (free_bytes <= reserve)
        return refuse_space(spool, err);
    spool->room = mics_min_u64(free_bytes - reserve, LOOK_BYTES);
    return MICS_OK;
}

static enum mics_status append(void *context, const unsigned char *bytes, size_t size,
                               struct mics_err *err)
{
    struct spool *spool = context;

    while (size > 0) {
        const enum mics_status status = spool->room ? MICS_OK : look_for_room(spool, err);

        if (status != MICS_OK)
            return status;
        const ssize_t written = write(spool->fd, bytes, mics_min_u64(size, spool->room));

        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return errno == ENOSPC || errno == EDQUOT
                       ? refuse_space(spool, err)
                       : mics_err_set_errno(err, "'%s': decompressed text", spool->folder);
        spool->size += (uint64_t)written;
        spool->room -= (uint64_t)written;
        bytes += written;
        size -= (size_t)written;
    }
    return MICS_OK;
}

static enum mics_status map_fd(int fd, uint64_t size, const unsigned char **out,
                               struct mics_err *err)
{
    void *bytes;

    *out = NULL;
    if (size == 0)
        return MICS_OK;
    bytes = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED)
        return mics_err_set_errno(err, "cannot map");
    *out = bytes;
    return MICS_OK;
}

/* Replace the mapping of a compressed file by one of its text. */
static enum mics_status decompress(struct mics_document *document, struct mics_err *err)
{
    const unsigned char *stored = document->bytes;
    struct spool spool = {.folder = NULL};
    enum mics_status status = MICS_OK;

    spool.fd = open_unnamed(&spool.folder);
    if (spool.fd < 0)
        status = mics_err_set_errno(err, "no temporary file for the text: '%s'", spool.folder);
    if (status == MICS_OK)
        status = mics_decompress(document->format.compression, stored, document->stored, append,
                                 &spool, err);
    document->bytes = NULL;
    document->size = 0;
    if (stored)
        munmap((void *)stored, document->stored);
    if (status == MICS_OK)
        status = map_fd(spool.fd, spool.size, &document->bytes, err);
    if (status == MICS_OK)
        document->size = spool.size;
    if (spool.fd >= 0)
        close(spool.fd);
    return status;
}

/*
 * Checks.
 */

static void count_text(const struct mics_document *document, struct mics_text_counts *counts)
{
    const uint64_t whole = SAMPLES * SAMPLE_BYTES, rest = document->size - SAMPLE_BYTES;

    *counts = (struct mics_text_counts){.bytes = 0};
    if (document->size <= whole) {
        mics_text_count(document->bytes, document->size, 0, counts);
        return;
    }
    for (uint64_t i = 0; i < SAMPLES; i++) {
        const uint64_t at = rest / (SAMPLES - 1) * i;

        mics_text_count(document->bytes + at, SAMPLE_BYTES, at, counts);
    }
}

static enum mics_status check(const struct mics_document *document, struct mics_err *err)
{
    const char *path = document->path;
    const size_t head = mics_min_u64(document->size, MICS_FORMAT_HEAD);
    struct mics_text_counts counts;
    enum mics_status status = MICS_OK;

    if (document->size == 0)
        return MICS_OK;
    if (document->format.compression != MICS_COMPRESSION_NONE)
        status = mics_format_refuse(path, document->bytes, head, false, err);
    if (status != MICS_OK)
        return status;
    if (document->format.content == MICS_CONTENT_LINES)
        return mics_format_check_lines(path, document->bytes,
                                       mics_min_u64(document->size, SAMPLES * SAMPLE_BYTES), err);
    count_text(document, &counts);
    return mics_text_judge(path, &counts, document->bytes, head, err);
}

static enum mics_status map_file(struct mics_document *document, struct mics_err *err)
{
    struct stat info;
    int fd;
    enum mics_status status = open_path(document, &fd, err);

    if (status != MICS_OK)
        return status;
    if (fstat(fd, &info) != 0) {
        status = mics_err_set_errno(err, "'%s'", document->path);
    } else {
        document->size = document->stored = (uint64_t)info.st_size;
        status = map_fd(fd, document->size, &document->bytes, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "'%s'", document->path);
    }
    close(fd);
    return status;
}

enum mics_status mics_document_open(struct mics_document *document, bool binary,
                                    struct mics_err *err)
{
    enum mics_status status = map_file(document, err);

    if (status == MICS_OK && document->format.compression != MICS_COMPRESSION_NONE) {
        status = decompress(document, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "'%s'", document->path);
    }
    if (status == MICS_OK && !binary)
        status = check(document, err);
    if (status != MICS_OK)
        mics_document_close(document);
    return status;
}

void mics_document_close(struct mics_document *document)
{
    if (document->bytes)
        munmap((void *)document->bytes, document->size);
    document->bytes = NULL;
}
