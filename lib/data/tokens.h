/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokens.h - documents as one sequence of tokens, whatever holds them: bytes of a text, ids in
 * memory, or a file of ids.
 */
#ifndef MICS_DATA_TOKENS_H
#define MICS_DATA_TOKENS_H

#include "base/err.h"
#include "data/token_file.h"

#include <stddef.h>
#include <stdint.h>

#define MICS_TOKEN_END        256 /* end of document of a text whose tokens are bytes */
#define MICS_TOKEN_VOCAB_SIZE 257 /* of such a text */

/* Set in an id that belongs to a prompt: it is read, but is not a target. */
#define MICS_TOKEN_PROMPT ((uint32_t)1 << 31)

/* Consecutive tokens. One of bytes, ids and file is set; all are borrowed. */
struct mics_token_span {
    const unsigned char *bytes; /* and MICS_TOKEN_END after the last one */
    const uint32_t *ids;        /* perhaps with MICS_TOKEN_PROMPT */
    const struct mics_token_file *file;
    uint64_t offset; /* in `file` */
    uint64_t count;  /* tokens, with the end of a text of bytes */
    /* Where documents begin in `file`, increasing, with its count at the end. NULL: the span is one
     * document. */
    const uint64_t *documents;
    uint64_t document_count;
    uint64_t first; /* position of its first token; set by mics_tokens_append() */
};

struct mics_tokens {
    struct mics_token_span *spans;
    size_t span_count, capacity;
    uint64_t count; /* tokens */
};

/* Append a span; one of 0 tokens adds nothing. */
enum mics_status mics_tokens_append(struct mics_tokens *tokens, const struct mics_token_span *span,
                                    struct mics_err *err);
void mics_tokens_free(struct mics_tokens *tokens); /* all zeros is fine */

/* out[length] = the tokens from `position` on, those of prompts with MICS_TOKEN_PROMPT, as a ring:
 * after the last token comes the first. There must be at least one token. Any number of threads.
 * MICS_ERR_FORMAT: an id in a file is not below `vocab_size`. */
enum mics_status mics_tokens_read(const struct mics_tokens *tokens, uint64_t position,
                                  uint32_t length, uint32_t vocab_size, uint32_t *out,
                                  struct mics_err *err);

/* Ask the kernel to read what mics_tokens_read() of the same tokens will need, as far as the span
 * of `position` goes. */
void mics_tokens_prefetch(const struct mics_tokens *tokens, uint64_t position, uint32_t length);

/* The position after the document that has `position` < count. */
uint64_t mics_tokens_document_end(const struct mics_tokens *tokens, uint64_t position);

#endif
