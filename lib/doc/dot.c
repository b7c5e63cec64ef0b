/* SPDX-License-Identifier: Apache-2.0 */
#include "doc/dot.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <string.h>

/* Or '?' for what nobody may see. Returns the bytes used. */
static size_t put_character(FILE *out, const char *text)
{
    const size_t printable = mics_utf8_printable(text, strlen(text));

    fwrite(printable ? text : "?", 1, printable ? printable : 1, out);
    return printable ? printable : 1;
}

void mics_dot_text(FILE *out, const char *text)
{
    putc('"', out);
    for (size_t used; *text; text += used) {
        used = 1;
        if (*text == '"' || *text == '\\')
            fprintf(out, "\\%c", *text);
        else if (*text == '&')
            fputs("&amp;", out);
        else if (*text == '\n')
            fputs("\\n", out);
        else
            used = put_character(out, text);
    }
    putc('"', out);
}

void mics_dot_textf(FILE *out, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    mics_dot_text(out, text);
}

void mics_dot_html(FILE *out, const char *text)
{
    for (size_t used; *text; text += used) {
        used = 1;
        if (*text == '<' || *text == '>' || *text == '&' || *text == '"')
            fprintf(out, "&#%d;", *text);
        else
            used = put_character(out, text);
    }
}

void mics_dot_begin(FILE *out, const char *direction, const char *title)
{
    fprintf(out, "graph mics {\n  graph [rankdir=%s, labelloc=t, fontsize=15, label=", direction);
    mics_dot_text(out, title);
    fputs(", fontname=\"DejaVu Sans\", nodesep=0.15, ranksep=0.6, compound=true]\n"
          "  node [shape=box, style=filled, fillcolor=white, fontname=\"DejaVu Sans\", "
          "fontsize=11, margin=\"0.08,0.04\", height=0.3]\n"
          "  edge [fontname=\"DejaVu Sans\", fontsize=10, penwidth=2]\n",
          out);
}
