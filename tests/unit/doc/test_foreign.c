/* SPDX-License-Identifier: Apache-2.0 */
/* test_foreign.c - JSON of other programs: what Python's json module reads is read, and no more. */
#include "doc/foreign.h"

#include "base/file.h"
#include "doc/cursor.h"
#include "doc/doc.h"
#include "tap.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static struct mics_err err;

static json_t *read_text(const char *text, size_t size)
{
    json_t *value = NULL;
    const enum mics_status status = mics_foreign_read(text, size, 1000, &value, &err);

    CHECK_INT(status, value ? MICS_OK : MICS_ERR_FORMAT);
    return value;
}

#define READ(text) read_text(text, sizeof(text) - 1)

/* Members that are not read; each text has {"a": 7} too. */
static void members_that_are_not_read_do_not_matter(void)
{
    static const struct {
        const char *text;
        size_t size;
    } texts[] = {
#define TEXT(text) {text, sizeof(text) - 1}
        TEXT("{\"x\":NaN,\"a\":7}"),
        TEXT("{\"x\":Infinity,\"a\":7}"),
        TEXT("{\"x\":[0.0, -Infinity],\"a\":7}"),
        TEXT("{\"x\":1e999,\"a\":7,\"y\":-1e999,\"z\":1e-999}"),
        TEXT("{\"x\":17293822569102704640,\"a\":7}"),
        TEXT("{\"model_max_length\":1000000000000000019884624838656,\"a\":7}"),
        TEXT("{\"x\\u0000y\":\"\\u0000\",\"a\":7}"),
        TEXT("\xef\xbb\xbf{\"a\":7}"),
        TEXT("{\"a\":\"first\",\"a\":7}"),
        TEXT("{\"a\":7,\"\\ud83d\":\"\\udc00 \\ud83dx\"}"),
        TEXT(" \r\n\t{ \"a\" : 7 , \"\" : [ ] , \"b\" : { } } \n"),
        TEXT("{\"a\":7,\"x\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]"
             "]]]]]]]]]]]]]]]]]]}"),
        TEXT("{\"a\":7,\"\x7f\":\"\xc2\x80\xf0\x9f\x98\x80\"}"),
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        json_t *value = read_text(texts[i].text, texts[i].size);
        struct mics_reading reading = {.err = &err};
        const struct mics_cursor root = mics_cursor_begin(value, &reading);

        CHECK(value != NULL);
        CHECK_INT(mics_cursor_get_u64(&root, "a", 0, 9), 7);
        CHECK_INT(reading.status, MICS_OK);
        json_decref(value);
    }
}

static void what_is_read_is_checked(void)
{
    static const struct {
        const char *text, *error;
    } texts[] = {
        {"{\"a\":NaN}", "a: expected a number, found NaN"},
        {"{\"a\":Infinity}", "a: expected a number, found Infinity"},
        {"{\"a\":-1e999}", "a: expected a number, found -Infinity"},
        {"{\"a\":17293822569102704640}", "a: expected 0 to 9, found 1.7293822569102705e+19"},
        {"{\"a\":null}", "a: expected a number, found null"},
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        json_t *value = read_text(texts[i].text, strlen(texts[i].text));
        struct mics_reading reading = {.err = &err};
        const struct mics_cursor root = mics_cursor_begin(value, &reading);

        CHECK(mics_cursor_has(&root, "a") == (i < 4));
        CHECK(mics_cursor_get_double(&root, "a", 0, 9) == 0);
        CHECK_INT(reading.status, MICS_ERR_FORMAT);
        if (i != 3)
            CHECK_STR(err.text, texts[i].error);
        reading.status = MICS_OK;
        CHECK(!mics_cursor_get_bool(&root, "a"));
        CHECK_INT(reading.status, MICS_ERR_FORMAT);
        reading.status = MICS_OK;
        CHECK_STR(mics_cursor_get_string(&root, "a"), "");
        CHECK_INT(reading.status, MICS_ERR_FORMAT);
        json_decref(value);
    }
}

static void texts_are_decoded(void)
{
    static const struct {
        const char *text, *expected;
        size_t size;
    } texts[] = {
        {"{\"a\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "\"\\/\b\f\n\r\t", 8},
        {"{\"a\":\"\\u00e9\\u20ac\\uD83D\\uDE00z\"}", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z", 10},
        {"{\"a\":\"x\\u0000y\"}", "x\0y", 3},
        {"{\"a\":\"bad \\ud83d end\"}", "bad \xef\xbf\xbd end", 11},
        {"{\"a\":\"\\ude00\\ud83d\"}", "\xef\xbf\xbd\xef\xbf\xbd", 6},
        {"{\"a\":\"\\ud83d\\ud83d\\ude00\"}", "\xef\xbf\xbd\xf0\x9f\x98\x80", 7},
        {"{\"a\":\"\\ud83d\\u0041\"}",
         "\xef\xbf\xbd"
         "A",
         4},
        {"{\"a\":\"\\ud83d\\n\"}", "\xef\xbf\xbd\n", 4},
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        json_t *value = read_text(texts[i].text, strlen(texts[i].text));
        const json_t *string = json_object_get(value, "a");

        CHECK_INT(json_string_length(string), texts[i].size);
        CHECK(string && memcmp(json_string_value(string), texts[i].expected, texts[i].size) == 0);
        json_decref(value);
    }
}

static void a_nul_is_data_and_no_end(void)
{
    json_t *value = READ("{\"a\":\"x\\u0000y\",\"b\\u0000\":1}");
    struct mics_reading reading = {.err = &err};
    const struct mics_cursor root = mics_cursor_begin(value, &reading);

    CHECK_STR(mics_cursor_get_string(&root, "a"), "");
    CHECK_INT(reading.status, MICS_ERR_FORMAT);
    CHECK_STR(err.text, "a: text with a NUL byte");
    CHECK(!mics_cursor_has(&root, "b"));
    json_decref(value);
}

static void numbers_are_those_of_the_text(void)
{
    json_t *value = READ("{\"a\":[0,-0,9223372036854775807,-9223372036854775807,1.5e3,-0.25,"
                         "9223372036854775808,1E+2,0e5]}");
    const json_t *list = json_object_get(value, "a");

    CHECK_INT(json_array_size(list), 9);
    CHECK_INT(json_integer_value(json_array_get(list, 2)), INT64_MAX);
    CHECK_INT(json_integer_value(json_array_get(list, 3)), -INT64_MAX);
    CHECK(json_real_value(json_array_get(list, 4)) == 1500);
    CHECK(json_real_value(json_array_get(list, 5)) == -0.25);
    CHECK(json_real_value(json_array_get(list, 6)) == 9223372036854775808.0);
    CHECK(json_real_value(json_array_get(list, 7)) == 100);
    CHECK(json_is_real(json_array_get(list, 8)));
    json_decref(value);
}

static void what_python_rejects_is_rejected_with_its_place(void)
{
    static const struct {
        const char *text, *error;
    } texts[] = {
        {"", "line 1, column 1, offset 0: empty: there is no JSON in it"},
        {" \n", "line 2, column 1, offset 2: empty: there is no JSON in it"},
        {"[1]", "line 1, column 1, offset 0: expected an object"},
        {"{\"a\":1,}", "line 1, column 8, offset 7: expected a key in quotes, found '}'"},
        {"{\"a\":[1,]}", "line 1, column 9, offset 8: expected a value, found ']'"},
        {"{\"a\" 1}", "line 1, column 6, offset 5: expected ':', found '1'"},
        {"{\"a\":1 \"b\":2}", "line 1, column 8, offset 7: expected ',' or '}', found '\"'"},
        {"{\n\"\xc3\xa9\": 01}", "line 2, column 7, offset 9: expected ',' or '}', found '1'"},
        {"{\"a\":1.}", "line 1, column 7, offset 6: expected ',' or '}', found '.'"},
        {"{\"a\":-}", "line 1, column 7, offset 6: expected a digit, found '}'"},
        {"{\"a\":+1}", "line 1, column 6, offset 5: expected a value, found '+'"},
        {"{\"a\":-NaN}", "line 1, column 7, offset 6: expected a digit, found 'N'"},
        {"{\"a\":.5}", "line 1, column 6, offset 5: expected a value, found '.'"},
        {"{\"a\":nul}", "line 1, column 6, offset 5: expected a value, found 'n'"},
        {"{\"a\":nulls}", "line 1, column 10, offset 9: expected ',' or '}', found 's'"},
        {"{a:1}", "line 1, column 2, offset 1: expected a key in quotes, found 'a'"},
        {"{'a':1}", "line 1, column 2, offset 1: expected a key in quotes, found '''"},
        {"{\"a\":\"\n\"}", "line 1, column 7, offset 6: a control character in a string"},
        {"{\"a\":\"\\x\"}", "line 1, column 7, offset 6: an escape that JSON does not have"},
        {"{\"a\":\"\\u12g4\"}", "line 1, column 7, offset 6: an escape that JSON does not have"},
        {"{\"a\":\"\\u12\"}", "line 1, column 7, offset 6: an escape that JSON does not have"},
        {"{\"a\":\"\xff\"}", "line 1, column 7, offset 6: text that is not UTF-8"},
        {"{\"a\":\"\xed\xa0\xbd\"}", "line 1, column 7, offset 6: text that is not UTF-8"},
        {"{\"a\":\"x", "line 1, column 6, offset 5: truncated: a string without an end"},
        {"{\"a\":\"x\\", "line 1, column 6, offset 5: truncated: a string without an end"},
        {"{\"a\":1", "line 1, column 7, offset 6: truncated: expected ',' or '}', found the end of "
                     "the text"},
        {"{\"a\":1}}", "line 1, column 8, offset 7: text after the end of the value"},
        {"{\"a\":1} // x", "line 1, column 9, offset 8: text after the end of the value"},
        {"\xff\xfe{", "line 1, column 1, offset 0: text in UTF-16; UTF-8 is expected"},
        {"{\"a\":1\f}", "line 1, column 7, offset 6: expected ',' or '}', found the byte 0x0c"},
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        json_t *value = read_text(texts[i].text, strlen(texts[i].text));

        CHECK(value == NULL);
        CHECK_STR(err.text, texts[i].error);
        json_decref(value);
    }
}

static void limits_hold(void)
{
    char text[3000] = "{\"a\":";
    json_t *value;

    memset(text + 5, '[', 2000);
    CHECK_INT(mics_foreign_read(text, 2005, 100000, &value, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, ": nested deeper than 1024") != NULL);
    memset(text + 5, '[', 1023);
    memset(text + 5 + 1023, ']', 1023);
    text[5 + 2046] = '}';
    CHECK_INT(mics_foreign_read(text, 5 + 2047, 100000, &value, &err), MICS_OK);
    json_decref(value);
    CHECK_INT(mics_foreign_read("{\"a\":[1,2,3]}", 13, 18, &value, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "line 1, column 11, offset 10: more than 18 values");
    CHECK_INT(mics_foreign_read("{\"a\":[1,2,3]}", 13, 19, &value, &err), MICS_OK);
    json_decref(value);
}

static void a_line_and_a_walk_through_values(void)
{
    static const char text[] = " {\"a\":1} , [NaN] ,\"x\",3]";
    const size_t after[] = {8, 16, 21, 23};
    json_t *value = NULL;
    size_t offset = 0;

    CHECK_INT(mics_foreign_read_line("{\"a\":1}\r\n", 9, &value, &err), MICS_OK);
    json_decref(value);
    CHECK_INT(mics_foreign_read_line("{\"\xc3\xa9\":x}", 8, &value, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "column 6: expected a value, found 'x'");
    CHECK_INT(mics_foreign_read_line("[1]\n", 4, &value, &err), MICS_ERR_FORMAT);
    for (int i = 0; i < 4; i++) {
        CHECK_INT(mics_foreign_read_next(text, sizeof text - 1, &offset, &value, &err), MICS_OK);
        CHECK_INT(offset, after[i]);
        json_decref(value);
        offset += offset < 23;
        while (text[offset] == ',' || text[offset] == ' ')
            offset++;
    }
    CHECK_INT(mics_foreign_read_next(text, sizeof text - 1, &offset, &value, &err),
              MICS_ERR_FORMAT);
    CHECK_INT(offset, 23);
}

static void a_copy_for_a_document_has_what_documents_can_hold(void)
{
    json_t *value = READ("{\"x\":[0,Infinity],\"k\\u0000\":1,\"t\":\"\\u0000\",\"n\":NaN,"
                         "\"d\":[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]],\"a\":\"b\"}");
    json_t *copy = mics_foreign_to_document(value);
    char *text = json_dumps(copy, JSON_COMPACT);

    CHECK_STR(text, "{\"x\":[0,{\"__float__\":\"Infinity\"}],\"n\":{\"__float__\":\"NaN\"},"
                    "\"d\":[[[[[[[[[[[[[[[]]]]]]]]]]]]]]],\"a\":\"b\"}");
    free(text);
    json_decref(copy);
    json_decref(value);
}

/* What Python's json.dumps(json.loads(text), ensure_ascii=False) makes of the text; the same, if
 * NULL. */
static void values_are_written_as_python_writes_them(void)
{
    static const struct {
        const char *text, *written;
    } cases[] = {
        {"{\"b\": [1, -2, 9223372036854775807], \"a\": {}, \"c\": []}", NULL},
        {"{\"a\": [true, false, null, \"\"]}", NULL},
        {"{\"a\":[0.1,1.5e0,-0.0,-0,1e2,1.7e308]}", ""},
        {"{\"a\": [0.1, 1.5, 0.0001, 1e-05, 1.234e-07, 1000000000000000.0, 1e+16, 5e-324]}", NULL},
        {"{\"a\": [0.3333333333333333, 2.5e-05, 123456.789, 9007199254740993, 1.2345678901234567]}",
         NULL},
        {"{\"a\":[1.5e0,-0.0,-0,1e2,1E16,12345678901234567.0]}",
         "{\"a\": [1.5, -0.0, 0, 100.0, 1e+16, 1.2345678901234568e+16]}"},
        {"{\"\\u00e9\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\\u007f\\u2028\"}",
         "{\"\xc3\xa9\": \"\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\x7f\xe2\x80\xa8\"}"},
    };
    static const char lines[] = "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}";
    char *text = NULL;
    size_t size = 0;
    json_t *value;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *expected = cases[i].written ? cases[i].written : cases[i].text;

        value = read_text(cases[i].text, strlen(cases[i].text));
        if (expected[0] == '\0') {
            CHECK_INT(mics_foreign_write(value, 0, &text, &size, &err), MICS_ERR_FORMAT);
        } else {
            CHECK_INT(mics_foreign_write(value, 0, &text, &size, &err), MICS_OK);
            CHECK_INT(size, strlen(expected));
            CHECK(size == strlen(expected) && memcmp(text, expected, size) == 0);
            free(text);
        }
        json_decref(value);
    }
    value = READ("{\"a\": [1, {}], \"b\": []}");
    CHECK_INT(mics_foreign_write(value, 2, &text, &size, &err), MICS_OK);
    CHECK(size == sizeof lines - 1 && memcmp(text, lines, size) == 0);
    free(text);
    json_decref(value);
    value = READ("{\"a\": NaN}");
    CHECK_INT(mics_foreign_write(value, 0, &text, &size, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "NaN is not supported there");
    json_decref(value);
}

static void only_regular_files_are_read(void)
{
    char folder[] = "/tmp/mics-foreign-XXXXXX", path[128];
    json_t *value = NULL;

    CHECK(mkdtemp(folder) != NULL);
    CHECK_INT(mics_foreign_read_file(folder, 100, 100, &value, &err), MICS_ERR_IO);
    CHECK(strstr(err.text, "is a folder, not a file") != NULL);
    snprintf(path, sizeof path, "%s/x", folder);
    CHECK_INT(mkfifo(path, 0600), 0);
    CHECK_INT(mics_foreign_read_file(path, 100, 100, &value, &err), MICS_ERR_IO); /* at once */
    CHECK(strstr(err.text, "is a pipe, not a file") != NULL);
    unlink(path);
    CHECK_INT(symlink("gone", path), 0);
    CHECK_INT(mics_foreign_read_file(path, 100, 100, &value, &err), MICS_ERR_IO);
    CHECK(strstr(err.text, "No such file or directory") != NULL);
    unlink(path);
    CHECK_INT(mics_foreign_read_file("/dev/zero", 100, 100, &value, &err), MICS_ERR_IO);
    CHECK(strstr(err.text, "is a device, not a file") != NULL);
    rmdir(folder);
}

int main(void)
{
    TAP_RUN(members_that_are_not_read_do_not_matter);
    TAP_RUN(what_is_read_is_checked);
    TAP_RUN(texts_are_decoded);
    TAP_RUN(a_nul_is_data_and_no_end);
    TAP_RUN(numbers_are_those_of_the_text);
    TAP_RUN(what_python_rejects_is_rejected_with_its_place);
    TAP_RUN(limits_hold);
    TAP_RUN(a_line_and_a_walk_through_values);
    TAP_RUN(a_copy_for_a_document_has_what_documents_can_hold);
    TAP_RUN(values_are_written_as_python_writes_them);
    TAP_RUN(only_regular_files_are_read);
    return tap_done();
}
