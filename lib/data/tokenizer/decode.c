/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"
#include "data/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

struct mics_decoder {
    const struct mics_tokenizer *tokenizer;
    bool skip_special, begun;
    struct mics_decoding_run *run; /* NULL: tokens are bytes, or SentencePiece's */
    struct mics_text raw;          /* bytes that are not complete yet, then those of this call */
    struct mics_text text;
    struct mics_text added; /* bytes of an added token */
};

enum mics_status mics_decoder_new(const struct mics_tokenizer *tokenizer, bool skip_special,
                                  struct mics_decoder **out, struct mics_err *err)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return mics_err_nomem(err);
    (*out)->tokenizer = tokenizer;
    (*out)->skip_special = skip_special;
    if (tokenizer->decoding == NULL)
        return MICS_OK;
    (*out)->run = mics_decoding_run_new(tokenizer->decoding);
    if ((*out)->run != NULL)
        return MICS_OK;
    free(*out);
    *out = NULL;
    return mics_err_nomem(err);
}

void mics_decoder_free(struct mics_decoder *decoder)
{
    if (decoder == NULL)
        return;
    mics_decoding_run_free(decoder->run);
    free(decoder->raw.bytes);
    free(decoder->added.bytes);
    free(decoder->text.bytes);
    free(decoder);
}

/* Append a text in which ▁ (e2 96 81) is a space. */
static enum mics_status append_spaced(struct mics_text *raw, const unsigned char *text, size_t size)
{
    enum mics_status status = MICS_OK;

    for (size_t i = 0; i < size && status == MICS_OK; i++) {
        if (size - i >= 3 && memcmp(text + i, "\xe2\x96\x81", 3) == 0) {
            status = mics_text_append(raw, " ", 1);
            i += 2;
        } else {
            status = mics_text_append(raw, text + i, 1);
        }
    }
    return status;
}

static int hex_digit(unsigned char c)
{
    return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
}

/* The text of an added token that is looked for in normalized text is normalized, too; of other
 * tokens *text stays. `bytes` is where it is decoded to if tokens are bytes. */
static enum mics_status find_normalized(const struct mics_tokenizer *tokenizer, uint32_t id,
                                        const unsigned char **text, size_t *size,
                                        struct mics_text *bytes)
{
    const struct mics_added *added = &tokenizer->added;
    const struct mics_added_token *token = NULL;

    if (tokenizer->normalizer.apply == NULL || added->lead[1] < 0)
        return MICS_OK;
    for (uint32_t i = 0; i < added->count && token == NULL; i++)
        if (added->tokens[i].id == id && added->tokens[i].normalized)
            token = &added->tokens[i];
    if (token == NULL)
        return MICS_OK;
    *text = (const unsigned char *)token->text;
    *size = token->length;
    if (tokenizer->model.characters)
        return MICS_OK;
    if (mics_text_reserve(bytes, token->length) != MICS_OK)
        return MICS_ERR_NOMEM;
    if (mics_byte_level_decode(token->text, token->length, bytes->bytes, &bytes->size)) {
        *text = bytes->bytes;
        *size = bytes->size;
    }
    return MICS_OK;
}

/* Append the bytes of a token to decoder->raw, or what the decoder's steps make of it to
 * decoder->text. */
static enum mics_status append_token(struct mics_decoder *decoder, uint32_t id,
                                     struct mics_err *err)
{
    const struct mics_tokenizer *tokenizer = decoder->tokenizer;
    const struct mics_token *token;
    const unsigned char *text;
    unsigned char byte = (unsigned char)id;
    size_t size;

    if (tokenizer->is_bytes)
        return id < 256 ? mics_text_append(&decoder->raw, &byte, 1) : MICS_OK;
    if (id >= tokenizer->vocab.size)
        return MICS_OK;
    token = &tokenizer->vocab.tokens[id];
    if ((token->flags & MICS_TOKEN_PRESENT) == 0 ||
        (decoder->skip_special && (token->flags & MICS_TOKEN_SPECIAL) != 0))
        return MICS_OK;
    text = tokenizer->vocab.text.bytes + token->offset;
    size = token->length;
    if ((token->flags & MICS_TOKEN_ADDED) != 0 &&
        find_normalized(tokenizer, id, &text, &size, &decoder->added) != MICS_OK)
        return MICS_ERR_NOMEM;
    if (decoder->run != NULL)
        return mics_decoding_run_token(decoder->run, text, size, &decoder->text, err);
    if ((token->flags & MICS_TOKEN_BYTE) != 0) {
        byte = (unsigned char)(hex_digit(text[3]) << 4 | hex_digit(text[4]));
        return mics_text_append(&decoder->raw, &byte, 1);
    }
    if (tokenizer->metaspace && (token->flags & MICS_TOKEN_ADDED) == 0)
        return append_spaced(&decoder->raw, text, size);
    return mics_text_append(&decoder->raw, text, size);
}

/* Bytes of the longest beginning of a character at `text`, where no whole one is; at least 1. */
static size_t beginning(const unsigned char *text, size_t size)
{

    const unsigned char c = text[0];
    const unsigned low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    const unsigned high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;

    if (c < 0xe0 || c > 0xf4 || size < 2 || text[1] < low || text[1] > high)
        return 1;
    return c >= 0xf0 && size >= 3 && (text[2] & 0xc0) == 0x80 ? 3 : 2;
}

/* Can more bytes make a character of the `size` bytes that a text ends with? */
static bool may_grow(const unsigned char *text, size_t size)
{
    return text[0] >= 0xc2 && text[0] <= 0xf4 && beginning(text, size) == size &&
           size < (text[0] < 0xe0   ? 2u
                   : text[0] < 0xf0 ? 3u
                                    : 4u);
}

/* Move what is complete from raw to text; all of it, if `last`. */
static enum mics_status take_text(struct mics_decoder *decoder, bool last)
{
    struct mics_text *raw = &decoder->raw;
    size_t at = 0;
    enum mics_status status = MICS_OK;

    if (!decoder->begun && raw->size > 0) {
        at = decoder->tokenizer->strip_first_space && raw->bytes[0] == ' ';
        decoder->begun = true;
    }
    while (at < raw->size && status == MICS_OK) {
        size_t valid = 0, length;

        while (at + valid < raw->size &&
               (length = mics_utf8_length((const char *)raw->bytes + at + valid,
                                          raw->size - at - valid)) > 0)
            valid += length;
        status = mics_text_append(&decoder->text, raw->bytes + at, valid);
        at += valid;
        if (at == raw->size || status != MICS_OK ||
            (!last && may_grow(raw->bytes + at, raw->size - at)))
            break;
        status = mics_text_append(&decoder->text, "\xef\xbf\xbd", 3);
        at += decoder->tokenizer->model.byte_fallback ? 1
                                                      : beginning(raw->bytes + at, raw->size - at);
    }
    if (at > 0)
        memmove(raw->bytes, raw->bytes + at, raw->size - at);
    raw->size -= at;
    return status;
}

enum mics_status mics_decode(struct mics_decoder *decoder, const uint32_t *ids, size_t count,
                             const char **text, size_t *size, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    decoder->text.size = 0;
    for (size_t i = 0; i < count && status == MICS_OK; i++)
        status = append_token(decoder, ids[i], err);
    if (status == MICS_OK)
        status = take_text(decoder, false);
    *text = decoder->text.bytes == NULL ? "" : (const char *)decoder->text.bytes;
    *size = decoder->text.size;
    return status == MICS_ERR_NOMEM ? mics_err_nomem(err) : status;
}

enum mics_status mics_decode_end(struct mics_decoder *decoder, const char **text, size_t *size,
                                 struct mics_err *err)
{
    enum mics_status status;

    decoder->text.size = 0;
    status = decoder->run != NULL ? mics_decoding_run_end(decoder->run, &decoder->text, err)
                                  : take_text(decoder, true);
    decoder->begun = false;
    *text = decoder->text.bytes == NULL ? "" : (const char *)decoder->text.bytes;
    *size = decoder->text.size;
    return status == MICS_ERR_NOMEM ? mics_err_nomem(err) : status;
}
