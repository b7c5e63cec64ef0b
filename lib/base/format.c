/* SPDX-License-Identifier: Apache-2.0 */
/* format.c - sizes, rates, times and counts for people, in three significant digits. */
#include "base/units.h"

#include <math.h>
#include <stdio.h>

struct step {
    double from; /* this unit serves values from here on */
    double scale;
    const char *name;
};

/* Ascending; each list ends with the entry whose successor has no name. A threshold lies a little under
 * its unit, where rounding would reach it: 1023.99 KiB is 1 MiB. */
#define NEARLY 0.9995

static const struct step byte_steps[] = {
    {0, 1, "B"},
    {0x1p10 * NEARLY, 0x1p10, "KiB"},
    {0x1p20 * NEARLY, 0x1p20, "MiB"},
    {0x1p30 * NEARLY, 0x1p30, "GiB"},
    {0x1p40 * NEARLY, 0x1p40, "TiB"},
    {0x1p50 * NEARLY, 0x1p50, "PiB"},
    {INFINITY, 1, NULL},
};

/* Slow links are sold in bits, fast ones in bytes. */
static const struct step rate_steps[] = {
    {0, 0.125, "bit/s"},         {125 * NEARLY, 125, "kbit/s"}, {125e3 * NEARLY, 125e3, "Mbit/s"},
    {1e9 * NEARLY, 1e9, "GB/s"}, {1e12 * NEARLY, 1e12, "TB/s"}, {INFINITY, 1, NULL},
};

static const struct step time_steps[] = {
    {0, 1e-9, "ns"},     {1e-6 * NEARLY, 1e-6, "us"}, {1e-3 * NEARLY, 1e-3, "ms"},
    {NEARLY, 1, "s"},    {120 * NEARLY, 60, "min"},   {7200 * NEARLY, 3600, "h"},
    {INFINITY, 1, NULL},
};

static const struct step count_steps[] = {
    {0, 1, ""},
    {1e3 * NEARLY, 1e3, "k"},
    {1e6 * NEARLY, 1e6, "M"},
    {1e9 * NEARLY, 1e9, "G"},
    {1e12 * NEARLY, 1e12, "T"},
    {1e15 * NEARLY, 1e15, "P"},
    {INFINITY, 1, NULL},
};

/* "%.3g" would write 1000 and more with an exponent. */
static char *format(double value, const struct step *steps, char *buf, size_t size)
{
    const double magnitude = fabs(value);

    while (magnitude >= steps[1].from && steps[1].name)
        steps++;
    const double scaled = value / steps->scale;
    snprintf(buf, size, fabs(scaled) < 999.5 ? "%.3g%s%s" : "%.0f%s%s", scaled,
             *steps->name ? " " : "", steps->name);
    return buf;
}

char *mics_format_bytes(uint64_t bytes, char *buf, size_t size)
{
    return format((double)bytes, byte_steps, buf, size);
}

char *mics_format_rate(double bytes_per_s, char *buf, size_t size)
{
    return format(bytes_per_s, rate_steps, buf, size);
}

char *mics_format_time(double seconds, char *buf, size_t size)
{
    return format(seconds, time_steps, buf, size);
}

char *mics_format_count(double count, char *buf, size_t size)
{
    return format(count, count_steps, buf, size);
}
