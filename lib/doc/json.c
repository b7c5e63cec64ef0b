/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.c - JSON text to a value and back, by jansson.
 *
 * jansson limits neither count nor (usefully) depth, so a scan that knows just strings and brackets
 * does that first. Its messages may quote pieces of the input; they become one line.
 */
#include "doc/doc.h"
#include "doc/encoding.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The offset of the quote that ends the string whose first quote is at `at`; `size` if there is none. */
static size_t skip_string(const char *text, size_t size, size_t at)
{
    for (at++; at < size && text[at] != '"'; at++)
        if (text[at] == '\\')
            at++;
    return at < size ? at : size;
}

/* Does a scalar end before this character, when `last` is the last one that was not a blank? Keys end
 * before ':' and are not counted. */
static bool ends_scalar(char c, char last)
{
    return (c == ',' || c == ']' || c == '}') && last != '\0' && !strchr(",{[}]", last);
}

static enum mics_status scan_text(const char *text, size_t size, struct mics_place from,
                                  struct mics_err *err)
{
    uint64_t weight = 0;
    unsigned depth = 0;
    char last = '\0';

    for (size_t at = 0; at < size; at++) {
        const char c = text[at];

        weight += ends_scalar(c, last);
        if (c == '{' || c == '[') {
            weight += MICS_DOC_CONTAINER_WEIGHT;
            if (depth++ == MICS_DOC_MAX_DEPTH)
                return mics_err_set(err, MICS_ERR_FORMAT, "offset %zu: nested deeper than %d",
                                    from.offset + at, MICS_DOC_MAX_DEPTH);
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        } else if (c == '"') {
            at = skip_string(text, size, at);
        }
        if (weight > MICS_DOC_MAX_VALUES)
            return mics_err_set(err, MICS_ERR_FORMAT, "offset %zu: more than %u values",
                                from.offset + at, MICS_DOC_MAX_VALUES);
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r')
            last = c;
    }
    return MICS_OK;
}

/* Our words for the parser's codes; where there are none, its own text is used. */
static const struct reason {
    enum json_error_code code;
    const char *text;
} reasons[] = {
    {json_error_premature_end_of_input, "truncated: the document ends too soon"},
    {json_error_end_of_input_expected, "text after the end of the document"},
    {json_error_duplicate_key, "a key that is there twice in its map"},
    {json_error_numeric_overflow, "a number beyond 64-bit integers or finite doubles"},
    {json_error_invalid_utf8, "text that is not UTF-8"},
    {json_error_null_character, "text with a NUL byte"},
    {json_error_null_byte_in_key, "a key with a NUL byte"},
};

static enum mics_status fail_parse(const json_error_t *error, struct mics_place from,
                                   struct mics_err *err)
{
    const enum json_error_code code = json_error_code(error);
    const char *text = error->text;

    /* Where memory runs out inside the parser, it fails without a word. */
    if (text[0] == '\0' || code == json_error_out_of_memory)
        return mics_err_nomem(err);
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (reasons[i].code == code)
            text = reasons[i].text;
    return mics_err_set(err, MICS_ERR_FORMAT, "line %zu, column %d, offset %zu: %s",
                        from.line + (size_t)error->line - 1, error->column,
                        from.offset + (size_t)error->position, text);
}

enum mics_status mics_json_read(const char *text, size_t size, struct mics_place from, json_t **out,
                                struct mics_err *err)
{
    const enum mics_status status = scan_text(text, size, from, err);
    json_error_t error;
    json_t *value;

    if (status != MICS_OK)
        return status;
    value = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!value)
        return fail_parse(&error, from, err);
    if (!json_is_object(value)) {
        json_decref(value);
        return mics_err_set(err, MICS_ERR_FORMAT, "line %zu, offset %zu: expected a map", from.line,
                            from.offset);
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
    while (lines->at < lines->size) {
        const char *begin = lines->data + lines->at;
        const char *end = memchr(begin, '\n', lines->size - lines->at);
        const size_t size = end ? (size_t)(end - begin) : lines->size - lines->at;
        const struct mics_place place = {.line = ++lines->number, .offset = lines->at};
        enum mics_status status;

        lines->at += size + (end != NULL);
        if (is_blank(begin, size))
            continue;
        status = mics_json_read(begin, size, place, out, err);
        if (status != MICS_ERR_FORMAT || end)
            return status;
        lines->cut = true;
    }
    *out = NULL;
    return MICS_OK;
}
