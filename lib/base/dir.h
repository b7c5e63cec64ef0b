/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dir.h - the names in a folder, one after another.
 *
 *     status = mics_dir_open(path, &dir, err);
 *     while (status == MICS_OK && (name = mics_dir_next(&dir)) != NULL)
 *         status = use(name, err);
 *     return mics_dir_close(&dir, status, err);
 *
 * A folder that cannot be read to its end is an error, which mics_dir_close() returns.
 */
#ifndef MICS_BASE_DIR_H
#define MICS_BASE_DIR_H

#include "base/err.h"

#include <dirent.h>

struct mics_dir {
    DIR *stream;      /* NULL: not open */
    const char *path; /* borrowed */
    int code;         /* errno of a read that failed, or 0 */
};

/* Errors begin with the path, here and below. */
enum mics_status mics_dir_open(const char *path, struct mics_dir *out, struct mics_err *err);
/* The same for an open folder. Takes `fd`, which is closed with it, or after an error. */
enum mics_status mics_dir_open_fd(int fd, const char *path, struct mics_dir *out,
                                  struct mics_err *err);

/* The next name, valid until the next call; "." and ".." are left out. NULL: no more, or none could
 * be read. */
const char *mics_dir_next(struct mics_dir *dir);

/* Close the folder, if it is open. Returns `status`, or if that is MICS_OK the error of a read. */
enum mics_status mics_dir_close(struct mics_dir *dir, enum mics_status status,
                                struct mics_err *err);

#endif
