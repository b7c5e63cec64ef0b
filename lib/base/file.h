/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.h - whole files in, whole files out.
 *
 * A file is written beside its place as NAME.tmp.PID, fsynced and renamed: readers see the old
 * one or the new one, never a part. What exists and is no regular file (/dev/null, a pipe) is written
 * directly.
 */
#ifndef MICS_BASE_FILE_H
#define MICS_BASE_FILE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Read all of `in`. *data is the caller's, to free(); one NUL follows the last byte and is not
 * counted. MICS_ERR_FORMAT when there are more than `limit` bytes. */
enum mics_status mics_file_slurp(FILE *in, size_t limit, char **data, size_t *size,
                                 struct mics_err *err);

/* The same from a path ("-" is standard input); errors begin with the path. */
enum mics_status mics_file_read(const char *path, size_t limit, char **data, size_t *size,
                                struct mics_err *err);

/* Read bytes [offset, offset + size) of an open file. The error has no path: the caller prefixes it.
 * MICS_ERR_FORMAT: the file ends before offset + size. */
enum mics_status mics_file_read_at(int fd, void *dst, size_t size, uint64_t offset,
                                   struct mics_err *err);

/* A file being written. */
struct mics_file_writer;

enum mics_status mics_file_create(const char *path, struct mics_file_writer **out,
                                  struct mics_err *err);
FILE *mics_file_stream(struct mics_file_writer *writer);

/* Flush, fsync, rename into place, fsync the folder, free. After a failure nothing is left. */
enum mics_status mics_file_commit(struct mics_file_writer *writer, struct mics_err *err);

/* Remove what was written, free. NULL is fine. */
void mics_file_discard(struct mics_file_writer *writer);

/* Remove the temporary files of every writer still open. Async-signal-safe: for a SIGINT handler. */
void mics_file_discard_all(void);

/* Make `path` and its parents. An existing folder is fine. */
enum mics_status mics_file_make_folders(const char *path, struct mics_err *err);

/* Remove a folder with all that is in it; never follows links. A missing one is fine. */
enum mics_status mics_file_remove_tree(const char *path, struct mics_err *err);

/* fsync a folder, so that renames in it survive a crash. */
enum mics_status mics_file_sync_folder(const char *path, struct mics_err *err);

#endif
