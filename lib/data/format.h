/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.h - what a file is, by its first bytes and its name: text, JSON lines or tokens, plain or
 * compressed. All else is refused by what it seems to be.
 *
 * Names are compared without regard to case. A compressed file is recognised by its first bytes;
 * what it holds is what the rest of its name says: "a.jsonl.gz" has JSON lines.
 */
#ifndef MICS_DATA_FORMAT_H
#define MICS_DATA_FORMAT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mics_content { MICS_CONTENT_TEXT, MICS_CONTENT_LINES, MICS_CONTENT_TOKENS };

/* "text", "JSON lines", "tokens" */
const char *mics_content_name(enum mics_content content);

enum mics_compression { MICS_COMPRESSION_NONE, MICS_COMPRESSION_GZIP, MICS_COMPRESSION_ZSTD };

struct mics_format {
    enum mics_content content;
    enum mics_compression compression;
};

/* Bytes at the beginning of a file that are enough to recognise it. */
#define MICS_FORMAT_HEAD 4096

/* What a file is by its name alone, and not compressed. */
struct mics_format mics_format_by_name(const char *path);

/* What a file is. `head` has its first `size` bytes, MICS_FORMAT_HEAD or all. MICS_ERR_FORMAT, with
 * the path: it is none of these, or not what its name says. Files of tokens are known by name only,
 * as ids can be any bytes; but *.npy may not be an array of NumPy, which has a header. */
enum mics_status mics_format_recognize(const char *path, const unsigned char *head, size_t size,
                                       struct mics_format *out, struct mics_err *err);

/* MICS_ERR_FORMAT, with the path, if the first bytes are those of a file that has neither text nor
 * tokens, or that is compressed; names do not count. For what was decompressed, and, with `ids`,
 * for tokens without a header, whose ids are not taken for short marks of other formats. */
enum mics_status mics_format_refuse(const char *path, const unsigned char *head, size_t size,
                                    bool ids, struct mics_err *err);

/* The first bytes of JSON lines, perhaps not all. MICS_ERR_FORMAT, with the path: they are an
 * array, an object over several lines, or UTF-16. */
enum mics_status mics_format_check_lines(const char *path, const unsigned char *bytes, size_t size,
                                         struct mics_err *err);

/* Counts of a text, of which pieces may be added one after another. */
struct mics_text_counts {
    uint64_t bytes, invalid; /* those that are not UTF-8 */
    bool has_nul;
    uint64_t nul_at; /* byte of the first NUL */
};

/* Count a piece that begins at byte `offset`. A character that its ends cut counts as valid. */
void mics_text_count(const unsigned char *bytes, size_t size, uint64_t offset,
                     struct mics_text_counts *counts);
/* MICS_ERR_FORMAT, with the path: there is a NUL, or more than 1 % are not UTF-8. `head` has the
 * first bytes, by which the message says what it may be. */
enum mics_status mics_text_judge(const char *path, const struct mics_text_counts *counts,
                                 const unsigned char *head, size_t head_size, struct mics_err *err);

#endif
