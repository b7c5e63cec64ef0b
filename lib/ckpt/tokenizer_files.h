/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenizer_files.h - the files of a tokenizer, which travel with what was made with it: data sets,
 * checkpoints and models.
 *
 * They are copied byte by byte and not interpreted here. A document lists them with their sums:
 *
 *     "tokenizer": {"fingerprint": "0123456789abcdef", "size": 50257, "begin": 50256, "end": 50256,
 *                   "files": [{"name": "tokenizer.json", "bytes": 1355256, "xxh64": "..."}]}
 *
 * where only `files` is always there: empty for the tokenizer of bytes. The files are beside a
 * manifest, and those of a data set in a folder of their own (data/disk_tokenizer.h).
 */
#ifndef MICS_CKPT_TOKENIZER_FILES_H
#define MICS_CKPT_TOKENIZER_FILES_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A file as it was read. */
struct mics_tokenizer_file {
    char name[64]; /* without folder */
    unsigned char *bytes;
    size_t size;
};

struct mics_tokenizer_files {
    struct mics_tokenizer_file *items;
    size_t count;
};

void mics_tokenizer_files_free(struct mics_tokenizer_files *files); /* all zeros is fine */

/* Append a copy of a file, unless there is one of that name. */
enum mics_status mics_tokenizer_files_add(struct mics_tokenizer_files *files, const char *name,
                                          const void *bytes, size_t size, struct mics_err *err);

/* Append the files of a tokenizer that are in `folder`, of those whose names `files` does not have
 * yet: what makes ids, and what other programs read beside it (chat template, settings of
 * generation). */
enum mics_status mics_tokenizer_files_find(struct mics_tokenizer_files *files, const char *folder,
                                           struct mics_err *err);

/* Is there one by which text becomes ids? */
bool mics_tokenizer_files_make_ids(const struct mics_tokenizer_files *files);

/* Append the files that `tokenizer`, such a map as above or NULL, lists, from `folder`.
 * MICS_ERR_FORMAT: the map is malformed, a name is not that of such a file, or a file is missing or
 * has another sum. */
enum mics_status mics_tokenizer_files_load(struct mics_tokenizer_files *files,
                                           const json_t *tokenizer, const char *folder,
                                           struct mics_err *err);

/* The list of files for a document: a new array. NULL: out of memory. */
json_t *mics_tokenizer_files_to_json(const struct mics_tokenizer_files *files);

/* Write all into a folder and fsync them, without their sum being compared. Any thread. */
enum mics_status mics_tokenizer_files_write(const struct mics_tokenizer_files *files,
                                            const char *folder, struct mics_err *err);

uint64_t mics_tokenizer_files_bytes(const struct mics_tokenizer_files *files);

#endif
