/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gnuplot.h - gnuplot scripts: the tables of a document, and a script of share/mics/plots that
 * draws them.
 *
 * Text of a document reaches the script only as strings in single quotes, in which gnuplot
 * substitutes nothing, and as rows of blocks of data.
 */
#ifndef MICS_DOC_GNUPLOT_H
#define MICS_DOC_GNUPLOT_H

#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

#define MICS_GNUPLOT_TERMINALS "dumb|pdf|png|svg"

/* Is it one of them? */
bool mics_gnuplot_has_terminal(const char *name);

/* Write the script `script` of share/mics/plots ("plan") with the tables of `tsv`, which are those
 * of mics-show --tsv and are modified. A table without names of columns becomes variables, any
 * other one a block of data with the name of its first column. The script draws all its pictures,
 * or the one named `only` unless that is NULL. `terminal`: one of MICS_GNUPLOT_TERMINALS, which
 * draws to gnuplot's standard output; NULL leaves the choice to the user of gnuplot.
 * MICS_ERR_INFEASIBLE: there is no picture. MICS_ERR_ARG: `only` is none of them, with their
 * names. */
enum mics_status mics_gnuplot_write(FILE *out, const char *script, char *tsv, const char *terminal,
                                    const char *only, struct mics_err *err);

#endif
