/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.h - writes files made of a store's numbers, into a folder that appears by one rename.
 *
 * A file is a header followed by sections. section.c makes their bytes, file_writer.c writes the
 * files, output_folder.c has the folder.
 */
#ifndef MICS_CKPT_CONVERT_TARGET_H
#define MICS_CKPT_CONVERT_TARGET_H

#include "base/progress.h"
#include "ckpt/folder.h"
#include "ckpt/format/checksum.h"
#include "ckpt/store.h"
#include "comm/comm.h"

#include <stdatomic.h>

/* The order in which a section has the numbers of a matrix. */
enum mics_section_order {
    MICS_SECTION_PLAIN,
    /* Of every `head_rows` rows, a row of the first half and one of the second take turns: for
     * rotary positions that turn neighbours instead of halves. */
    MICS_SECTION_ROPE_PAIRS,
    MICS_SECTION_TRANSPOSED,
};

/* A run of numbers in a file. In the file of index i it has the numbers [start + i * count, start +
 * (i + 1) * count) of its vector, so that all shards of a checkpoint share one list of sections. */
struct mics_section {
    uint32_t vector;
    enum mics_storage_dtype dtype;
    uint64_t start, count;
    uint64_t offset; /* bytes, in the data of its file; mics_sections_place() sets it */
    /* All zeros: the numbers as they are. A section may begin behind the end of the one before it:
     * zeros are between them. */
    enum mics_section_order order;
    uint64_t columns; /* of another order: of the matrix, as it is written */
    uint32_t head_rows;
    bool q8_0;         /* as blocks of Q8_0, not as `dtype`, which is F32; count fills blocks */
    const char *bytes; /* NULL, or `count` bytes to be written (`dtype` is RAW); borrowed */
};

struct mics_target_file {
    char name[64];
    const char *header; /* borrowed, as the sections are */
    size_t header_bytes;
    const struct mics_section *sections;
    size_t section_count;
    uint32_t index;
    uint64_t bytes;           /* of the whole file */
    struct mics_file_sum sum; /* output, if the target is hashed */
};

struct mics_target {
    struct mics_target_file *files;
    uint32_t file_count;
    bool hashed; /* compute the sum of each file, which is then written by one rank */
};

uint64_t mics_section_bytes(const struct mics_section *section);
/* Place the sections of a file one after another. Returns the bytes of all. */
uint64_t mics_sections_place(struct mics_section *sections, size_t count);
/* dst[size] = bytes [at, at + size) of a section in the file of an index. scratch[3 *
 * MICS_STORE_CHUNK]. Errors as of mics_store_read(). */
enum mics_status mics_section_fill(const struct mics_store *store,
                                   const struct mics_section *section, uint32_t index, uint64_t at,
                                   char *dst, size_t size, float *scratch, struct mics_err *err);
uint64_t mics_target_bytes(const struct mics_target *target);

/* A file in the folder by which a rank that fails stops the others. */
#define MICS_ABORT_MARKER "abort"

struct mics_target_options {
    struct mics_comm *comm; /* the ranks that write the files together; all see the folder */
    uint32_t host_ranks;    /* of these, how many share the cores of this machine, with this one */
    mics_progress_callback *progress; /* called by the calling thread; or NULL */
    void *progress_context;
    const atomic_bool *cancel; /* when true, stop early; or NULL */
};

/* Write all files into `folder` and fsync them. Collective: rank 0 creates the files, and all ranks
 * write pieces of them, with two threads per core of the process, at most 24, of 5 MiB of memory
 * each. All ranks get the sums. After an error, which is the same on all ranks, the files are
 * incomplete; the other ranks stop soon after the one that failed. If cancelled, the files are
 * incomplete and the status may be MICS_OK. */
enum mics_status mics_target_write(const struct mics_store *store, struct mics_target *target,
                                   const char *folder, const struct mics_target_options *options,
                                   struct mics_err *err);

/* The name in the temporary folder of a result that is a single file. */
#define MICS_SINGLE_FILE "file"

/* A folder that is written under a temporary name beside its final one. */
struct mics_output_folder {
    char final[MICS_PATH_MAX], temporary[MICS_PATH_MAX];
    bool single;  /* the result is not the folder, but the one file in it */
    bool created; /* by this rank, and not yet renamed */
    int lock;     /* held while the folder is written: without, it is stale. -1: none */
    struct mics_temporary *
        *entries; /* the folder and its files: removed if a signal ends the process */
    size_t entry_count;
};

/* Rank 0 creates the folder for all, after it has removed stale folders of killed runs.
 * MICS_ERR_ARG if `path` exists and is not an empty folder, or exists at all for a single file
 * (folder->single, set by the caller); MICS_ERR_IO if fewer than `bytes` are free. With `dry_run`
 * only these two are checked. Collective. */
enum mics_status mics_output_folder_create(struct mics_output_folder *folder,
                                           struct mics_comm *comm, const char *path, uint64_t bytes,
                                           bool dry_run, struct mics_err *err);
/* Have `name` (NULL: the folder itself) removed if a signal ends the process. Every rank registers
 * a file before it is created. */
enum mics_status mics_output_folder_register(struct mics_output_folder *folder, const char *name,
                                             struct mics_err *err);
/* fsync the folder and give it, or its MICS_SINGLE_FILE, the final name. Rank 0 only. */
enum mics_status mics_output_folder_commit(struct mics_output_folder *folder, struct mics_err *err);
/* Remove the folder unless it was committed, and free what the structure holds. */
void mics_output_folder_discard(struct mics_output_folder *folder);

/* Write a small file into the folder and fsync it. */
enum mics_status mics_output_folder_write(struct mics_output_folder *folder, const char *name,
                                          const void *data, size_t size, struct mics_err *err);

#endif
