/* SPDX-License-Identifier: Apache-2.0 */
/*
 * direct_file.h - a file of known size, written in pieces by any number of threads.
 *
 * On local file systems that are known to support it well, pieces are written with direct I/O: data
 * that is written once and not read soon should not displace other pages in the page cache, and the
 * kernel makes no copy. On other file systems the writes are buffered.
 */
#ifndef MICS_CKPT_FORMAT_DIRECT_FILE_H
#define MICS_CKPT_FORMAT_DIRECT_FILE_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Alignment of pieces in the file and in memory, bytes. */
#define MICS_DIRECT_ALIGN ((size_t)4096)

/* Must not be moved while it is open. */
struct mics_direct_file {
    const char *path; /* borrowed, for messages */
    int fd;           /* -1: closed */
    uint64_t bytes;
    atomic_bool direct;
};

/* With `create` the file must not exist yet, and `bytes` are reserved on disk where the file system
 * supports that: MICS_ERR_IO if the space is not available. Without, another process has created
 * it. */
enum mics_status mics_direct_file_open(const char *path, uint64_t bytes, bool create,
                                       struct mics_direct_file *file, struct mics_err *err);

/* Write data[size] at `offset`. `offset` and `data` must be aligned to MICS_DIRECT_ALIGN; `size`
 * too, except for the last piece of a file. data[] must have room up to the next multiple of
 * MICS_DIRECT_ALIGN, which this function overwrites. Thread-safe. */
enum mics_status mics_direct_file_write(struct mics_direct_file *file, char *data, size_t size,
                                        uint64_t offset, struct mics_err *err);

/* Close the file, after an fsync unless `discard`: the file will be removed. */
enum mics_status mics_direct_file_close(struct mics_direct_file *file, bool discard,
                                        struct mics_err *err);

#endif
