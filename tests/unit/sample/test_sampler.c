/* SPDX-License-Identifier: Apache-2.0 */
/* Which tokens are drawn, and how often. */
#include "sample/sampler.h"
#include "tap.h"

#include <stdlib.h>

enum { V = 6, DRAWS = 20000 };

/* Probabilities 0.4, 0.1, 0.25, 0.05, 0.15, 0.05. */
static void fill(float *logits)
{
    static const double p[V] = {0.4, 0.1, 0.25, 0.05, 0.15, 0.05};

    for (int i = 0; i < V; i++)
        logits[i] = (float)log(p[i]) + 3.0f;
}

static struct mics_sampler *open_sampler(double temperature, uint32_t top_k, double top_p)
{
    const struct mics_sampler_options options = {temperature, top_k, top_p, 7};
    struct mics_sampler *sampler = NULL;
    struct mics_err err;

    CHECK_INT(mics_sampler_new(&options, V, &sampler, &err), MICS_OK);
    return sampler;
}

/* Each token's share of the draws is within 0.015 of `want`; never drawn where that is 0. */
static void check_shares(double temperature, uint32_t top_k, double top_p, const double want[V])
{
    struct mics_sampler *sampler = open_sampler(temperature, top_k, top_p);
    unsigned counts[V] = {0};
    float logits[V];

    fill(logits);
    for (unsigned i = 0; i < DRAWS; i++)
        counts[mics_sampler_draw(sampler, logits, 0, i)]++;
    for (int i = 0; i < V; i++) {
        CHECK_NEAR((double)counts[i] / DRAWS, want[i], 0.015);
        if (want[i] == 0)
            CHECK_INT(counts[i], 0);
    }
    mics_sampler_free(sampler);
}

static void all_tokens_are_drawn_by_their_probability(void)
{
    check_shares(1, 0, 1, (const double[V]){0.4, 0.1, 0.25, 0.05, 0.15, 0.05});
}

static void temperature_sharpens_and_zero_takes_the_most_likely(void)
{
    const double sum = 0.16 + 0.01 + 0.0625 + 0.0025 + 0.0225 + 0.0025;

    check_shares(0.5, 0, 1,
                 (const double[V]){0.16 / sum, 0.01 / sum, 0.0625 / sum, 0.0025 / sum, 0.0225 / sum,
                                   0.0025 / sum});
    check_shares(0, 3, 0.5, (const double[V]){1, 0, 0, 0, 0, 0});
}

static void top_k_and_top_p_leave_the_others_out(void)
{
    check_shares(1, 3, 1, (const double[V]){0.5, 0, 0.3125, 0, 0.1875, 0});
    check_shares(1, 1, 1, (const double[V]){1, 0, 0, 0, 0, 0});
    /* 0.4 and 0.25 are less than 0.7: the next is taken, too. */
    check_shares(1, 0, 0.7, (const double[V]){0.5, 0, 0.3125, 0, 0.1875, 0});
    check_shares(1, 0, 0.3, (const double[V]){1, 0, 0, 0, 0, 0});
    /* Among the three most likely, 0.5 and 0.3125 exceed 0.75. */
    check_shares(1, 3, 0.75, (const double[V]){0.4 / 0.65, 0, 0.25 / 0.65, 0, 0, 0});
    /* Among equal ones, the first. */
    check_shares(
        1, 5, 1,
        (const double[V]){0.4 / 0.95, 0.1 / 0.95, 0.25 / 0.95, 0.05 / 0.95, 0.15 / 0.95, 0});
}

static void a_draw_depends_on_seed_text_and_index_only(void)
{
    struct mics_sampler *one = open_sampler(1, 0, 0.9), *two = open_sampler(1, 0, 0.9);
    float logits[V];
    unsigned differ = 0;

    fill(logits);
    for (uint64_t i = 100; i-- > 0;)
        mics_sampler_draw(two, logits, 3, i);
    for (uint64_t i = 0; i < 100; i++) {
        const uint32_t drawn = mics_sampler_draw(one, logits, 1, i);

        CHECK_INT(mics_sampler_draw(two, logits, 1, i), drawn);
        differ += mics_sampler_draw(two, logits, 2, i) != drawn;
    }
    CHECK(differ > 20);
    mics_sampler_free(one);
    mics_sampler_free(two);
}

static void logits_that_are_no_numbers_are_never_drawn(void)
{
    struct mics_sampler *all = open_sampler(1, 0, 1), *some = open_sampler(1, 4, 0.9);
    struct mics_sampler *best = open_sampler(0, 0, 1);
    float logits[V] = {NAN, -INFINITY, 1, NAN, -INFINITY, 2};

    for (uint64_t i = 0; i < 200; i++) {
        const uint32_t a = mics_sampler_draw(all, logits, 0, i);
        const uint32_t b = mics_sampler_draw(some, logits, 0, i);

        CHECK(a == 2 || a == 5);
        CHECK(b == 2 || b == 5);
    }
    CHECK_INT(mics_sampler_draw(best, logits, 0, 0), 5);
    mics_sampler_free(all);
    mics_sampler_free(some);
    mics_sampler_free(best);
}

int main(void)
{
    TAP_RUN(all_tokens_are_drawn_by_their_probability);
    TAP_RUN(temperature_sharpens_and_zero_takes_the_most_likely);
    TAP_RUN(top_k_and_top_p_leave_the_others_out);
    TAP_RUN(a_draw_depends_on_seed_text_and_index_only);
    TAP_RUN(logits_that_are_no_numbers_are_never_drawn);
    return tap_done();
}
