/* SPDX-License-Identifier: Apache-2.0 */
/* tree_print.h - any value as text: what is printed of a kind that has no table of its own. */
#ifndef MICS_DOC_TREE_PRINT_H
#define MICS_DOC_TREE_PRINT_H

#include "base/err.h"
#include "doc/table.h"

#include <jansson.h>
#include <stdio.h>

/* For people: indented names, a line each, with the values beside them. With `tsv`: a line for each scalar,
 * its path ("links[4].bandwidth") and its value. */
enum mics_status mics_tree_print(FILE *out, const json_t *value, int tsv, struct mics_err *err);

/* The same as rows of a table of two columns. With `tsv` every path begins with `name`. */
void mics_tree_print_rows(struct mics_table *table, const char *name, const json_t *value, int tsv);

/* One scalar as a cell: text as it is, numbers with 12 digits; "3 items" of an array or a map; "-" of NULL. */
void mics_tree_print_cell(struct mics_table *table, const json_t *value);

#endif
