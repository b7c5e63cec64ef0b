/* SPDX-License-Identifier: Apache-2.0 */
/*
 * token_file.h - files of token ids, mapped into memory: llm.c's .bin (for GPT-2 and for Llama 3),
 * Megatron's .bin with .idx, and raw 16 or 32 bit ids (nanoGPT's).
 */
#ifndef MICS_DATA_TOKEN_FILE_H
#define MICS_DATA_TOKEN_FILE_H

#include "base/file.h"
#include "data/prompts.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mics_token_format { MICS_TOKENS_LLMC, MICS_TOKENS_MEGATRON, MICS_TOKENS_RAW };

/* "llmc", "megatron", "raw" */
const char *mics_token_format_name(enum mics_token_format format);

/* The path without .bin, .idx or .mp (its document) at its end. */
enum mics_status mics_token_prefix(const char *path, char prefix[MICS_PATH_MAX],
                                   struct mics_err *err);

/* Immutable once open, so any number of threads may read it. */
struct mics_token_file {
    char *path;
    enum mics_token_format format;
    const unsigned char *bytes; /* of the ids; mapped, read only */
    uint32_t width;             /* bytes of an id: 1, 2, 4 or 8 */
    bool is_signed;             /* ids are in two's complement */
    uint64_t count;             /* ids */
    uint32_t vocab_size;        /* ids are below, as meta.pkl says; 0: unknown */
    /* Where documents begin, increasing, with `count` at the end; NULL: the format does not say. */
    const uint64_t *documents;
    uint64_t document_count;
    struct mics_prompts prompts; /* of PREFIX.prompts, if that is there */
    uint64_t mapped_bytes, device, inode;
    void *mapping, *index; /* to be released */
};

/* Open a file; of Megatron's either the .bin, the .idx, or the prefix of both. `width` is that of
 * raw ids. 0: as nanoGPT's meta.pkl beside them says by its vocab_size, up to 65,536 2 bytes, else
 * 4; without such a file 2. Header, index and size are checked against each other; ids are checked
 * where they are read. PREFIX.prompts beside it is opened, too. MICS_ERR_FORMAT: one line
 * with path and reason. */
enum mics_status mics_token_file_open(const char *path, uint32_t width, struct mics_token_file *out,
                                      struct mics_err *err);
void mics_token_file_close(struct mics_token_file *file); /* all zeros is fine */

/* ids[length] from `first` on; first + length <= count. MICS_ERR_FORMAT: an id that is not in
 * [0, vocab_size), or not in the vocabulary of the file; with path and position. */
enum mics_status mics_token_file_read(const struct mics_token_file *file, uint64_t first,
                                      uint32_t length, uint32_t vocab_size, int32_t *ids,
                                      struct mics_err *err);

/* XXH64 of all ids, as they are in the file. Reads the whole file. */
uint64_t mics_token_file_checksum(const struct mics_token_file *file);

/* A file that is being written, next to its final name, which it gets when it is complete. Ids of
 * up to 65,536 tokens take 2 bytes, others 4. Memory: 4 bytes for each document of Megatron's. */
struct mics_token_writer;

/* Begin PREFIX.bin, and PREFIX.idx of Megatron's; `path` is PREFIX, or one of these. MICS_ERR_ARG:
 * MICS_TOKENS_RAW, which is only read. MICS_ERR_FORMAT: PREFIX.idx of another file is there, which
 * would make a file of llm.c look like one of Megatron. */
enum mics_status mics_token_writer_open(const char *path, enum mics_token_format format,
                                        uint32_t vocab_size, struct mics_token_writer **out,
                                        struct mics_err *err);
/* Before any ids: write PREFIX.prompts, too, as those that have MICS_TOKEN_PROMPT (tokens.h) say.
 * Without it no id may have that. */
enum mics_status mics_token_writer_keep_prompts(struct mics_token_writer *writer,
                                                struct mics_err *err);
/* Whether PREFIX.idx is in the way, as mics_token_writer_open() checks it. */
enum mics_status mics_token_writer_check(const char *path, enum mics_token_format format,
                                         struct mics_err *err);
/* Append a document, or the next part of one if `end` is false; of no tokens nothing.
 * MICS_ERR_FORMAT: an id is not below vocab_size, or the format cannot have so many tokens: 2^31 in
 * a file of llm.c, or in a document of Megatron's. */
enum mics_status mics_token_writer_append(struct mics_token_writer *writer, const uint32_t *ids,
                                          size_t count, bool end, struct mics_err *err);
/* Complete the file, also its last document. *checksum: XXH64 of the ids, as they are in the file.
 * MICS_ERR_FORMAT: there are no tokens. */
enum mics_status mics_token_writer_finish(struct mics_token_writer *writer, uint64_t *checksum,
                                          struct mics_err *err);
/* Close, and remove what is not complete. NULL is fine. */
void mics_token_writer_free(struct mics_token_writer *writer);

#endif
