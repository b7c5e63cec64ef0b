/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dataset.h - the document mics.dataset, which describes a file of tokens: what is in it, what it
 * was made from, its checksum, and its tokenizer (disk_tokenizer.h).
 */
#ifndef MICS_DATA_DATASET_H
#define MICS_DATA_DATASET_H

#include "data/disk_tokenizer.h"
#include "data/encode.h"
#include "data/token_file.h"

/* A document of an open file: its name, format, tokens, and documents if the format says. *out is
 * the caller's. */
enum mics_status mics_dataset_to_doc(const struct mics_token_file *file, json_t **out,
                                     struct mics_err *err);

/* Add what only its maker knows: the checksum of all ids, the text, and the tokenizer, a reference
 * that the document takes (NULL: none). `vocab_size`: of the tokenizer. `chat`: of
 * the conversations, or NULL. */
enum mics_status mics_dataset_add_source(json_t *doc, uint64_t checksum,
                                         const struct mics_corpus *corpus,
                                         const struct mics_encode_report *report,
                                         const struct mics_chat *chat, uint32_t vocab_size,
                                         json_t *tokenizer, struct mics_err *err);

/* Add the list of the files PREFIX.bin, and PREFIX.idx and PREFIX.prompts, if these are there, with
 * what tells them from those of another set: bytes, and XXH64 of samples. */
enum mics_status mics_dataset_add_files(json_t *doc, const char *prefix, struct mics_err *err);

/* MICS_ERR_FORMAT: the document is not one of this file, by the number and the bytes of its tokens,
 * or the set was replaced only in part, by the samples. */
enum mics_status mics_dataset_match(const json_t *doc, const struct mics_token_file *file,
                                    struct mics_err *err);

/* Read all of a file: its checksum must be that of the document, if it has one, and its ids must be
 * below vocab_size, unless 0. MICS_ERR_FORMAT: they are not, with file and position. */
enum mics_status mics_dataset_check(const json_t *doc, const struct mics_token_file *file,
                                    uint32_t vocab_size, struct mics_err *err);

/* Print as a table. MICS_ERR_FORMAT: the document is malformed. */
enum mics_status mics_dataset_print(FILE *out, const json_t *doc, int tsv, struct mics_err *err);

#endif
