/* SPDX-License-Identifier: Apache-2.0 */
#include "doc/gnuplot.h"

#include "base/utf8.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* The scripts of share/mics/plots; the Makefile generates the included file. */
static const struct {
    const char *name, *text;
} plots[] = {
#include "plots.inc"
};

/* What there is to draw: a picture for each row of a table whose cell in column `needs` is not "-"
 * and whose name is new. In a name, digits are the cells of these columns. */
static const struct {
    const char *script, *table, *name, *needs;
    const char *missing; /* what a document without the script's first picture lacks */
} pictures[] = {
    {"plan", "strategy", "memory", "strategy", "there is no alternative to draw"},
    {"plan", "strategy", "throughput", "strategy", NULL},
    {"plans", "nodes", "throughput", "nodes", "there is no plan to draw"},
    {"plans", "nodes", "rank_throughput", "nodes", NULL},
    {"topology", "link", "links", "link", "one rank has no links to draw"},
    {"topology", "collective", "1", "collective", NULL},
    {"topology", "exchange", "exchange_1_2x3", "exchange", NULL},
    {"bench", "op", "1_2", "op", "there is no measurement to draw"},
    {"check", "sender", "pairs", "bytes_per_s", "no pair of nodes was measured"},
    {"metrics", "first", "loss", "loss", "no step has a loss"},
    {"metrics", "first", "throughput", "tokens_per_s", NULL},
    {"metrics", "first", "second_hops", "sync_bytes", NULL},
    {"metrics", "first", "experts", "expert_load", NULL},
};

enum { COLUMNS = 32 };

/* A script under construction. `names`: of its pictures, each between two blanks. */
struct script {
    const char *name;
    FILE *tables, *names;
    char *tables_text, *names_text;
    size_t tables_size, names_size;
};

bool mics_gnuplot_has_terminal(const char *name)
{
    static const char *const terminals[] = {"dumb", "pdf", "png", "svg"};

    for (size_t i = 0; i < sizeof terminals / sizeof *terminals; i++)
        if (strcmp(terminals[i], name) == 0)
            return true;
    return false;
}

/* Write text of a document: a row of data, or with `quote` an expression, strings in single quotes
 * (of '' in a string gnuplot makes a quote, but not of two in a row). TSV's escapes are undone, and
 * what a terminal would obey becomes '?'. */
static void put_text(FILE *out, const char *text, bool quote)
{
    const size_t length = strlen(text);

    fputs(quote ? "'" : "", out);
    for (size_t i = 0, used; i < length; i += used) {
        const size_t printable = mics_utf8_printable(text + i, length - i);

        used = printable ? printable : 1;
        if (text[i] == '\\' && i + 1 < length)
            putc(text[i + used++] == '\\' ? '\\' : '?', out);
        else if (text[i] == '\'' && quote)
            fputs("'.\"'\".'", out);
        else if (printable || (text[i] == '\t' && !quote))
            fwrite(text + i, 1, used, out);
        else
            putc('?', out);
    }
    fputs(quote ? "'\n" : "\n", out);
}

static bool is_identifier(const char *text)
{
    return (isalpha((unsigned char)*text) || *text == '_') &&
           text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] ==
               '\0';
}

/* Add the picture with the name `form`, in which digits are cells, unless there is one. */
static void add_picture(struct script *script, const char *form, char *const *cells)
{
    char name[160] = " ";
    size_t used = 1;

    for (; *form; form++) {
        if (isdigit((unsigned char)*form))
            used += (size_t)snprintf(name + used, sizeof name - used, "%.30s", cells[*form - '1']);
        else
            name[used++] = *form;
    }
    name[used] = ' ';
    if (fflush(script->names) == 0 && !strstr(script->names_text, name))
        fputs(name + (script->names_size > 0), script->names);
}

/* The index of the column of that name in the head of a table; COLUMNS: there is none. */
static size_t column_of(const char *head, const char *name)
{
    const size_t length = strlen(name);

    for (size_t i = 0; i < COLUMNS; i++) {
        const size_t cell = strcspn(head, "\t");

        if (cell == length && strncmp(head, name, length) == 0)
            return i;
        if (!head[cell])
            break;
        head += cell + 1;
    }
    return COLUMNS;
}

static void find_pictures(struct script *script, const char *table, const char *head, char *row)
{
    char *cells[COLUMNS];

    for (size_t i = 0; i < COLUMNS; i++) {
        char *cell = strsep(&row, "\t");

        cells[i] = cell ? cell : "-";
    }
    for (size_t i = 0; i < sizeof pictures / sizeof *pictures; i++) {
        if (strcmp(pictures[i].script, script->name) != 0 || strcmp(pictures[i].table, table) != 0)
            continue;
        const size_t column = column_of(head, pictures[i].needs);

        if (column < COLUMNS && strcmp(cells[column], "-") != 0)
            add_picture(script, pictures[i].name, cells);
    }
}

/* One variable for each line of a table of two columns. */
static void put_variables(FILE *out, char *table)
{
    for (char *line; (line = strsep(&table, "\n"));) {
        char *name = strsep(&line, "\t");

        for (char *dot; (dot = strchr(name, '.'));)
            *dot = '_';
        if (!line || !is_identifier(name))
            continue;
        fprintf(out, "%s = ", name);
        put_text(out, line, true);
    }
}

/* gnuplot ends a block at a line that *begins* with END. */
static void put_block(struct script *script, char *table)
{
    const char *const head = strsep(&table, "\n");
    char *row, name[COLUMNS];

    snprintf(name, sizeof name, "%.*s", (int)strcspn(head, "\t"), head);
    if (!is_identifier(name))
        return;
    fprintf(script->tables, "$%s << END\n", name);
    put_text(script->tables, head, false);
    while ((row = strsep(&table, "\n"))) {
        if (!*row)
            continue;
        fputs(strncmp(row, "END", 3) == 0 ? " " : "", script->tables);
        put_text(script->tables, row, false);
        find_pictures(script, name, head, row);
    }
    fputs("END\n", script->tables);
}

static void put_tables(struct script *script, char *tsv)
{
    for (char *table = tsv, *next; table; table = next) {
        table += strspn(table, "\n");
        next = strstr(table, "\n\n");
        if (next)
            *next++ = '\0';
        const char *second = strchr(table, '\t');
        if (second && second[1 + strcspn(second + 1, "\t\n")] == '\t')
            put_block(script, table);
        else
            put_variables(script->tables, table);
    }
}

static void put_plot(FILE *out, const char *name)
{
    for (size_t i = 0; i < sizeof plots / sizeof *plots; i++)
        if (strcmp(plots[i].name, name) == 0)
            fprintf(out, "\n%s", plots[i].text);
}

/* "memory, throughput" */
static enum mics_status refuse_picture(const char *only, char *names, struct mics_err *err)
{
    char text[512] = "";
    size_t used = 0;

    for (const char *name; (name = strsep(&names, " ")) && used < sizeof text;)
        if (*name)
            used +=
                (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? ", " : "", name);
    return mics_err_set(err, MICS_ERR_ARG, "'%.60s': no such picture; there is %s", only, text);
}

/* Write the script when its tables are complete. */
static enum mics_status finish(const struct script *script, FILE *out, const char *terminal,
                               const char *only, struct mics_err *err)
{
    char wanted[160];

    if (script->names_size == 0) {
        for (size_t i = 0; i < sizeof pictures / sizeof *pictures; i++)
            if (strcmp(pictures[i].script, script->name) == 0 && pictures[i].missing)
                return mics_err_set(err, MICS_ERR_INFEASIBLE, "%s", pictures[i].missing);
    }
    snprintf(wanted, sizeof wanted, " %s ", only ? only : "");
    if (only && (strchr(only, ' ') || !strstr(script->names_text, wanted)))
        return refuse_picture(only, script->names_text, err);
    fwrite(script->tables_text, 1, script->tables_size, out);
    fprintf(out, "terminal = '%s'\npictures = ", terminal ? terminal : "");
    put_text(out, only ? only : script->names_text, true);
    put_plot(out, "page");
    put_plot(out, script->name);
    return MICS_OK;
}

enum mics_status mics_gnuplot_write(FILE *out, const char *name, char *tsv, const char *terminal,
                                    const char *only, struct mics_err *err)
{
    struct script script = {.name = name};
    enum mics_status status = MICS_OK;

    script.tables = open_memstream(&script.tables_text, &script.tables_size);
    script.names = open_memstream(&script.names_text, &script.names_size);
    if (script.tables && script.names)
        put_tables(&script, tsv);
    if (!script.tables || fclose(script.tables) != 0)
        status = mics_err_nomem(err);
    if (!script.names || fclose(script.names) != 0)
        status = mics_err_nomem(err);
    if (status == MICS_OK)
        status = finish(&script, out, terminal, only, err);
    free(script.tables_text);
    free(script.names_text);
    return status;
}
