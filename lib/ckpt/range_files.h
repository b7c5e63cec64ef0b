/* SPDX-License-Identifier: Apache-2.0 */
/* range_files.h - the files behind a reader of ranges. Private to it. */
#ifndef MICS_CKPT_RANGE_FILES_H
#define MICS_CKPT_RANGE_FILES_H

#include "ckpt/folder.h"
#include "ckpt/range.h"

struct mics_range_file {
    int fd; /* -1: not open */
    uint64_t *
        offsets; /* bytes from the beginning of the file, [unit * states + state]; NULL: not read */
};

struct mics_ckpt_reader {
    char folder[MICS_PATH_MAX];
    struct mics_manifest manifest;
    struct mics_ckpt_table table;
    struct mics_range_file *files;
    uint32_t open_count;
};

enum mics_status mics_range_path(const struct mics_ckpt_reader *reader, uint32_t file, char *path,
                                 struct mics_err *err);
/* Have a file open and its header read. */
enum mics_status mics_range_need(struct mics_ckpt_reader *reader, uint32_t number, const char *path,
                                 struct mics_err *err);
enum mics_status mics_range_read(const char *path, int fd, void *dst, uint64_t size,
                                 uint64_t offset, struct mics_err *err);
/* Elements of a unit in a file. */
uint64_t mics_range_count(const struct mics_ckpt_reader *reader, uint32_t unit, uint32_t file);

#endif
