/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.h - files that are to be made of a store's numbers.
 *
 * A file is a header and sections end to end; the folder appears by one rename when all are whole.
 */
#ifndef MICS_CKPT_CONVERT_TARGET_H
#define MICS_CKPT_CONVERT_TARGET_H

#include "base/progress.h"
#include "ckpt/folder.h"
#include "ckpt/format/checksum.h"
#include "ckpt/store.h"
#include "comm/comm.h"

#include <stdatomic.h>

/* A run of numbers in a file. In the file of index i it begins at start + i * count of its space: so all
 * shards share one list, and loose files have index 0. */
struct mics_section {
    uint32_t space;
    enum mics_number number;
    uint64_t start, count;
    uint64_t offset; /* bytes, in the data of its file: mics_sections_place() */
};

struct mics_target_file {
    char name[64];
    const char *header; /* borrowed, as the sections */
    size_t header_bytes;
    const struct mics_section *sections;
    size_t section_count;
    uint32_t index;
    uint64_t bytes;           /* of the whole file */
    struct mics_file_sum sum; /* of a hashed one, when it was made */
};

struct mics_target {
    struct mics_target_file *files;
    uint32_t file_count;
    bool hashed; /* each file is summed from end to end, and so made by one rank */
};

/* Lay the sections of a file end to end; the bytes of all. */
uint64_t mics_sections_place(struct mics_section *sections, size_t count);
uint64_t mics_target_bytes(const struct mics_target *target);

/* The file by which a rank stops the others. */
#define MICS_HALT_NAME "halt"

struct mics_convert_how {
    struct mics_comm *comm; /* the ranks that make the files together; all see the folder */
    uint32_t host_ranks;    /* of these, how many share the cores of this machine, with this one */
    mics_progress_callback *progress; /* called by the thread that called mics_convert(); or NULL */
    void *progress_context;
    const atomic_bool *cancel; /* when true, nobody wants the files any more; or NULL */
};

/* Make all files in `folder`, synced. Collective: the first rank creates the files, all fill them, with two threads
 * for each core that the process has, at most 24; each takes 5 MiB. The sums are known on all ranks. After a failure,
 * which is one of all ranks, the files are as far as they came; the others stop soon after the rank that failed. */
enum mics_status mics_convert(const struct mics_store *store, struct mics_target *target,
                              const char *folder, const struct mics_convert_how *how,
                              struct mics_err *err);

/* A folder that is being made beside its place. */
struct mics_new_folder {
    char final[MICS_PATH_MAX], temporary[MICS_PATH_MAX];
    bool made;
    int lock; /* while it is made, or -1: what has none is a leftover */
    struct mics_temporary *
        *entries; /* itself and its files: removed when the process is told to end */
    size_t entry_count;
};

/* The first rank makes it for all, and removes what killed runs left of the same name. MICS_ERR_ARG unless `path` is absent or an empty folder; MICS_ERR_IO unless there is
 * room for `bytes`. With `dry` nothing is made. Collective. */
enum mics_status mics_new_folder_begin(struct mics_new_folder *folder, struct mics_comm *comm,
                                       const char *path, uint64_t bytes, bool dry,
                                       struct mics_err *err);
/* Have `name` in it removed with it when the process is told to end: every rank, before the file is made. */
enum mics_status mics_new_folder_remember(struct mics_new_folder *folder, const char *name,
                                          struct mics_err *err);
/* Sync and rename: the rank that made it. */
enum mics_status mics_new_folder_commit(struct mics_new_folder *folder, struct mics_err *err);
/* Remove what was made, if it was not committed. */
void mics_new_folder_discard(struct mics_new_folder *folder);

/* A small file in the folder, whole and synced. */
enum mics_status mics_new_folder_write(struct mics_new_folder *folder, const char *name,
                                       const void *data, size_t size, struct mics_err *err);

/* Free bytes of the file system that a new `path` would be on. */
enum mics_status mics_free_space(const char *path, uint64_t *bytes, struct mics_err *err);

#endif
