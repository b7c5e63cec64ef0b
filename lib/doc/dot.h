/* SPDX-License-Identifier: Apache-2.0 */
/* dot.h - graphs in the DOT language of Graphviz. */
#ifndef MICS_DOC_DOT_H
#define MICS_DOC_DOT_H

#include "base/err.h"

#include <stdio.h>

/* Write the text as a quoted string. Nothing in it is an escape or an entity of DOT but a newline,
 * which begins a line of the label; other control characters become '?'. */
void mics_dot_text(FILE *out, const char *text);
void mics_dot_textf(FILE *out, const char *fmt, ...) MICS_PRINTF(2, 3);

/* Write the text inside a label of HTML. */
void mics_dot_html(FILE *out, const char *text);

/* The begin of a graph ("graph" with edges "--") with fonts and shapes, and a title. */
void mics_dot_begin(FILE *out, const char *direction, const char *title);

#endif
