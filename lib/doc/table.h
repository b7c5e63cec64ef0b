/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h - rows and columns as text: aligned for people, or tab-separated for scripts.
 *
 * Cells are collected first, so widths fit. Numbers are aligned right, text left, by column. In TSV
 * a tab, newline or backslash in a cell is written \t, \n, \\. Other control characters become '?'
 * in both. If no column has a name, no header is printed.
 */
#ifndef MICS_DOC_TABLE_H
#define MICS_DOC_TABLE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct mics_table;

/* `columns`: names separated by '|'; a leading '<' aligns left, '>' right: "<name|>bytes". NULL:
 * out of memory; every function below accepts it, and printing reports it. */
struct mics_table *mics_table_new(const char *columns);
void mics_table_free(struct mics_table *table);

/* Append one cell; a row is complete after as many cells as there are columns. Running out of
 * memory is reported by mics_table_print(). */
void mics_table_cell(struct mics_table *table, const char *fmt, ...) MICS_PRINTF(2, 3);

/* Append a quantity with its unit ("3.1 GiB", "25 GB/s", "75 us", "1.21 M", "4.2 %") or, with
 * `tsv`, as a plain number of bytes, bytes/s, seconds, things, or as a fraction. */
void mics_table_bytes(struct mics_table *table, int tsv, uint64_t bytes);
void mics_table_rate(struct mics_table *table, int tsv, double bytes_per_s);
void mics_table_time(struct mics_table *table, int tsv, double seconds);
void mics_table_count(struct mics_table *table, int tsv, double count);
void mics_table_share(struct mics_table *table, int tsv, double fraction);

/* Columns that tables written to `out` may take: those of the terminal, 80 at least; 100 if it is
 * none. */
unsigned mics_table_columns(FILE *out);

/* Columns that the widest line takes. 0: out of memory. */
size_t mics_table_width(const struct mics_table *table);

enum mics_status mics_table_print(const struct mics_table *table, FILE *out, int tsv,
                                  struct mics_err *err);

/* Print and free. */
enum mics_status mics_table_finish(struct mics_table *table, FILE *out, int tsv,
                                   struct mics_err *err);

#endif
