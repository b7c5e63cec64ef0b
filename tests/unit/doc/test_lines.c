/* SPDX-License-Identifier: Apache-2.0 */
/* test_lines.c - JSON lines, complete and truncated. */
#include "doc/doc.h"
#include "tap.h"

static struct mics_err err;

/* How many lines are read before the end or an error; *status: which of them. */
static int count_lines(const char *text, struct mics_lines *lines, enum mics_status *status)
{
    json_t *line = NULL;
    int count = 0;

    *lines = mics_lines_begin(text, strlen(text));
    while ((*status = mics_lines_next(lines, &line, &err)) == MICS_OK && line) {
        count++;
        json_decref(line);
        line = NULL;
    }
    return count;
}

static void every_line_is_an_object_and_empty_ones_are_skipped(void)
{
    struct mics_lines lines;
    enum mics_status status;

    CHECK_INT(count_lines("{\"a\":1}\n\n  \r\n{\"b\":2}\r\n{}", &lines, &status), 3);
    CHECK_INT(status, MICS_OK);
    CHECK(!lines.truncated);
    CHECK_INT(lines.number, 5);
    CHECK_INT(count_lines("", &lines, &status), 0);
    CHECK_INT(status, MICS_OK);
}

static void a_last_line_that_is_not_finished_is_reported_as_truncated(void)
{
    struct mics_lines lines;
    enum mics_status status;

    CHECK_INT(count_lines("{\"a\":1}\n{\"b\":", &lines, &status), 1);
    CHECK_INT(status, MICS_OK);
    CHECK(lines.truncated);
}

static void an_error_names_line_and_offset_in_the_file(void)
{
    struct mics_lines lines;
    enum mics_status status;

    CHECK_INT(count_lines("{\"a\":1}\n\n{\"b\":}\n{}\n", &lines, &status), 1);
    CHECK_INT(status, MICS_ERR_FORMAT);
    CHECK(strncmp(err.text, "line 3, column 6, offset 15: ", 29) == 0);
    CHECK_INT(count_lines("[1]\n", &lines, &status), 0);
    CHECK_INT(status, MICS_ERR_FORMAT);
    CHECK_STR(err.text, "line 1, offset 0: expected a map");
}

int main(void)
{
    TAP_RUN(every_line_is_an_object_and_empty_ones_are_skipped);
    TAP_RUN(a_last_line_that_is_not_finished_is_reported_as_truncated);
    TAP_RUN(an_error_names_line_and_offset_in_the_file);
    return tap_done();
}
