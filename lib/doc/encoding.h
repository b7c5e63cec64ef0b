/* SPDX-License-Identifier: Apache-2.0 */
/*
 * encoding.h - the two encodings of documents. For lib/doc only.
 *
 * A decoder first scans the bytes without allocating anything: for depth, counts that exceed the
 * remaining bytes, types that JSON does not have, and text that is not UTF-8. Only then does a
 * library build the value. Both scans weigh values alike, so the memory of a document is bounded
 * whatever its encoding.
 */
#ifndef MICS_DOC_ENCODING_H
#define MICS_DOC_ENCODING_H

#include "base/err.h"

#include <jansson.h>
#include <stddef.h>

/* An array or a map takes as much memory as this many numbers. */
#define MICS_DOC_CONTAINER_WEIGHT 8

/* Decode one value. MICS_ERR_FORMAT with the offset, also if it is not a map. *out belongs to the
 * caller. */
enum mics_status mics_msgpack_read(const void *data, size_t size, json_t **out,
                                   struct mics_err *err);
/* *data belongs to the caller, who calls free(). Integers take the shortest form, reals are
 * doubles. */
enum mics_status mics_msgpack_write(const json_t *value, char **data, size_t *size,
                                    struct mics_err *err);

/* Where a text begins in its file, for messages: lines from 1, bytes from 0. */
struct mics_json_origin {
    size_t line, offset;
};

/* The same for JSON text. MICS_ERR_FORMAT with line, column and offset. */
enum mics_status mics_json_read(const char *text, size_t size, struct mics_json_origin origin,
                                json_t **out, struct mics_err *err);
enum mics_status mics_json_write(const json_t *value, char **data, size_t *size,
                                 struct mics_err *err);

#endif
