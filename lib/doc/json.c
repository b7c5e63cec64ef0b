/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.c - JSON text to a value and back, by jansson.
 *
 * jansson does not limit the number of values, nor the depth to a useful number, so a scan that
 * understands only strings and brackets checks both first.
 */
#include "doc/doc.h"
#include "doc/encoding.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The offset of the quote that closes the string opened at offset `i`; `size` if there is none. */
static size_t skip_string(const char *text, size_t size, size_t i)
{
    for (i++; i < size && text[i] != '"'; i++)
        if (text[i] == '\\')
            i++;
    return i < size ? i : size;
}

/* Does a scalar end before `c`, given that `last` is the last character that was not a blank? Keys
 * end before ':' and are not counted. */
static bool ends_scalar(char c, char last)
{
    return (c == ',' || c == ']' || c == '}') && last != '\0' && !strchr(",{[}]", last);
}

/* Check depth and weight. The grammar is left to the parser. */
static enum mics_status scan_text(const char *text, size_t size, struct mics_json_origin origin,
                                  struct mics_err *err)
{
    uint64_t weight = 0;
    unsigned depth = 0;
    char last = '\0';

    for (size_t i = 0; i < size; i++) {
        const char c = text[i];

        weight += ends_scalar(c, last);
        if (c == '{' || c == '[') {
            weight += MICS_DOC_CONTAINER_WEIGHT;
            if (depth++ == MICS_DOC_MAX_DEPTH)
                return mics_err_set(err, MICS_ERR_FORMAT, "offset %zu: nested deeper than %d",
                                    origin.offset + i, MICS_DOC_MAX_DEPTH);
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        } else if (c == '"') {
            i = skip_string(text, size, i);
        }
        if (weight > MICS_DOC_MAX_VALUES)
            return mics_err_set(err, MICS_ERR_FORMAT, "offset %zu: more than %u values",
                                origin.offset + i, MICS_DOC_MAX_VALUES);
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r')
            last = c;
    }
    return MICS_OK;
}

/* Messages for the parser's codes; for other codes its own text is used. */
static const struct reason {
    enum json_error_code code;
    const char *text;
} reasons[] = {
    {json_error_premature_end_of_input, "truncated: the document ends too soon"},
    {json_error_end_of_input_expected, "text after the end of the document"},
    {json_error_duplicate_key, "a duplicate key"},
    {json_error_numeric_overflow, "a number beyond 64-bit integers or finite doubles"},
    {json_error_invalid_utf8, "text that is not UTF-8"},
    {json_error_null_character, "text with a NUL byte"},
    {json_error_null_byte_in_key, "a key with a NUL byte"},
};

static enum mics_status fail_parse(const json_error_t *error, struct mics_json_origin origin,
                                   struct mics_err *err)
{
    const enum json_error_code code = json_error_code(error);
    const char *text = error->text;

    /* Out of memory inside the parser leaves the text empty. */
    if (text[0] == '\0' || code == json_error_out_of_memory)
        return mics_err_nomem(err);
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (reasons[i].code == code)
            text = reasons[i].text;
    return mics_err_set(err, MICS_ERR_FORMAT, "line %zu, column %d, offset %zu: %s",
                        origin.line + (size_t)error->line - 1, error->column,
                        origin.offset + (size_t)error->position, text);
}

enum mics_status mics_json_read(const char *text, size_t size, struct mics_json_origin origin,
                                json_t **out, struct mics_err *err)
{
    const enum mics_status status = scan_text(text, size, origin, err);
    json_error_t error;
    json_t *value;

    if (status != MICS_OK)
        return status;
    value = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!value)
        return fail_parse(&error, origin, err);
    if (!json_is_object(value)) {
        json_decref(value);
        return mics_err_set(err, MICS_ERR_FORMAT, "line %zu, offset %zu: expected a map",
                            origin.line, origin.offset);
    }
    *out = value;
    return MICS_OK;
}

struct text {
    char *data;
    size_t size, capacity;
};

static int append(const char *data, size_t size, void *context)
{
    struct text *text = context;

    if (size > text->capacity - text->size) {
        const size_t wanted = (text->size + size) * 2 + 256;
        char *grown = realloc(text->data, wanted);

        if (!grown)
            return -1;
        text->data = grown;
        text->capacity = wanted;
    }
    memcpy(text->data + text->size, data, size);
    text->size += size;
    return 0;
}

enum mics_status mics_json_write(const json_t *value, char **data, size_t *size,
                                 struct mics_err *err)
{
    struct text text = {0};

    if (json_dump_callback(value, append, &text, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) != 0 ||
        append("\n", 1, &text) != 0) {
        free(text.data);
        return mics_err_nomem(err);
    }
    *data = text.data;
    *size = text.size;
    return MICS_OK;
}

struct mics_lines mics_lines_begin(const char *data, size_t size)
{
    return (struct mics_lines){.data = data, .size = size};
}

static bool is_blank(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (!memchr(" \t\r", text[i], 3))
            return false;
    return true;
}

enum mics_status mics_lines_next(struct mics_lines *lines, json_t **out, struct mics_err *err)
{
    while (lines->offset < lines->size) {
        const char *begin = lines->data + lines->offset;
        const char *end = memchr(begin, '\n', lines->size - lines->offset);
        const size_t size = end ? (size_t)(end - begin) : lines->size - lines->offset;
        const struct mics_json_origin origin = {.line = ++lines->number, .offset = lines->offset};
        enum mics_status status;

        lines->offset += size + (end != NULL);
        if (is_blank(begin, size))
            continue;
        status = mics_json_read(begin, size, origin, out, err);
        if (status != MICS_ERR_FORMAT || end)
            return status;
        lines->truncated = true;
    }
    *out = NULL;
    return MICS_OK;
}
