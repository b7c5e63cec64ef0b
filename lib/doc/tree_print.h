/* SPDX-License-Identifier: Apache-2.0 */
/* tree_print.h - prints any JSON value as an indented tree, for documents that have no table of
 * their own. */
#ifndef MICS_DOC_TREE_PRINT_H
#define MICS_DOC_TREE_PRINT_H

#include "base/err.h"
#include "doc/table.h"

#include <jansson.h>
#include <stdio.h>

/* One line for each member: its indented name and its value. With `tsv`, one line for each scalar:
 * its path ("links[4].bandwidth") and its value. */
enum mics_status mics_tree_print(FILE *out, const json_t *value, int tsv, struct mics_err *err);

/* The same as rows of a table of two columns, below a row `name`. With `tsv` every path begins with
 * `name`. */
void mics_tree_print_rows(struct mics_table *table, const char *name, const json_t *value, int tsv);

/* One value as a cell: a string unchanged, a number with 12 digits, "3 items" for an array or a
 * map, "-" for NULL. */
void mics_tree_print_cell(struct mics_table *table, const json_t *value);

#endif
