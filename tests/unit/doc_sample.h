/* SPDX-License-Identifier: Apache-2.0 */
/* doc_sample.h - shared by the tests of documents: a document with every type of value, its two
 * encodings, and refusals. */
#ifndef MICS_TESTS_DOC_SAMPLE_H
#define MICS_TESTS_DOC_SAMPLE_H

#include "doc/doc.h"
#include "tap.h"

#include <stdint.h>
#include <stdlib.h>

static struct mics_err err;

/* A document with every type of value. */
static const char sample[] =
    "{\"kind\": \"mics.test\", \"v\": 2, \"ints\": [0, 127, 128, 255, 256, 65535, 65536, -1, -32, "
    "-33,"
    " -128, -129, -32769, 4294967296, 9223372036854775807, -9223372036854775808],"
    " \"reals\": [1.0, -0.0, 0.1, 1e300, 5e-324, 3.141592653589793], \"nil\": null,"
    " \"flags\": [true, false], \"text\": \"caf\\u00e9 \\ud83d\\ude00 tab\\t\", \"empty\": [{}, "
    "[]],"
    " \"long\": \"0123456789012345678901234567890123456789\", \"\": \"no name\"}";

static inline json_t *decode(const void *data, size_t size)
{
    json_t *doc = NULL;

    err.text[0] = '\0';
    if (mics_doc_decode(data, size, &doc, &err) != MICS_OK)
        CHECK(doc == NULL && err.text[0] != '\0');
    return doc;
}

/* The bytes, or NULL with a failed check. */
static inline char *encode(const json_t *doc, enum mics_doc_format format, size_t *size)
{
    char *data = NULL;

    CHECK_INT(mics_doc_encode(doc, format, &data, size, &err), MICS_OK);
    return data;
}

static inline void check_refused(const void *data, size_t size, const char *text)
{
    json_t *doc = NULL;

    CHECK_INT(mics_doc_decode(data, size, &doc, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, text);
    CHECK(doc == NULL);
    json_decref(doc);
}

#define REFUSED(bytes, text) check_refused(bytes, sizeof(bytes) - 1, text)

#endif
