/* SPDX-License-Identifier: Apache-2.0 */
/* Vector functions against libm in double. */
#include "host/vmath.h"
#include "tap.h"

static float one(mics_vf (*function)(mics_vf), float x)
{
    return function(mics_vset(x))[MICS_LANES - 1];
}

static mics_vf vexp(mics_vf x)
{
    return mics_vexp(x);
}

static mics_vf vsigmoid(mics_vf x)
{
    return mics_vsigmoid(x);
}

static void exp_is_within_two_units_in_the_last_place(void)
{
    double worst = 0;

    for (double x = -87; x < 88; x += 0.00037) {
        double want = exp((double)(float)x), got = one(vexp, (float)x);

        worst = fmax(worst, fabs(got - want) / want);
    }
    CHECK(worst < 2.4e-7);
    CHECK(worst > 0);
}

static void exp_of_zero_is_exactly_one(void)
{
    CHECK(one(vexp, 0.0f) == 1.0f);
    CHECK(one(vexp, -0.0f) == 1.0f);
}

static void exp_ends_in_zero_and_infinity(void)
{
    CHECK(one(vexp, 89.0f) == INFINITY);
    CHECK(one(vexp, 88.3f) < INFINITY);
    CHECK(one(vexp, -87.5f) == 0);
    CHECK(one(vexp, -1e30f) == 0);
    CHECK(one(vexp, -INFINITY) == 0);
    CHECK(isnan(one(vexp, NAN)));
}

static void sigmoid_is_right_at_both_ends(void)
{
    for (double x = -80; x < 80; x += 0.017) {
        double want = 1 / (1 + exp(-(double)(float)x));

        CHECK_NEAR(one(vsigmoid, (float)x) / want, 1, 4e-7);
    }
    CHECK(one(vsigmoid, INFINITY) == 1);
    CHECK(one(vsigmoid, -INFINITY) == 0);
    CHECK(isnan(one(vsigmoid, NAN)));
}

static void parts_of_vectors_leave_the_rest_alone(void)
{
    float from[MICS_LANES], to[MICS_LANES];

    for (unsigned count = 0; count <= MICS_LANES; count++) {
        for (unsigned i = 0; i < MICS_LANES; i++) {
            from[i] = (float)i + 1;
            to[i] = -1;
        }
        mics_vstore_part(to, mics_vload_part(from, count), count);
        for (unsigned i = 0; i < MICS_LANES; i++)
            CHECK(to[i] == (i < count ? from[i] : -1));
        CHECK(mics_vsum(mics_vload_part(from, count)) == (float)(count * (count + 1) / 2));
    }
}

static void select_max_and_min_follow_the_mask(void)
{
    mics_vf small = mics_vset(-2.0f), large = mics_vset(3.0f), nan = mics_vset(NAN);

    CHECK(mics_vmax(small, large)[0] == 3.0f);
    CHECK(mics_vmax(large, small)[0] == 3.0f);
    CHECK(mics_vmax(nan, large)[0] == 3.0f);
    CHECK(mics_vmin(small, large)[0] == -2.0f);
    CHECK(mics_vmin(large, small)[0] == -2.0f);
    CHECK(isnan(mics_vmin(small, nan)[0]));
    CHECK(mics_vselect(small < large, small, large)[MICS_LANES - 1] == -2.0f);
}

int main(void)
{
    TAP_RUN(exp_is_within_two_units_in_the_last_place);
    TAP_RUN(exp_of_zero_is_exactly_one);
    TAP_RUN(exp_ends_in_zero_and_infinity);
    TAP_RUN(sigmoid_is_right_at_both_ends);
    TAP_RUN(parts_of_vectors_leave_the_rest_alone);
    TAP_RUN(select_max_and_min_follow_the_mask);
    return tap_done();
}
