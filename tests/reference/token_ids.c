/* SPDX-License-Identifier: Apache-2.0 */
/*
 * token_ids.c - ids of documents and the text that they decode to, for check_tokenizers.py.
 *
 * usage: token_ids TOKENIZER <DOCUMENTS >IDS
 *
 * A document is its size (uint32_t) and its bytes; the answer is a count and ids, then a size and
 * the decoded bytes.
 */
#include "data/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

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
    if (mics_decoder_new(tokenizer, false, &decoder, &err) != MICS_OK ||
        mics_decode(decoder, ids, count, &text, &size, &err) != MICS_OK)
        fail(err.text);

    char *decoded = malloc(size + 16);

    if (!decoded)
        fail("out of memory");
    for (size_t i = 0; i < size; i++)
        decoded[i] = text[i];

    const char *rest;
    size_t more;

    if (mics_decode_end(decoder, &rest, &more, &err) != MICS_OK || more > 16)
        fail("cannot end decoding");
    for (size_t i = 0; i < more; i++)
        decoded[size++] = rest[i];
    put(decoded, 1, size);
    free(decoded);
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
