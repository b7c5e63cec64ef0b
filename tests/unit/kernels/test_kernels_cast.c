/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between bf16 and fp32, and sums of either in fp32. */
#include "host/numbers.h"
#include "host/pool.h"
#include "kernels.h"

static const size_t counts[] = {0, 1, 15, 16, 17, 31, 32, 33, 4097, 70000};

#define COUNTS (sizeof counts / sizeof counts[0])

/* Numbers of every kind: random ones, ties, infinities, NaNs, subnormal ones. */
static float *awkward_floats(size_t count)
{
    static const uint32_t bits[] = {0x3f808000u, 0x3f818000u, 0x3f817fffu, 0x3f808001u, 0x7f800000u,
                                    0xff800000u, 0x7fc00000u, 0x7f800001u, 0xff80ffffu, 0x00000001u,
                                    0x80008000u, 0x7f7fffffu, 0x80000000u, 0x7fffffffu};
    float *out = random_floats(count, 9);

    for (size_t i = 0; i < count; i += 3)
        memcpy(out + i, bits + i / 3 % (sizeof bits / sizeof bits[0]), sizeof bits[0]);
    return out;
}

static void casts_round_to_nearest_and_keep_nan(void)
{
    for (size_t c = 0; c < COUNTS; c++)
        for (unsigned p = 0; p < POOLS; p++) {
            float *in = awkward_floats(counts[c]);
            uint16_t *out = calloc(counts[c] + 1, 2), *want = calloc(counts[c] + 1, 2);

            out[counts[c]] = want[counts[c]] = 0x1234;
            mics_numbers_from_f32(MICS_STORAGE_BF16, in, want, counts[c]);
            mics_host_cast(pools[p],
                           &(struct mics_args_cast){
                               .dst = out, .src = in, .count = counts[c], .dst_dtype = MICS_BF16});
            CHECK_SAME_BITS(out, want, counts[c] + 1);
            free(in);
            free(out);
            free(want);
        }
}

static void a_cast_there_and_back_is_exact(void)
{
    enum { ALL = 65536 };
    uint16_t *in = calloc(ALL, 2), *out = calloc(ALL, 2);
    float *wide = random_floats(ALL, 1);

    for (unsigned i = 0; i < ALL; i++)
        in[i] = (uint16_t)i;
    mics_host_cast(pools[1], &(struct mics_args_cast){
                                 .dst = wide, .src = in, .count = ALL, .src_dtype = MICS_BF16});
    mics_host_cast(pools[2], &(struct mics_args_cast){
                                 .dst = out, .src = wide, .count = ALL, .dst_dtype = MICS_BF16});
    for (unsigned i = 0; i < ALL; i++) /* a signalling NaN comes back quiet */
        CHECK((isnan(wide[i]) ? in[i] | 0x40 : in[i]) == out[i]);
    free(in);
    free(out);
    free(wide);
}

static void a_cast_to_the_same_type_copies(void)
{
    float *in = awkward_floats(4097), *out = random_floats(4097, 2);

    mics_host_cast(pools[0], &(struct mics_args_cast){.dst = out, .src = in, .count = 4097});
    CHECK_SAME_BITS(out, in, 4097);
    mics_host_cast(
        pools[0],
        &(struct mics_args_cast){
            .dst = out, .src = out, .count = 8194, .dst_dtype = MICS_BF16, .src_dtype = MICS_BF16});
    CHECK_SAME_BITS(out, in, 4097);
    free(in);
    free(out);
}

static void either_type_is_accumulated_in_fp32(void)
{
    for (size_t c = 0; c < COUNTS; c++)
        for (unsigned bf16 = 0; bf16 < 2; bf16++) {
            const size_t count = counts[c];
            float *in = random_floats(count, 3), *sum = random_floats(count, 4);
            float *want = copy_floats(sum, count);
            uint16_t *narrow = calloc(count + 1, 2);

            if (bf16) {
                mics_numbers_from_f32(MICS_STORAGE_BF16, in, narrow, count);
                mics_numbers_to_f32(MICS_STORAGE_BF16, narrow, in, count);
            }
            for (size_t i = 0; i < count; i++)
                want[i] += in[i];
            mics_host_accumulate(pools[c % POOLS], &(struct mics_args_accumulate){
                                                       .sum = sum,
                                                       .in = bf16 ? (void *)narrow : in,
                                                       .count = count,
                                                       .dtype = bf16 ? MICS_BF16 : MICS_F32});
            CHECK_SAME_BITS(sum, want, count);
            free(in);
            free(sum);
            free(want);
            free(narrow);
        }
}

int main(void)
{
    open_pools();
    TAP_RUN(casts_round_to_nearest_and_keep_nan);
    TAP_RUN(a_cast_there_and_back_is_exact);
    TAP_RUN(a_cast_to_the_same_type_copies);
    TAP_RUN(either_type_is_accumulated_in_fp32);
    return close_pools();
}
