/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hashed_file.h - a file that is written once from end to end and summed on the way.
 */
#ifndef MICS_CKPT_FORMAT_HASHED_FILE_H
#define MICS_CKPT_FORMAT_HASHED_FILE_H

#include "base/err.h"

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

#endif
