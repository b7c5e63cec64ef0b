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

/* The script of a plan with these tables. */
static enum mics_status script(const char *tables, const char *terminal, const char *only,
                               char **out, struct mics_err *err)
{
    char *copy = strdup(tables);
    size_t size = 0;
    FILE *stream = open_memstream(out, &size);
    const enum mics_status status = mics_gnuplot_write(stream, "plan", copy, terminal, only, err);

    fclose(stream);
    free(copy);
    return status;
}

#define ALTERNATIVES "strategy\tp_param\tbytes\nmics\t8\t100\n"

/* The script begins with `expected` for the tables `tables`. */
static void check_begin(const char *tables, const char *expected)
{
    struct mics_err err;
    char *text = NULL, *all = NULL;

    if (asprintf(&all, "%s\n%s", tables, ALTERNATIVES) < 0)
        return;
    CHECK_INT(script(all, NULL, NULL, &text, &err), MICS_OK);
    text[strlen(expected)] = '\0';
    CHECK_STR(text, expected);
    free(text);
    free(all);
}

static void a_variable_is_a_single_quoted_string(void)
{
    check_begin("name\tplain\n", "name = 'plain'\n");
    check_begin("run.name\tit's\n", "run_name = 'it'.\"'\".'s'\n");
    check_begin("a\t''\n", "a = ''.\"'\".''.\"'\".''\n");
    check_begin("a\t`rm`\\\\ \"%d\" @x\n", "a = '`rm`\\ \"%d\" @x'\n");
    check_begin("a\tb\\nc\\td\x1b_\xff\n", "a = 'b?c?d?_?'\n");
    check_begin("a;!ls\t1\nb\t2\n", "b = '2'\n"); /* not a name */
}

static void a_table_is_a_block_that_its_rows_cannot_end(void)
{
    check_begin("x\ty\tz\nENDING\t1\t\x1b\n", "$x << END\nx\ty\tz\n ENDING\t1\t?\nEND\n");
    check_begin("x y\tz\tz\n!ls\t1\t2\n", "$strategy << END\n"); /* not a name */
}

static void a_string_of_dot_has_no_escapes_of_its_own(void)
{
    check_written(mics_dot_text, "plain", "\"plain\"");
    check_written(mics_dot_text, "\"];}\\N&amp;", "\"\\\"];}\\\\N&amp;amp;\"");
    check_written(mics_dot_text, "two\nlines\x07", "\"two\\nlines?\"");
    check_written(mics_dot_html, "<B>&\"", "&#60;B&#62;&#38;&#34;");
}

static void all_pictures_are_drawn_or_one(void)
{
    struct mics_err err;
    char *text = NULL;

    CHECK_INT(script(ALTERNATIVES, "dumb", NULL, &text, &err), MICS_OK);
    CHECK(strstr(text, "\nterminal = 'dumb'\npictures = ' memory throughput '\n") != NULL);
    free(text);
    CHECK_INT(script(ALTERNATIVES, NULL, "throughput", &text, &err), MICS_OK);
    CHECK(strstr(text, "\nterminal = ''\npictures = 'throughput'\n") != NULL);
    free(text);
    CHECK_INT(script(ALTERNATIVES, NULL, "memory throughput", &text, &err), MICS_ERR_ARG);
    CHECK_STR(err.text, "'memory throughput': no such picture; there is memory, throughput");
    CHECK_STR(text, "");
    free(text);
    CHECK_INT(script("name\tx\n", NULL, NULL, &text, &err), MICS_ERR_INFEASIBLE);
    free(text);
    CHECK(mics_gnuplot_has_terminal("svg") && !mics_gnuplot_has_terminal("x11; !ls"));
}

int main(void)
{
    TAP_RUN(a_variable_is_a_single_quoted_string);
    TAP_RUN(a_table_is_a_block_that_its_rows_cannot_end);
    TAP_RUN(a_string_of_dot_has_no_escapes_of_its_own);
    TAP_RUN(all_pictures_are_drawn_or_one);
    return tap_done();
}
