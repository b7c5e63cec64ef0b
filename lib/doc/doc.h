/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doc.h - the documents that the programs pass to each other, and JSON lines.
 *
 * In memory a document is a JSON value of jansson: string keys in order, UTF-8, 64-bit integers,
 * finite doubles, booleans, null, arrays, objects. On disk and in pipes it is msgpack (the default)
 * or JSON (recognised by a first byte '{' or white space). Its first key is "kind", its second "v",
 * the integer version of that kind. Unknown keys stay in the value and are written back.
 *
 * Limits protect against hostile input: 64 MiB, depth 32, 4 M values (an array or a map counts as
 * 8); a count that exceeds the remaining bytes is refused before anything is allocated. Duplicate
 * keys are refused. A document beyond the limits is not written either (MICS_ERR_ARG).
 */
#ifndef MICS_DOC_DOC_H
#define MICS_DOC_DOC_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define MICS_DOC_MAX_BYTES  (64u << 20)
#define MICS_DOC_MAX_DEPTH  32
#define MICS_DOC_MAX_VALUES (4u << 20)

enum mics_doc_format { MICS_DOC_MSGPACK, MICS_DOC_JSON };

/* A new document {kind, v}, which belongs to the caller. NULL: out of memory. */
json_t *mics_doc_new(const char *kind, int version);

/* Read exactly one document of at most MICS_DOC_MAX_BYTES from memory, in either format.
 * Missing or extra bytes are MICS_ERR_FORMAT with their offset. Besides that it is only checked
 * that the value is an object whose "kind" is a string and whose "v" is an integer >= 1. */
enum mics_status mics_doc_decode(const void *data, size_t size, json_t **out, struct mics_err *err);

/* Read one JSON object without "kind" and "v", such as settings, of at most MICS_DOC_MAX_BYTES.
 * MICS_ERR_FORMAT with line, column and offset. */
enum mics_status mics_doc_read_object(const char *text, size_t size, json_t **out,
                                      struct mics_err *err);

/* Read from a path ("-" is standard input); errors begin with the path ("standard input"). */
enum mics_status mics_doc_read_file(const char *path, json_t **out, struct mics_err *err);

/* The same for a document in a folder of others: only a regular file, as anything else could
 * block. */
enum mics_status mics_doc_read_regular(const char *path, json_t **out, struct mics_err *err);

/* MICS_ERR_FORMAT, with what was found, unless the document is of this kind and version. */
enum mics_status mics_doc_expect(const json_t *doc, const char *kind, int version,
                                 struct mics_err *err);

/* Encode. *data belongs to the caller, who calls free(). JSON is indented by 2 and ends with a
 * newline. */
enum mics_status mics_doc_encode(const json_t *doc, enum mics_doc_format format, char **data,
                                 size_t *size, struct mics_err *err);
enum mics_status mics_doc_write(FILE *out, const json_t *doc, enum mics_doc_format format,
                                struct mics_err *err);

/* Append {program, version, argv} to the document's "history", which is created if absent. */
enum mics_status mics_doc_add_history(json_t *doc, const char *program, int argc, char *const *argv,
                                      struct mics_err *err);

/* JSON lines: a text in which each line is a JSON object, such as metrics. Empty lines are skipped.
 * A last line without a newline that is not a complete object is one that its writer did not
 * finish: reading ends before it, and `truncated` is set. */
struct mics_lines {
    const char *data; /* the caller's; must not go away while lines are read */
    size_t size, offset;
    size_t number; /* of the line that was read last, from 1 */
    bool truncated;
};

struct mics_lines mics_lines_begin(const char *data, size_t size);

/* *out: the object on the next line, which belongs to the caller; NULL after the last line.
 * MICS_ERR_FORMAT with line and column; each line has the limits of a document. */
enum mics_status mics_lines_next(struct mics_lines *lines, json_t **out, struct mics_err *err);

#endif
