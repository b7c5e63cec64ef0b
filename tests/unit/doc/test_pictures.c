/* SPDX-License-Identifier: Apache-2.0 */
/* test_pictures.c - scripts of gnuplot and graphs of Graphviz: what text becomes in them. */
#include "doc/dot.h"
#include "doc/gnuplot.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

/* What `put` writes of a text; the caller's. */
static char *written(void (*put)(FILE *, const char *), const char *text)
{
    char *out = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&out, &size);

    put(stream, text);
    fclose(stream);
    return out;
}

static void check_written(void (*put)(FILE *, const char *), const char *text, const char *expected)
{
    char *found = written(put, text);

    CHECK_STR(found, expected);
    free(found);
}

static void a_string_of_gnuplot_is_single_quoted(void)
{
    check_written(mics_gnuplot_text, "plain", "'plain'");
    check_written(mics_gnuplot_text, "it's", "'it''s'");
    check_written(mics_gnuplot_text, "`rm`\\ \"%d\" @x", "'`rm`\\ \"%d\" @x'");
    check_written(mics_gnuplot_text, "a\nb\x1b", "'a?b?'");
    check_written(mics_gnuplot_tic, "50 %s", "'50 %%s'");
}

static void a_long_string_is_cut_between_characters(void)
{
    char text[400] = "x", *found;

    for (int i = 0; i < 100; i++)
        strcat(text, "\xC3\xA4");
    found = written(mics_gnuplot_text, text);
    CHECK_INT(strlen(found), MICS_GNUPLOT_TEXT - 1 + 2);
    CHECK_STR(found + strlen(found) - 3, "\xC3\xA4'");
    free(found);
}

static void a_string_of_dot_has_no_escapes_of_its_own(void)
{
    check_written(mics_dot_text, "plain", "\"plain\"");
    check_written(mics_dot_text, "\"];}\\N&amp;", "\"\\\"];}\\\\N&amp;amp;\"");
    check_written(mics_dot_text, "two\nlines\x07", "\"two\\nlines?\"");
    check_written(mics_dot_html, "<B>&\"", "&#60;B&#62;&#38;&#34;");
}

/* The script of two pictures. */
static enum mics_status script(const char *terminal, const char *only, char **out,
                               struct mics_err *err)
{
    struct mics_gnuplot *gnuplot = mics_gnuplot_new();
    size_t size = 0;
    FILE *stream = open_memstream(out, &size);

    fputs("plot 1\n", mics_gnuplot_begin(gnuplot, "one", 0));
    fputs("plot 2\n", mics_gnuplot_begin(gnuplot, "two", 100));
    const enum mics_status status = mics_gnuplot_write(gnuplot, stream, terminal, only, err);
    fclose(stream);
    mics_gnuplot_free(gnuplot);
    return status;
}

static void pictures_share_a_page_or_one_is_alone(void)
{
    struct mics_err err;
    char *text = NULL;

    CHECK_INT(script("dumb", NULL, &text, &err), MICS_OK);
    CHECK(strstr(text, "set terminal dumb noenhanced size 100, 48\n") == text);
    CHECK(strstr(text, "set multiplot layout 2, 1\n") != NULL);
    CHECK(strstr(text, "plot 1\n") != NULL && strstr(text, "plot 2\n") != NULL);
    free(text);
    CHECK_INT(script("png", NULL, &text, &err), MICS_OK);
    CHECK(strstr(text, "set multiplot layout 1, 2\n") != NULL);
    free(text);
    CHECK_INT(script(NULL, "two", &text, &err), MICS_OK);
    CHECK(strstr(text, "terminal") == NULL && strstr(text, "multiplot") == NULL);
    CHECK(strstr(text, "plot 1\n") == NULL && strstr(text, "plot 2\n") != NULL);
    free(text);
    CHECK_INT(script(NULL, "three", &text, &err), MICS_ERR_ARG);
    CHECK_STR(err.text, "'three': no such picture; there is one, two");
    free(text);
    CHECK(mics_gnuplot_has_terminal("svg") && !mics_gnuplot_has_terminal("x11; !ls"));
}

static void numbers_are_scaled_to_be_short(void)
{
    const char *prefix;

    CHECK_NEAR(mics_gnuplot_scale(42000, &prefix), 1e3, 0);
    CHECK_STR(prefix, "thousand ");
    CHECK_NEAR(mics_gnuplot_scale(999, &prefix), 1, 0);
    CHECK_STR(prefix, "");
    CHECK_NEAR(mics_gnuplot_scale(3.5e6, &prefix), 1e6, 0);
}

int main(void)
{
    TAP_RUN(a_string_of_gnuplot_is_single_quoted);
    TAP_RUN(a_long_string_is_cut_between_characters);
    TAP_RUN(a_string_of_dot_has_no_escapes_of_its_own);
    TAP_RUN(pictures_share_a_page_or_one_is_alone);
    TAP_RUN(numbers_are_scaled_to_be_short);
    return tap_done();
}
