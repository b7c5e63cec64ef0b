/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"
#include "data/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

struct mics_encoder {
    const struct mics_tokenizer *tokenizer;
    struct mics_piece_cache *cache;
    struct mics_ids ids;
    struct mics_text normalized;
    struct mics_pieces pieces;
    /* State of the present call. */
    bool special;
    uint64_t ordinary;
    struct mics_err *err;
};

enum mics_status mics_encoder_new(const struct mics_tokenizer *tokenizer, struct mics_encoder **out,
                                  struct mics_err *err)
{
    struct mics_encoder *encoder = calloc(1, sizeof *encoder);

    *out = NULL;
    if (encoder == NULL)
        return mics_err_nomem(err);
    encoder->tokenizer = tokenizer;
    if (!tokenizer->is_bytes) {
        encoder->cache = mics_piece_cache_new(&tokenizer->model, &tokenizer->vocab);
        if (encoder->cache == NULL) {
            mics_encoder_free(encoder);
            return mics_err_nomem(err);
        }
    }
    *out = encoder;
    return MICS_OK;
}

void mics_encoder_free(struct mics_encoder *encoder)
{
    if (encoder == NULL)
        return;
    mics_piece_cache_free(encoder->cache);
    free(encoder->ids.ids);
    free(encoder->normalized.bytes);
    mics_pieces_fini(&encoder->pieces);
    free(encoder);
}

/* Append the ids of text[size], as pieces that the splitter's own functions cut. */
static enum mics_status encode_split(struct mics_encoder *encoder, const unsigned char *text,
                                     uint32_t size)
{
    uint32_t lengths[64];
    enum mics_status status = MICS_OK;

    while (size > 0 && status == MICS_OK) {
        const uint32_t count =
            mics_split_next(&encoder->tokenizer->splitter, text, size, lengths, 64);

        status = mics_piece_cache_encode(encoder->cache, text, size, lengths, count, &encoder->ids);
        for (uint32_t i = 0; i < count; i++) {
            text += lengths[i];
            size -= lengths[i];
        }
    }
    return status == MICS_OK ? MICS_OK : mics_err_nomem(encoder->err);
}

/* Append the ids of encoder->pieces. Their text may be longer than the input. */
static enum mics_status encode_pieces(struct mics_encoder *encoder)
{
    const struct mics_pieces *pieces = &encoder->pieces;

    for (size_t i = 0; i < pieces->count; i++) {
        const struct mics_piece *piece = &pieces->pieces[i];
        const uint32_t length = (uint32_t)piece->length;

        if (piece->length > UINT32_MAX / 2)
            return mics_err_set(encoder->err, MICS_ERR_FORMAT, "a piece of more than 2 GiB");
        if (length > 0 && (mics_ids_reserve(&encoder->ids, length + 16u) != MICS_OK ||
                           mics_piece_cache_encode(encoder->cache, pieces->text + piece->offset,
                                                   length, &length, 1, &encoder->ids) != MICS_OK))
            return mics_err_nomem(encoder->err);
    }
    return MICS_OK;
}

/* Normalized text without added tokens. */
static enum mics_status encode_plain(struct mics_encoder *encoder, const unsigned char *text,
                                     size_t size, enum mics_text_place place)
{
    const struct mics_tokenizer *tokenizer = encoder->tokenizer;
    enum mics_status status;

    if (size == 0)
        return MICS_OK;
    if (tokenizer->pretokenizer.apply == NULL && tokenizer->splitter.kind != MICS_SPLIT_REGEX) {
        if (size > UINT32_MAX)
            return mics_err_set(encoder->err, MICS_ERR_FORMAT, "a text of more than 4 GiB");
        if (mics_ids_reserve(&encoder->ids, size + 16) != MICS_OK)
            return mics_err_nomem(encoder->err);
        return encode_split(encoder, text, (uint32_t)size);
    }
    encoder->pieces.text = text;
    encoder->pieces.count = 0;
    if (tokenizer->pretokenizer.apply != NULL)
        status = tokenizer->pretokenizer.apply(tokenizer->pretokenizer.state, size, place,
                                               &encoder->pieces, encoder->err);
    else
        status = mics_split(&tokenizer->splitter, MICS_SPLIT_ISOLATED, false, 0, size,
                            &encoder->pieces, encoder->err);
    return status == MICS_OK ? encode_pieces(encoder) : status;
}

static enum mics_status push_id(struct mics_encoder *encoder, uint32_t id)
{
    if (mics_ids_reserve(&encoder->ids, 1) != MICS_OK)
        return mics_err_nomem(encoder->err);
    encoder->ids.ids[encoder->ids.count++] = id;
    return MICS_OK;
}

/* Text between added tokens of raw text: normalize it, and cut at added tokens again. */
static enum mics_status encode_normalized(struct mics_encoder *encoder, const unsigned char *text,
                                          size_t size, enum mics_text_place place)
{
    const struct mics_tokenizer *tokenizer = encoder->tokenizer;
    struct mics_added_match match;
    enum mics_status status = MICS_OK;
    size_t from = 0;

    if (size == 0)
        return MICS_OK;
    if (tokenizer->normalizer.apply != NULL) {
        encoder->normalized.size = 0;
        status = tokenizer->normalizer.apply(tokenizer->normalizer.state, text, size, place,
                                             &encoder->normalized, encoder->err);
        text = encoder->normalized.bytes;
        size = encoder->normalized.size;
    }
    while (status == MICS_OK && mics_added_next(&tokenizer->added, true, encoder->special, text,
                                                size, from, &match, &encoder->ordinary)) {
        status = encode_plain(encoder, text + from, match.begin - from, place);
        if (status == MICS_OK)
            status = push_id(encoder, match.id);
        from = match.end;
        place = MICS_TEXT_FOLLOWS;
    }
    return status == MICS_OK ? encode_plain(encoder, text + from, size - from, place) : status;
}

/* UTF-8. */
static enum mics_status encode_valid(struct mics_encoder *encoder, const unsigned char *text,
                                     size_t size, enum mics_text_place place)
{
    struct mics_added_match match;
    enum mics_status status = MICS_OK;
    size_t from = 0;

    while (status == MICS_OK && mics_added_next(&encoder->tokenizer->added, false, encoder->special,
                                                text, size, from, &match, &encoder->ordinary)) {
        status = encode_normalized(encoder, text + from, match.begin - from, place);
        if (status == MICS_OK)
            status = push_id(encoder, match.id);
        from = match.end;
        place = MICS_TEXT_FOLLOWS;
    }
    return status == MICS_OK ? encode_normalized(encoder, text + from, size - from, place) : status;
}

/* How many bytes from text[0] on are UTF-8. */
static size_t valid_bytes(const unsigned char *text, size_t size)
{
    size_t at = 0, length;
    uint64_t eight;

    while (at < size) {
        if (size - at >= 8) {
            memcpy(&eight, text + at, 8);
            if ((eight & 0x8080808080808080u) == 0) {
                at += 8;
                continue;
            }
        }
        length = text[at] < 0x80 ? 1 : mics_utf8_length((const char *)text + at, size - at);
        if (length == 0)
            break;
        at += length;
    }
    return at;
}

/* Any bytes: those that are not UTF-8 become the tokens of bytes, or U+FFFD. */
static enum mics_status encode_any(struct mics_encoder *encoder, const unsigned char *text,
                                   size_t size, enum mics_text_place place)
{
    enum mics_status status = MICS_OK;
    size_t at = 0;

    while (at < size && status == MICS_OK) {
        const size_t valid = valid_bytes(text + at, size - at);

        if (valid > 0) {
            status = encode_valid(encoder, text + at, valid, place);
            at += valid;
        } else {
            const uint32_t id = encoder->tokenizer->model.byte_ids[text[at]];

            status = id != MICS_NO_TOKEN
                         ? push_id(encoder, id)
                         : encode_valid(encoder, (const unsigned char *)"\xef\xbf\xbd", 3, place);
            at++;
        }
        place = MICS_TEXT_FOLLOWS;
    }
    return status;
}

/* The tokenizer of bytes. */
static enum mics_status encode_bytes(struct mics_encoder *encoder, const unsigned char *text,
                                     size_t size)
{
    if (mics_ids_reserve(&encoder->ids, size) != MICS_OK)
        return mics_err_nomem(encoder->err);
    for (size_t i = 0; i < size; i++)
        encoder->ids.ids[i] = text[i];
    encoder->ids.count = size;
    return MICS_OK;
}

static enum mics_status push_ids(struct mics_encoder *encoder, const uint32_t *ids, uint32_t count)
{
    enum mics_status status = MICS_OK;

    for (uint32_t i = 0; i < count && status == MICS_OK; i++)
        status = push_id(encoder, ids[i]);
    return status;
}

enum mics_status mics_encode(struct mics_encoder *encoder, const char *text, size_t size, int flags,
                             const uint32_t **ids, size_t *count, uint64_t *special,
                             struct mics_err *err)
{
    const struct mics_tokenizer *tokenizer = encoder->tokenizer;
    const bool template = (flags & MICS_TOKENIZER_TEMPLATE) != 0;
    enum mics_status status = mics_ids_reserve(&encoder->ids, 1);

    encoder->ids.count = 0;
    encoder->special = (flags & MICS_TOKENIZER_SPECIAL) != 0;
    encoder->ordinary = 0;
    encoder->err = err;
    if (status != MICS_OK)
        return mics_err_nomem(err);
    if (tokenizer->is_bytes) {
        status = encode_bytes(encoder, (const unsigned char *)text, size);
    } else {
        if (template)
            status = push_ids(encoder, tokenizer->before, tokenizer->before_count);
        if (status == MICS_OK)
            status = encode_any(encoder, (const unsigned char *)text, size,
                                flags & MICS_TOKENIZER_CONTINUES ? MICS_TEXT_CONTINUES
                                                                 : MICS_TEXT_BEGINS);
        if (status == MICS_OK && template)
            status = push_ids(encoder, tokenizer->after, tokenizer->after_count);
    }
    *ids = encoder->ids.ids;
    *count = status == MICS_OK ? encoder->ids.count : 0;
    if (special != NULL)
        *special = encoder->ordinary;
    return status;
}
