/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.h - reading and writing whole files, and folders.
 *
 * A file is written to NAME.tmp.PID in the same folder, fsynced and renamed: readers see the old
 * file or the new one, never a part. A path that is not a regular file (/dev/null, a pipe) is
 * written directly.
 */
#ifndef MICS_BASE_FILE_H
#define MICS_BASE_FILE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What begins a pointer of Git LFS, which lies where a file is that has not been fetched. */
#define MICS_LFS_POINTER "version https://git-lfs.github.com/spec/"
#define MICS_LFS_ADVICE  "'git lfs pull' fetches the file"

/* Read a whole file; "-" is standard input. *data belongs to the caller, who calls free(); a NUL
 * that is not counted follows the last byte. Errors begin with the path. MICS_ERR_FORMAT: more than
 * `limit` bytes. */
enum mics_status mics_file_read(const char *path, size_t limit, char **data, size_t *size,
                                struct mics_err *err);

/* The same for a file that others named or that lies in a folder of others: only a regular file, or
 * a link to one, is read. What else is there (a folder, a pipe, a device) could block or never end,
 * and is MICS_ERR_IO. */
enum mics_status mics_file_read_regular(const char *path, size_t limit, char **data, size_t *size,
                                        struct mics_err *err);

/* Open such a file for reading. *bytes, unless NULL: its size. The caller calls close(). */
enum mics_status mics_file_open_regular(const char *path, int *fd, uint64_t *bytes,
                                        struct mics_err *err);

/* Is there something at `path`? A link that leads nowhere is something. MICS_ERR_IO, which begins
 * with the path: that cannot be found out. */
enum mics_status mics_file_exists(const char *path, bool *exists, struct mics_err *err);

/* Read bytes [offset, offset + size) of an open file. The error has no path: the caller prefixes
 * it. MICS_ERR_FORMAT: the file ends before offset + size. */
enum mics_status mics_file_read_at(int fd, void *dst, size_t size, uint64_t offset,
                                   struct mics_err *err);

/* A file being written. */
struct mics_file_writer;

enum mics_status mics_file_create(const char *path, struct mics_file_writer **out,
                                  struct mics_err *err);
FILE *mics_file_stream(struct mics_file_writer *writer);

/* Flush, fsync, rename, fsync the folder, and free the writer, also after a failure. A failure
 * leaves no file behind. */
enum mics_status mics_file_commit(struct mics_file_writer *writer, struct mics_err *err);
/* The same without fsync, for a file that is replaced often and may be lost if the system crashes.
 */
enum mics_status mics_file_publish(struct mics_file_writer *writer, struct mics_err *err);

/* Remove the temporary file and free the writer. NULL is fine. */
void mics_file_discard(struct mics_file_writer *writer);

/* Create `path` and its parents. An existing folder is fine. */
enum mics_status mics_file_make_folders(const char *path, struct mics_err *err);

/* Remove a file, or a folder with its contents, without following links. A missing path is fine. */
enum mics_status mics_file_remove_tree(const char *path, struct mics_err *err);

/* Can a file be created or replaced at `path` later: is its folder there and writable, and is it
 * not a folder itself? MICS_ERR_IO, which begins with the path. */
enum mics_status mics_file_check_output(const char *path, struct mics_err *err);

/* Do two paths lead to the same regular file, by whatever names? */
bool mics_file_is_same(const char *a, const char *b);

/* fsync a folder, so that renames in it survive a system crash. */
enum mics_status mics_file_sync_folder(const char *path, struct mics_err *err);

/* The list of temporary files and folders that are removed if a signal ends the process. Any thread
 * may add and drop. */
struct mics_temporary;

/* Add `path`, a string from malloc(), which the list frees. A folder is added before the files in
 * it. NULL: out of memory; the caller still owns the path. */
struct mics_temporary *mics_temporary_add(char *path);

/* Remove it from the list and free the path. The file itself is not touched. */
void mics_temporary_drop(struct mics_temporary *temporary);

/* Remove every file on the list, among them those of all open writers. For signal handlers:
 * async-signal-safe, and may interrupt any of the functions above. */
void mics_temporary_remove_all(void);

#define MICS_PATH_MAX 1024

/* Format into buf[MICS_PATH_MAX]; MICS_ERR_ARG if the path does not fit. */
enum mics_status mics_path_format(char *buf, struct mics_err *err, const char *fmt, ...)
    MICS_PRINTF(3, 4);

/* The folder that contains `path`; "." if the path has no slash. */
void mics_path_parent(const char *path, char parent[MICS_PATH_MAX]);

#endif
