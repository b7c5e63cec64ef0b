/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cursor.h - checked reading of a document, with errors that name the path.
 *
 * A cursor lives on the caller's stack and points to its parent cursor. The path
 * "links[4].bandwidth" is composed only for an error:
 *
 *     struct mics_cursor root = mics_cursor_root(doc), links, link;
 *     mics_cursor_array(&root, "links", 0, 64, &links, err);
 *     mics_cursor_item(&links, 4, &link, err);
 *     mics_cursor_double(&link, "bandwidth", 0, 1e15, &bandwidth, err);
 *       -> "links[4].bandwidth: expected a number, found a string"
 *
 * Every failure is MICS_ERR_FORMAT and leaves the output unchanged.
 */
#ifndef MICS_DOC_CURSOR_H
#define MICS_DOC_CURSOR_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mics_cursor {
    const json_t *value;
    const struct mics_cursor *parent; /* must outlive this one; NULL at the root */
    const char *key;                  /* the member's name; NULL for an array item */
    size_t index;                     /* of an array item */
};

struct mics_cursor mics_cursor_root(const json_t *doc);

/* Is there a member `key` that is not null? */
bool mics_cursor_has(const struct mics_cursor *cursor, const char *key);

enum mics_status mics_cursor_object(const struct mics_cursor *cursor, const char *key,
                                    struct mics_cursor *out, struct mics_err *err);
/* An array of min to max items. */
enum mics_status mics_cursor_array(const struct mics_cursor *cursor, const char *key, size_t min,
                                   size_t max, struct mics_cursor *out, struct mics_err *err);
size_t mics_cursor_count(const struct mics_cursor *array);
/* Item `index`, which must be an object; mics_cursor_item_any() accepts any value. */
enum mics_status mics_cursor_item(const struct mics_cursor *array, size_t index,
                                  struct mics_cursor *out, struct mics_err *err);
struct mics_cursor mics_cursor_item_any(const struct mics_cursor *array, size_t index);

/* Read the member `key`. A number outside [min, max] is an error that names the range. A real is
 * accepted as an integer only if it is whole. Strings belong to the document. */
enum mics_status mics_cursor_u64(const struct mics_cursor *cursor, const char *key, uint64_t min,
                                 uint64_t max, uint64_t *out, struct mics_err *err);
enum mics_status mics_cursor_u32(const struct mics_cursor *cursor, const char *key, uint32_t min,
                                 uint32_t max, uint32_t *out, struct mics_err *err);
enum mics_status mics_cursor_double(const struct mics_cursor *cursor, const char *key, double min,
                                    double max, double *out, struct mics_err *err);
enum mics_status mics_cursor_bool(const struct mics_cursor *cursor, const char *key, bool *out,
                                  struct mics_err *err);
enum mics_status mics_cursor_string(const struct mics_cursor *cursor, const char *key,
                                    const char **out, struct mics_err *err);

/* Copy a string into out[size]. MICS_ERR_FORMAT if it does not fit with its NUL. */
enum mics_status mics_cursor_text(const struct mics_cursor *cursor, const char *key, char *out,
                                  size_t size, struct mics_err *err);

/* Write the path of the cursor, such as "links[4]" (empty at the root), truncated if it does not
 * fit. Returns its length. */
size_t mics_cursor_path(const struct mics_cursor *cursor, char *buf, size_t size);

/* Report `text` at member `key` (NULL: at the cursor itself); always MICS_ERR_FORMAT. */
enum mics_status mics_cursor_fail(const struct mics_cursor *cursor, const char *key,
                                  struct mics_err *err, const char *fmt, ...) MICS_PRINTF(4, 5);

#endif
