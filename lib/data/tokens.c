/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokens.h"

#include <stdlib.h>

enum mics_status mics_tokens_append(struct mics_tokens *tokens, const unsigned char *bytes,
                                    uint64_t size, struct mics_err *err)
{
    if (size == 0)
        return MICS_OK;
    if (tokens->span_count == tokens->capacity) {
        size_t capacity = tokens->capacity ? 2 * tokens->capacity : 64;
        struct mics_token_span *spans = realloc(tokens->spans, capacity * sizeof *spans);

        if (!spans)
            return mics_err_nomem(err);
        tokens->spans = spans;
        tokens->capacity = capacity;
    }
    tokens->spans[tokens->span_count++] =
        (struct mics_token_span){.bytes = bytes, .size = size, .first = tokens->count};
    tokens->count += size + 1;
    return MICS_OK;
}

void mics_tokens_free(struct mics_tokens *tokens)
{
    free(tokens->spans);
    *tokens = (struct mics_tokens){0};
}

/* The span that holds `position` < count. */
static size_t find_span(const struct mics_tokens *tokens, uint64_t position)
{
    size_t low = 0, high = tokens->span_count;

    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;

        if (tokens->spans[middle].first <= position)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void mics_tokens_read(const struct mics_tokens *tokens, uint64_t position, uint32_t length,
                      int32_t *out)
{
    position %= tokens->count;
    for (size_t i = find_span(tokens, position); length > 0; i = (i + 1) % tokens->span_count) {
        const struct mics_token_span *span = &tokens->spans[i];
        uint64_t offset = position - span->first;

        for (; length > 0 && offset < span->size; length--)
            *out++ = span->bytes[offset++];
        if (length == 0)
            return;
        *out++ = MICS_TOKEN_END;
        length--;
        position = tokens->spans[(i + 1) % tokens->span_count].first;
    }
}
