/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_foreign.c - libFuzzer target for JSON of other programs.
 *
 * What is accepted as an object must be accepted as a line and as the next of several values, and a
 * copy of it for a document must be one that can be written and read back.
 *
 * sources: lib/base lib/doc
 */
#include "doc/doc.h"
#include "doc/foreign.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A failure here is the bug that is looked for. */
static void must(int condition)
{
    if (!condition)
        abort();
}

static void check_document(const json_t *value)
{
    json_t *copy = mics_foreign_to_document(value), *again = NULL;
    struct mics_err err = {.text = ""};
    char *bytes = NULL;
    size_t size = 0;

    must(copy && json_object_set_new(copy, "kind", json_string("x")) == 0 &&
         json_object_set_new(copy, "v", json_integer(1)) == 0);
    for (int format = MICS_DOC_MSGPACK; format <= MICS_DOC_JSON; format++) {
        must(mics_doc_encode(copy, format, &bytes, &size, &err) == MICS_OK);
        must(mics_doc_decode(bytes, size, &again, &err) == MICS_OK);
        must(json_object_size(again) == json_object_size(copy));
        json_decref(again);
        free(bytes);
    }
    json_decref(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct mics_err err = {.text = ""};
    json_t *value = NULL, *line = NULL;
    size_t offset = 0;

    if (mics_foreign_read(text, size, 10000, &value, &err) == MICS_OK) {
        must(json_is_object(value));
        must(mics_foreign_read_line(text, size, &line, &err) == MICS_OK);
        must(json_object_size(line) == json_object_size(value));
        json_decref(line);
        check_document(value);
        json_decref(value);
    } else {
        must(value == NULL && err.text[0] != '\0');
    }
    while (offset < size && mics_foreign_read_next(text, size, &offset, &value, &err) == MICS_OK)
        json_decref(value);
    must(offset <= size);
    return 0;
}
