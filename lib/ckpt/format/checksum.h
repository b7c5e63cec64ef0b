/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checksum.h - files that are written or read once from end to end, with their XXH64.
 */
#ifndef MICS_CKPT_FORMAT_CHECKSUM_H
#define MICS_CKPT_FORMAT_CHECKSUM_H

#include "base/err.h"
#include "base/progress.h"

#include <stddef.h>
#include <stdint.h>

/* What a manifest records of a file. */
struct mics_file_sum {
    uint64_t bytes, xxh64;
};

struct XXH64_state_s;

/* A file being written. */
struct mics_hashed_file;

/* Create the file, or truncate an existing one. `progress` counts the bytes written; or NULL. They
 * are sent to the disk as they come, so that there is little left for the fsync at the end. Errors
 * of these functions begin with the path. */
enum mics_status mics_hashed_file_create(const char *path, struct mics_progress *progress,
                                         struct mics_hashed_file **out, struct mics_err *err);
enum mics_status mics_hashed_file_write(struct mics_hashed_file *file, const void *data,
                                        size_t size, struct mics_err *err);
/* fsync and close the file, and free `file`, also after an error. */
enum mics_status mics_hashed_file_finish(struct mics_hashed_file *file, struct mics_file_sum *sum,
                                         struct mics_err *err);
/* Close the file and free `file`; what was written stays on disk. NULL is fine. */
void mics_hashed_file_drop(struct mics_hashed_file *file);

/* Reads an open file from its beginning and hashes what it reads. The descriptor and the path are
 * borrowed; the file's own position is not used. */
struct mics_hashed_reader {
    const char *path; /* for messages */
    int fd;
    uint64_t offset; /* bytes read so far */
    struct XXH64_state_s *state;
};

enum mics_status mics_hashed_reader_init(struct mics_hashed_reader *reader, struct mics_err *err);
void mics_hashed_reader_fini(struct mics_hashed_reader *reader); /* all zeros is fine */
void mics_hashed_reader_start(struct mics_hashed_reader *reader, const char *path, int fd);
/* Read the next `size` bytes. Errors begin with the path. */
enum mics_status mics_hashed_reader_read(struct mics_hashed_reader *reader, void *dst, size_t size,
                                         struct mics_err *err);
/* XXH64 of what was read since mics_hashed_reader_start(). */
uint64_t mics_hashed_reader_sum(const struct mics_hashed_reader *reader);

/* Read a file back after it was written: MICS_ERR_IO unless size and XXH64 are `sum`. Errors begin
 * with the path. The kernel's cached pages are dropped first where possible, so that the bytes come
 * from the disk. Uses 1 MiB of memory. `progress` counts the bytes read; or NULL. */
enum mics_status mics_file_read_back(const char *path, const struct mics_file_sum *sum,
                                     struct mics_progress *progress, struct mics_err *err);

#endif
