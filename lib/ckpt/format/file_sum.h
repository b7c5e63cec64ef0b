/* SPDX-License-Identifier: Apache-2.0 */
/* file_sum.h - is a file still what was written? */
#ifndef MICS_CKPT_FORMAT_FILE_SUM_H
#define MICS_CKPT_FORMAT_FILE_SUM_H

#include "ckpt/format/hashed_file.h"

#include <stdbool.h>

/* Open for reading. MICS_ERR_FORMAT when it cannot be, whatever the cause (the checkpoint is not whole), or when
 * it has another size than `bytes`. Errors begin with the path. */
enum mics_status mics_file_open_sized(const char *path, uint64_t bytes, int *fd,
                                      struct mics_err *err);

/* Read all of `path` and compare size and XXH64: MICS_ERR_FORMAT, beginning with the path, when they differ.
 * `from_disk`: drop what the kernel remembers of it first, where it can be dropped. Takes 1 MiB of memory. */
enum mics_status mics_file_sum_check(const char *path, const struct mics_file_sum *sum,
                                     bool from_disk, struct mics_err *err);

#endif
