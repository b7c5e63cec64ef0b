/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_doc.c - libFuzzer target for the reader of documents.
 *
 * Whatever bytes are accepted must come out of both encodings as the same value, and msgpack made
 * of it must be the same bytes after a round trip through JSON.
 *
 * sources: lib/base lib/doc
 */
#include "doc/doc.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct bytes {
    char *data;
    size_t size;
};

/* A failure here is the bug that is looked for. */
static void must(int condition)
{
    if (!condition)
        abort();
}

static struct bytes encode(const json_t *doc, enum mics_doc_format format)
{
    struct bytes bytes = {0};

    must(mics_doc_encode(doc, format, &bytes.data, &bytes.size, NULL) == MICS_OK);
    return bytes;
}

static json_t *decode(struct bytes bytes)
{
    json_t *doc = NULL;

    must(mics_doc_decode(bytes.data, bytes.size, &doc, NULL) == MICS_OK);
    return doc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mics_err err = {.text = ""};
    json_t *doc = NULL;

    if (mics_doc_decode(data, size, &doc, &err) != MICS_OK) {
        must(doc == NULL && err.text[0] != '\0');
        return 0;
    }
    struct bytes packed = encode(doc, MICS_DOC_MSGPACK);
    json_t *from_packed = decode(packed);
    struct bytes text = encode(from_packed, MICS_DOC_JSON);
    json_t *from_text = decode(text);
    struct bytes again = encode(from_text, MICS_DOC_MSGPACK);

    must(json_equal(doc, from_packed) && json_equal(doc, from_text));
    must(again.size == packed.size && memcmp(again.data, packed.data, packed.size) == 0);
    json_decref(doc);
    json_decref(from_packed);
    json_decref(from_text);
    free(packed.data);
    free(text.data);
    free(again.data);
    return 0;
}
