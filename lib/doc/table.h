/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h - rows and columns as text: aligned for people, or tab-separated for scripts.
 *
 * Cells are collected first, so widths fit. Numbers are aligned right, text left, by column.
 * In TSV a tab, newline or backslash in a cell is written \t, \n, \\.
 */
#ifndef MICS_DOC_TABLE_H
#define MICS_DOC_TABLE_H

#include "base/err.h"

#include <stdio.h>

struct mics_table;

/* `columns`: names separated by '|'; a leading '<' aligns left, '>' right: "<name|>bytes". */
struct mics_table *mics_table_new(const char *columns);
void mics_table_free(struct mics_table *table);

/* Append one cell; a row is complete after as many cells as columns. Out of memory is remembered
 * and reported by mics_table_print(). */
void mics_table_cell(struct mics_table *table, const char *fmt, ...) MICS_PRINTF(2, 3);

enum mics_status mics_table_print(const struct mics_table *table, FILE *out, int tsv,
                                  struct mics_err *err);

#endif
