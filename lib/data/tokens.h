/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokens.h - documents as one sequence of tokens: bytes 0 to 255, and 256 after each document.
 */
#ifndef MICS_DATA_TOKENS_H
#define MICS_DATA_TOKENS_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define MICS_TOKEN_END        256 /* end of document */
#define MICS_TOKEN_VOCAB_SIZE 257 /* tokens are in [0, this) */

/* Consecutive bytes, borrowed, and the MICS_TOKEN_END after them. */
struct mics_token_span {
    const unsigned char *bytes;
    uint64_t size;
    uint64_t first; /* position of the first byte's token */
};

struct mics_tokens {
    struct mics_token_span *spans;
    size_t span_count, capacity;
    uint64_t count; /* tokens */
};

/* Append a span; size 0 adds nothing. */
enum mics_status mics_tokens_append(struct mics_tokens *tokens, const unsigned char *bytes,
                                    uint64_t size, struct mics_err *err);
void mics_tokens_free(struct mics_tokens *tokens); /* all zeros is fine */

/* out[length] = the tokens from `position` on, as a ring: after the last token comes the first.
 * There must be at least one token. Any number of threads. */
void mics_tokens_read(const struct mics_tokens *tokens, uint64_t position, uint32_t length,
                      int32_t *out);

#endif
