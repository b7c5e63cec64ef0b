/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokens.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum mics_status mics_tokens_append(struct mics_tokens *tokens, const struct mics_token_span *span,
                                    struct mics_err *err)
{
    if (span->count == 0)
        return MICS_OK;
    if (tokens->span_count == tokens->capacity) {
        size_t capacity = tokens->capacity ? 2 * tokens->capacity : 64;
        struct mics_token_span *spans = realloc(tokens->spans, capacity * sizeof *spans);

        if (!spans)
            return mics_err_nomem(err);
        tokens->spans = spans;
        tokens->capacity = capacity;
    }
    tokens->spans[tokens->span_count] = *span;
    tokens->spans[tokens->span_count++].first = tokens->count;
    tokens->count += span->count;
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

/* `length` tokens of a span from its token `offset` on. */
static enum mics_status read_span(const struct mics_token_span *span, uint64_t offset,
                                  uint32_t length, uint32_t vocab_size, uint32_t *out,
                                  struct mics_err *err)
{
    if (span->file) {
        const enum mics_status status = mics_token_file_read(
            span->file, span->offset + offset, length, vocab_size, (int32_t *)out, err);

        if (status == MICS_OK)
            mics_prompts_mark(&span->file->prompts, span->offset + offset, length, out);
        return status;
    }
    if (span->ids)
        memcpy(out, span->ids + offset, length * sizeof *out);
    for (uint32_t i = 0; span->bytes && i < length; i++)
        out[i] = offset + i + 1 < span->count ? span->bytes[offset + i] : MICS_TOKEN_END;
    return MICS_OK;
}

enum mics_status mics_tokens_read(const struct mics_tokens *tokens, uint64_t position,
                                  uint32_t length, uint32_t vocab_size, uint32_t *out,
                                  struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    position %= tokens->count;
    for (size_t i = find_span(tokens, position); status == MICS_OK && length > 0;
         i = (i + 1) % tokens->span_count) {
        const struct mics_token_span *span = &tokens->spans[i];
        const uint64_t offset = position - span->first;
        const uint32_t some = (uint32_t)mics_min_u64(length, span->count - offset);

        status = read_span(span, offset, some, vocab_size, out, err);
        out += some;
        length -= some;
        position = tokens->spans[(i + 1) % tokens->span_count].first;
    }
    return status;
}

void mics_tokens_prefetch(const struct mics_tokens *tokens, uint64_t position, uint32_t length)
{
    position %= tokens->count;
    const struct mics_token_span *span = &tokens->spans[find_span(tokens, position)];
    const uint64_t offset = position - span->first, width = span->file ? span->file->width : 1;
    const uint64_t count = mics_min_u64(length, span->count - offset);
    const unsigned char *from = span->bytes ? span->bytes + offset : NULL;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    if (span->file)
        from = span->file->bytes + (span->offset + offset) * width;
    if (from) /* advice only: a failure changes nothing */
        posix_madvise((void *)((uintptr_t)from / page * page),
                      count * width + (uintptr_t)from % page, POSIX_MADV_WILLNEED);
}

/* The smallest of documents[count] that is above `value`; the last one is. */
static uint64_t next_document(const uint64_t *documents, uint64_t count, uint64_t value)
{
    uint64_t low = 0, high = count;

    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;

        if (documents[middle] > value)
            high = middle;
        else
            low = middle + 1;
    }
    return documents[low];
}

uint64_t mics_tokens_document_end(const struct mics_tokens *tokens, uint64_t position)
{
    const struct mics_token_span *span = &tokens->spans[find_span(tokens, position)];
    const uint64_t end = span->first + span->count;

    if (!span->documents)
        return end;
    const uint64_t next = next_document(span->documents, span->document_count,
                                        span->offset + (position - span->first));

    return mics_min_u64(end, span->first + (next - span->offset));
}
