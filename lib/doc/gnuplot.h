/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gnuplot.h - a gnuplot script of one or more pictures, with the data in it.
 *
 * A picture is written by its module as gnuplot commands to a stream of its own; the script gives
 * each a place on the page. Text of a document reaches the script only through the functions below:
 * in single quotes gnuplot substitutes nothing, and enhanced text is off. Data blocks have numbers
 * only.
 */
#ifndef MICS_DOC_GNUPLOT_H
#define MICS_DOC_GNUPLOT_H

#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

#define MICS_GNUPLOT_TERMINALS "dumb|pdf|png|svg"

/* Is it one of them? */
bool mics_gnuplot_has_terminal(const char *name);

struct mics_gnuplot;

/* NULL: out of memory; every function below accepts it, and writing reports it. */
struct mics_gnuplot *mics_gnuplot_new(void);
void mics_gnuplot_free(struct mics_gnuplot *gnuplot);

/* Begin the picture `name` ("memory"; unique in a script), whose commands go to the stream that is
 * returned; it is valid until the next picture begins. NULL: out of memory. The picture sets its
 * title and axes, and calls plot once; the key is beside it. Line types 1 to 8 have distinct colours. `columns`: the
 * least width of the picture on a terminal of characters. */
FILE *mics_gnuplot_begin(struct mics_gnuplot *gnuplot, const char *name, unsigned columns);

/* Write the text as a string of gnuplot, with its quotes. Control characters become '?'; beyond
 * `MICS_GNUPLOT_TEXT` bytes it is cut. */
enum { MICS_GNUPLOT_TEXT = 120 };
void mics_gnuplot_text(FILE *out, const char *text);
/* The same of the label of a tic, in which gnuplot looks for formats. */
void mics_gnuplot_tic(FILE *out, const char *text);
/* The same of a formatted text. */
void mics_gnuplot_textf(FILE *out, const char *fmt, ...) MICS_PRINTF(2, 3);

/* The unit in which numbers up to `largest` are short: 1, 1e3, 1e6 or 1e9, and its word before the
 * name of what is counted, such as "thousand ". */
double mics_gnuplot_scale(double largest, const char **prefix);

/* Write the script: all pictures, or the one named `only` unless that is NULL. `terminal`: one of
 * MICS_GNUPLOT_TERMINALS, which draws to gnuplot's standard output; NULL leaves the choice to who
 * runs the script. MICS_ERR_INFEASIBLE: there is no picture. MICS_ERR_ARG: `only` is none of them,
 * with their names. */
enum mics_status mics_gnuplot_write(const struct mics_gnuplot *gnuplot, FILE *out,
                                    const char *terminal, const char *only, struct mics_err *err);

#endif
