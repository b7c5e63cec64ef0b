/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokens.h - text as a line of tokens: bytes 0 to 255, and 256 after each document.
 */
#ifndef MICS_DATA_TOKENS_H
#define MICS_DATA_TOKENS_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define MICS_TOKEN_END   256 /* end of document */
#define MICS_TOKEN_KINDS 257 /* tokens are in [0, this) */

/* A run of bytes, borrowed, followed by MICS_TOKEN_END. `first` is the position of its first token. */
struct mics_piece {
    const unsigned char *bytes;
    uint64_t size, first;
};

/* Pieces one after another; `count` tokens in all. */
struct mics_tokens {
    struct mics_piece *pieces;
    size_t piece_count, capacity;
    uint64_t count;
};

/* Append a piece; size 0 adds nothing. */
enum mics_status mics_tokens_append(struct mics_tokens *tokens, const unsigned char *bytes,
                                    uint64_t size, struct mics_err *err);
void mics_tokens_free(struct mics_tokens *tokens); /* of zeros is fine */

/* out[length] = the tokens from `position` on; after the last comes the first again. The line must
 * not be empty. Any number of threads. */
void mics_tokens_read(const struct mics_tokens *tokens, uint64_t position, uint32_t length,
                      int32_t *out);

#endif
