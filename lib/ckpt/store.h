/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - a model's numbers wherever they are: in shards of a checkpoint, or in files of Hugging Face.
 *
 * A store has spaces, and a space is a row of numbers. Of a model, space unit * MICS_CKPT_STATES + state is the
 * flat vector of a unit in one state; of loose tensors, space i is tensor i. Any range of a space can be
 * read, in any of the number formats, in memory bounded by the caller. What no file holds (padding) reads as
 * zero.
 */
#ifndef MICS_CKPT_STORE_H
#define MICS_CKPT_STORE_H

#include "base/err.h"
#include "ckpt/manifest.h"
#include "ckpt/table.h"
#include "host/numbers.h"

#include <stdbool.h>
#include <stdint.h>

/* Numbers that are read at once, at most. */
#define MICS_STORE_CHUNK ((size_t)256 << 10)

struct mics_store_file {
    char *path;
    int fd;
    uint64_t bytes;
};

/* A run of a space in one file. */
struct mics_extent {
    const char
        *name; /* of the tensor, for messages; borrowed; NULL: nothing is there, read zeros */
    uint32_t space, file;
    enum mics_number number;
    uint64_t start, count; /* in the space */
    uint64_t offset;       /* bytes in the file */
};

/* The arithmetic of shards. The table is borrowed. */
struct mics_store_shards {
    const struct mics_ckpt_table *table;
    uint64_t *begins;  /* [file][unit * states + state]: byte of the tensor in the file */
    char (*names)[48]; /* [unit * states + state] */
};

/* Immutable after it was opened: any number of threads may read. */
struct mics_store {
    struct mics_store_file *files;
    uint32_t file_count;
    struct mics_extent *table; /* by space and start; NULL: shards */
    size_t table_count;
    struct mics_store_shards shards;
};

void mics_store_close(struct mics_store *store); /* of zeros is fine */

/* Open one more file: its index is file_count - 1. */
enum mics_status mics_store_add_file(struct mics_store *store, const char *path,
                                     struct mics_err *err);

/* Allow this process as many open files as it may have: shards are open at once, on both sides. */
void mics_raise_open_files(void);

/* Put the table in order. */
void mics_store_sort(struct mics_store *store);

/* The run that has number `start` of a space: as far as it goes, `count` at most. */
struct mics_extent mics_store_locate(const struct mics_store *store, uint32_t space, uint64_t start,
                                     uint64_t count);

/* dst[count] = numbers [start, start + count) of a space as `number`; count <= MICS_STORE_CHUNK. Scratch
 * has MICS_STORE_CHUNK floats, twice. RAW is read as RAW only. MICS_ERR_FORMAT: a number is not finite, or
 * is too large for `number`, or a file is shorter than it was. */
enum mics_status mics_store_read(const struct mics_store *store, uint32_t space, uint64_t start,
                                 size_t count, enum mics_number number, void *dst, float *scratch,
                                 struct mics_err *err);

/* "F32", "F16", "BF16"; anything else is RAW. */
enum mics_number mics_number_of_dtype(const char *dtype);
const char *mics_number_dtype(enum mics_number number);

/* "f32", "f16", "bf16" as people write it. */
enum mics_status mics_number_parse(const char *text, enum mics_number *out, struct mics_err *err);

static inline uint32_t mics_space_of(uint32_t unit, uint32_t state)
{
    return unit * MICS_CKPT_STATES + state;
}

#endif
