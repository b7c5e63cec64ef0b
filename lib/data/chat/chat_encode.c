/* SPDX-License-Identifier: Apache-2.0 */
/* chat_encode.c - the ids of a conversation's text, and which of them are of answers. */
#include "data/chat/chat.h"
#include "data/tokens.h"

#include <stdlib.h>
#include <string.h>

#define MAX_TOKEN_BYTES 256 /* that a token has across a border of an answer, at most */

/* A text is encoded in pieces, which begin where its ids are those of the whole. */
struct encoding {
    struct mics_encoder *encoder;
    const struct mics_tokenizer *tokenizer;
    const struct mics_chat_buffer *text;
    struct mics_chat_buffer *ids;
    struct mics_err *err;
};

static int flags_at(size_t offset)
{
    return MICS_TOKENIZER_SPECIAL | (offset ? MICS_TOKENIZER_CONTINUES : 0);
}

/* Append the ids of text[begin, end), the whole of a piece. */
static enum mics_status put_piece(struct encoding *encoding, size_t begin, size_t end)
{
    const uint32_t *ids = NULL;
    size_t count = 0;
    enum mics_status status =
        mics_encode(encoding->encoder, encoding->text->bytes + begin, end - begin, flags_at(begin),
                    &ids, &count, NULL, encoding->err);

    return status == MICS_OK
               ? mics_chat_buffer_append(encoding->ids, ids, count * sizeof *ids, encoding->err)
               : status;
}

/* How many of ids[count], some of which are marked, and which are those of a text from `begin` on,
 * end at or before `end`. *across: the next one begins before it, and ends behind it. A place is
 * between two tokens if the text before it has the ids of the tokens before it. */
static enum mics_status count_before(struct encoding *encoding, const uint32_t *ids, size_t count,
                                     size_t begin, size_t end, size_t *before, bool *across)
{
    const char *text = encoding->text->bytes;
    enum mics_status status = MICS_OK;

    *before = 0;
    *across = false;
    for (size_t place = end; place > begin && status == MICS_OK; *across = true) {
        const uint32_t *part = NULL;
        size_t part_count = 0, same = 0;

        status = mics_encode(encoding->encoder, text + begin, place - begin, flags_at(begin), &part,
                             &part_count, NULL, encoding->err);
        while (same < part_count && same < count && part[same] == (ids[same] & ~MICS_TOKEN_PROMPT))
            same++;
        if (same == part_count || end - place > MAX_TOKEN_BYTES) {
            *before = same;
            return status;
        }
        do
            place--;
        while (place > begin && (text[place] & 0xc0) == 0x80);
    }
    return status;
}

/* A place in the text, and in the ids. */
struct border {
    size_t offset;
    size_t piece;  /* offset of its piece */
    size_t before; /* ids before that piece */
};

/* The pieces of a text, each from the last place before a border where it can be cut. */
static enum mics_status put_pieces(struct encoding *encoding, struct border *borders, size_t count)
{
    size_t piece = 0;
    enum mics_status status = MICS_OK;

    for (size_t i = 0; i < count && status == MICS_OK; i++) {
        const size_t cut = mics_tokenizer_cut(encoding->tokenizer, encoding->text->bytes + piece,
                                              borders[i].offset - piece);

        if (cut > 0 && cut < borders[i].offset - piece) {
            status = put_piece(encoding, piece, piece + cut);
            piece += cut;
        }
        borders[i].piece = piece;
        borders[i].before = encoding->ids->size / sizeof(uint32_t);
    }
    return status == MICS_OK ? put_piece(encoding, piece, encoding->text->size) : status;
}

static void mark(uint32_t *ids, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        ids[i] |= MICS_TOKEN_PROMPT;
}

/* Where in ids[total] a border is. *across: by what is before it, in the token there. */
static enum mics_status find_border(struct encoding *encoding, const struct border *border,
                                    const uint32_t *ids, size_t total, size_t *at, bool *across)
{
    size_t before = 0;
    const enum mics_status status =
        count_before(encoding, ids + border->before, total - border->before, border->piece,
                     border->offset, &before, across);

    *at = border->before + before;
    return status;
}

/* The same for where an answer begins, by its own ids, if these end at ids[end]: white space before
 * it may have other ids if nothing follows. */
static enum mics_status find_begin(struct encoding *encoding, const struct border *borders,
                                   const uint32_t *ids, size_t end, size_t *at)
{
    const size_t begin = borders[0].offset;
    const uint32_t *part = NULL;
    size_t count = 0;
    enum mics_status status =
        mics_encode(encoding->encoder, encoding->text->bytes + begin, borders[1].offset - begin,
                    flags_at(begin), &part, &count, NULL, encoding->err);

    if (status == MICS_OK && count <= end - *at &&
        memcmp(ids + end - count, part, count * sizeof *part) == 0)
        *at = end - count;
    return status;
}

/* Find where answers are in the ids from `first` on, and mark all others. Borders are in pairs. */
static enum mics_status mark_prompts(struct encoding *encoding, size_t first,
                                     const struct border *borders, size_t count)
{
    const size_t total = encoding->ids->size / sizeof(uint32_t);
    uint32_t *ids = (uint32_t *)(void *)encoding->ids->bytes;
    size_t marked = first; /* all before it are marked, or of answers */
    enum mics_status status = MICS_OK;

    for (size_t i = 0; i < count && status == MICS_OK; i += 2) {
        size_t begin = 0, end = 0;
        bool across = false, inside = false;

        status = find_border(encoding, &borders[i], ids, total, &begin, &inside);
        if (status == MICS_OK)
            status = find_border(encoding, &borders[i + 1], ids, total, &end, &across);
        end += across && end < total; /* a token that is only in part of the answer is of it */
        end = end < marked ? marked : end;
        begin = begin < marked ? marked : begin > end ? end : begin;
        if (status == MICS_OK && inside)
            status = find_begin(encoding, &borders[i], ids, end, &begin);
        if (status == MICS_OK)
            mark(ids, marked, begin);
        marked = end;
    }
    if (status == MICS_OK)
        mark(ids, marked, total);
    return status;
}

enum mics_status mics_chat_encode(struct mics_encoder *encoder,
                                  const struct mics_tokenizer *tokenizer,
                                  const struct mics_chat_text *text, struct mics_chat_buffer *ids,
                                  struct mics_err *err)
{
    struct encoding encoding = {
        .encoder = encoder, .tokenizer = tokenizer, .text = &text->text, .ids = ids, .err = err};
    const size_t first = ids->size / sizeof(uint32_t), count = 2 * text->answer_count;
    struct border *borders = calloc(count + 1, sizeof *borders);

    if (!borders)
        return mics_err_nomem(err);
    for (size_t i = 0; i < text->answer_count; i++) {
        borders[2 * i] = (struct border){.offset = text->answers[i].begin};
        borders[2 * i + 1] = (struct border){.offset = text->answers[i].end};
    }
    enum mics_status status = put_pieces(&encoding, borders, count);

    if (status == MICS_OK)
        status = mark_prompts(&encoding, first, borders, count);
    free(borders);
    return status;
}
