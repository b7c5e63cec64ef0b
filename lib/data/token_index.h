/* SPDX-License-Identifier: Apache-2.0 */
/*
 * token_index.h - Megatron's .idx: the type of the ids in .bin, and where documents begin.
 *
 *   "MMIDIDX\0\0", u64 version 1, u8 type, u64 sequences, u64 documents + 1,
 *   i32 lengths[sequences], i64 offsets[sequences] in bytes, i64 first_sequence[documents + 1]
 *
 * and perhaps i8 modes[sequences], which are not used. Little-endian, without padding.
 */
#ifndef MICS_DATA_TOKEN_INDEX_H
#define MICS_DATA_TOKEN_INDEX_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct mics_token_index {
    uint32_t width;      /* bytes of an id */
    bool is_signed;      /* ids are in two's complement */
    uint64_t count;      /* ids */
    uint64_t *documents; /* [document_count + 1] increasing positions, with `count` at the end */
    uint64_t document_count;
};

/* Read an index. Its sequences must be end to end, as all its writers make them. Documents without
 * tokens are left out. On success the caller calls free(out->documents). MICS_ERR_FORMAT: one line
 * without the path. */
enum mics_status mics_token_index_parse(const unsigned char *bytes, size_t size,
                                        struct mics_token_index *out, struct mics_err *err);

/* Write the index of documents of lengths[count] ids, one sequence each; width is 2 or 4. The
 * caller checks the stream for errors. */
void mics_token_index_write(FILE *stream, uint32_t width, const int32_t *lengths, uint64_t count);

#endif
