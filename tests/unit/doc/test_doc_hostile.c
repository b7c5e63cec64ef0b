/* SPDX-License-Identifier: Apache-2.0 */
/* test_doc_hostile.c - invalid documents are refused: truncated, nested too deeply, too large, with
 * repeated keys, not UTF-8, or out of memory. */
#include "doc_sample.h"

/* Each is an error that names an offset, and none reads past the end, which AddressSanitizer
 * checks. */
static void every_truncation_of_a_document_is_an_error(void)
{
    json_t *doc = decode(sample, sizeof sample - 1);
    size_t sizes[2];
    char *data[2] = {encode(doc, MICS_DOC_MSGPACK, &sizes[0]),
                     encode(doc, MICS_DOC_JSON, &sizes[1])};

    for (int format = 0; format < 2; format++) {
        /* the newline at the end of JSON may be missing */
        for (size_t size = 1; size < sizes[format] - (size_t)format; size++) {
            char *part = malloc(size);
            json_t *got;

            memcpy(part, data[format], size);
            got = decode(part, size);
            CHECK(got == NULL);
            CHECK(strstr(err.text, "offset") != NULL);
            json_decref(got);
            free(part);
        }
        free(data[format]);
    }
    json_decref(doc);
    check_refused("", 0, "empty: there is no document in it");
}

static void a_truncated_document_names_the_offset(void)
{
    REFUSED("\x82\xa4kind\xa9mics.t", "truncated: the data ends at offset 13, inside a string that "
                                      "begins at offset 6");
    REFUSED("\x82\xa4kind\xa1k\xa1v",
            "truncated: the data ends at offset 10, where a value is expected");
    REFUSED("\x82\xa4kind\xa1k\xa1v\xcd\x01",
            "truncated: the data ends at offset 12, inside an integer that begins at offset 10");
    REFUSED("{\"kind\": \"k\",",
            "line 1, column 13, offset 13: truncated: the document ends too soon");
}

static void bytes_after_the_end_are_an_error(void)
{
    REFUSED("\x82\xa4kind\xa1k\xa1v\x01\x01\x02",
            "offset 11: 2 bytes after the end of the document");
    REFUSED("{\"kind\": \"k\", \"v\": 1}\n{}",
            "line 2, column 1, offset 23: text after the end of the document");
}

static void counts_beyond_the_data_are_refused(void)
{
    REFUSED("\xdf\xff\xff\xff\xff\xa1x\x01", "truncated: the data ends at offset 8, too soon for a "
                                             "map of 4294967295 items that begins at offset 0");
    REFUSED("\x81\xa1x\xdd\xff\xff\xff\xff\x01\x01",
            "truncated: the data ends at offset 10, too soon for an array of 4294967295 items that "
            "begins at offset 3");
    REFUSED("\x81\xa1x\xdb\xff\xff\xff\xff"
            "ab",
            "truncated: the data ends at offset 10, inside a string that begins at offset 3");
}

/* {"x": [[[...]]]} with `arrays` arrays. */
static json_t *decode_nested(enum mics_doc_format format, size_t arrays)
{
    const char *head = format == MICS_DOC_JSON ? "{\"kind\":\"k\",\"v\":1,\"x\":"
                                               : "\x83\xa4kind\xa1k\xa1v\x01\xa1x";
    const size_t begin = strlen(head);
    char *data = malloc(begin + 2 * arrays + 2);
    size_t size = begin;
    json_t *doc;

    memcpy(data, head, begin);
    for (size_t i = 0; i < arrays; i++)
        data[size++] = format == MICS_DOC_JSON ? '[' : '\x91';
    if (format == MICS_DOC_JSON) {
        for (size_t i = 0; i < arrays; i++)
            data[size++] = ']';
        data[size++] = '}';
    } else {
        data[size - 1] = '\x90';
    }
    doc = decode(data, size);
    free(data);
    return doc;
}

static void depth_is_limited_and_the_limit_itself_is_fine(void)
{
    for (int format = 0; format < 2; format++) {
        json_t *doc = decode_nested((enum mics_doc_format)format, MICS_DOC_MAX_DEPTH - 1);
        json_t *deeper = json_object();
        char *data = NULL;
        size_t size;

        CHECK(doc != NULL);
        CHECK(decode_nested((enum mics_doc_format)format, MICS_DOC_MAX_DEPTH) == NULL);
        CHECK(strstr(err.text, "nested deeper than 32") != NULL);
        CHECK(decode_nested((enum mics_doc_format)format, 1000000) == NULL);
        CHECK_INT(mics_doc_encode(doc, (enum mics_doc_format)format, &data, &size, &err), MICS_OK);
        free(data);
        json_object_set_new(deeper, "inside", doc);
        CHECK_INT(mics_doc_encode(deeper, (enum mics_doc_format)format, &data, &size, &err),
                  MICS_ERR_ARG);
        CHECK_STR(err.text, "the document is nested deeper than 32");
        json_decref(deeper);
    }
}

/* {"kind", "v", "x": [{}, ..., 0]}: the root and x weigh 8 each, its other scalars 3. */
static json_t *decode_many(enum mics_doc_format format, size_t maps)
{
    static const char json_head[] = "{\"kind\":\"k\",\"v\":1 , \"x\":[";
    char *data = malloc(3 * maps + 64);
    size_t size;
    json_t *doc;

    if (format == MICS_DOC_JSON) {
        size = (size_t)sprintf(data, "%s", json_head);
        for (size_t i = 0; i < maps; i++, size += 3)
            memcpy(data + size, "{},", 3);
        memcpy(data + size, "0]}", 3);
        size += 3;
    } else {
        memcpy(data, "\x83\xa4kind\xa1k\xa1v\x01\xa1x\xdd", 14);
        for (int i = 0; i < 4; i++)
            data[14 + i] = (char)((maps + 1) >> (24 - 8 * i));
        memset(data + 18, '\x80', maps);
        data[18 + maps] = 0;
        size = 19 + maps;
    }
    doc = decode(data, size);
    free(data);
    return doc;
}

static void values_are_counted_before_they_are_built(void)
{
    const size_t most =
        MICS_DOC_MAX_VALUES / 8 - 3; /* 8 (most + 2) + 3 fits, one map more does not */

    for (int format = 0; format < 2; format++) {
        json_t *doc = decode_many((enum mics_doc_format)format, most);
        char *data = NULL;
        size_t size;

        CHECK(doc != NULL);
        CHECK(decode_many((enum mics_doc_format)format, most + 1) == NULL);
        CHECK(strstr(err.text, ": more than 4194304 values") != NULL);
        json_array_append_new(json_object_get(doc, "x"), json_object());
        CHECK_INT(mics_doc_encode(doc, (enum mics_doc_format)format, &data, &size, &err),
                  MICS_ERR_ARG);
        CHECK_STR(err.text, "the document has more than 4194304 values");
        json_decref(doc);
    }
}

static void types_that_json_does_not_have_are_refused(void)
{
    REFUSED("\x81\x01\x02", "offset 1: the key of a map must be a string, found an integer");
    REFUSED("\x81\xc0\x02", "offset 1: the key of a map must be a string, found nil");
    REFUSED("\x81\xa1x\xcb\x7f\xf8\0\0\0\0\0\0", "offset 3: a number that is not finite");
    REFUSED("\x81\xa1x\xca\xff\x80\0\0", "offset 3: a number that is not finite");
    REFUSED("\x81\xa1x\xcf\x80\0\0\0\0\0\0\0", "offset 3: an integer above 9223372036854775807");
    REFUSED("\x81\xa1x\xc4\x01z",
            "offset 3: byte 0xc4: binary, extension and reserved types are not "
            "used in documents");
    REFUSED("\x81\xa1x\xd4\x01z",
            "offset 3: byte 0xd4: binary, extension and reserved types are not "
            "used in documents");
    REFUSED("\x81\xa1x\xc1", "offset 3: byte 0xc1: binary, extension and reserved types are not "
                             "used in documents");
    REFUSED("\x81\xa1x\xa2z\0", "offset 3: text with a NUL byte");
    REFUSED("{\"kind\": \"k\", \"v\": 18446744073709551615}",
            "line 1, column 39, offset 39: a number beyond 64-bit integers or finite doubles");
    REFUSED("{\"kind\": \"k\", \"v\": 1e999}",
            "line 1, column 24, offset 24: a number beyond 64-bit integers or finite doubles");
    REFUSED("{\"kind\": \"a\\u0000b\"}", "line 1, column 19, offset 19: text with a NUL byte");
}

static void text_that_is_not_utf8_is_refused(void)
{
    static const char *const bad[] = {
        "\xff",     "\xc0\x80",         "\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80",
        "\xe2\x82", "\xf0\x80\x80\x80", "a\x80"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char data[32];
        int size =
            snprintf(data, sizeof data, "\x81\xa1x%c%s", (int)(0xa0 + strlen(bad[i])), bad[i]);

        CHECK(decode(data, (size_t)size) == NULL);
        CHECK(strstr(err.text, ": text that is not UTF-8") != NULL);
        size = snprintf(data, sizeof data, "{\"x\": \"%s\"}", bad[i]);
        CHECK(decode(data, (size_t)size) == NULL);
        CHECK(strstr(err.text, ": text that is not UTF-8") != NULL);
    }
}

static void a_duplicate_key_is_refused(void)
{
    REFUSED("\x83\xa4kind\xa1k\xa1v\x01\xa1v\x02", "duplicate key 'v'");
    CHECK(decode("{\"kind\": \"k\", \"v\": 1, \"v\": 2}", 30) == NULL);
    CHECK(strstr(err.text, "a duplicate key") != NULL);
}

/* xorshift64 of Marsaglia 2003. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Whatever is accepted can be written and read back as the same. */
static void mutated_documents_are_refused_or_survive(void)
{
    json_t *doc = decode(sample, sizeof sample - 1);
    uint64_t state = 20240607;
    int accepted = 0;

    for (int format = 0; format < 2; format++) {
        size_t size;
        char *data = encode(doc, (enum mics_doc_format)format, &size);

        for (int round = 0; round < 4000; round++) {
            char *copy = malloc(size);
            json_t *got;

            memcpy(copy, data, size);
            for (uint64_t k = next_random(&state) % 4 + 1; k > 0; k--)
                copy[next_random(&state) % size] = (char)next_random(&state);
            got = decode(copy, size);
            if (got) {
                size_t again_size;
                char *again = encode(got, MICS_DOC_MSGPACK, &again_size);
                json_t *back = decode(again, again_size);

                accepted++;
                CHECK(json_equal(got, back));
                json_decref(back);
                free(again);
            }
            json_decref(got);
            free(copy);
        }
        free(data);
    }
    CHECK(accepted > 100);
    json_decref(doc);
}

static long allocations_left = -1;

static void *failing_malloc(size_t size)
{
    if (allocations_left == 0)
        return NULL;
    if (allocations_left > 0)
        allocations_left--;
    return malloc(size);
}

/* jansson's lexer reports lost memory as bad syntax, and aborts if it cannot grow its buffer of 16
 * bytes: so the texts here are short, and of JSON only an error is asked for. */
static void running_out_of_memory_is_an_error_without_leaks(void)
{
    static const char small[] =
        "{\"kind\": \"k\", \"v\": 1, \"a\": [1, 2, {\"b\": 1.5}, [null, \"x\"]],"
        " \"c\": {}, \"d\": 0, \"e\": 0, \"f\": 0, \"g\": 0, \"h\": 0, \"i\": 0}";
    json_t *doc = decode(small, sizeof small - 1);
    size_t sizes[2];
    char *data[2] = {encode(doc, MICS_DOC_MSGPACK, &sizes[0]),
                     encode(doc, MICS_DOC_JSON, &sizes[1])};
    int failures = 0;

    json_set_alloc_funcs(failing_malloc, free);
    for (int format = 0; format < 2; format++) {
        enum mics_status status = MICS_ERR_NOMEM;

        for (long limit = 0; status != MICS_OK && limit < 1000; limit++) {
            json_t *got = NULL;

            allocations_left = limit;
            status = mics_doc_decode(data[format], sizes[format], &got, &err);
            allocations_left = -1;
            CHECK(status != MICS_ERR_FORMAT || format == 1);
            CHECK(status == MICS_OK || err.text[0] != '\0');
            CHECK((status == MICS_OK) == (got != NULL));
            failures += status != MICS_OK;
            json_decref(got);
        }
        CHECK_INT(status, MICS_OK);
        free(data[format]);
    }
    json_set_alloc_funcs(malloc, free);
    CHECK(failures > 50);
    json_decref(doc);
}

int main(void)
{
    TAP_RUN(every_truncation_of_a_document_is_an_error);
    TAP_RUN(a_truncated_document_names_the_offset);
    TAP_RUN(bytes_after_the_end_are_an_error);
    TAP_RUN(counts_beyond_the_data_are_refused);
    TAP_RUN(depth_is_limited_and_the_limit_itself_is_fine);
    TAP_RUN(values_are_counted_before_they_are_built);
    TAP_RUN(types_that_json_does_not_have_are_refused);
    TAP_RUN(text_that_is_not_utf8_is_refused);
    TAP_RUN(a_duplicate_key_is_refused);
    TAP_RUN(mutated_documents_are_refused_or_survive);
    TAP_RUN(running_out_of_memory_is_an_error_without_leaks);
    return tap_done();
}
