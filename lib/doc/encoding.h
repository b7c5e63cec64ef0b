/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.h - the two encodings under doc.h. For lib/doc only.
 *
 * A decoder first scans the bytes, allocating nothing, for everything that could be wrong with them:
 * depth, counts that the remaining bytes cannot hold, types that JSON has no word for, text that is
 * not UTF-8. Only then a library builds the value. Both scans count weight the same way, so that the
 * memory of a document is bounded whatever its encoding.
 */
#ifndef MICS_DOC_ENCODING_H
#define MICS_DOC_ENCODING_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* An array or a map costs as much memory as this many numbers. */
#define MICS_DOC_CONTAINER_WEIGHT 8

/* Is it UTF-8 of RFC 3629 (no overlong form, no surrogate, nothing above U+10FFFF)? On false *bad, if
 * not NULL, is the offset of the first byte of the bad sequence. */
bool mics_utf8_check(const char *text, size_t size, size_t *bad);

/* The root is an object, or it is MICS_ERR_FORMAT. *out belongs to the caller. */
enum mics_status mics_msgpack_read(const void *data, size_t size, json_t **out,
                                   struct mics_err *err);
/* *data is the caller's, to free(). Integers take the shortest form, reals are doubles. */
enum mics_status mics_msgpack_write(const json_t *value, char **data, size_t *size,
                                    struct mics_err *err);

/* Where a text begins in its file, for messages: lines from 1, bytes from 0. */
struct mics_place {
    size_t line, offset;
};

/* The root is an object, or it is MICS_ERR_FORMAT. *out belongs to the caller. */
enum mics_status mics_json_read(const char *text, size_t size, struct mics_place from, json_t **out,
                                struct mics_err *err);
enum mics_status mics_json_write(const json_t *value, char **data, size_t *size,
                                 struct mics_err *err);

#endif
