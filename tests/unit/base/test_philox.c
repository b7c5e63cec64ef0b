/* SPDX-License-Identifier: Apache-2.0 */
#include "base/philox.h"

#include "tap.h"

static void check_block(uint64_t seed, uint64_t stream, uint64_t index, const uint32_t want[4])
{
    uint32_t got[4];

    mics_philox(seed, stream, index, got);
    for (int i = 0; i < 4; i++)
        CHECK_INT(got[i], want[i]);
}

/* Known answers published with Random123, for philox4x32 with 10 rounds. */
static void published_values_are_reproduced(void)
{
    check_block(0, 0, 0, (uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    check_block(UINT64_MAX, UINT64_MAX, UINT64_MAX,
                (uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    check_block(0x299f31d0a4093822u, 0x0370734413198a2eu, 0x85a308d3243f6a88u,
                (uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

static void uniforms_are_in_range_and_evenly_distributed(void)
{
    enum { COUNT = 100000 };
    double sum = 0, squares = 0;

    for (uint64_t i = 0; i < COUNT; i++) {
        const double u = mics_philox_uniform(7, 1, i);
        CHECK(u >= 0 && u < 1);
        sum += u;
        squares += u * u;
    }
    CHECK_NEAR(sum / COUNT, 0.5, 0.004);
    CHECK_NEAR(squares / COUNT, 1.0 / 3, 0.004);
}

static void normals_have_the_moments_of_a_normal(void)
{
    enum { COUNT = 100000 };
    static float x[COUNT];
    double moment[5] = {0};

    mics_philox_normals(7, 2, 0, COUNT, x);
    for (int i = 0; i < COUNT; i++)
        for (int k = 1; k <= 4; k++)
            moment[k] += pow(x[i], k) / COUNT;
    CHECK_NEAR(moment[1], 0, 0.015);
    CHECK_NEAR(moment[2], 1, 0.02);
    CHECK_NEAR(moment[3], 0, 0.06);
    CHECK_NEAR(moment[4], 3, 0.15);
}

static void a_normal_does_not_depend_on_the_range(void)
{
    float all[64], part[64];

    mics_philox_normals(3, 9, 0, 64, all);
    for (uint64_t first = 0; first < 64; first++)
        for (uint64_t count = 0; first + count <= 64; count++) {
            mics_philox_normals(3, 9, first, count, part);
            CHECK(memcmp(part, all + first, count * sizeof *part) == 0);
        }
}

static void seeds_and_streams_are_distinct(void)
{
    CHECK(mics_philox_u64(1, 0, 0) != mics_philox_u64(0, 0, 0));
    CHECK(mics_philox_u64(0, 1, 0) != mics_philox_u64(0, 0, 0));
    CHECK(mics_philox_u64(0, 0, 1) != mics_philox_u64(0, 0, 0));
    CHECK(mics_philox_u64(0, 1, 0) != mics_philox_u64(0, 0, 1));
}

int main(void)
{
    TAP_RUN(published_values_are_reproduced);
    TAP_RUN(uniforms_are_in_range_and_evenly_distributed);
    TAP_RUN(normals_have_the_moments_of_a_normal);
    TAP_RUN(a_normal_does_not_depend_on_the_range);
    TAP_RUN(seeds_and_streams_are_distinct);
    return tap_done();
}
