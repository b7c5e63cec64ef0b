/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between bf16 or fp16 and fp32, and sums of each in fp32. */
#include "host/numbers.h"
#include "host/pool.h"
#include "host/sum.h"
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

/* Vectors of all lengths give the bits of the function for one number: of every fp16, and of fp32s
 * with every sign and exponent, the ties between fp16s and their neighbours among them. */
static void casts_of_fp16_are_those_of_one_number(void)
{
    enum { ALL = 65536, EACH = 128 };
    static const uint32_t low[EACH / 8] = {
        0,      1,      0xfff,    0x1000,   0x1001,   0x1fff,   0x2000,   0x2fff,
        0x3000, 0x3001, 0x7fffff, 0x7ff000, 0x400000, 0x3fffff, 0x555555, 0x7fe000};
    uint16_t *half = calloc(ALL + 1, 2);
    float *wide = random_floats(ALL, 1);

    for (unsigned i = 0; i < ALL; i++)
        half[i] = (uint16_t)i;
    mics_host_cast(pools[1], &(struct mics_args_cast){
                                 .dst = wide, .src = half, .count = ALL, .src_dtype = MICS_F16});
    for (unsigned i = 0; i < ALL; i++)
        CHECK(mics_float_bits(wide[i]) == mics_float_bits(mics_f16_widen((uint16_t)i)));
    mics_host_cast(pools[2], &(struct mics_args_cast){
                                 .dst = half, .src = wide, .count = ALL, .dst_dtype = MICS_F16});
    for (unsigned i = 0; i < ALL; i++) /* a signalling NaN comes back quiet */
        CHECK(half[i] == (isnan(wide[i]) ? i | 0x200 : i));
    for (unsigned i = 0; i < ALL; i++)
        wide[i] = mics_bits_float((i / EACH << 23) + low[i % (EACH / 8)] + i % EACH / 8 * 0x8000);
    for (size_t c = 0; c < COUNTS; c++) {
        const size_t count = counts[c] < ALL ? counts[c] : ALL;

        mics_host_cast(pools[c % POOLS],
                       &(struct mics_args_cast){
                           .dst = half, .src = wide, .count = count, .dst_dtype = MICS_F16});
        for (size_t i = 0; i < count; i++)
            CHECK(half[i] == mics_f16_round(wide[i]));
    }
    free(half);
    free(wide);
}

static void fp16_rounds_to_nearest_even_at_its_edges(void)
{
    static const struct {
        float from;
        uint16_t to;
    } edges[] = {{65504, 0x7bff},        {65519, 0x7bff},     {65520, 0x7c00},
                 {-65520, 0xfc00},       {1e30f, 0x7c00},     {0x1p-14f, 0x0400},
                 {0x1p-24f, 0x0001},     {0x1p-25f, 0x0000},  {0x1.8p-25f, 0x0001},
                 {0x1.8p-24f, 0x0002},   {-0x1p-26f, 0x8000}, {1 + 0x1p-11f, 0x3c00},
                 {1 + 0x3p-11f, 0x3c02}, {INFINITY, 0x7c00},  {1e-40f, 0}};

    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++)
        CHECK_INT(mics_f16_round(edges[i].from), edges[i].to);
    CHECK(isnan(mics_f16_widen(mics_f16_round(NAN))));
}

/* 30000 on three ranks are more than fp16 holds, and nothing hides it afterwards. */
static void sums_of_fp16_overflow_to_infinity(void)
{
    enum { COUNT = 35 };
    uint16_t a[COUNT], b[COUNT];

    for (unsigned i = 0; i < COUNT; i++)
        a[i] = b[i] = mics_f16_round(i % 2 ? 30000 : 1.5f);
    mics_host_accumulate_f16(a, b, COUNT);
    for (unsigned i = 0; i < COUNT; i++)
        CHECK_INT(a[i], mics_f16_round(i % 2 ? 60000 : 3));
    mics_host_sum_f16(a, a, b, COUNT);
    for (unsigned i = 1; i < COUNT; i += 2)
        b[i] = mics_f16_round(-30000);
    mics_host_accumulate_f16(a, b, COUNT);
    for (unsigned i = 0; i < COUNT; i++)
        CHECK_INT(a[i], i % 2 ? 0x7c00 : mics_f16_round(6));
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

static void each_type_is_accumulated_in_fp32(void)
{
    static const struct {
        enum mics_dtype dtype;
        enum mics_storage_dtype storage;
    } types[] = {
        {MICS_F32, MICS_STORAGE_F32}, {MICS_BF16, MICS_STORAGE_BF16}, {MICS_F16, MICS_STORAGE_F16}};

    for (size_t c = 0; c < COUNTS; c++)
        for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
            const bool half = mics_dtype_is_half(types[t].dtype);
            const size_t count = counts[c];
            float *in = random_floats(count, 3), *sum = random_floats(count, 4);
            float *want = copy_floats(sum, count);
            uint16_t *narrow = calloc(count + 1, 2);

            if (half) {
                mics_numbers_from_f32(types[t].storage, in, narrow, count);
                mics_numbers_to_f32(types[t].storage, narrow, in, count);
            }
            for (size_t i = 0; i < count; i++)
                want[i] += in[i];
            mics_host_accumulate(pools[c % POOLS],
                                 &(struct mics_args_accumulate){.sum = sum,
                                                                .in = half ? (void *)narrow : in,
                                                                .count = count,
                                                                .dtype = types[t].dtype});
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
    TAP_RUN(casts_of_fp16_are_those_of_one_number);
    TAP_RUN(fp16_rounds_to_nearest_even_at_its_edges);
    TAP_RUN(sums_of_fp16_overflow_to_infinity);
    TAP_RUN(a_cast_to_the_same_type_copies);
    TAP_RUN(each_type_is_accumulated_in_fp32);
    return close_pools();
}
