/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign.c - a parser of JSON with the grammar of Python's json module, which makes values of
 * jansson. jansson's own parser refuses a whole text for one number that it cannot hold.
 */
#include "doc/foreign.h"

#include "base/file.h"
#include "base/utf8.h"
#include "doc/doc.h"
#include "doc/encoding.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A type that jansson does not have: none of its json_is_X() is true, and it cannot write it. The
 * reference count is that of its own constants. */
#define NO_TYPE ((json_type)100)

static json_t nonfinite[] = {
    {.type = NO_TYPE, .refcount = (size_t)-1},
    {.type = NO_TYPE, .refcount = (size_t)-1},
    {.type = NO_TYPE, .refcount = (size_t)-1},
};

enum { NOT_A_NUMBER, PLUS_INFINITY, MINUS_INFINITY, NONFINITE };

static const char *const nonfinite_names[] = {"NaN", "Infinity", "-Infinity"};

const char *mics_foreign_nonfinite(const json_t *value)
{
    for (int i = 0; i < NONFINITE; i++)
        if (value == &nonfinite[i])
            return nonfinite_names[i];
    return NULL;
}

struct parser {
    const char *text, *at, *end;
    size_t max_values;
    uint64_t weight;
    unsigned depth;
    char *buffer; /* of the string or number that is read */
    size_t capacity;
    enum mics_status status; /* MICS_OK until something fails */
    const char *place;       /* of the failure */
    char reason[80];
};

/* Note the first failure. Returns NULL for the caller to return. */
static json_t *fail(struct parser *parser, const char *place, const char *fmt, ...)
    MICS_PRINTF(3, 4);
static json_t *fail(struct parser *parser, const char *place, const char *fmt, ...)
{
    va_list args;

    parser->status = MICS_ERR_FORMAT;
    parser->place = place;
    va_start(args, fmt);
    vsnprintf(parser->reason, sizeof parser->reason, fmt, args);
    va_end(args);
    return NULL;
}

static json_t *fail_nomem(struct parser *parser)
{
    parser->status = MICS_ERR_NOMEM;
    return NULL;
}

/* Report that the text does not go on with what was expected. */
static json_t *fail_expected(struct parser *parser, const char *expected)
{
    const unsigned char found = parser->at < parser->end ? (unsigned char)*parser->at : 0;

    if (parser->at == parser->end)
        return fail(parser, parser->at, "truncated: expected %s, found the end of the text",
                    expected);
    if (found > ' ' && found < 0x7f)
        return fail(parser, parser->at, "expected %s, found '%c'", expected, found);
    return fail(parser, parser->at, "expected %s, found the byte 0x%02x", expected, found);
}

static void skip_blanks(struct parser *parser)
{
    while (parser->at < parser->end && (*parser->at == ' ' || *parser->at == '\n' ||
                                        *parser->at == '\r' || *parser->at == '\t'))
        parser->at++;
}

/* Is `c` the next character? Then it is skipped. */
static bool skip(struct parser *parser, char c)
{
    if (parser->at == parser->end || *parser->at != c)
        return false;
    parser->at++;
    return true;
}

static bool reserve(struct parser *parser, size_t size)
{
    if (size <= parser->capacity)
        return true;
    char *grown = realloc(parser->buffer, size * 2);

    if (!grown)
        return fail_nomem(parser);
    parser->buffer = grown;
    parser->capacity = size * 2;
    return true;
}

static bool add_weight(struct parser *parser, unsigned weight)
{
    parser->weight += weight;
    if (parser->weight <= parser->max_values)
        return true;
    return fail(parser, parser->at, "more than %zu values", parser->max_values);
}

/* ---- strings ---- */

/* The number of four hexadecimal digits; UINT32_MAX if there are fewer. */
static uint32_t hex4(const char *at, const char *end)
{
    uint32_t value = 0;

    if (end - at < 4)
        return UINT32_MAX;
    for (int i = 0; i < 4; i++) {
        const char c = at[i];

        if (c >= '0' && c <= '9')
            value = value << 4 | (uint32_t)(c - '0');
        else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))
            value = value << 4 | (uint32_t)((c | 0x20) - 'a' + 10);
        else
            return UINT32_MAX;
    }
    return value;
}

static char *put_utf8(char *to, uint32_t code)
{
    if (code < 0x80) {
        *to++ = (char)code;
        return to;
    }
    if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
    } else {
        if (code < 0x10000) {
            *to++ = (char)(0xe0 | code >> 12);
        } else {
            *to++ = (char)(0xf0 | code >> 18);
            *to++ = (char)(0x80 | (code >> 12 & 0x3f));
        }
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
    }
    *to++ = (char)(0x80 | (code & 0x3f));
    return to;
}

/* The character of the escape whose 'u' is at `at`; *next: after it. A surrogate without the other
 * half is U+FFFD. UINT32_MAX: not four digits. */
static uint32_t read_unicode_escape(const char *at, const char *end, const char **next)
{
    const uint32_t code = hex4(at + 1, end);

    *next = at + 5;
    if (code == UINT32_MAX || code < 0xd800 || code > 0xdfff)
        return code;
    if (code < 0xdc00 && end - *next >= 6 && (*next)[0] == '\\' && (*next)[1] == 'u') {
        const uint32_t low = hex4(*next + 2, end);

        if (low >= 0xdc00 && low <= 0xdfff) {
            *next += 6;
            return 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        }
    }
    return 0xfffd;
}

/* Decode the escapes of [from, to) into the buffer, where they take no more room. */
static bool decode_escapes(struct parser *parser, const char *from, const char *to, size_t *length)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char *out;

    if (!reserve(parser, (size_t)(to - from) + 1))
        return false;
    out = parser->buffer;
    while (from < to) {
        const char *escape = memchr(from, '\\', (size_t)(to - from));
        const size_t plain = (size_t)((escape ? escape : to) - from);

        memcpy(out, from, plain);
        out += plain;
        from += plain;
        if (!escape)
            break;
        const char *name = memchr(names, escape[1], sizeof names - 1);

        if (name) {
            *out++ = values[name - names];
            from += 2;
            continue;
        }
        const uint32_t code =
            escape[1] == 'u' ? read_unicode_escape(escape + 1, to, &from) : UINT32_MAX;

        if (code == UINT32_MAX)
            return fail(parser, escape, "an escape that JSON does not have");
        out = put_utf8(out, code);
    }
    *length = (size_t)(out - parser->buffer);
    return true;
}

/* Read the string whose quote is next. *text is in the text itself, or in the buffer and valid
 * until the next string or number is read. */
static bool read_string(struct parser *parser, const char **text, size_t *length)
{
    const char *const quote = parser->at, *at = quote + 1;
    bool escaped = false, ascii = true;
    size_t bad = 0;

    for (; at < parser->end && *at != '"'; at++) {
        const unsigned char c = (unsigned char)*at;

        if (c < ' ')
            return fail(parser, at, "a control character in a string");
        if (c >= 0x80)
            ascii = false;
        if (c != '\\')
            continue;
        escaped = true;
        if (++at == parser->end)
            break;
    }
    if (at >= parser->end) {
        parser->at = parser->end;
        return fail(parser, quote, "truncated: a string without an end");
    }
    if (!ascii && !mics_utf8_check(quote + 1, (size_t)(at - quote) - 1, &bad))
        return fail(parser, quote + 1 + bad, "text that is not UTF-8");
    parser->at = at + 1;
    *text = quote + 1;
    *length = (size_t)(at - *text);
    if (!escaped)
        return true;
    if (!decode_escapes(parser, *text, at, length))
        return false;
    *text = parser->buffer;
    return true;
}

/* ---- numbers and words ---- */

static const char *skip_digits(const char *at, const char *end)
{
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

/* A real, or an integer too large for one. */
static json_t *make_real(struct parser *parser, const char *from, size_t length)
{
    double value;

    if (!reserve(parser, length + 1))
        return NULL;
    memcpy(parser->buffer, from, length);
    parser->buffer[length] = '\0';
    value = strtod(parser->buffer, NULL);
    if (!isfinite(value))
        return &nonfinite[value > 0 ? PLUS_INFINITY : MINUS_INFINITY];
    json_t *number = json_real(value);

    return number ? number : fail_nomem(parser);
}

/* Digits, and optionally a fraction and an exponent. What else follows is not read. */
static json_t *read_number(struct parser *parser)
{
    const char *const from = parser->at, *const end = parser->end;
    const char *digits = from + (*from == '-'), *at = skip_digits(digits, end), *next;
    bool whole = true;

    if (at == digits) {
        parser->at = at;
        return fail_expected(parser, "a digit");
    }
    if (*digits == '0')
        at = digits + 1;
    if (at < end && *at == '.' && (next = skip_digits(at + 1, end)) > at + 1) {
        at = next;
        whole = false;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        const char *exponent = at + 1;

        if (exponent < end && (*exponent == '+' || *exponent == '-'))
            exponent++;
        next = skip_digits(exponent, end);
        if (next > exponent) {
            at = next;
            whole = false;
        }
    }
    parser->at = at;
    if (!whole || at - digits > 19)
        return make_real(parser, from, (size_t)(at - from));

    uint64_t value = 0; /* 19 digits fit */
    for (; digits < at; digits++)
        value = value * 10 + (uint64_t)(*digits - '0');
    if (value > (uint64_t)INT64_MAX)
        return make_real(parser, from, (size_t)(at - from));
    json_t *number = json_integer(*from == '-' ? -(json_int_t)value : (json_int_t)value);

    return number ? number : fail_nomem(parser);
}

/* null, true, false, or one of the values that JSON does not have. */
static json_t *read_word(struct parser *parser)
{
    const struct {
        const char *text;
        json_t *value;
    } words[] = {
        {"null", json_null()},
        {"true", json_true()},
        {"false", json_false()},
        {nonfinite_names[NOT_A_NUMBER], &nonfinite[NOT_A_NUMBER]},
        {nonfinite_names[PLUS_INFINITY], &nonfinite[PLUS_INFINITY]},
        {nonfinite_names[MINUS_INFINITY], &nonfinite[MINUS_INFINITY]},
    };
    const size_t left = (size_t)(parser->end - parser->at);

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const size_t length = strlen(words[i].text);

        if (left >= length && memcmp(parser->at, words[i].text, length) == 0) {
            parser->at += length;
            return words[i].value;
        }
    }
    return fail_expected(parser, "a value");
}

/* ---- values ---- */

static json_t *read_value(struct parser *parser);

/* Read a key, its colon and its value into the object. */
static bool read_member(struct parser *parser, json_t *object)
{
    const char *key = NULL;
    char *copy = NULL;
    size_t length = 0;

    if (parser->at == parser->end || *parser->at != '"')
        return fail_expected(parser, "a key in quotes");
    if (!read_string(parser, &key, &length))
        return false;
    if (key == parser->buffer) { /* where the value will be */
        copy = malloc(length + 1);
        if (!copy)
            return fail_nomem(parser);
        memcpy(copy, key, length);
        key = copy;
    }
    skip_blanks(parser);

    json_t *value = skip(parser, ':') ? read_value(parser) : fail_expected(parser, "':'");

    if (value && json_object_setn_new_nocheck(object, key, length, value) != 0)
        fail_nomem(parser);
    free(copy);
    return parser->status == MICS_OK;
}

static bool read_item(struct parser *parser, json_t *array)
{
    json_t *value = read_value(parser);

    if (value && json_array_append_new(array, value) != 0)
        fail_nomem(parser);
    return parser->status == MICS_OK;
}

/* Read the array or the object whose bracket is next. */
static json_t *read_container(struct parser *parser)
{
    const bool is_object = *parser->at == '{';
    const char close = is_object ? '}' : ']';
    json_t *container;

    if (parser->depth == MICS_FOREIGN_MAX_DEPTH)
        return fail(parser, parser->at, "nested deeper than %d", MICS_FOREIGN_MAX_DEPTH);
    if (!add_weight(parser, MICS_DOC_CONTAINER_WEIGHT))
        return NULL;
    container = is_object ? json_object() : json_array();
    if (!container)
        return fail_nomem(parser);
    parser->depth++;
    parser->at++;
    skip_blanks(parser);
    for (bool first = true; !skip(parser, close); first = false) {
        if (!first && !skip(parser, ','))
            fail_expected(parser, is_object ? "',' or '}'" : "',' or ']'");
        skip_blanks(parser);
        if (parser->status != MICS_OK ||
            !(is_object ? read_member(parser, container) : read_item(parser, container))) {
            json_decref(container);
            return NULL;
        }
        skip_blanks(parser);
    }
    parser->depth--;
    return container;
}

static json_t *read_value(struct parser *parser)
{
    const char *text = NULL;
    size_t length = 0;

    skip_blanks(parser);
    if (parser->at == parser->end)
        return fail_expected(parser, "a value");
    const char first = *parser->at;

    if (first == '{' || first == '[')
        return read_container(parser);
    if (!add_weight(parser, 1))
        return NULL;
    if (first == '"') {
        if (!read_string(parser, &text, &length))
            return NULL;
        json_t *string = json_stringn_nocheck(text, length);

        return string ? string : fail_nomem(parser);
    }
    if ((first >= '0' && first <= '9') ||
        (first == '-' && !(parser->end - parser->at > 1 && parser->at[1] == 'I')))
        return read_number(parser);
    return read_word(parser);
}

/* ---- a text ---- */

static struct parser begin(const char *text, size_t size, size_t max_values)
{
    return (struct parser){.text = text, .at = text, .end = text + size, .max_values = max_values};
}

static void skip_byte_order_mark(struct parser *parser)
{
    if (parser->end - parser->at >= 3 && memcmp(parser->at, "\xef\xbb\xbf", 3) == 0)
        parser->at += 3;
    else if (parser->end - parser->at >= 2 &&
             (memcmp(parser->at, "\xff\xfe", 2) == 0 || memcmp(parser->at, "\xfe\xff", 2) == 0))
        fail(parser, parser->at, "text in UTF-16; UTF-8 is expected");
}

/* Read the one value of the text, which must be an object. */
static json_t *read_text(struct parser *parser)
{
    json_t *value;

    skip_byte_order_mark(parser);
    if (parser->status != MICS_OK)
        return NULL;
    skip_blanks(parser);
    if (parser->at == parser->end)
        return fail(parser, parser->at, "empty: there is no JSON in it");
    const char *const first = parser->at;

    value = read_value(parser);
    if (!value)
        return NULL;
    skip_blanks(parser);
    if (parser->at < parser->end)
        fail(parser, parser->at, "text after the end of the value");
    else if (!json_is_object(value))
        fail(parser, first, "expected an object");
    if (parser->status == MICS_OK)
        return value;
    json_decref(value);
    return NULL;
}

/* Free the parser's memory and report its failure, if any. */
static enum mics_status finish(struct parser *parser, bool one_line, struct mics_err *err)
{
    const char *line_begin = parser->text;
    size_t line = 1, column = 1;

    free(parser->buffer);
    if (parser->status == MICS_ERR_NOMEM)
        return mics_err_nomem(err);
    if (parser->status == MICS_OK)
        return MICS_OK;
    for (const char *at = parser->text; at < parser->place; at++)
        if (*at == '\n') {
            line++;
            line_begin = at + 1;
        }
    for (const char *at = line_begin; at < parser->place; at++)
        column += ((unsigned char)*at & 0xc0) != 0x80;
    if (one_line)
        return mics_err_set(err, MICS_ERR_FORMAT, "column %zu: %s", column, parser->reason);
    return mics_err_set(err, MICS_ERR_FORMAT, "line %zu, column %zu, offset %zu: %s", line, column,
                        (size_t)(parser->place - parser->text), parser->reason);
}

static enum mics_status read_object(const char *text, size_t size, size_t max_values, bool one_line,
                                    json_t **out, struct mics_err *err)
{
    struct parser parser = begin(text, size, max_values);
    json_t *value = read_text(&parser);
    const enum mics_status status = finish(&parser, one_line, err);

    if (status == MICS_OK)
        *out = value;
    return status;
}

enum mics_status mics_foreign_read(const char *text, size_t size, size_t max_values, json_t **out,
                                   struct mics_err *err)
{
    return read_object(text, size, max_values, false, out, err);
}

enum mics_status mics_foreign_read_line(const char *line, size_t size, json_t **out,
                                        struct mics_err *err)
{
    return read_object(line, size, MICS_DOC_MAX_VALUES, true, out, err);
}

enum mics_status mics_foreign_read_file(const char *path, size_t max_bytes, size_t max_values,
                                        json_t **out, struct mics_err *err)
{
    char *data = NULL;
    size_t size = 0;
    enum mics_status status = mics_file_read_regular(path, max_bytes, &data, &size, err);

    if (status != MICS_OK)
        return status;
    status = mics_foreign_read(data, size, max_values, out, err);
    free(data);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", path);
    return status;
}

enum mics_status mics_foreign_read_next(const char *text, size_t size, size_t *offset, json_t **out,
                                        struct mics_err *err)
{
    struct parser parser = begin(text, size, MICS_DOC_MAX_VALUES);
    json_t *value;

    parser.at += *offset;
    value = read_value(&parser);
    const size_t after = (size_t)(parser.at - text);
    const enum mics_status status = finish(&parser, false, err);

    if (status != MICS_OK)
        return status;
    *out = value;
    *offset = after;
    return MICS_OK;
}

/* ---- to a document ---- */

enum { DOCUMENT_DEPTH = MICS_DOC_MAX_DEPTH / 2 };

static bool has_nul(const char *text, size_t length)
{
    return memchr(text, '\0', length) != NULL;
}

/* Can it, or what is left of it, be in a document? */
static bool fits_document(const json_t *value, unsigned depth)
{
    if (json_is_string(value))
        return !has_nul(json_string_value(value), json_string_length(value));
    return !(json_is_object(value) || json_is_array(value)) || depth < DOCUMENT_DEPTH;
}

static json_t *to_document(const json_t *value, unsigned depth)
{
    const char *name = mics_foreign_nonfinite(value), *key;
    json_t *copy, *item;
    size_t length, i;

    if (name)
        return json_pack("{s:s}", "__float__", name);
    if (!json_is_object(value) && !json_is_array(value))
        return json_copy((json_t *)(uintptr_t)value);
    copy = json_is_object(value) ? json_object() : json_array();
    json_array_foreach(value, i, item) if (copy && fits_document(item, depth + 1) &&
                                           json_array_append_new(
                                               copy, to_document(item, depth + 1)) != 0) goto fail;
    json_object_keylen_foreach(
        (json_t *)(uintptr_t)value, key, length,
        item) if (copy && !has_nul(key, length) && fits_document(item, depth + 1) &&
                  json_object_set_new(copy, key, to_document(item, depth + 1)) != 0) goto fail;
    return copy;
fail:
    json_decref(copy);
    return NULL;
}

json_t *mics_foreign_to_document(const json_t *value)
{
    return to_document(value, 0);
}
