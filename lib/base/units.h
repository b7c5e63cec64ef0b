/* SPDX-License-Identifier: Apache-2.0 */
/*
 * units.h - parses and formats sizes, rates and times with units.
 *
 * Sizes: "64M", "1.5G", "3GiB", "4096": K M G T P, alone or with iB, are powers of 1024; kB MB GB
 * TB PB are powers of 1000. Rates: "100gbit", "200mbit", "25GB/s", "400Gbit/s", "12GiB/s". Times:
 * "75us", "2ms", "1.5s", "30m", "2h". Counts: "300G" or "300B", "1.5T": k M G B T are powers of
 * 1000, B is a billion. Only the B of bytes must be upper case. No sign, no exponent,
 * no white space, and nothing after the unit.
 */
#ifndef MICS_BASE_UNITS_H
#define MICS_BASE_UNITS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* MICS_ERR_ARG with a text that quotes the value: "'1.5Q': unknown unit". */
enum mics_status mics_parse_bytes(const char *text, uint64_t *bytes, struct mics_err *err);
/* The same, but 0 is refused. */
enum mics_status mics_parse_positive_bytes(const char *text, uint64_t *bytes, struct mics_err *err);
enum mics_status mics_parse_rate(const char *text, double *bytes_per_s, struct mics_err *err);
enum mics_status mics_parse_time(const char *text, double *seconds, struct mics_err *err);

/* A count of 1 or more, rounded to a whole number. */
enum mics_status mics_parse_positive_count(const char *text, uint64_t *count, struct mics_err *err);

/* Plain numbers in [min, max]; a real may have a sign and an exponent ("3e-4") and must be
 * finite. */
enum mics_status mics_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *value,
                                struct mics_err *err);
enum mics_status mics_parse_double(const char *text, double min, double max, double *value,
                                   struct mics_err *err);

/* A variable of the environment that is 0 or 1; *on stays if it is not set or empty. MICS_ERR_ARG,
 * which begins with its name: it is something else. */
enum mics_status mics_read_switch(const char *variable, bool *on, struct mics_err *err);

/* Format with three significant digits: "3.1 GiB", "196 Mbit/s" or "24.9 GB/s", "75 us",
 * "1.21 M" (counts). Each returns `buf`, always terminated; 32 bytes are enough. */
char *mics_format_bytes(uint64_t bytes, char *buf, size_t size);
char *mics_format_rate(double bytes_per_s, char *buf, size_t size);
char *mics_format_time(double seconds, char *buf, size_t size);
char *mics_format_count(double count, char *buf, size_t size);

/* "1.92 s, 1.8 to 2.15": the ends in the unit of the first; 64 bytes are enough. */
char *mics_format_time_range(double seconds, double low, double high, char *buf, size_t size);
char *mics_format_count_range(double count, double low, double high, char *buf, size_t size);

#endif
