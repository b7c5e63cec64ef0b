/* SPDX-License-Identifier: Apache-2.0 */
/* json_line.h - one line of a file of JSON lines, and the lines that are damaged. */
#ifndef MICS_DATA_JSON_LINE_H
#define MICS_DATA_JSON_LINE_H

#include "base/err.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* The object in a line without its newline, for the caller, by mics_foreign_read_line(); NULL for a
 * blank line. MICS_ERR_FORMAT: the line is damaged; the text tells the column. */
enum mics_status mics_json_line_parse(const char *line, size_t length, json_t **out,
                                      struct mics_err *err);

#define MICS_BAD_LINES_SHOWN 5

/* Damaged lines that were skipped. */
struct mics_bad_lines {
    uint64_t allowed, count;
    char shown[MICS_BAD_LINES_SHOWN][256]; /* of the first ones: file, line and what is wrong */
};

/* Skip one more, `line` counted from 1. MICS_ERR_FORMAT, with file and line: no more may be
 * skipped. */
enum mics_status mics_bad_lines_add(struct mics_bad_lines *bad, const char *path, uint64_t line,
                                    const char *why, struct mics_err *err);

/* "skip:N" as the value of an option. MICS_ERR_ARG: it is not. */
enum mics_status mics_bad_lines_parse(const char *text, uint64_t *allowed, struct mics_err *err);

#endif
