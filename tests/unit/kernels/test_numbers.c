/* SPDX-License-Identifier: Apache-2.0 */
/* test_numbers.c - fp16 and bf16, every one of them, against arithmetic in doubles. */
#include "tap.h"

#include "host/numbers.h"

#include <math.h>
#include <stdlib.h>

enum { ALL = 65536 };

/* By the definition: sign, exponent, fraction. */
static double value_of_f16(unsigned half)
{
    const int exponent = (int)(half >> 10 & 31);
    const double fraction = half & 1023;
    const double size = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);

    return half & 0x8000 ? -size : size;
}

static bool is_f16_finite(unsigned half)
{
    return (half & 0x7c00) != 0x7c00;
}

static void every_f16_has_its_value_and_comes_back(void)
{
    uint16_t *halves = malloc(ALL * sizeof *halves), *back = malloc(ALL * sizeof *back);
    float *wide = malloc(ALL * sizeof *wide);
    int wrong = 0;

    for (unsigned i = 0; i < ALL; i++)
        halves[i] = (uint16_t)i;
    mics_numbers_to_f32(MICS_STORAGE_F16, halves, wide, ALL);
    mics_numbers_from_f32(MICS_STORAGE_F16, wide, back, ALL);
    for (unsigned i = 0; i < ALL; i++) {
        if (is_f16_finite(i))
            wrong += (double)wide[i] != value_of_f16(i) || back[i] != i;
        else if (i & 0x3ff)
            wrong += !isnan(wide[i]) || (back[i] & 0x7c00) != 0x7c00 || !(back[i] & 0x3ff);
        else
            wrong += !isinf(wide[i]) || back[i] != i;
    }
    CHECK_INT(wrong, 0);
    free(halves);
    free(back);
    free(wide);
}

/* Half-way between neighbours goes to the even one, a little off it to the nearer. */
static void f16_rounds_to_the_nearest_and_ties_to_even(void)
{
    int wrong = 0;

    for (unsigned i = 0; i < 0x7bff; i++) {
        const double middle = (value_of_f16(i) + value_of_f16(i + 1)) / 2;
        const float in[3] = {(float)middle, nextafterf((float)middle, 0),
                             nextafterf((float)middle, INFINITY)};
        uint16_t out[3];

        mics_numbers_from_f32(MICS_STORAGE_F16, in, out, 3);
        wrong += out[0] != (i & 1 ? i + 1 : i) || out[1] != i || out[2] != i + 1;
    }
    CHECK_INT(wrong, 0);
}

static void a_number_too_large_for_f16_becomes_infinite_and_is_reported(void)
{
    const float in[] = {65504.0f, 65519.0f, 65520.0f, -1e30f};
    uint16_t out[4];

    mics_numbers_from_f32(MICS_STORAGE_F16, in, out, 4);
    CHECK_INT(out[0], 0x7bff);
    CHECK_INT(out[1], 0x7bff);
    CHECK_INT(out[2], 0x7c00);
    CHECK_INT(out[3], 0xfc00);
    CHECK(mics_numbers_finite(MICS_STORAGE_F16, out, 2));
    CHECK(!mics_numbers_finite(MICS_STORAGE_F16, out, 3));
}

static void every_bf16_is_the_upper_half_and_comes_back(void)
{
    uint16_t *in = malloc(ALL * sizeof *in), *back = malloc(ALL * sizeof *back);
    float *wide = malloc(ALL * sizeof *wide);
    int wrong = 0;

    for (unsigned i = 0; i < ALL; i++)
        in[i] = (uint16_t)i;
    mics_numbers_to_f32(MICS_STORAGE_BF16, in, wide, ALL);
    mics_numbers_from_f32(MICS_STORAGE_BF16, wide, back, ALL);
    for (unsigned i = 0; i < ALL; i++) {
        uint32_t bits;

        memcpy(&bits, &wide[i], sizeof bits);
        wrong += bits != i << 16;
        wrong += isnan(wide[i]) ? (back[i] & 0x7f80) != 0x7f80 || !(back[i] & 0x7f) : back[i] != i;
    }
    CHECK_INT(wrong, 0);
    free(in);
    free(back);
    free(wide);
}

static void bf16_rounds_to_the_nearest_and_ties_to_even(void)
{
    static const struct {
        uint32_t bits;
        uint16_t wanted;
    } cases[] = {
        {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81}, {0x3f80ffff, 0x3f81},
        {0x3f807fff, 0x3f80}, {0xbf818000, 0xbf82}, {0x7f7fffff, 0x7f80}, {0x00008001, 0x0001},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float in;
        uint16_t out;

        memcpy(&in, &cases[i].bits, sizeof in);
        mics_numbers_from_f32(MICS_STORAGE_BF16, &in, &out, 1);
        CHECK_INT(out, cases[i].wanted);
    }
}

static void one_number_that_is_not_finite_is_found_wherever_it_is(void)
{
    float wide[37] = {0};
    uint16_t half[37] = {0};

    for (int i = 0; i < 37; i++) {
        wide[i] = i & 1 ? NAN : -INFINITY;
        half[i] = 0x7f81;
        CHECK(!mics_numbers_finite(MICS_STORAGE_F32, wide, 37));
        CHECK(!mics_numbers_finite(MICS_STORAGE_BF16, half, 37));
        CHECK(!mics_numbers_finite(MICS_STORAGE_F16, half, 37));
        CHECK(mics_numbers_finite(MICS_STORAGE_RAW, half, 37));
        wide[i] = 3e38f;
        half[i] = 0x7b7f;
    }
    CHECK(mics_numbers_finite(MICS_STORAGE_F32, wide, 37));
    CHECK(mics_numbers_finite(MICS_STORAGE_F16, half, 37));
    CHECK(mics_numbers_finite(MICS_STORAGE_BF16, half, 37));
}

int main(void)
{
    TAP_RUN(every_f16_has_its_value_and_comes_back);
    TAP_RUN(f16_rounds_to_the_nearest_and_ties_to_even);
    TAP_RUN(a_number_too_large_for_f16_becomes_infinite_and_is_reported);
    TAP_RUN(every_bf16_is_the_upper_half_and_comes_back);
    TAP_RUN(bf16_rounds_to_the_nearest_and_ties_to_even);
    TAP_RUN(one_number_that_is_not_finite_is_found_wherever_it_is);
    return tap_done();
}
