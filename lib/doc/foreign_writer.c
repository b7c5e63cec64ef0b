/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign_writer.c - values as text, byte for byte that of Python's json.dumps(ensure_ascii=False).
 * jansson writes other escapes, and reals with other digits.
 */
#include "doc/foreign.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From here on an integer of the text may have become a real; see foreign.h. */
#define FIRST_BEYOND_64_BITS 9223372036854775808.0

struct writer {
    char *text;
    size_t size, capacity;
    int indent; /* blanks of a level; 0: all in one line */
    struct mics_err *err;
};

static enum mics_status put(struct writer *writer, const char *text, size_t size)
{
    if (!writer->text || writer->capacity - writer->size < size) {
        const size_t capacity = 2 * (writer->size + size) + 64;
        char *grown = realloc(writer->text, capacity);

        if (!grown)
            return mics_err_nomem(writer->err);
        writer->text = grown;
        writer->capacity = capacity;
    }
    memcpy(writer->text + writer->size, text, size);
    writer->size += size;
    return MICS_OK;
}

static enum mics_status put_string(struct writer *writer, const char *text, size_t size)
{
    static const char named[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    enum mics_status status = put(writer, "\"", 1);

    for (size_t begin = 0; begin < size && status == MICS_OK;) {
        size_t end = begin;

        while (end < size && (unsigned char)text[end] >= 0x20 && text[end] != '"' &&
               text[end] != '\\')
            end++;
        status = put(writer, text + begin, end - begin);
        if (status == MICS_OK && end < size) {
            char escape[8];
            const char *pair = named;

            while (*pair && *pair != text[end])
                pair += 2;
            const int length = *pair ? snprintf(escape, sizeof escape, "\\%c", pair[1])
                                     : snprintf(escape, sizeof escape, "\\u%04x",
                                                (unsigned)(unsigned char)text[end]);

            status = put(writer, escape, (size_t)length);
        }
        begin = end + 1;
    }
    return status == MICS_OK ? put(writer, "\"", 1) : status;
}

/* The shortest digits that are read back as the same number; with an exponent below 1e-4 and from
 * 1e16 on. */
static enum mics_status put_real(struct writer *writer, double value)
{
    char text[48], out[64];
    int precision = 0;

    if (fabs(value) >= FIRST_BEYOND_64_BITS)
        return mics_err_set(writer->err, MICS_ERR_FORMAT,
                            "a number beyond 64 bits is not supported there");
    do
        snprintf(text, sizeof text, "%.*e", precision, value);
    while (strtod(text, NULL) != value && precision++ < 16);
    const int exponent = atoi(strchr(text, 'e') + 1);

    if (exponent < -4 || exponent >= 16)
        snprintf(out, sizeof out, "%s", text);
    else
        snprintf(out, sizeof out, "%.*f", precision > exponent ? precision - exponent : 1, value);
    return put(writer, out, strlen(out));
}

static enum mics_status put_line(struct writer *writer, int depth)
{
    enum mics_status status = writer->indent ? put(writer, "\n", 1) : MICS_OK;

    for (int i = 0; i < depth * writer->indent && status == MICS_OK; i++)
        status = put(writer, " ", 1);
    return status;
}

static enum mics_status put_value(struct writer *writer, const json_t *value, int depth);

/* What is between two items, or before the first. */
static enum mics_status put_separator(struct writer *writer, bool first, int depth)
{
    enum mics_status status = MICS_OK;

    if (!first)
        status = put(writer, ", ", writer->indent ? 1 : 2);
    return status == MICS_OK ? put_line(writer, depth) : status;
}

static enum mics_status put_object(struct writer *writer, const json_t *value, int depth)
{
    enum mics_status status = put(writer, "{", 1);
    json_t *object = (json_t *)(uintptr_t)value; /* jansson iterates over none that is const */
    bool first = true;

    for (void *at = json_object_iter(object); at && status == MICS_OK;
         at = json_object_iter_next(object, at)) {
        status = put_separator(writer, first, depth + 1);
        if (status == MICS_OK)
            status = put_string(writer, json_object_iter_key(at), json_object_iter_key_len(at));
        if (status == MICS_OK)
            status = put(writer, ": ", 2);
        if (status == MICS_OK)
            status = put_value(writer, json_object_iter_value(at), depth + 1);
        first = false;
    }
    if (status == MICS_OK && !first)
        status = put_line(writer, depth);
    return status == MICS_OK ? put(writer, "}", 1) : status;
}

static enum mics_status put_array(struct writer *writer, const json_t *value, int depth)
{
    const size_t count = json_array_size(value);
    enum mics_status status = put(writer, "[", 1);

    for (size_t i = 0; i < count && status == MICS_OK; i++) {
        status = put_separator(writer, i == 0, depth + 1);
        if (status == MICS_OK)
            status = put_value(writer, json_array_get(value, i), depth + 1);
    }
    if (status == MICS_OK && count > 0)
        status = put_line(writer, depth);
    return status == MICS_OK ? put(writer, "]", 1) : status;
}

static enum mics_status put_value(struct writer *writer, const json_t *value, int depth)
{
    const char *word = mics_foreign_nonfinite(value);
    char number[32];

    if (word)
        return mics_err_set(writer->err, MICS_ERR_FORMAT, "%s is not supported there", word);
    if (json_is_object(value))
        return put_object(writer, value, depth);
    if (json_is_array(value))
        return put_array(writer, value, depth);
    if (json_is_string(value))
        return put_string(writer, json_string_value(value), json_string_length(value));
    if (json_is_real(value))
        return put_real(writer, json_real_value(value));
    if (json_is_integer(value)) {
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        word = number;
    } else {
        word = json_is_true(value) ? "true" : json_is_false(value) ? "false" : "null";
    }
    return put(writer, word, strlen(word));
}

enum mics_status mics_foreign_write(const json_t *value, int indent, char **text, size_t *size,
                                    struct mics_err *err)
{
    struct writer writer = {.indent = indent, .err = err};
    const enum mics_status status = put_value(&writer, value, 0);

    if (status != MICS_OK) {
        free(writer.text);
        return status;
    }
    *text = writer.text;
    *size = writer.size;
    return MICS_OK;
}
