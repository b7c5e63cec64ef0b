/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lines.h - JSON lines: a text in which each line is a JSON object, such as metrics.
 *
 * Empty lines are skipped. A last line without its newline that is no whole object is what a writer had
 * not finished: it ends the text and is remembered as `cut`.
 */
#ifndef MICS_DOC_LINES_H
#define MICS_DOC_LINES_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct mics_lines {
    const char *data; /* the caller's, as long as lines are read */
    size_t size, at;
    size_t number; /* of the line that was read last, from 1 */
    bool cut;
};

struct mics_lines mics_lines_begin(const char *data, size_t size);

/* The next line's object, the caller's; NULL after the last. MICS_ERR_FORMAT with line and column; the limits
 * of doc.h hold for each line. */
enum mics_status mics_lines_next(struct mics_lines *lines, json_t **out, struct mics_err *err);

#endif
