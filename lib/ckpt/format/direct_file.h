/* SPDX-License-Identifier: Apache-2.0 */
/*
 * piece_file.h - a file of known size that is written in pieces, by any number of threads.
 *
 * Where the file system is known to take it well, the pieces go straight to the disk: what is written once and not
 * read soon has no place in the memory of the machine, and no copy is made on the way. Elsewhere they go
 * through the kernel's memory, as usual.
 */
#ifndef MICS_CKPT_FORMAT_PIECE_FILE_H
#define MICS_CKPT_FORMAT_PIECE_FILE_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Pieces begin at multiples of this, in the file and in memory. */
#define MICS_PIECE_ALIGN ((size_t)4096)

/* Not to be moved while it is open. */
struct mics_piece_file {
    const char *path; /* borrowed, for messages */
    int fd;
    uint64_t bytes;
    atomic_bool direct;
};

/* `create`: the file must not be there yet, and room for `bytes` is set aside where the file system can; else it
 * is there already, for another process made it. */
enum mics_status mics_piece_file_open(const char *path, uint64_t bytes, bool create,
                                      struct mics_piece_file *file, struct mics_err *err);

/* Write data[size] at `offset`. Only the last piece of a file may have a size that is no multiple of
 * MICS_PIECE_ALIGN; the room behind it, up to the next multiple, is the callee's to overwrite. */
enum mics_status mics_piece_file_write(struct mics_piece_file *file, char *data, size_t size,
                                       uint64_t offset, struct mics_err *err);

/* Sync, unless `lost`, and close. */
enum mics_status mics_piece_file_close(struct mics_piece_file *file, bool lost,
                                       struct mics_err *err);

#endif
