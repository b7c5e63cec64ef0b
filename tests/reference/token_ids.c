/* SPDX-License-Identifier: Apache-2.0 */
/*
 * token_ids.c - ids of documents and the text that they decode to, for check_tokenizers.py.
 *
 * usage: token_ids TOKENIZER <DOCUMENTS >IDS
 *
 * A document is its size (uint32_t) and its bytes; the answer is a count and ids, then a size and
 * the decoded bytes. A document that is cut must have the same ids.
 */
#include "data/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *what)
{
    fprintf(stderr, "token_ids: %s\n", what);
    exit(1);
}

static void put(const void *data, size_t width, size_t count)
{
    const uint32_t head = (uint32_t)count;

    if (fwrite(&head, sizeof head, 1, stdout) != 1 || fwrite(data, width, count, stdout) != count)
        fail("cannot write");
}

/* The two parts of a document that is cut about its middle have these ids together. */
static void check_cut(const struct mics_tokenizer *tokenizer, struct mics_encoder *encoder,
                      const char *document, size_t size, const uint32_t *want, size_t want_count)
{
    const size_t cut = mics_tokenizer_cut(tokenizer, document, (size + 1) / 2);
    struct mics_err err;
    const uint32_t *ids;
    size_t count, before = 0;

    for (int part = 0; part < 2 && cut > 0; part++) {
        if (mics_encode(encoder, document + (part ? cut : 0), part ? size - cut : cut,
                        part ? MICS_TOKENIZER_CONTINUES : 0, &ids, &count, NULL, &err) != MICS_OK)
            fail(err.text);
        if (count > want_count - before || (part && before + count != want_count) ||
            (count > 0 && memcmp(ids, want + before, count * sizeof *ids) != 0)) {
            fprintf(stderr, "token_ids: ids differ after a cut at %zu: %.*s|%.*s\n", cut,
                    (int)(cut < 40 ? cut : 40), document + (cut < 40 ? 0 : cut - 40),
                    (int)(size - cut < 40 ? size - cut : 40), document + cut);
            exit(1);
        }
        before += count;
    }
}

static void answer(const struct mics_tokenizer *tokenizer, struct mics_encoder *encoder,
                   const char *document, size_t size)
{
    struct mics_err err;
    struct mics_decoder *decoder;
    const uint32_t *ids;
    const char *text;
    size_t count;

    if (mics_encode(encoder, document, size, 0, &ids, &count, NULL, &err) != MICS_OK)
        fail(err.text);
    put(ids, sizeof *ids, count);

    uint32_t *copy = malloc(count * sizeof *ids + 1);

    if (!copy)
        fail("out of memory");
    memcpy(copy, ids, count * sizeof *ids);
    check_cut(tokenizer, encoder, document, size, copy, count);
    ids = copy;
    if (mics_decoder_new(tokenizer, false, &decoder, &err) != MICS_OK)
        fail(err.text);

    char *decoded = NULL;

    size = 0;
    for (int part = 0; part < 3; part++) { /* as if ids came one after the other */
        const size_t begin = part * (count / 2), end = part == 0 ? count / 2 : count;
        size_t more = 0;

        if (part < 2 &&
            mics_decode(decoder, ids + begin, end - begin, &text, &more, &err) != MICS_OK)
            fail(err.text);
        if (part == 2 && mics_decode_end(decoder, &text, &more, &err) != MICS_OK)
            fail(err.text);
        decoded = realloc(decoded, size + more + 1);
        if (!decoded)
            fail("out of memory");
        memcpy(decoded + size, text, more);
        size += more;
    }
    put(decoded, 1, size);
    free(decoded);
    free(copy);
    mics_decoder_free(decoder);
}

int main(int argc, char **argv)
{
    struct mics_err err = {.text = ""};
    struct mics_tokenizer *tokenizer;
    struct mics_encoder *encoder;
    uint32_t size;

    if (argc != 2)
        fail("usage: token_ids TOKENIZER <DOCUMENTS >IDS");
    if (mics_tokenizer_open(argv[1], &tokenizer, &err) != MICS_OK ||
        mics_encoder_new(tokenizer, &encoder, &err) != MICS_OK)
        fail(err.text);
    while (fread(&size, sizeof size, 1, stdin) == 1) {
        char *document = malloc((size_t)size + 1);

        if (!document || fread(document, 1, size, stdin) != size)
            fail("cannot read a document");
        answer(tokenizer, encoder, document, size);
        free(document);
    }
    mics_encoder_free(encoder);
    mics_tokenizer_free(tokenizer);
    return 0;
}
