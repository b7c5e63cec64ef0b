/* SPDX-License-Identifier: Apache-2.0 */
/* test_statistics.c - medians and deviations, and the alpha-beta fit. */
#include "measure/statistics.h"
#include "tap.h"

enum { SIZES = 9 };

/* 1 KiB to 64 MiB, times 4 each, on a link of 20 us and 5 GB/s, off by up to `noise` of itself. */
static void make_samples(struct mics_sample *samples, double noise)
{
    static const double wobble[SIZES] = {.3, -.8, 1, -.5, .1, .9, -1, .6, -.2};
    double bytes = 1024;

    for (int i = 0; i < SIZES; i++, bytes *= 4) {
        samples[i].bytes = bytes;
        samples[i].seconds = (20e-6 + bytes / 5e9) * (1 + noise * wobble[i]);
    }
}

static void an_exact_line_is_found_again(void)
{
    struct mics_sample samples[SIZES];
    struct mics_link link;

    make_samples(samples, 0);
    CHECK_INT(mics_fit_link(samples, SIZES, &link, NULL), MICS_OK);
    CHECK_NEAR(link.latency_s, 20e-6, 1e-11);
    CHECK_NEAR(link.bandwidth_bytes, 5e9, 1e3);
    CHECK_INT(link.samples, SIZES);
    CHECK_NEAR(link.spread, 0, 1e-9);
}

static void noise_of_five_percent_costs_no_more_than_that(void)
{
    struct mics_sample samples[SIZES];
    struct mics_link link;

    make_samples(samples, .05);
    CHECK_INT(mics_fit_link(samples, SIZES, &link, NULL), MICS_OK);
    CHECK_NEAR(link.latency_s, 20e-6, 1.2e-6);
    CHECK_NEAR(link.bandwidth_bytes, 5e9, 3e8);
    CHECK(link.spread > 0 && link.spread < .05);
}

static void a_third_of_outliers_changes_nothing(void)
{
    struct mics_sample samples[SIZES];
    struct mics_link link;

    make_samples(samples, 0);
    samples[1].seconds *= 50;
    samples[4].seconds *= 1000;
    samples[8].seconds *= 7;
    CHECK_INT(mics_fit_link(samples, SIZES, &link, NULL), MICS_OK);
    CHECK_NEAR(link.latency_s, 20e-6, 1e-9);
    CHECK_NEAR(link.bandwidth_bytes, 5e9, 1e5);
    CHECK_NEAR(link.spread, 0, 1e-6);
}

/* A bucket of 128 KiB on a link of 25 MB/s: what fits it goes at 1 GB/s. */
static void bursts_are_left_out(void)
{
    struct mics_sample samples[7];
    struct mics_link link;
    double bytes = 1024;

    for (int i = 0; i < 7; i++, bytes *= 4) {
        samples[i].bytes = bytes;
        samples[i].seconds = 200e-6 + bytes / (bytes < 131072 ? 1e9 : 25e6);
    }
    CHECK_INT(mics_fit_link(samples, 7, &link, NULL), MICS_OK);
    CHECK(link.bandwidth_bytes > 50e6); /* what it would be with them */
    CHECK_INT(mics_fit_drop_bursts(samples, 7), 5);
    CHECK_NEAR(samples[1].bytes, 4096, 0);
    CHECK_NEAR(samples[2].bytes, 262144, 0);
    CHECK_NEAR(samples[4].bytes, 4194304, 0);
    CHECK_INT(mics_fit_link(samples, 5, &link, NULL), MICS_OK);
    CHECK_NEAR(link.bandwidth_bytes, 25e6, 1e6);
}

static void a_plain_link_has_no_bursts(void)
{
    struct mics_sample samples[SIZES];

    make_samples(samples, .05);
    CHECK_INT(mics_fit_drop_bursts(samples, SIZES), SIZES);
    CHECK_INT(mics_fit_drop_bursts(samples, 2), 2);
    samples[0].seconds /= 1e6; /* two sizes are always kept */
    samples[1].seconds /= 1e6;
    CHECK_INT(mics_fit_drop_bursts(samples, 3), 2);
    CHECK_NEAR(samples[0].bytes, 1024, 0);
    CHECK_NEAR(samples[1].bytes, 16384, 0);
    CHECK_INT(mics_fit_drop_bursts(samples, 0), 0);
}

static void a_latency_is_never_negative(void)
{
    /* Times that grow faster than the size: the straight line would start below 0. */
    const struct mics_sample samples[] = {{1000, 1e-6}, {2000, 3e-6}, {4000, 9e-6}};
    struct mics_link link;

    CHECK_INT(mics_fit_link(samples, 3, &link, NULL), MICS_OK);
    CHECK(link.latency_s >= 0);
    CHECK(link.bandwidth_bytes > 0 && isfinite(link.bandwidth_bytes));
}

static void times_that_fall_with_the_size_give_the_largest_bandwidth(void)
{
    const struct mics_sample samples[] = {{1000, 9e-6}, {2000, 8e-6}, {4000, 7e-6}};
    struct mics_link link;

    CHECK_INT(mics_fit_link(samples, 3, &link, NULL), MICS_OK);
    CHECK_NEAR(link.latency_s, 8e-6, 1e-8);
    CHECK_NEAR(link.bandwidth_bytes, 1e15, 1e9);
}

static void a_size_of_zero_is_the_latency(void)
{
    const struct mics_sample samples[] = {{0, 5e-6}, {1000000, 1.005e-3}};
    struct mics_link link;

    CHECK_INT(mics_fit_link(samples, 2, &link, NULL), MICS_OK);
    CHECK_NEAR(link.latency_s, 5e-6, 1e-12);
    CHECK_NEAR(link.bandwidth_bytes, 1e9, 1);
}

static void points_that_cannot_be_fitted_are_refused_with_the_reason(void)
{
    const struct mics_sample same[] = {{1000, 1e-6}, {1000, 2e-6}};
    const struct mics_sample still[] = {{1000, 1e-6}, {2000, 0}};
    struct mics_link link = {.latency_s = 42};
    struct mics_err err;

    CHECK_INT(mics_fit_link(same, 2, &link, &err), MICS_ERR_ARG);
    CHECK_STR(err.text, "a fit needs samples of two sizes");
    CHECK_INT(mics_fit_link(still, 2, &link, &err), MICS_ERR_ARG);
    CHECK_STR(err.text, "sample 1: 0 s for 2000 bytes");
    CHECK_INT(mics_fit_link(same, 0, &link, &err), MICS_ERR_ARG);
    CHECK_NEAR(link.latency_s, 42, 0);
}

static void the_median_of_an_even_number_is_between_the_two(void)
{
    double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2};

    CHECK_NEAR(mics_median(odd, 3), 2, 0);
    CHECK_NEAR(mics_median(even, 4), 2.5, 0);
    CHECK_NEAR(mics_mad((double[]){1, 2, 3, 4, 100}, 5, 3), 1, 0);
}

static bool is_slow(const double *times, size_t count, size_t index)
{
    double scratch[16];
    const struct mics_class class = mics_class_of(times, count, scratch);

    return mics_class_is_slow(&class, times[index]);
}

static void one_link_ten_times_slower_is_named(void)
{
    const double times[] = {1, 1.1, .9, 10, 1};

    CHECK(is_slow(times, 5, 3));
    CHECK(!is_slow(times, 5, 1));
}

static void twice_as_slow_is_not_enough(void)
{
    CHECK(!is_slow((double[]){1, 1, 1, 2.5, 1}, 5, 3));
}

static void a_class_that_varies_has_no_outlier(void)
{
    CHECK(!is_slow((double[]){1, 8, 2, 11, 3}, 5, 3));
}

static void of_two_values_neither_is_an_outlier(void)
{
    CHECK(!is_slow((double[]){1, 1000}, 2, 1));
}

static void no_sample_is_faster_than_what_lasts(void)
{
    struct mics_sample samples[] = {{1, 5}, {10, 5}, {100, 12}, {1000, 200}, {2000, 400}};

    mics_sustain(samples, 5);
    CHECK_NEAR(samples[4].seconds, 400, 0);
    CHECK_NEAR(samples[3].seconds, 200, 0);
    CHECK_NEAR(samples[2].seconds, 20, 1e-12);
    CHECK_NEAR(samples[1].seconds, 5, 0);
    CHECK_NEAR(samples[0].seconds, 5, 0);
    mics_sustain(samples, 0);
}

static void fewer_samples_keep_the_first_and_the_last(void)
{
    struct mics_sample samples[7] = {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}, {7, 1}};

    CHECK_INT(mics_samples_thin(samples, 7, 7), 7);
    CHECK_NEAR(samples[1].bytes, 2, 0);
    CHECK_INT(mics_samples_thin(samples, 7, 4), 4);
    for (int i = 0; i < 4; i++)
        CHECK_NEAR(samples[i].bytes, 1 + 2 * i, 0);
    CHECK_INT(mics_samples_thin(samples, 4, 2), 2);
    CHECK_NEAR(samples[1].bytes, 7, 0);
    CHECK_INT(mics_samples_thin(samples, 0, 2), 0);
}

int main(void)
{
    TAP_RUN(an_exact_line_is_found_again);
    TAP_RUN(noise_of_five_percent_costs_no_more_than_that);
    TAP_RUN(a_third_of_outliers_changes_nothing);
    TAP_RUN(bursts_are_left_out);
    TAP_RUN(a_plain_link_has_no_bursts);
    TAP_RUN(a_latency_is_never_negative);
    TAP_RUN(times_that_fall_with_the_size_give_the_largest_bandwidth);
    TAP_RUN(a_size_of_zero_is_the_latency);
    TAP_RUN(points_that_cannot_be_fitted_are_refused_with_the_reason);
    TAP_RUN(the_median_of_an_even_number_is_between_the_two);
    TAP_RUN(one_link_ten_times_slower_is_named);
    TAP_RUN(twice_as_slow_is_not_enough);
    TAP_RUN(a_class_that_varies_has_no_outlier);
    TAP_RUN(of_two_values_neither_is_an_outlier);
    TAP_RUN(no_sample_is_faster_than_what_lasts);
    TAP_RUN(fewer_samples_keep_the_first_and_the_last);
    return tap_done();
}
