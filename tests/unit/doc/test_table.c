/* SPDX-License-Identifier: Apache-2.0 */
/* test_table.c - aligned text, tab-separated text, and characters that must not reach a
 * terminal. */
#include "doc/table.h"
#include "tap.h"

#include <stdlib.h>

static struct mics_err err;

/* The printed table, in a buffer that the next call overwrites. */
static const char *printed(const struct mics_table *table, int tsv)
{
    static char text[4096];
    FILE *out = fmemopen(text, sizeof text, "w");

    memset(text, 0, sizeof text);
    CHECK(out != NULL);
    if (out) {
        CHECK_INT(mics_table_print(table, out, tsv, &err), MICS_OK);
        fclose(out);
    }
    return text;
}

static void numbers_are_aligned_right_and_text_left(void)
{
    struct mics_table *table = mics_table_new("<name|>bytes|what");

    mics_table_cell(table, "a");
    mics_table_cell(table, "%d", 12345678);
    mics_table_cell(table, "one");
    mics_table_cell(table, "longer");
    mics_table_cell(table, "%d", 9);
    mics_table_cell(table, "two");
    CHECK_STR(printed(table, 0), "name       bytes  what\n"
                                 "a       12345678  one\n"
                                 "longer         9  two\n");
    CHECK_INT(mics_table_width(table), strlen("longer         9  what"));
    CHECK_STR(printed(table, 1), "name\tbytes\twhat\na\t12345678\tone\nlonger\t9\ttwo\n");
    mics_table_free(table);
}

static void width_counts_characters_not_bytes(void)
{
    struct mics_table *table = mics_table_new("<a|<b");

    mics_table_cell(table, "\xc2\xb5s");
    mics_table_cell(table, "x");
    mics_table_cell(table, "abcd");
    mics_table_cell(table, "y");
    CHECK_STR(printed(table, 0), "a     b\n\xc2\xb5s    x\nabcd  y\n");
    mics_table_free(table);
}

static void tabs_and_newlines_are_escaped_for_scripts(void)
{
    struct mics_table *table = mics_table_new("<a|<b");

    mics_table_cell(table, "t\tn\nb\\");
    mics_table_cell(table, "\033[2J");
    CHECK_STR(printed(table, 1), "a\tb\nt\\tn\\nb\\\\\t?[2J\n");
    CHECK_STR(printed(table, 0), "a       b\nt?n?b\\  ?[2J\n");
    mics_table_free(table);
}

static void columns_without_names_print_no_header(void)
{
    struct mics_table *table = mics_table_new("<|<");

    mics_table_cell(table, "a");
    mics_table_cell(table, "x");
    mics_table_cell(table, "bcd");
    mics_table_cell(table, "y");
    CHECK_STR(printed(table, 0), "a    x\nbcd  y\n");
    CHECK_STR(printed(table, 1), "a\tx\nbcd\ty\n");
    mics_table_free(table);
}

static void quantities_have_units_for_people_and_none_for_scripts(void)
{
    for (int tsv = 0; tsv < 2; tsv++) {
        struct mics_table *table = mics_table_new("|||||");

        mics_table_bytes(table, tsv, 3u << 20);
        mics_table_rate(table, tsv, 25e9);
        mics_table_time(table, tsv, 75e-6);
        mics_table_count(table, tsv, 1.21e6);
        mics_table_share(table, tsv, 0.0421);
        mics_table_cell(table, "end");
        CHECK_STR(printed(table, tsv), tsv ? "3145728\t25000000000\t7.5e-05\t1210000\t0.0421\tend\n"
                                           : "3 MiB  25 GB/s  75 us  1.21 M  4.2 %  end\n");
        mics_table_free(table);
    }
}

static void a_table_without_rows_is_its_header(void)
{
    struct mics_table *table = mics_table_new("<only");

    CHECK_STR(printed(table, 0), "only\n");
    mics_table_free(table);
    mics_table_free(NULL);
}

static void a_long_table_keeps_every_cell(void)
{
    struct mics_table *table = mics_table_new(">i|>square");
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    for (int i = 0; i < 5000; i++) {
        mics_table_cell(table, "%d", i);
        mics_table_cell(table, "%d", i * i);
    }
    CHECK_INT(mics_table_print(table, out, 1, &err), MICS_OK);
    fclose(out);
    CHECK(strstr(text, "\n4999\t24990001\n") != NULL);
    free(text);
    mics_table_free(table);
}

static void a_full_disk_is_an_error(void)
{
    struct mics_table *table = mics_table_new("<name");
    FILE *full = fopen("/dev/full", "w");

    if (!full)
        TAP_SKIP("no /dev/full");
    setvbuf(full, NULL, _IONBF, 0);
    CHECK_INT(mics_table_print(table, full, 0, &err), MICS_ERR_IO);
    fclose(full);
    mics_table_free(table);
}

static void a_null_table_is_out_of_memory(void)
{
    CHECK_INT(mics_table_print(NULL, stdout, 0, &err), MICS_ERR_NOMEM);
}

int main(void)
{
    TAP_RUN(numbers_are_aligned_right_and_text_left);
    TAP_RUN(width_counts_characters_not_bytes);
    TAP_RUN(tabs_and_newlines_are_escaped_for_scripts);
    TAP_RUN(columns_without_names_print_no_header);
    TAP_RUN(quantities_have_units_for_people_and_none_for_scripts);
    TAP_RUN(a_table_without_rows_is_its_header);
    TAP_RUN(a_long_table_keeps_every_cell);
    TAP_RUN(a_full_disk_is_an_error);
    TAP_RUN(a_null_table_is_out_of_memory);
    return tap_done();
}
