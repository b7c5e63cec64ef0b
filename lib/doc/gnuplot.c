/* SPDX-License-Identifier: Apache-2.0 */
/* gnuplot.c - pictures are collected as text and then placed in a multiplot. */
#include "doc/gnuplot.h"

#include "base/suggest.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PICTURES = 64 };

struct picture {
    char name[48];
    unsigned columns;
    char *text; /* of open_memstream() */
    size_t size;
};

struct mics_gnuplot {
    struct picture pictures[MAX_PICTURES];
    size_t count;
    FILE *open; /* the stream of the last picture */
    bool failed;
};

struct mics_gnuplot *mics_gnuplot_new(void)
{
    return calloc(1, sizeof(struct mics_gnuplot));
}

static void close_picture(struct mics_gnuplot *gnuplot)
{
    if (gnuplot->open)
        gnuplot->failed |= fclose(gnuplot->open) != 0;
    gnuplot->open = NULL;
}

void mics_gnuplot_free(struct mics_gnuplot *gnuplot)
{
    if (!gnuplot)
        return;
    close_picture(gnuplot);
    for (size_t i = 0; i < gnuplot->count; i++)
        free(gnuplot->pictures[i].text);
    free(gnuplot);
}

FILE *mics_gnuplot_begin(struct mics_gnuplot *gnuplot, const char *name, unsigned columns)
{
    struct picture *picture;

    if (!gnuplot)
        return NULL;
    close_picture(gnuplot);
    if (gnuplot->count == MAX_PICTURES) {
        gnuplot->failed = true;
        return NULL;
    }
    picture = &gnuplot->pictures[gnuplot->count];
    snprintf(picture->name, sizeof picture->name, "%s", name);
    picture->columns = columns;
    gnuplot->open = open_memstream(&picture->text, &picture->size);
    if (gnuplot->open)
        gnuplot->count++;
    else
        gnuplot->failed = true;
    return gnuplot->open;
}

/* A single quote is doubled; `percent`: a percent sign, too. A cut never splits a character. */
static void put_text(FILE *out, const char *text, bool percent)
{
    size_t length = strlen(text);

    if (length > MICS_GNUPLOT_TEXT) {
        length = MICS_GNUPLOT_TEXT;
        while (length > 0 && ((unsigned char)text[length] & 0xC0) == 0x80)
            length--;
    }
    putc('\'', out);
    for (size_t i = 0, used; i < length; i += used) {
        const size_t printable = mics_utf8_printable(text + i, length - i);

        used = printable ? printable : 1;
        if (text[i] == '\'' || (percent && text[i] == '%'))
            putc(text[i], out);
        fwrite(printable ? text + i : "?", 1, used, out);
    }
    putc('\'', out);
}

void mics_gnuplot_text(FILE *out, const char *text)
{
    put_text(out, text, false);
}

void mics_gnuplot_tic(FILE *out, const char *text)
{
    put_text(out, text, true);
}

double mics_gnuplot_scale(double largest, const char **prefix)
{
    static const struct {
        double scale;
        const char *prefix;
    } units[] = {{1e9, "billion "}, {1e6, "million "}, {1e3, "thousand "}};

    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (largest >= units[i].scale) {
            *prefix = units[i].prefix;
            return units[i].scale;
        }
    }
    *prefix = "";
    return 1;
}

void mics_gnuplot_textf(FILE *out, const char *fmt, ...)
{
    char text[4 * MICS_GNUPLOT_TEXT];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    mics_gnuplot_text(out, text);
}

void mics_gnuplot_ylabel(FILE *out, const char *fmt, ...)
{
    char text[MICS_GNUPLOT_TEXT];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    fputs("if (GPVAL_TERM eq 'dumb') { set tmargin 4; set title offset 0, 1; set label ", out);
    mics_gnuplot_text(out, text);
    fputs(" at graph 0, graph 1.08 left } else { set ylabel ", out);
    mics_gnuplot_text(out, text);
    fputs(" }\n", out);
}

/* Pictures in `columns` columns and `rows` rows. */
struct page {
    unsigned columns, rows;
    unsigned width; /* of the widest picture, in characters */
};

static struct page layout(const struct mics_gnuplot *gnuplot, size_t first, size_t count,
                          const char *terminal)
{
    struct page page = {.columns = 1, .width = 79};

    for (size_t i = first; i < first + count; i++)
        if (gnuplot->pictures[i].columns > page.width)
            page.width = gnuplot->pictures[i].columns;
    if (!terminal || strcmp(terminal, "dumb") != 0)
        while (page.columns * page.columns < count)
            page.columns++;
    page.rows = ((unsigned)count + page.columns - 1) / page.columns;
    return page;
}

/* Pixels of a picture, and lines of one made of characters. */
enum { WIDTH = 860, HEIGHT = 520, LINES = 24 };

/* By name: the command, with the size of a page in `unit` pixels. */
static const struct terminal {
    const char *name, *command, *rest;
    double unit;
} terminals[] = {
    {"dumb", "set terminal dumb noenhanced size", "", 0},
    {"pdf", "set terminal pdfcairo noenhanced font 'DejaVu Sans,11' size", "", 96},
    {"png", "set terminal pngcairo noenhanced font 'DejaVu Sans,11' size", "", 1},
    {"svg", "set terminal svg noenhanced font 'DejaVu Sans,13' size", " background 'white'", 1},
};

static const struct terminal *find_terminal(const char *name)
{
    for (size_t i = 0; i < sizeof terminals / sizeof *terminals; i++)
        if (strcmp(terminals[i].name, name) == 0)
            return &terminals[i];
    return NULL;
}

bool mics_gnuplot_has_terminal(const char *name)
{
    return find_terminal(name) != NULL;
}

static void put_terminal(FILE *out, const struct terminal *terminal, const struct page *page)
{
    if (terminal->unit > 0)
        fprintf(out, "%s %.5g, %.5g%s\n", terminal->command, WIDTH * page->columns / terminal->unit,
                HEIGHT * page->rows / terminal->unit, terminal->rest);
    else
        fprintf(out, "%s %u, %u%s\n", terminal->command, page->width, LINES * page->rows,
                terminal->rest);
}

/* Colours that people with a deficiency of colour vision distinguish (Okabe and Ito, 2008). */
static void put_style(FILE *out)
{
    static const char *const colours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                          "#E69F00", "#56B4E9", "#8C6D1F", "#444444"};

    fputs("set encoding utf8\nset termoption noenhanced\n", out);
    for (size_t i = 0; i < sizeof colours / sizeof *colours; i++)
        fprintf(out, "set linetype %zu lc rgb '%s' lw 2 pt %zu ps 1\n", i + 1, colours[i],
                (size_t[]){7, 5, 9, 11, 13, 4, 6, 8}[i]);
}

static const char picture_style[] =
    "set border 3\n"
    "set tics nomirror out\n"
    "if (GPVAL_TERM eq 'dumb') { unset grid; set key outside bottom "
    "center horizontal maxcols 2 width 2 } else { set grid lc rgb '#d8d8d8' "
    "lt 1 lw 1; set key outside right center reverse Left }\n";

/* Everything that a picture may have set. */
static const char picture_reset[] =
    "unset label; unset arrow; unset logscale; unset xtics; unset ytics; unset grid; unset key\n"
    "set xtics autofreq norotate; set ytics autofreq; set format; set autoscale; set key default\n"
    "set style data points; set style fill empty; set boxwidth; set offsets 0, 0, 0, 0\n"
    "unset title; unset ylabel; unset tmargin\n";

static enum mics_status find(const struct mics_gnuplot *gnuplot, const char *only, size_t *out,
                             struct mics_err *err)
{
    char names[512] = "";
    size_t used = 0;

    for (size_t i = 0; i < gnuplot->count; i++) {
        const char *name = gnuplot->pictures[i].name;

        if (strcmp(name, only) == 0) {
            *out = i;
            return MICS_OK;
        }
        if (used < sizeof names)
            used +=
                (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", name);
    }
    return mics_err_set(err, MICS_ERR_ARG, "'%.60s': no such picture; there is %s", only, names);
}

enum mics_status mics_gnuplot_write(const struct mics_gnuplot *gnuplot, FILE *out,
                                    const char *terminal, const char *only, struct mics_err *err)
{
    size_t first = 0, count = gnuplot ? gnuplot->count : 0;
    enum mics_status status = MICS_OK;

    if (!gnuplot || gnuplot->failed || (gnuplot->open && fflush(gnuplot->open) != 0))
        return mics_err_nomem(err);
    if (count == 0)
        return mics_err_set(err, MICS_ERR_INFEASIBLE, "there is nothing to draw");
    if (only) {
        status = find(gnuplot, only, &first, err);
        count = 1;
    }
    const struct page page = layout(gnuplot, first, count, terminal);
    if (status != MICS_OK)
        return status;
    if (terminal && find_terminal(terminal))
        put_terminal(out, find_terminal(terminal), &page);
    put_style(out);
    if (count > 1)
        fprintf(out, "set multiplot layout %u, %u\n", page.rows, page.columns);
    for (size_t i = first; i < first + count; i++) {
        fprintf(out, "\n# picture: %s\n%s%s", gnuplot->pictures[i].name, picture_reset,
                picture_style);
        fwrite(gnuplot->pictures[i].text, 1, gnuplot->pictures[i].size, out);
    }
    if (count > 1)
        fputs("\nunset multiplot\n", out);
    return MICS_OK;
}
