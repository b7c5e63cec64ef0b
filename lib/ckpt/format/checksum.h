/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hashed_file.h - a file that is written once from end to end and summed on the way.
 */
#ifndef MICS_CKPT_FORMAT_CHECKSUM_H
#define MICS_CKPT_FORMAT_CHECKSUM_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mics_hashed_file;

/* What is known of a finished file. */
struct mics_file_sum {
    uint64_t bytes, xxh64;
};

/* Create, or empty what is there. Errors begin with the path. */
enum mics_status mics_hashed_file_create(const char *path, struct mics_hashed_file **out,
                                         struct mics_err *err);
enum mics_status mics_hashed_file_write(struct mics_hashed_file *file, const void *data,
                                        size_t size, struct mics_err *err);
/* fsync, close, free. */
enum mics_status mics_hashed_file_finish(struct mics_hashed_file *file, struct mics_file_sum *sum,
                                         struct mics_err *err);
/* Close and free, leaving the file. NULL is fine. */
void mics_hashed_file_drop(struct mics_hashed_file *file);

/* file_sum.h - is a file still what was written? */
/* Open for reading. MICS_ERR_FORMAT when it cannot be, whatever the cause (the checkpoint is not whole), or when
 * it has another size than `bytes`. Errors begin with the path. */
enum mics_status mics_file_open_sized(const char *path, uint64_t bytes, int *fd,
                                      struct mics_err *err);

/* Read all of `path` and compare size and XXH64: MICS_ERR_FORMAT, beginning with the path, when they differ.
 * `from_disk`: drop what the kernel remembers of it first, where it can be dropped. Takes 1 MiB of memory. */
enum mics_status mics_file_sum_check(const char *path, const struct mics_file_sum *sum,
                                     bool from_disk, struct mics_err *err);

#endif
