/* SPDX-License-Identifier: Apache-2.0 */
#include "doc/lines.h"

#include "doc/format.h"

#include <string.h>

struct mics_lines mics_lines_begin(const char *data, size_t size)
{
    return (struct mics_lines){.data = data, .size = size};
}

static bool is_blank(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (!memchr(" \t\r", text[i], 3))
            return false;
    return true;
}

enum mics_status mics_lines_next(struct mics_lines *lines, json_t **out, struct mics_err *err)
{
    while (lines->at < lines->size) {
        const char *begin = lines->data + lines->at;
        const char *end = memchr(begin, '\n', lines->size - lines->at);
        const size_t size = end ? (size_t)(end - begin) : lines->size - lines->at;
        const struct mics_place place = {.line = ++lines->number, .offset = lines->at};
        enum mics_status status;

        lines->at += size + (end != NULL);
        if (is_blank(begin, size))
            continue;
        status = mics_json_read(begin, size, place, out, err);
        if (status != MICS_ERR_FORMAT || end)
            return status;
        lines->cut = true;
    }
    *out = NULL;
    return MICS_OK;
}
