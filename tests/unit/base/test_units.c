/* SPDX-License-Identifier: Apache-2.0 */
#include "base/units.h"

#include "tap.h"

static uint64_t bytes_of(const char *text)
{
    uint64_t bytes = 12345;
    struct mics_err err = {""};

    if (mics_parse_bytes(text, &bytes, &err) != MICS_OK)
        printf("# %s\n", err.text);
    return bytes;
}

static void sizes_have_binary_and_decimal_units(void)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } table[] = {
        {"0", 0},
        {"4096", 4096},
        {"4096B", 4096},
        {"64M", 64u << 20},
        {"64m", 64u << 20},
        {"1.5G", 3u << 29},
        {"3GiB", 3ull << 30},
        {"1.5GB", 1500000000},
        {"2kB", 2000},
        {"2K", 2048},
        {"2KiB", 2048},
        {".5k", 512},
        {"1T", 1ull << 40},
        {"2P", 1ull << 51},
        {"18446744073709551615", UINT64_MAX},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        CHECK(bytes_of(table[i].text) == table[i].bytes);
}

static void a_bad_size_is_quoted_and_changes_nothing(void)
{
    static const char *const bad[] = {"",     "M",   "-1",  "+1", "1e3", "0x10", "nan",   "1..5",
                                      "1.5Q", "1 M", " 1M", ".",  "1Mb", "1Gi",  "20000P"};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint64_t bytes = 77;
        struct mics_err err = {""};
        CHECK_INT(mics_parse_bytes(bad[i], &bytes, &err), MICS_ERR_ARG);
        CHECK_INT(bytes, 77);
        CHECK(strncmp(err.text + 1, bad[i], strlen(bad[i])) == 0);
    }
    struct mics_err err;
    uint64_t bytes;
    mics_parse_bytes("1.5Q", &bytes, &err);
    CHECK_STR(err.text, "'1.5Q': unknown unit, expected a size such as 64M");
}

static void a_size_of_0_may_be_refused(void)
{
    struct mics_err err = {""};
    uint64_t bytes = 77;

    CHECK_INT(mics_parse_positive_bytes("0K", &bytes, &err), MICS_ERR_ARG);
    CHECK_STR(err.text, "'0K': expected a size above 0");
    CHECK_INT(mics_parse_positive_bytes("M", &bytes, &err), MICS_ERR_ARG);
    CHECK_INT(bytes, 77);
    CHECK_INT(mics_parse_positive_bytes("3K", &bytes, &err), MICS_OK);
    CHECK_INT(bytes, 3072);
}

static void check_rate(const char *text, double want)
{
    double rate = -1;

    CHECK_INT(mics_parse_rate(text, &rate, NULL), MICS_OK);
    CHECK_NEAR(rate, want, want * 1e-12);
}

static void rates_are_in_bits_or_bytes_per_second(void)
{
    check_rate("100gbit", 12.5e9);
    check_rate("200mbit", 25e6);
    check_rate("400Gbit/s", 50e9);
    check_rate("25GB/s", 25e9);
    check_rate("12GiB/s", 12 * 0x1p30);
    check_rate("8bit", 1);

    double rate;
    struct mics_err err;
    CHECK_INT(mics_parse_rate("25Gb/s", &rate, &err), MICS_ERR_ARG);
    CHECK_INT(mics_parse_rate("25GB", &rate, &err), MICS_ERR_ARG);
    CHECK_INT(mics_parse_rate("25", &rate, &err), MICS_ERR_ARG);
    CHECK_STR(err.text, "'25': no unit, expected a rate such as 100gbit or 25GB/s");
}

static void times_need_a_unit(void)
{
    double seconds = 0;

    CHECK_INT(mics_parse_time("75us", &seconds, NULL), MICS_OK);
    CHECK_NEAR(seconds, 75e-6, 1e-15);
    CHECK_INT(mics_parse_time("1.5s", &seconds, NULL), MICS_OK);
    CHECK_NEAR(seconds, 1.5, 0);
    CHECK_INT(mics_parse_time("30m", &seconds, NULL), MICS_OK);
    CHECK_NEAR(seconds, 1800, 0);
    CHECK_INT(mics_parse_time("30", &seconds, NULL), MICS_ERR_ARG);
    CHECK_NEAR(seconds, 1800, 0);
}

static void whole_numbers_outside_the_range_are_refused(void)
{
    uint64_t value = 5;
    struct mics_err err;

    CHECK_INT(mics_parse_u64("8", 1, 8, &value, &err), MICS_OK);
    CHECK_INT(value, 8);
    CHECK_INT(mics_parse_u64("9", 1, 8, &value, &err), MICS_ERR_ARG);
    CHECK_STR(err.text, "'9': must be from 1 to 8");
    CHECK_INT(mics_parse_u64("0", 1, UINT64_MAX, &value, &err), MICS_ERR_ARG);
    CHECK_STR(err.text, "'0': must be at least 1");
    CHECK_INT(mics_parse_u64("-1", 0, 8, &value, &err), MICS_ERR_ARG);
    CHECK_STR(err.text, "'-1': expected a whole number");
    CHECK_INT(mics_parse_u64("", 0, 8, &value, &err), MICS_ERR_ARG);
    CHECK_INT(mics_parse_u64("18446744073709551616", 0, UINT64_MAX, &value, &err), MICS_ERR_ARG);
    CHECK_INT(value, 8);
}

static void real_numbers_may_have_exponents_but_are_finite(void)
{
    double value = 5;
    static const char *const bad[] = {"",    "e3",  "1e",    "1e+", "0x1p3",
                                      "nan", "inf", "1e999", "1 ",  "2.5"};

    CHECK_INT(mics_parse_double("3e-4", 0, 1, &value, NULL), MICS_OK);
    CHECK_NEAR(value, 3e-4, 0);
    CHECK_INT(mics_parse_double("-.5", -1, 1, &value, NULL), MICS_OK);
    CHECK_NEAR(value, -0.5, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_INT(mics_parse_double(bad[i], 0, 2, &value, NULL), MICS_ERR_ARG);
    CHECK_NEAR(value, -0.5, 0);
}

static void quantities_are_written_in_three_digits(void)
{
    char buf[32];

    CHECK_STR(mics_format_bytes(0, buf, sizeof buf), "0 B");
    CHECK_STR(mics_format_bytes(1000, buf, sizeof buf), "1000 B");
    CHECK_STR(mics_format_bytes(3328599655u, buf, sizeof buf), "3.1 GiB");
    CHECK_STR(mics_format_bytes((1u << 20) - 1, buf, sizeof buf), "1 MiB");
    CHECK_STR(mics_format_bytes(1010u << 10, buf, sizeof buf), "1010 KiB");
    CHECK_STR(mics_format_bytes(UINT64_MAX, buf, sizeof buf), "16384 PiB");
    CHECK_STR(mics_format_rate(24.5e6, buf, sizeof buf), "196 Mbit/s");
    CHECK_STR(mics_format_rate(24.9e9, buf, sizeof buf), "24.9 GB/s");
    CHECK_STR(mics_format_time(75e-6, buf, sizeof buf), "75 us");
    CHECK_STR(mics_format_time(0.9999999, buf, sizeof buf), "1 s");
    CHECK_STR(mics_format_time(5400, buf, sizeof buf), "90 min");
    CHECK_STR(mics_format_count(1.21e6, buf, sizeof buf), "1.21 M");
    CHECK_STR(mics_format_count(12, buf, sizeof buf), "12");
}

static void ranges_are_in_the_unit_of_the_value(void)
{
    char buf[64];

    CHECK_STR(mics_format_time_range(1.92, 1.8, 2.15, buf, sizeof buf), "1.92 s, 1.8 to 2.15");
    CHECK_STR(mics_format_time_range(0.95, 0.9, 1.2, buf, sizeof buf), "950 ms, 900 to 1200");
    CHECK_STR(mics_format_count_range(999, 900, 1100, buf, sizeof buf), "999, 900 to 1100");
    CHECK_STR(mics_format_count_range(1200, 990, 1500, buf, sizeof buf), "1.2 k, 0.99 to 1.5");
}

static void a_small_buffer_is_still_terminated(void)
{
    char buf[4];

    CHECK_STR(mics_format_rate(24.9e9, buf, sizeof buf), "24.");
}

static void counts_have_decimal_units_and_billions(void)
{
    uint64_t count = 0;
    struct mics_err err;

    CHECK_INT(mics_parse_positive_count("300G", &count, &err), MICS_OK);
    CHECK_INT(count, 300000000000);
    CHECK_INT(mics_parse_positive_count("300B", &count, &err), MICS_OK);
    CHECK_INT(count, 300000000000);
    CHECK_INT(mics_parse_positive_count("1.5t", &count, &err), MICS_OK);
    CHECK_INT(count, 1500000000000);
    CHECK_INT(mics_parse_positive_count("7", &count, &err), MICS_OK);
    CHECK_INT(count, 7);
    CHECK_INT(mics_parse_positive_count("0", &count, &err), MICS_ERR_ARG);
    CHECK_INT(mics_parse_positive_count("-1", &count, &err), MICS_ERR_ARG);
    CHECK_INT(mics_parse_positive_count("10000000T", &count, &err), MICS_ERR_ARG);
    CHECK_INT(mics_parse_positive_count("3GiB", &count, &err), MICS_ERR_ARG);
    CHECK_INT(count, 7);
}

int main(void)
{
    TAP_RUN(sizes_have_binary_and_decimal_units);
    TAP_RUN(a_bad_size_is_quoted_and_changes_nothing);
    TAP_RUN(a_size_of_0_may_be_refused);
    TAP_RUN(rates_are_in_bits_or_bytes_per_second);
    TAP_RUN(times_need_a_unit);
    TAP_RUN(whole_numbers_outside_the_range_are_refused);
    TAP_RUN(real_numbers_may_have_exponents_but_are_finite);
    TAP_RUN(quantities_are_written_in_three_digits);
    TAP_RUN(ranges_are_in_the_unit_of_the_value);
    TAP_RUN(a_small_buffer_is_still_terminated);
    TAP_RUN(counts_have_decimal_units_and_billions);
    return tap_done();
}
