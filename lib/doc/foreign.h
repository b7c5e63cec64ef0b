/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign.h - JSON that other programs wrote: configurations, tokenizers, indexes, corpora.
 *
 * What Python's json module accepts is accepted, because those programs are written in Python: a
 * byte-order mark, NaN and Infinity, numbers beyond 64 bits, a key that occurs twice (the last
 * counts), U+0000 in a text, half of a surrogate pair (which becomes U+FFFD). What it rejects is
 * rejected. Nothing is checked but the structure; a member is checked when it is read:
 *
 * - NaN, Infinity and -Infinity, also from 1e999, are values of no type of jansson's, so that every
 *   check of a type refuses them: "rope_theta: expected a number, found NaN".
 * - An integer that 64 bits cannot hold is a real.
 * - A text, or a key, may have a NUL: mics_cursor_get_string() refuses it; where it is data, take
 *   json_string_length() or json_object_iter_key_len().
 *
 * Limits protect against hostile input: depth 1024, and a number of values (an array or a map
 * counts as 8). Documents of mics have a reader of their own, doc.h, and headers of safetensors.
 */
#ifndef MICS_DOC_FOREIGN_H
#define MICS_DOC_FOREIGN_H

#include "base/err.h"

#include <jansson.h>
#include <stddef.h>

#define MICS_FOREIGN_MAX_DEPTH 1024

/* Read one object from memory. *out belongs to the caller. MICS_ERR_FORMAT with line, column and
 * offset. */
enum mics_status mics_foreign_read(const char *text, size_t size, size_t max_values, json_t **out,
                                   struct mics_err *err);

/* The same from a regular file of at most `max_bytes`. Errors begin with the path. */
enum mics_status mics_foreign_read_file(const char *path, size_t max_bytes, size_t max_values,
                                        json_t **out, struct mics_err *err);

/* Read one line of JSON lines, which must be an object, with or without its newline. Errors begin
 * with "column N"; the caller prefixes file and line. */
enum mics_status mics_foreign_read_line(const char *line, size_t size, json_t **out,
                                        struct mics_err *err);

/* Read the value of any type that begins at *offset, after white space, and set *offset to the byte
 * after it: to walk through an array that is too large to be read as a whole. */
enum mics_status mics_foreign_read_next(const char *text, size_t size, size_t *offset, json_t **out,
                                        struct mics_err *err);

/* The text that Python's json.dumps(value, ensure_ascii=False) makes, for the caller, without a NUL
 * at its end: in one line, or with `indent` blanks for each level, if that is not 0.
 * MICS_ERR_FORMAT: there is a number that is not finite, or that Python may have as an integer of
 * more than 64 bits. */
enum mics_status mics_foreign_write(const json_t *value, int indent, char **text, size_t *size,
                                    struct mics_err *err);

/* "NaN", "Infinity" or "-Infinity" if the value is that; NULL if it is another. */
const char *mics_foreign_nonfinite(const json_t *value);

/* A copy that a document of mics, or another JSON file, can hold. NaN becomes {"__float__": "NaN"},
 * as transformers writes it since version 5. Members that have a NUL or are nested deeper than half
 * of what a document may be are left out. NULL: out of memory. */
json_t *mics_foreign_to_document(const json_t *value);

#endif
