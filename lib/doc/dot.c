/* SPDX-License-Identifier: Apache-2.0 */
#include "doc/dot.h"

#include <stdarg.h>

void mics_dot_text(FILE *out, const char *text)
{
    putc('"', out);
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c == '&')
            fputs("&amp;", out);
        else if (c == '\n')
            fputs("\\n", out);
        else
            putc(c < ' ' || c == 0x7F ? '?' : c, out);
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
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;

        if (c == '<' || c == '>' || c == '&' || c == '"')
            fprintf(out, "&#%d;", c);
        else
            putc(c < ' ' || c == 0x7F ? '?' : c, out);
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
