/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c - cells are collected in one growing buffer, each with its NUL, and laid out when
 * printed.
 *
 * Cells may come from untrusted files, so nothing that a terminal would obey is printed for people.
 */
#include "doc/table.h"

#include "base/units.h"
#include "base/utf8.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct mics_table {
    char *text; /* cells of the header, then of the rows */
    size_t used, capacity;
    size_t cells; /* including the header's */
    size_t columns;
    bool *right; /* [columns] aligned right */
    bool named;  /* has a header to print */
    bool failed; /* out of memory */
};

/* Make space for `size` more bytes of text. */
static bool reserve(struct mics_table *table, size_t size)
{
    if (!table->failed && size > table->capacity - table->used) {
        const size_t wanted = 2 * table->capacity + size + 256;
        char *grown = realloc(table->text, wanted);

        if (grown) {
            table->text = grown;
            table->capacity = wanted;
        } else {
            table->failed = true;
        }
    }
    return !table->failed;
}

static void add_header(struct mics_table *table, const char *name, size_t length)
{
    table->right[table->cells] = name[0] == '>';
    if (length > 0 && (name[0] == '<' || name[0] == '>')) {
        name++;
        length--;
    }
    table->named |= length > 0;
    mics_table_cell(table, "%.*s", (int)length, name);
}

struct mics_table *mics_table_new(const char *columns)
{
    struct mics_table *table = calloc(1, sizeof *table);

    if (!table)
        return NULL;
    table->columns = 1;
    for (const char *c = columns; *c; c++)
        table->columns += *c == '|';
    table->right = calloc(table->columns, sizeof *table->right);
    if (!table->right) {
        mics_table_free(table);
        return NULL;
    }
    for (size_t i = 0; i < table->columns; i++) {
        const size_t length = strcspn(columns, "|");

        add_header(table, columns, length);
        columns += length + 1;
    }
    return table;
}

void mics_table_free(struct mics_table *table)
{
    if (!table)
        return;
    free(table->text);
    free(table->right);
    free(table);
}

void mics_table_cell(struct mics_table *table, const char *fmt, ...)
{
    va_list args;
    int length;

    if (!table)
        return;
    va_start(args, fmt);
    length = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (length < 0 || !reserve(table, (size_t)length + 1)) {
        table->failed = true;
        return;
    }
    va_start(args, fmt);
    vsnprintf(table->text + table->used, (size_t)length + 1, fmt, args);
    va_end(args);
    table->used += (size_t)length + 1;
    table->cells++;
}

/* UTF-8 characters, each one column wide. */
static size_t width_of(const char *cell)
{
    size_t width = 0;

    for (; *cell; cell++)
        width += ((unsigned char)*cell & 0xc0) != 0x80;
    return width;
}

/* *blanks: pending blanks, written before the next character, so that no line ends with blanks. */
static void put_aligned(FILE *out, const char *cell, size_t width, bool right, size_t *blanks)
{
    const size_t missing = width - width_of(cell);

    if (right)
        *blanks += missing;
    for (; *cell; cell++) {
        for (; *blanks > 0; --*blanks)
            putc(' ', out);
        putc(*cell, out);
    }
    *blanks += (right ? 0 : missing) + 2;
}

/* Programs get the characters as they are, except control characters; a terminal gets none that it
 * would obey. */
static void put_escaped(FILE *out, char *cell, bool terminal, bool last)
{
    if (terminal)
        mics_utf8_make_printable(cell, strlen(cell));
    for (; *cell; cell++) {
        if (*cell == '\t')
            fputs("\\t", out);
        else if (*cell == '\n')
            fputs("\\n", out);
        else if (*cell == '\\')
            fputs("\\\\", out);
        else
            putc((unsigned char)*cell < ' ' || *cell == 0x7f ? '?' : *cell, out);
    }
    putc(last ? '\n' : '\t', out);
}

static void measure(const struct mics_table *table, size_t *widths)
{
    const char *cell = table->text;

    for (size_t i = 0; i < table->cells; i++, cell += strlen(cell) + 1) {
        const size_t width = width_of(cell);

        if (width > widths[i % table->columns])
            widths[i % table->columns] = width;
    }
}

/* Cells as a person may see them. */
static void make_printable(const struct mics_table *table)
{
    char *cell = table->text;

    for (size_t i = 0; i < table->cells; i++, cell += strlen(cell) + 1)
        mics_utf8_make_line(cell);
}

unsigned mics_table_columns(FILE *out)
{
    struct winsize size;
    const int fd = fileno(out);

    if (fd < 0 || !isatty(fd) || ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return 100;
    return size.ws_col < 80 ? 80 : size.ws_col;
}

size_t mics_table_width(const struct mics_table *table)
{
    size_t *widths = table && !table->failed ? calloc(table->columns, sizeof *widths) : NULL;
    size_t total = 0;

    if (!widths)
        return 0;
    make_printable(table);
    measure(table, widths);
    for (size_t i = 0; i < table->columns; i++)
        total += widths[i] + (i > 0 ? 2 : 0);
    free(widths);
    return total;
}

enum mics_status mics_table_print(const struct mics_table *table, FILE *out, int tsv,
                                  struct mics_err *err)
{
    size_t *widths = table ? calloc(table->columns, sizeof *widths) : NULL;
    const bool terminal = fileno(out) >= 0 && isatty(fileno(out));
    size_t blanks = 0;
    char *cell;

    if (!widths || table->failed) {
        free(widths);
        return mics_err_nomem(err);
    }
    assert(table->cells % table->columns == 0);
    if (!tsv)
        make_printable(table);
    measure(table, widths);
    cell = table->text;
    for (size_t i = 0; i < table->cells; i++, cell += strlen(cell) + 1) {
        if (i < table->columns && !table->named)
            continue;

        const size_t column = i % table->columns;
        const bool last = column == table->columns - 1;

        if (tsv) {
            put_escaped(out, cell, terminal, last);
            continue;
        }
        if (column == 0)
            blanks = 0;
        put_aligned(out, cell, widths[column], table->right[column], &blanks);
        if (last)
            putc('\n', out);
    }
    free(widths);
    if (ferror(out))
        return mics_err_set_errno(err, "cannot write");
    return MICS_OK;
}

enum mics_status mics_table_finish(struct mics_table *table, FILE *out, int tsv,
                                   struct mics_err *err)
{
    const enum mics_status status = mics_table_print(table, out, tsv, err);

    mics_table_free(table);
    return status;
}

enum { QUANTITY_BYTES = 32 };

/* 12 digits: exact for the counts of documents, and without the rounding noise of a double. */
static void put_quantity(struct mics_table *table, int tsv, double value, const char *text)
{
    if (tsv)
        mics_table_cell(table, "%.12g", value);
    else
        mics_table_cell(table, "%s", text);
}

void mics_table_bytes(struct mics_table *table, int tsv, uint64_t bytes)
{
    char text[QUANTITY_BYTES];

    if (tsv)
        mics_table_cell(table, "%" PRIu64, bytes);
    else
        mics_table_cell(table, "%s", mics_format_bytes(bytes, text, sizeof text));
}

void mics_table_rate(struct mics_table *table, int tsv, double bytes_per_s)
{
    char text[QUANTITY_BYTES];

    put_quantity(table, tsv, bytes_per_s, mics_format_rate(bytes_per_s, text, sizeof text));
}

void mics_table_time(struct mics_table *table, int tsv, double seconds)
{
    char text[QUANTITY_BYTES];

    put_quantity(table, tsv, seconds, mics_format_time(seconds, text, sizeof text));
}

void mics_table_count(struct mics_table *table, int tsv, double count)
{
    char text[QUANTITY_BYTES];

    put_quantity(table, tsv, count, mics_format_count(count, text, sizeof text));
}

void mics_table_share(struct mics_table *table, int tsv, double fraction)
{
    char text[QUANTITY_BYTES];

    snprintf(text, sizeof text, "%.1f %%", 100 * fraction);
    put_quantity(table, tsv, fraction, text);
}
