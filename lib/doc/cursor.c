/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cursor.c - each getter finds the member and checks its type and its range.
 */
#include "doc/cursor.h"

#include "base/utf8.h"
#include "doc/foreign.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 2^64: the first double that uint64_t cannot hold. */
#define TWO_TO_64 18446744073709551616.0

struct mics_cursor mics_cursor_begin(const json_t *doc, struct mics_reading *reading)
{
    return (struct mics_cursor){.value = doc, .reading = reading};
}

bool mics_cursor_ok(const struct mics_cursor *cursor)
{
    return cursor->reading->status == MICS_OK;
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

void mics_cursor_reject(const struct mics_cursor *cursor, const char *key, const char *fmt, ...)
{
    const struct mics_cursor member = {.parent = cursor, .key = key};
    char path[256], text[256];
    va_list args;

    if (!mics_cursor_ok(cursor))
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const bool inside = mics_cursor_path(key ? &member : cursor, path, sizeof path) > 0;
    cursor->reading->status = mics_err_set(cursor->reading->err, MICS_ERR_FORMAT, "%s%s%s",
                                           inside ? path : "", inside ? ": " : "", text);
}

/* NULL: the member is missing, or there was an error before. */
static const json_t *find(const struct mics_cursor *cursor, const char *key)
{
    const json_t *value = NULL;

    if (!mics_cursor_ok(cursor))
        return NULL;
    if (!json_is_object(cursor->value))
        mics_cursor_reject(cursor, NULL, "expected a map, found %s", describe(cursor->value));
    else if (!(value = json_object_get(cursor->value, key)))
        mics_cursor_reject(cursor, key, "missing");
    return value;
}

static void reject_type(const struct mics_cursor *cursor, const char *key, const char *expected,
                        const json_t *found)
{
    mics_cursor_reject(cursor, key, "expected %s, found %s", expected, describe(found));
}

bool mics_cursor_has(const struct mics_cursor *cursor, const char *key)
{
    const json_t *value = json_object_get(cursor->value, key);

    return value && !json_is_null(value);
}

/* The cursor at the value, or at nothing after an error. */
static struct mics_cursor enter(const struct mics_cursor *cursor, const char *key,
                                const json_t *value)
{
    return (struct mics_cursor){.value = mics_cursor_ok(cursor) ? value : NULL,
                                .parent = cursor,
                                .key = key,
                                .reading = cursor->reading};
}

struct mics_cursor mics_cursor_get_object(const struct mics_cursor *cursor, const char *key)
{
    const json_t *value = find(cursor, key);

    if (value && !json_is_object(value))
        reject_type(cursor, key, "a map", value);
    return enter(cursor, key, value);
}

struct mics_cursor mics_cursor_get_array(const struct mics_cursor *cursor, const char *key,
                                         size_t min, size_t max)
{
    const json_t *value = find(cursor, key);
    const size_t count = json_array_size(value);

    if (value && !json_is_array(value))
        reject_type(cursor, key, "an array", value);
    else if (value && (count < min || count > max))
        mics_cursor_reject(cursor, key, "expected %zu to %zu items, found %zu", min, max, count);
    return enter(cursor, key, value);
}

size_t mics_cursor_count(const struct mics_cursor *array)
{
    return json_array_size(array->value);
}

struct mics_cursor mics_cursor_item_any(const struct mics_cursor *array, size_t index)
{
    return (struct mics_cursor){.value = json_array_get(array->value, index),
                                .parent = array,
                                .index = index,
                                .reading = array->reading};
}

struct mics_cursor mics_cursor_get_item(const struct mics_cursor *array, size_t index)
{
    struct mics_cursor item = mics_cursor_item_any(array, index);

    if (!item.value)
        mics_cursor_reject(&item, NULL, "missing");
    else if (!json_is_object(item.value))
        reject_type(&item, NULL, "a map", item.value);
    if (!mics_cursor_ok(array))
        item.value = NULL;
    return item;
}

void mics_cursor_nomem(const struct mics_cursor *cursor)
{
    if (mics_cursor_ok(cursor))
        cursor->reading->status = mics_err_nomem(cursor->reading->err);
}

void *mics_cursor_calloc(const struct mics_cursor *array, size_t size)
{
    const size_t count = mics_cursor_count(array);
    void *items = mics_cursor_ok(array) ? calloc(count ? count : 1, size) : NULL;

    if (!items)
        mics_cursor_nomem(array);
    return items;
}

static void reject_range(const struct mics_cursor *cursor, const char *key, uint64_t min,
                         uint64_t max, double found)
{
    if (max == UINT64_MAX)
        mics_cursor_reject(cursor, key, "expected at least %llu, found %.17g",
                           (unsigned long long)min, found);
    else
        mics_cursor_reject(cursor, key, "expected %llu to %llu, found %.17g",
                           (unsigned long long)min, (unsigned long long)max, found);
}

uint64_t mics_cursor_get_u64(const struct mics_cursor *cursor, const char *key, uint64_t min,
                             uint64_t max)
{
    const json_t *value = find(cursor, key);
    const double number = json_number_value(value);

    if (!value)
        return min;
    if (!json_is_number(value)) {
        reject_type(cursor, key, "a whole number", value);
        return min;
    }
    if (floor(number) != number) {
        mics_cursor_reject(cursor, key, "expected a whole number, found %.17g", number);
        return min;
    }
    if (number >= 0 && number < TWO_TO_64) {
        const uint64_t whole =
            json_is_integer(value) ? (uint64_t)json_integer_value(value) : (uint64_t)number;

        if (whole >= min && whole <= max)
            return whole;
    }
    reject_range(cursor, key, min, max, number);
    return min;
}

uint32_t mics_cursor_get_u32(const struct mics_cursor *cursor, const char *key, uint32_t min,
                             uint32_t max)
{
    return (uint32_t)mics_cursor_get_u64(cursor, key, min, max);
}

double mics_cursor_get_double(const struct mics_cursor *cursor, const char *key, double min,
                              double max)
{
    const json_t *value = find(cursor, key);
    const double number = json_number_value(value);

    if (!value)
        return min;
    if (json_is_number(value) && number >= min && number <= max)
        return number;
    if (!json_is_number(value))
        reject_type(cursor, key, "a number", value);
    else
        mics_cursor_reject(cursor, key, "expected %g to %g, found %g", min, max, number);
    return min;
}

bool mics_cursor_get_bool(const struct mics_cursor *cursor, const char *key)
{
    const json_t *value = find(cursor, key);

    if (value && !json_is_boolean(value))
        reject_type(cursor, key, "a boolean", value);
    return json_is_true(value);
}

const char *mics_cursor_get_string(const struct mics_cursor *cursor, const char *key)
{
    const json_t *value = find(cursor, key);

    if (!value)
        return "";
    if (!json_is_string(value))
        reject_type(cursor, key, "a string", value);
    else if (strlen(json_string_value(value)) != json_string_length(value))
        mics_cursor_reject(cursor, key, "text with a NUL byte");
    return mics_cursor_ok(cursor) ? json_string_value(value) : "";
}

uint64_t mics_cursor_opt_u64(const struct mics_cursor *cursor, const char *key, uint64_t min,
                             uint64_t max, uint64_t absent)
{
    return mics_cursor_has(cursor, key) ? mics_cursor_get_u64(cursor, key, min, max) : absent;
}

uint32_t mics_cursor_opt_u32(const struct mics_cursor *cursor, const char *key, uint32_t min,
                             uint32_t max, uint32_t absent)
{
    return mics_cursor_has(cursor, key) ? mics_cursor_get_u32(cursor, key, min, max) : absent;
}

double mics_cursor_opt_double(const struct mics_cursor *cursor, const char *key, double min,
                              double max, double absent)
{
    return mics_cursor_has(cursor, key) ? mics_cursor_get_double(cursor, key, min, max) : absent;
}

bool mics_cursor_opt_bool(const struct mics_cursor *cursor, const char *key, bool absent)
{
    return mics_cursor_has(cursor, key) ? mics_cursor_get_bool(cursor, key) : absent;
}

const char *mics_cursor_opt_string(const struct mics_cursor *cursor, const char *key,
                                   const char *absent)
{
    return mics_cursor_has(cursor, key) ? mics_cursor_get_string(cursor, key) : absent;
}

void mics_cursor_get_text(const struct mics_cursor *cursor, const char *key, char *out, size_t size)
{
    const char *text = mics_cursor_get_string(cursor, key);

    if (strlen(text) >= size)
        mics_cursor_reject(cursor, key, "more than %zu bytes", size - 1);
    else if (mics_utf8_has_control(text))
        mics_cursor_reject(cursor, key, "control characters in a name");
    else if (mics_cursor_ok(cursor))
        memcpy(out, text, strlen(text) + 1);
}
