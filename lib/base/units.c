/* SPDX-License-Identifier: Apache-2.0 */
/* units.c - parses and formats sizes, rates, times, counts and plain numbers. */
#include "base/units.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct unit {
    const char *name;
    double scale;
};

#define KI 1024.0

/* Names match without regard to case, except the 'B' of bytes, since "25Gb" could mean bits. */
static const struct unit byte_units[] = {
    {"", 1},         {"B", 1},     {"k", KI},     {"kiB", KI},     {"kB", 1e3},  {"M", KI *KI},
    {"MiB", KI *KI}, {"MB", 1e6},  {"G", 0x1p30}, {"GiB", 0x1p30}, {"GB", 1e9},  {"T", 0x1p40},
    {"TiB", 0x1p40}, {"TB", 1e12}, {"P", 0x1p50}, {"PiB", 0x1p50}, {"PB", 1e15}, {NULL, 0},
};

static const struct unit rate_units[] = {
    {"bit", 0.125},   {"kbit", 125.0},   {"Mbit", 125e3},   {"Gbit", 125e6},   {"Tbit", 125e9},
    {"bit/s", 0.125}, {"kbit/s", 125.0}, {"Mbit/s", 125e3}, {"Gbit/s", 125e6}, {"Tbit/s", 125e9},
    {"B/s", 1},       {"kB/s", 1e3},     {"MB/s", 1e6},     {"GB/s", 1e9},     {"TB/s", 1e12},
    {"kiB/s", KI},    {"MiB/s", 0x1p20}, {"GiB/s", 0x1p30}, {"TiB/s", 0x1p40}, {NULL, 0},
};

static const struct unit time_units[] = {
    {"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1},
    {"m", 60},    {"min", 60},  {"h", 3600},  {NULL, 0},
};

static const struct unit count_units[] = {
    {"", 1}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"B", 1e9}, {"T", 1e12}, {NULL, 0},
};

static bool same_unit(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (*a != *b && (toupper((unsigned char)*a) == 'B' ||
                         tolower((unsigned char)*a) != tolower((unsigned char)*b)))
            return false;
    return *a == *b;
}

/* The length of a decimal number without sign and exponent; 0 if there is none. */
static size_t decimal_length(const char *text)
{
    size_t whole = strspn(text, "0123456789");
    size_t fraction = text[whole] == '.' ? strspn(text + whole + 1, "0123456789") : 0;

    if (whole + fraction == 0)
        return 0;
    return whole + (text[whole] == '.') + fraction;
}

/* Parse a number and the unit after it: "1.5GiB". `expected` is for the message. */
static enum mics_status parse_scaled(const char *text, const struct unit *units,
                                     const char *expected, long double *value, struct mics_err *err)
{
    const size_t length = decimal_length(text);

    if (length == 0)
        return mics_err_set(err, MICS_ERR_ARG, "'%s': expected %s", text, expected);
    const struct unit *unit = units;
    while (unit->name && !same_unit(unit->name, text + length))
        unit++;
    if (!unit->name)
        return mics_err_set(err, MICS_ERR_ARG, "'%s': %s, expected %s", text,
                            text[length] ? "unknown unit" : "no unit", expected);
    *value = strtold(text, NULL) * (long double)unit->scale;
    return MICS_OK;
}

enum mics_status mics_parse_bytes(const char *text, uint64_t *bytes, struct mics_err *err)
{
    long double value = 0;
    enum mics_status status = parse_scaled(text, byte_units, "a size such as 64M", &value, err);

    if (status != MICS_OK)
        return status;
    value = roundl(value);
    if (value >= 0x1p64L)
        return mics_err_set(err, MICS_ERR_ARG, "'%s': too large", text);
    *bytes = (uint64_t)value;
    return MICS_OK;
}

enum mics_status mics_parse_positive_bytes(const char *text, uint64_t *bytes, struct mics_err *err)
{
    uint64_t value = 0;
    enum mics_status status = mics_parse_bytes(text, &value, err);

    if (status != MICS_OK)
        return status;
    if (value == 0)
        return mics_err_set(err, MICS_ERR_ARG, "'%s': expected a size above 0", text);
    *bytes = value;
    return MICS_OK;
}

enum mics_status mics_parse_positive_count(const char *text, uint64_t *count, struct mics_err *err)
{
    long double value = 0;
    enum mics_status status = parse_scaled(text, count_units, "a count such as 300G", &value, err);

    if (status != MICS_OK)
        return status;
    value = roundl(value);
    if (value < 1 || value >= 0x1p63L)
        return mics_err_set(err, MICS_ERR_ARG, "'%s': expected a count from 1 to 9.2e18", text);
    *count = (uint64_t)value;
    return MICS_OK;
}

static enum mics_status parse_real(const char *text, const struct unit *units, const char *expected,
                                   double *out, struct mics_err *err)
{
    long double value = 0;
    enum mics_status status = parse_scaled(text, units, expected, &value, err);

    if (status != MICS_OK)
        return status;
    if (!isfinite((double)value))
        return mics_err_set(err, MICS_ERR_ARG, "'%s': too large", text);
    *out = (double)value;
    return MICS_OK;
}

enum mics_status mics_parse_rate(const char *text, double *bytes_per_s, struct mics_err *err)
{
    return parse_real(text, rate_units, "a rate such as 100gbit or 25GB/s", bytes_per_s, err);
}

enum mics_status mics_parse_time(const char *text, double *seconds, struct mics_err *err)
{
    return parse_real(text, time_units, "a time such as 75us", seconds, err);
}

enum mics_status mics_read_switch(const char *variable, bool *on, struct mics_err *err)
{
    const char *text = getenv(variable);

    if (!text || !*text)
        return MICS_OK;
    if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
        return mics_err_set(err, MICS_ERR_ARG, "%s: expected 0 or 1, found \"%s\"", variable, text);
    *on = *text == '1';
    return MICS_OK;
}

enum mics_status mics_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *value,
                                struct mics_err *err)
{
    if (*text == '\0' || text[strspn(text, "0123456789")] != '\0')
        return mics_err_set(err, MICS_ERR_ARG, "'%s': expected a whole number", text);
    errno = 0;
    const unsigned long long parsed = strtoull(text, NULL, 10);
    if (errno == 0 && parsed >= min && parsed <= max) {
        *value = parsed;
        return MICS_OK;
    }
    if (max == UINT64_MAX && errno == 0)
        return mics_err_set(err, MICS_ERR_ARG, "'%s': must be at least %llu", text,
                            (unsigned long long)min);
    return mics_err_set(err, MICS_ERR_ARG, "'%s': must be from %llu to %llu", text,
                        (unsigned long long)min, (unsigned long long)max);
}

/* Is it a decimal number with an optional sign and exponent? strtod() accepts more: "inf",
 * hexadecimal numbers. */
static bool is_decimal(const char *text)
{
    text += *text == '-' || *text == '+';
    size_t length = decimal_length(text);
    if (length == 0)
        return false;
    text += length;
    if (*text == 'e' || *text == 'E') {
        text++;
        text += *text == '-' || *text == '+';
        length = strspn(text, "0123456789");
        text += length;
    }
    return length > 0 && *text == '\0';
}

enum mics_status mics_parse_double(const char *text, double min, double max, double *value,
                                   struct mics_err *err)
{
    if (!is_decimal(text))
        return mics_err_set(err, MICS_ERR_ARG, "'%s': expected a number", text);
    const double parsed = strtod(text, NULL);
    if (parsed >= min && parsed <= max && isfinite(parsed)) {
        *value = parsed;
        return MICS_OK;
    }
    if (isinf(max) || max >= 1e300)
        return mics_err_set(err, MICS_ERR_ARG, "'%s': must be a finite number from %g", text, min);
    return mics_err_set(err, MICS_ERR_ARG, "'%s': must be from %g to %g", text, min, max);
}

struct step {
    double from; /* smallest value written in this unit */
    double scale;
    const char *name;
};

/* Ascending, ended by an entry without a name. Thresholds are slightly below the unit, so that
 * 1023.99 KiB is written as 1 MiB. */
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

/* As links are specified: slow ones in bits, fast ones in bytes. */
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

static const struct step *step_of(double value, const struct step *steps)
{
    while (fabs(value) >= steps[1].from && steps[1].name)
        steps++;
    return steps;
}

/* Three significant digits, without a unit. "%.3g" alone would write 1000 with an exponent. */
static void format_number(double scaled, char buf[32])
{
    snprintf(buf, 32, fabs(scaled) < 999.5 ? "%.3g" : "%.0f", scaled);
}

static char *format(double value, const struct step *steps, char *buf, size_t size)
{
    const struct step *step = step_of(value, steps);
    char number[32];

    format_number(value / step->scale, number);
    snprintf(buf, size, "%s%s%s", number, *step->name ? " " : "", step->name);
    return buf;
}

/* Low and high are in the unit of the value. */
static char *format_range(const double range[3], const struct step *steps, char *buf, size_t size)
{
    const struct step *step = step_of(range[0], steps);
    char numbers[3][32];

    for (int i = 0; i < 3; i++)
        format_number(range[i] / step->scale, numbers[i]);
    snprintf(buf, size, "%s%s%s, %s to %s", numbers[0], *step->name ? " " : "", step->name,
             numbers[1], numbers[2]);
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

char *mics_format_time_range(double seconds, double low, double high, char *buf, size_t size)
{
    return format_range((double[]){seconds, low, high}, time_steps, buf, size);
}

char *mics_format_count_range(double count, double low, double high, char *buf, size_t size)
{
    return format_range((double[]){count, low, high}, count_steps, buf, size);
}
