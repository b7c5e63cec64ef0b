/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokens.h"

#include <stdlib.h>

enum mics_status mics_tokens_append(struct mics_tokens *tokens, const unsigned char *bytes,
                                    uint64_t size, struct mics_err *err)
{
    if (size == 0)
        return MICS_OK;
    if (tokens->piece_count == tokens->capacity) {
        size_t capacity = tokens->capacity ? 2 * tokens->capacity : 64;
        struct mics_piece *pieces = realloc(tokens->pieces, capacity * sizeof *pieces);

        if (!pieces)
            return mics_err_nomem(err);
        tokens->pieces = pieces;
        tokens->capacity = capacity;
    }
    tokens->pieces[tokens->piece_count++] =
        (struct mics_piece){.bytes = bytes, .size = size, .first = tokens->count};
    tokens->count += size + 1;
    return MICS_OK;
}

void mics_tokens_free(struct mics_tokens *tokens)
{
    free(tokens->pieces);
    *tokens = (struct mics_tokens){0};
}

/* The piece that holds `position` < count. */
static size_t find_piece(const struct mics_tokens *tokens, uint64_t position)
{
    size_t low = 0, high = tokens->piece_count;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (tokens->pieces[middle].first <= position)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void mics_tokens_read(const struct mics_tokens *tokens, uint64_t position, uint32_t length,
                      int32_t *out)
{
    size_t at = find_piece(tokens, position %= tokens->count);

    while (length > 0) {
        const struct mics_piece *piece = &tokens->pieces[at];
        uint64_t offset = position - piece->first;

        for (; length > 0 && offset < piece->size; length--)
            *out++ = piece->bytes[offset++];
        if (length == 0)
            return;
        *out++ = MICS_TOKEN_END;
        length--;
        at = (at + 1) % tokens->piece_count;
        position = tokens->pieces[at].first;
    }
}
