/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cursor.c - each getter finds the member, checks its type and its range, and only then stores the
 * value.
 */
#include "doc/cursor.h"

#include "base/utf8.h"
#include "doc/foreign.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* 2^64: the first double that uint64_t cannot hold. */
#define TWO_TO_64 18446744073709551616.0

struct mics_cursor mics_cursor_root(const json_t *doc)
{
    return (struct mics_cursor){.value = doc};
}

static const char *describe(const json_t *value)
{
    const char *nonfinite = mics_foreign_nonfinite(value);

    if (nonfinite)
        return nonfinite;
    switch (value ? json_typeof(value) : JSON_NULL) {
    case JSON_OBJECT:
        return "a map";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        break;
    }
    return "null";
}

size_t mics_cursor_path(const struct mics_cursor *cursor, char *buf, size_t size)
{
    size_t used;
    int wrote;

    if (!cursor->parent) {
        buf[0] = '\0';
        return 0;
    }
    used = mics_cursor_path(cursor->parent, buf, size);
    if (cursor->key)
        wrote = snprintf(buf + used, size - used, "%s%s", used ? "." : "", cursor->key);
    else
        wrote = snprintf(buf + used, size - used, "[%zu]", cursor->index);
    if (wrote < 0 || (size_t)wrote >= size - used)
        return size - 1;
    return used + (size_t)wrote;
}

enum mics_status mics_cursor_fail(const struct mics_cursor *cursor, const char *key,
                                  struct mics_err *err, const char *fmt, ...)
{
    const struct mics_cursor member = {.parent = cursor, .key = key};
    char path[256], text[256];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (mics_cursor_path(key ? &member : cursor, path, sizeof path) == 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "%s", text);
    return mics_err_set(err, MICS_ERR_FORMAT, "%s: %s", path, text);
}

/* The member, or an error if it is missing. */
static enum mics_status find(const struct mics_cursor *cursor, const char *key, const json_t **out,
                             struct mics_err *err)
{
    const json_t *value;

    if (!json_is_object(cursor->value))
        return mics_cursor_fail(cursor, NULL, err, "expected a map, found %s",
                                describe(cursor->value));
    value = json_object_get(cursor->value, key);
    if (!value)
        return mics_cursor_fail(cursor, key, err, "missing");
    *out = value;
    return MICS_OK;
}

static enum mics_status fail_type(const struct mics_cursor *cursor, const char *key,
                                  const char *expected, const json_t *found, struct mics_err *err)
{
    return mics_cursor_fail(cursor, key, err, "expected %s, found %s", expected, describe(found));
}

bool mics_cursor_has(const struct mics_cursor *cursor, const char *key)
{
    const json_t *value = json_object_get(cursor->value, key);

    return value && !json_is_null(value);
}

enum mics_status mics_cursor_object(const struct mics_cursor *cursor, const char *key,
                                    struct mics_cursor *out, struct mics_err *err)
{
    const json_t *value;
    const enum mics_status status = find(cursor, key, &value, err);

    if (status != MICS_OK)
        return status;
    if (!json_is_object(value))
        return fail_type(cursor, key, "a map", value, err);
    *out = (struct mics_cursor){.value = value, .parent = cursor, .key = key};
    return MICS_OK;
}

enum mics_status mics_cursor_array(const struct mics_cursor *cursor, const char *key, size_t min,
                                   size_t max, struct mics_cursor *out, struct mics_err *err)
{
    const json_t *value;
    const enum mics_status status = find(cursor, key, &value, err);

    if (status != MICS_OK)
        return status;
    if (!json_is_array(value))
        return fail_type(cursor, key, "an array", value, err);
    if (json_array_size(value) < min || json_array_size(value) > max)
        return mics_cursor_fail(cursor, key, err, "expected %zu to %zu items, found %zu", min, max,
                                json_array_size(value));
    *out = (struct mics_cursor){.value = value, .parent = cursor, .key = key};
    return MICS_OK;
}

size_t mics_cursor_count(const struct mics_cursor *array)
{
    return json_array_size(array->value);
}

struct mics_cursor mics_cursor_item_any(const struct mics_cursor *array, size_t index)
{
    return (struct mics_cursor){
        .value = json_array_get(array->value, index), .parent = array, .index = index};
}

enum mics_status mics_cursor_item(const struct mics_cursor *array, size_t index,
                                  struct mics_cursor *out, struct mics_err *err)
{
    const struct mics_cursor item = mics_cursor_item_any(array, index);

    if (!item.value)
        return mics_cursor_fail(&item, NULL, err, "missing");
    if (!json_is_object(item.value))
        return fail_type(&item, NULL, "a map", item.value, err);
    *out = item;
    return MICS_OK;
}

static enum mics_status fail_range(const struct mics_cursor *cursor, const char *key, uint64_t min,
                                   uint64_t max, double found, struct mics_err *err)
{
    if (max == UINT64_MAX)
        return mics_cursor_fail(cursor, key, err, "expected at least %llu, found %.17g",
                                (unsigned long long)min, found);
    return mics_cursor_fail(cursor, key, err, "expected %llu to %llu, found %.17g",
                            (unsigned long long)min, (unsigned long long)max, found);
}

enum mics_status mics_cursor_u64(const struct mics_cursor *cursor, const char *key, uint64_t min,
                                 uint64_t max, uint64_t *out, struct mics_err *err)
{
    const json_t *value;
    const enum mics_status status = find(cursor, key, &value, err);
    double number;
    uint64_t whole;

    if (status != MICS_OK)
        return status;
    if (!json_is_number(value))
        return fail_type(cursor, key, "a whole number", value, err);
    number = json_number_value(value);
    if (floor(number) != number)
        return mics_cursor_fail(cursor, key, err, "expected a whole number, found %.17g", number);
    if (number < 0 || number >= TWO_TO_64)
        return fail_range(cursor, key, min, max, number, err);
    whole = json_is_integer(value) ? (uint64_t)json_integer_value(value) : (uint64_t)number;
    if (whole < min || whole > max)
        return fail_range(cursor, key, min, max, number, err);
    *out = whole;
    return MICS_OK;
}

enum mics_status mics_cursor_u32(const struct mics_cursor *cursor, const char *key, uint32_t min,
                                 uint32_t max, uint32_t *out, struct mics_err *err)
{
    uint64_t wide;
    const enum mics_status status = mics_cursor_u64(cursor, key, min, max, &wide, err);

    if (status == MICS_OK)
        *out = (uint32_t)wide;
    return status;
}

enum mics_status mics_cursor_double(const struct mics_cursor *cursor, const char *key, double min,
                                    double max, double *out, struct mics_err *err)
{
    const json_t *value;
    const enum mics_status status = find(cursor, key, &value, err);
    double number;

    if (status != MICS_OK)
        return status;
    if (!json_is_number(value))
        return fail_type(cursor, key, "a number", value, err);
    number = json_number_value(value);
    if (!(number >= min && number <= max))
        return mics_cursor_fail(cursor, key, err, "expected %g to %g, found %g", min, max, number);
    *out = number;
    return MICS_OK;
}

enum mics_status mics_cursor_bool(const struct mics_cursor *cursor, const char *key, bool *out,
                                  struct mics_err *err)
{
    const json_t *value;
    const enum mics_status status = find(cursor, key, &value, err);

    if (status != MICS_OK)
        return status;
    if (!json_is_boolean(value))
        return fail_type(cursor, key, "a boolean", value, err);
    *out = json_is_true(value);
    return MICS_OK;
}

enum mics_status mics_cursor_string(const struct mics_cursor *cursor, const char *key,
                                    const char **out, struct mics_err *err)
{
    const json_t *value;
    const enum mics_status status = find(cursor, key, &value, err);

    if (status != MICS_OK)
        return status;
    if (!json_is_string(value))
        return fail_type(cursor, key, "a string", value, err);
    if (strlen(json_string_value(value)) != json_string_length(value))
        return mics_cursor_fail(cursor, key, err, "text with a NUL byte");
    *out = json_string_value(value);
    return MICS_OK;
}

enum mics_status mics_cursor_text(const struct mics_cursor *cursor, const char *key, char *out,
                                  size_t size, struct mics_err *err)
{
    const char *text;
    enum mics_status status = mics_cursor_string(cursor, key, &text, err);

    if (status != MICS_OK)
        return status;
    if (strlen(text) >= size)
        return mics_cursor_fail(cursor, key, err, "more than %zu bytes", size - 1);
    if (mics_utf8_has_control(text))
        return mics_cursor_fail(cursor, key, err, "control characters in a name");
    memcpy(out, text, strlen(text) + 1);
    return MICS_OK;
}
