/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prompts.h - which tokens of a file of tokens belong to prompts: they are read, but no targets.
 *
 * PREFIX.prompts beside PREFIX.bin:
 *
 *   "MICSPRM1", u64 tokens of PREFIX.bin, u64 borders, u64 XXH64 of the borders, u64 borders[]
 *
 * little-endian. The borders are positions of tokens, increasing: the first and every second one
 * after it begin a run of a prompt, the others end it. Only the last run may have no end, which is
 * that of the file.
 */
#ifndef MICS_DATA_PROMPTS_H
#define MICS_DATA_PROMPTS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MICS_PROMPTS_SUFFIX ".prompts"

/* Immutable once open; all zeros: no prompts. */
struct mics_prompts {
    const uint64_t *borders; /* [count], mapped */
    uint64_t count;
    uint64_t tokens; /* of the prompts */
    void *mapping;
    size_t mapped_bytes;
};

/* *is: there is a file at `path` that begins as one of prompts does. Others are those of other
 * programs, which are neither read nor replaced. MICS_ERR_IO: it cannot be read. */
enum mics_status mics_prompts_recognize(const char *path, bool *is, struct mics_err *err);
/* Open a file for `tokens` ids. MICS_ERR_FORMAT, with the path: it is damaged, or of other
 * tokens. */
enum mics_status mics_prompts_open(const char *path, uint64_t tokens, struct mics_prompts *out,
                                   struct mics_err *err);
void mics_prompts_close(struct mics_prompts *prompts);

/* Set MICS_TOKEN_PROMPT (tokens.h) in those of ids[length], the tokens from `first` on, that are of
 * a prompt. */
void mics_prompts_mark(const struct mics_prompts *prompts, uint64_t first, uint32_t length,
                       uint32_t *ids);

/* A file that is being written. */
struct mics_prompts_writer;

enum mics_status mics_prompts_create(const char *path, struct mics_prompts_writer **out,
                                     struct mics_err *err);
/* The next `count` tokens, of which those with MICS_TOKEN_PROMPT are of prompts. */
enum mics_status mics_prompts_append(struct mics_prompts_writer *writer, const uint32_t *ids,
                                     size_t count, struct mics_err *err);
/* Complete the file, and free the writer, also after a failure. */
enum mics_status mics_prompts_commit(struct mics_prompts_writer *writer, struct mics_err *err);
void mics_prompts_discard(struct mics_prompts_writer *writer); /* NULL is fine */

#endif
