/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cursor.h - checked reading of a document, with errors that name the path.
 *
 * A reading keeps the first error of a document, so that its status is checked once, at the end:
 *
 *     struct mics_reading reading = {.err = err};
 *     const struct mics_cursor root = mics_cursor_begin(doc, &reading);
 *     const struct mics_cursor links = mics_cursor_get_array(&root, "links", 0, 64);
 *     for (size_t i = 0; i < mics_cursor_count(&links); i++) {
 *         const struct mics_cursor link = mics_cursor_get_item(&links, i);
 *         bandwidth[i] = mics_cursor_get_double(&link, "bandwidth", 0, 1e15);
 *     }
 *     return reading.status;
 *       -> "links[4].bandwidth: expected a number, found a string"
 *
 * After an error every getter returns a valid value at once: the least number that is allowed,
 * false, "", or an empty map or array. What is computed from values must be correct for those too,
 * or ask mics_cursor_ok() first.
 *
 * A cursor lives on the caller's stack and points to its parent. The path is composed only for an
 * error. Every failure is MICS_ERR_FORMAT unless a comment says otherwise.
 */
#ifndef MICS_DOC_CURSOR_H
#define MICS_DOC_CURSOR_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first error of all cursors of one document. A caller may set the status itself, after
 * mics_cursor_ok(), to that of a function that has written to `err`. */
struct mics_reading {
    struct mics_err *err; /* may be NULL */
    enum mics_status status;
};

struct mics_cursor {
    const json_t *value;              /* NULL after an error: an empty map or array */
    const struct mics_cursor *parent; /* must outlive this one; NULL at the root */
    const char *key;                  /* the member's name; NULL for an array item */
    size_t index;                     /* of an array item */
    struct mics_reading *reading;
};

struct mics_cursor mics_cursor_begin(const json_t *doc, struct mics_reading *reading);

/* Has the document had no error so far? */
bool mics_cursor_ok(const struct mics_cursor *cursor);

/* Is there a member `key` that is not null? */
bool mics_cursor_has(const struct mics_cursor *cursor, const char *key);

struct mics_cursor mics_cursor_get_object(const struct mics_cursor *cursor, const char *key);
/* An array of min to max items; after an error it has none. */
struct mics_cursor mics_cursor_get_array(const struct mics_cursor *cursor, const char *key,
                                         size_t min, size_t max);
size_t mics_cursor_count(const struct mics_cursor *array);
/* Item `index`, which must be an object; mics_cursor_item_any() accepts any value, and NULL. */
struct mics_cursor mics_cursor_get_item(const struct mics_cursor *array, size_t index);
struct mics_cursor mics_cursor_item_any(const struct mics_cursor *array, size_t index);

/* Allocate `size` zeroed bytes for each item of the array, and for at least one; the caller calls
 * free(). NULL after an error; MICS_ERR_NOMEM. */
void *mics_cursor_calloc(const struct mics_cursor *array, size_t size);

/* Read the member `key`. A number outside [min, max] is an error that names the range. A real is
 * accepted as an integer only if it is whole. Strings belong to the document. */
uint64_t mics_cursor_get_u64(const struct mics_cursor *cursor, const char *key, uint64_t min,
                             uint64_t max);
uint32_t mics_cursor_get_u32(const struct mics_cursor *cursor, const char *key, uint32_t min,
                             uint32_t max);
double mics_cursor_get_double(const struct mics_cursor *cursor, const char *key, double min,
                              double max);
bool mics_cursor_get_bool(const struct mics_cursor *cursor, const char *key);
const char *mics_cursor_get_string(const struct mics_cursor *cursor, const char *key);

/* The same for a member that may be absent or null: `absent` is then returned. */
uint64_t mics_cursor_opt_u64(const struct mics_cursor *cursor, const char *key, uint64_t min,
                             uint64_t max, uint64_t absent);
uint32_t mics_cursor_opt_u32(const struct mics_cursor *cursor, const char *key, uint32_t min,
                             uint32_t max, uint32_t absent);
double mics_cursor_opt_double(const struct mics_cursor *cursor, const char *key, double min,
                              double max, double absent);
bool mics_cursor_opt_bool(const struct mics_cursor *cursor, const char *key, bool absent);
const char *mics_cursor_opt_string(const struct mics_cursor *cursor, const char *key,
                                   const char *absent);

/* Copy a string into out[size]. An error if it does not fit with its NUL or has control characters;
 * `out` is then unchanged. */
void mics_cursor_get_text(const struct mics_cursor *cursor, const char *key, char *out,
                          size_t size);

/* Write the path of the cursor, such as "links[4]" (empty at the root), truncated if it does not
 * fit. Returns its length. */
size_t mics_cursor_path(const struct mics_cursor *cursor, char *buf, size_t size);

/* Report `text` at member `key` (NULL: at the cursor itself), unless there was an error before. */
void mics_cursor_reject(const struct mics_cursor *cursor, const char *key, const char *fmt, ...)
    MICS_PRINTF(3, 4);
/* Report MICS_ERR_NOMEM, unless there was an error before. */
void mics_cursor_nomem(const struct mics_cursor *cursor);

#endif
