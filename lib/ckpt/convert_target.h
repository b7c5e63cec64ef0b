/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_target.h - files that are to be made of a store's numbers.
 *
 * A file is a header and sections end to end; the folder appears by one rename when all are whole.
 */
#ifndef MICS_CKPT_CONVERT_TARGET_H
#define MICS_CKPT_CONVERT_TARGET_H

#include "ckpt/folder.h"
#include "ckpt/hashed_file.h"
#include "ckpt/store.h"

/* A run of numbers in a file. In the file of index i it begins at start + i * count of its space: so all
 * shards share one list, and loose files have index 0. */
struct mics_section {
    uint32_t space;
    enum mics_number number;
    uint64_t start, count;
};

struct mics_target_file {
    char name[64];
    const char *header; /* borrowed, as the sections */
    size_t header_bytes;
    const struct mics_section *sections;
    size_t section_count;
    uint32_t index;
    uint64_t bytes;               /* of the whole file */
    struct mics_file_sum sum;     /* of a hashed one, when it was made */
    struct mics_temporary *entry; /* while it is made: an interrupt removes it */
};

struct mics_target {
    struct mics_target_file *files;
    uint32_t file_count;
    bool hashed; /* each file is summed from end to end, and so made by one thread */
};

/* Bytes of a file's sections. */
uint64_t mics_sections_bytes(const struct mics_section *sections, size_t count);
uint64_t mics_target_bytes(const struct mics_target *target);

/* Called now and then by the thread that called mics_convert(). */
typedef void mics_progress(void *context, uint64_t done, uint64_t total);

/* Make all files in `folder`, synced, with one thread for each core that the process may use, at most 16; each
 * takes 4 MiB. After a failure the files are as far as they came. */
enum mics_status mics_convert(const struct mics_store *store, struct mics_target *target,
                              const char *folder, mics_progress *progress, void *context,
                              struct mics_err *err);

/* A folder that is being made beside its place. */
struct mics_new_folder {
    char final[MICS_PATH_MAX], temporary[MICS_PATH_MAX];
    bool made;
    struct mics_temporary *entry; /* removed when the process is killed by a signal that it sees */
};

/* MICS_ERR_ARG unless `path` is absent or an empty folder; MICS_ERR_IO unless there is room for `bytes`. With
 * `dry` nothing is made. */
enum mics_status mics_new_folder_begin(struct mics_new_folder *folder, const char *path,
                                       uint64_t bytes, bool dry, struct mics_err *err);
/* Sync and rename. */
enum mics_status mics_new_folder_commit(struct mics_new_folder *folder, struct mics_err *err);
/* Remove what was made, if it was not committed. */
void mics_new_folder_discard(struct mics_new_folder *folder);

/* A small file in the folder, whole and synced. */
enum mics_status mics_new_folder_write(const struct mics_new_folder *folder, const char *name,
                                       const void *data, size_t size, struct mics_err *err);

/* Free bytes of the file system that a new `path` would be on. */
enum mics_status mics_free_space(const char *path, uint64_t *bytes, struct mics_err *err);

#endif
