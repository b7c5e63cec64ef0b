/* SPDX-License-Identifier: Apache-2.0 */
/* test_utf8.c - what may reach a terminal. */
#include "base/err.h"
#include "base/utf8.h"
#include "tap.h"

#include <string.h>

/* A text, what is left of it in one line, and whether a name may be like it. */
static const struct {
    const char *text, *line;
    bool control;
} cases[] = {
    {"plain", "plain", false},
    {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
     false},
    {"\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d", "\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d", false}, /* Hebrew */
    {"a\xc2\xa0z", "a\xc2\xa0z", false},                                             /* U+00A0 */
    {"a\x1b[31mz", "a?[31mz", true},
    {"a\x7fz", "a?z", true},
    {"a\nb\tc\rd", "a?b?c?d", true},
    {"a\xc2\x80z", "a??z", true}, /* U+0080 */
    {"a\xc2\x9b"
     "31mz",
     "a??31mz", true}, /* U+009B: a control sequence in one character */
    {"a\xc2\x9fz", "a??z", true},
    {"a\xd8\x9cz", "a??z", true},                /* U+061C */
    {"a\xe2\x80\x8dz", "a\xe2\x80\x8dz", false}, /* U+200D joins emoji */
    {"a\xe2\x80\x8ez", "a???z", true},           /* U+200E */
    {"a\xe2\x80\x8fz", "a???z", true},
    {"a\xe2\x80\xa8z", "a???z", true}, /* U+2028 */
    {"a\xe2\x80\xa9z", "a???z", true},
    {"a\xe2\x80\xaaz", "a???z", true},
    {"a\xe2\x80\xaez", "a???z", true}, /* U+202E */
    {"a\xe2\x80\xafz", "a\xe2\x80\xafz", false},
    {"a\xe2\x81\xa6z", "a???z", true}, /* U+2066 */
    {"a\xe2\x81\xa9z", "a???z", true},
    {"a\xe2\x81\xaaz", "a\xe2\x81\xaaz", false},
    {"a\x9b"
     "31mz",
     "a?31mz", false}, /* a byte that is not UTF-8: not a character */
    {"a\xc0\x9bz", "a??z", false},
    {"a\xe2\x80", "a??", false},
    {"\xff\xfe", "??", false},
};

static void a_line_has_nothing_that_a_terminal_obeys(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64], put[64] = "";
        FILE *out = fmemopen(put, sizeof put, "w");

        snprintf(text, sizeof text, "%s", cases[i].text);
        CHECK_INT(mics_utf8_has_control(text), cases[i].control);
        mics_utf8_make_line(text);
        CHECK_STR(text, cases[i].line);
        mics_utf8_put(out, cases[i].text, strlen(cases[i].text));
        fclose(out);
        CHECK_STR(put, cases[i].line);
    }
}

static void texts_keep_newlines_and_tabs(void)
{
    char text[] = "a\n\tb\r\xc2\x85"
                  "c";

    mics_utf8_make_printable(text, strlen(text));
    CHECK_STR(text, "a\n\tb???c");
}

static void errors_are_printable_lines(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mics_err err;

        mics_err_set(&err, MICS_ERR_FORMAT, "%s", cases[i].text);
        CHECK_STR(err.text, cases[i].line);
        mics_err_prefix(&err, "%s", cases[i].text);
        CHECK(!mics_utf8_has_control(err.text));
    }
}

int main(void)
{
    TAP_RUN(a_line_has_nothing_that_a_terminal_obeys);
    TAP_RUN(texts_keep_newlines_and_tabs);
    TAP_RUN(errors_are_printable_lines);
    return tap_done();
}
