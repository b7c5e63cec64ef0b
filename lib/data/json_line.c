/* SPDX-License-Identifier: Apache-2.0 */
#include "data/json_line.h"

#include "base/units.h"
#include "doc/foreign.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum mics_status mics_json_line_parse(const char *line, size_t length, json_t **out,
                                      struct mics_err *err)
{
    size_t used = length;

    *out = NULL;
    while (used > 0 && (line[used - 1] == ' ' || line[used - 1] == '\t' || line[used - 1] == '\r'))
        used--;
    return used == 0 ? MICS_OK : mics_foreign_read_line(line, length, out, err);
}

enum mics_status mics_bad_lines_add(struct mics_bad_lines *bad, const char *path, uint64_t line,
                                    const char *why, struct mics_err *err)
{
    if (bad->count == bad->allowed && bad->allowed == 0)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "'%s': line %" PRIu64 ": %s (--bad-lines=skip:N skips N such lines)",
                            path, line, why);
    if (bad->count == bad->allowed)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "'%s': line %" PRIu64 ": %s, after %" PRIu64
                            " damaged line%s that --bad-lines skips",
                            path, line, why, bad->allowed, bad->allowed == 1 ? "" : "s");
    if (bad->count < MICS_BAD_LINES_SHOWN)
        snprintf(bad->shown[bad->count], sizeof bad->shown[0], "'%s': line %" PRIu64 ": %s", path,
                 line, why);
    bad->count++;
    return MICS_OK;
}

enum mics_status mics_bad_lines_parse(const char *text, uint64_t *allowed, struct mics_err *err)
{
    if (strncmp(text, "skip:", 5) == 0 &&
        mics_parse_positive_count(text + 5, allowed, NULL) == MICS_OK)
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_ARG, "'%s': expected skip:N with N from 1", text);
}
