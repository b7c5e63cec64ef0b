/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - the numbers of a model on disk, in the shards of a checkpoint or in Hugging Face files.
 *
 * A store has vectors: one-dimensional arrays of numbers, which lie in its files in runs (extents).
 * The vectors of a model are the flat vectors of its units: vector unit * MICS_CKPT_STATES + state.
 * Otherwise vector i is tensor i. Any range of a vector can be read, in any storage type, in memory
 * that the caller provides. A range that is in no file (padding) reads as zeros.
 */
#ifndef MICS_CKPT_STORE_H
#define MICS_CKPT_STORE_H

#include "base/err.h"
#include "ckpt/ckpt_table.h"
#include "host/numbers.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most numbers of one mics_store_read(). */
#define MICS_STORE_CHUNK ((size_t)256 << 10)

struct mics_store_file {
    char *path;
    int fd; /* -1: closed */
    uint64_t bytes;
    /* Where each tensor of a shard begins, [unit * states + state], in bytes from the beginning
     * of the file; only for the units that the file has. NULL: its header has not been read. */
    uint64_t *tensor_offsets;
};

/* A run of a vector in one file. */
struct mics_extent {
    const char *name; /* of the tensor, for messages; borrowed. NULL: in no file, reads as zeros */
    uint32_t vector, file;
    enum mics_storage_dtype dtype;
    uint64_t start, count; /* in the vector */
    uint64_t offset;       /* bytes, in the file */
};

/* While no file is opened or closed, any number of threads may read. */
struct mics_store {
    struct mics_store_file *files;
    uint32_t file_count;
    struct mics_extent *table; /* sorted by vector and start; NULL: the files are shards */
    size_t table_count;
    const struct mics_ckpt_table *shards; /* how shards are cut; borrowed */
    char (*tensor_names)[48];             /* of shards: [unit * states + state] */
};

void mics_store_close(struct mics_store *store); /* all zeros is fine */

/* Append a file and open it. */
enum mics_status mics_store_add_file(struct mics_store *store, const char *path,
                                     struct mics_err *err);

/* Open the file at file->path and get its size. Errors begin with the path. MICS_ERR_FORMAT if
 * there is no such file, because then the model is incomplete, or if it is not a regular file. */
enum mics_status mics_store_file_open(struct mics_store_file *file, struct mics_err *err);

/* Raise this process's limit of open files to the maximum: all files of a conversion are open at
 * once. */
void mics_raise_open_files(void);

/* Sort the table of extents. */
void mics_store_sort(struct mics_store *store);

/* The run that contains number `start` of a vector: as far as it goes, at most `count` numbers. The
 * header of a shard must have been read. */
struct mics_extent mics_store_locate(const struct mics_store *store, uint32_t vector,
                                     uint64_t start, uint64_t count);

/* Read an extent of a file as it is stored. Errors begin with the file's path; MICS_ERR_FORMAT: the
 * file was truncated after it was opened. */
enum mics_status mics_store_read_extent(const struct mics_store *store,
                                        const struct mics_extent *extent, void *dst,
                                        struct mics_err *err);

/* dst = the numbers of an extent as `dtype`, as mics_store_read() reads them. */
enum mics_status mics_store_read_run(const struct mics_store *store,
                                     const struct mics_extent *extent,
                                     enum mics_storage_dtype dtype, void *dst, float *scratch,
                                     struct mics_err *err);

/* dst[count] = numbers [start, start + count) of a vector as `dtype`; count <= MICS_STORE_CHUNK.
 * scratch[2 * MICS_STORE_CHUNK]. MICS_ERR_FORMAT as above, or if a number is not finite or too
 * large for `dtype`. RAW can be read as RAW only. */
enum mics_status mics_store_read(const struct mics_store *store, uint32_t vector, uint64_t start,
                                 size_t count, enum mics_storage_dtype dtype, void *dst,
                                 float *scratch, struct mics_err *err);

/* "F32", "F16", "BF16", "F64" of a safetensors header; anything else is RAW. */
enum mics_storage_dtype mics_storage_dtype_of_name(const char *dtype);
const char *mics_storage_dtype_name(enum mics_storage_dtype dtype);

/* "f32", "f16", "bf16" of a command line. MICS_ERR_ARG quotes the value. */
enum mics_status mics_storage_dtype_parse(const char *text, enum mics_storage_dtype *out,
                                          struct mics_err *err);

static inline uint32_t mics_vector_of(uint32_t unit, uint32_t state)
{
    return unit * MICS_CKPT_STATES + state;
}

#endif
