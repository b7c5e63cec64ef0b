/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_tokenizer.c - libFuzzer target for the files of tokenizers.
 *
 * The input is one file, whose first byte chooses its name, and, after a NUL, a second one and a
 * text. A tokenizer that is accepted must encode the text to ids that it has, and decode them to
 * UTF-8.
 *
 * sources: lib/base lib/doc lib/data/tokenizer lib/data/tokenizer.c lib/ckpt/format/gguf.c
 * sources: lib/data/chat/template.c
 */
#include "base/utf8.h"
#include "data/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A failure here is the bug that is looked for. */
static void must(int condition)
{
    if (!condition)
        abort();
}

static const struct {
    const char *first, *second;
} names[] = {
    {"tokenizer.json", "tokenizer_config.json"},
    {"tokenizer.model", "tokenizer_config.json"},
    {"vocab.json", "merges.txt"},
    {"x.tiktoken", "tokenizer_config.json"},
    {"tekken.json", "tokenizer_config.json"},
    {"tokenizer.json", "special_tokens_map.json"},
    {"tokenizer.json", "added_tokens.json"},
    {"tokenizer.json", "generation_config.json"},
    {"vocab.txt", "tokenizer_config.json"},
};

/* The ids of the parts of a text that is cut are those of the whole. */
static void check_cut(const struct mics_tokenizer *tokenizer, struct mics_encoder *encoder,
                      const char *text, size_t size)
{
    const size_t cut = mics_tokenizer_cut(tokenizer, text, size - 4);
    struct mics_err err = {.text = ""};
    const uint32_t *ids = NULL;
    uint32_t whole[256];
    size_t count = 0, part = 0, rest = 0;

    must(cut < size);
    if (mics_encode(encoder, text, size, 0, &ids, &count, NULL, &err) != MICS_OK || count > 256)
        return;
    if (count > 0)
        memcpy(whole, ids, count * sizeof *ids);
    if (mics_encode(encoder, text, cut, 0, &ids, &part, NULL, &err) != MICS_OK)
        return;
    must(part <= count && (part == 0 || memcmp(whole, ids, part * sizeof *ids) == 0));
    if (mics_encode(encoder, text + cut, size - cut, cut > 0 ? MICS_TOKENIZER_CONTINUES : 0, &ids,
                    &rest, NULL, &err) != MICS_OK)
        return;
    must(part + rest == count && (rest == 0 || memcmp(whole + part, ids, rest * sizeof *ids) == 0));
}

static void check_text(const struct mics_tokenizer *tokenizer, const char *text, size_t size)
{
    struct mics_err err = {.text = ""};
    struct mics_encoder *encoder = NULL;
    struct mics_decoder *decoder = NULL;
    const uint32_t *ids = NULL;
    const char *decoded = NULL;
    size_t count = 0, length = 0;

    must(mics_encoder_new(tokenizer, &encoder, &err) == MICS_OK);
    if (mics_encode(encoder, text, size, MICS_TOKENIZER_TEMPLATE, &ids, &count, NULL, &err) ==
        MICS_OK) {
        for (size_t i = 0; i < count; i++)
            must(ids[i] < mics_tokenizer_size(tokenizer));
        must(mics_decoder_new(tokenizer, false, &decoder, &err) == MICS_OK);
        must(mics_decode(decoder, ids, count, &decoded, &length, &err) == MICS_OK);
        must(mics_utf8_check(decoded, length, NULL));
        must(mics_decode_end(decoder, &decoded, &length, &err) == MICS_OK);
        must(mics_utf8_check(decoded, length, NULL));
    } else {
        must(err.text[0] != '\0');
    }
    if (!mics_tokenizer_is_bytes(tokenizer))
        check_cut(tokenizer, encoder, text, size);
    mics_decoder_free(decoder);
    mics_encoder_free(encoder);
}

/* A vocabulary begins with all bytes, which are more than an input may have: they are written in
 * place of the first @. NULL: out of memory. */
static unsigned char *write_bytes(const uint8_t *data, size_t size, size_t *length)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *mark = memchr(data, '@', size);
    const size_t before = mark ? (size_t)(mark - data) : size;
    unsigned char *out = malloc(size + 256 * 48);

    if (!out)
        return NULL;

    char *end = (char *)out + before;

    memcpy(out, data, before);
    for (unsigned byte = 0; mark && byte < 256; byte++)
        end += sprintf(end, "%s{\"rank\":%u,\"token_bytes\":\"%c%c==\"}", byte > 0 ? "," : "", byte,
                       digits[byte >> 2], digits[(byte & 3) << 4]);
    if (mark)
        memcpy(end, mark + 1, size - before - 1);
    *length = (size_t)((unsigned char *)end - out) + (mark ? size - before - 1 : 0);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "ab a1  \xc3\xa9 e\xcc\x81\n<s> \xff\xe2\x96\x81 \xe4\xb8\xad it's"
                               " \xe2\x91\xa0\xcc\x81 \xef\xbd\x81 A.";

    if (size < 2)
        return 0;

    const size_t kind = data[0] % (sizeof names / sizeof names[0]);
    /* A model of SentencePiece has NULs of its own. */
    const uint8_t *end = kind == 1 ? NULL : memchr(data + 1, 0, size - 1);
    const size_t first = end ? (size_t)(end - data) - 1 : size - 1;
    struct mics_tokenizer_file files[2] = {
        {.bytes = (unsigned char *)data + 1, .size = first},
        {.bytes = (unsigned char *)data + 1 + first, .size = size - 1 - first},
    };
    struct mics_err err = {.text = ""};
    struct mics_tokenizer *tokenizer = NULL;

    if (files[1].size > 0) { /* without the NUL */
        files[1].bytes++;
        files[1].size--;
    }
    unsigned char *written = NULL;

    if (kind == 4) {
        written = write_bytes(files[0].bytes, files[0].size, &files[0].size);
        must(written != NULL);
        files[0].bytes = written;
    }
    strcpy(files[0].name, names[kind].first);
    strcpy(files[1].name, names[kind].second);
    if (mics_tokenizer_open_files(files, files[1].size > 0 ? 2 : 1, &tokenizer, &err) == MICS_OK)
        check_text(tokenizer, text, sizeof text - 1);
    else
        must(tokenizer == NULL && err.text[0] != '\0');
    mics_tokenizer_free(tokenizer);
    free(written);
    return 0;
}
