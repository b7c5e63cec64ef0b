/* SPDX-License-Identifier: Apache-2.0 */
/* quantity.c - cells with quantities: units for people, plain numbers for scripts. */
#include "base/units.h"
#include "doc/table.h"

#include <inttypes.h>

enum { TEXT = 32 };

/* 12 digits: exact for all counts of a document, and free of the noise of a double's last bits. */
static void put(struct mics_table *table, int tsv, double value, const char *text)
{
    if (tsv)
        mics_table_cell(table, "%.12g", value);
    else
        mics_table_cell(table, "%s", text);
}

void mics_table_bytes(struct mics_table *table, int tsv, uint64_t bytes)
{
    char text[TEXT];

    if (tsv)
        mics_table_cell(table, "%" PRIu64, bytes);
    else
        mics_table_cell(table, "%s", mics_format_bytes(bytes, text, sizeof text));
}

void mics_table_rate(struct mics_table *table, int tsv, double bytes_per_s)
{
    char text[TEXT];

    put(table, tsv, bytes_per_s, mics_format_rate(bytes_per_s, text, sizeof text));
}

void mics_table_time(struct mics_table *table, int tsv, double seconds)
{
    char text[TEXT];

    put(table, tsv, seconds, mics_format_time(seconds, text, sizeof text));
}

void mics_table_count(struct mics_table *table, int tsv, double count)
{
    char text[TEXT];

    put(table, tsv, count, mics_format_count(count, text, sizeof text));
}

void mics_table_share(struct mics_table *table, int tsv, double fraction)
{
    char text[TEXT];

    snprintf(text, sizeof text, "%.1f %%", 100 * fraction);
    put(table, tsv, fraction, text);
}
