/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums and conversions of arrays in blocks: bit for bit against a reference that takes one element
 * at a time and shares no code with the kernel, and what the formats promise.
 */
#include "base/philox.h"
#include "host/numbers.h"
#include "host/pool.h"
#include "kernel_cases.h"
#include "kernels.h"

enum { SUBS = MICS_BLOCK / MICS_SUB_BLOCK, ROOM = 64 };

static const enum mics_dtype block_types[] = {MICS_INT8, MICS_INT4};

/* An array of a type with ROOM bytes behind it, which show what is written too far. */
static void *new_array(enum mics_dtype dtype, uint64_t count)
{
    const uint64_t bytes = mics_wire_bytes(dtype, count);
    unsigned char *out = malloc(bytes + ROOM);

    if (!out)
        abort();
    return memset(out, 0xa5, bytes + ROOM);
}

static bool is_untouched_behind(const void *array, enum mics_dtype dtype, uint64_t count)
{
    const unsigned char *end = (const unsigned char *)array + mics_wire_bytes(dtype, count);

    for (int i = 0; i < ROOM; i++)
        if (end[i] != 0xa5)
            return false;
    return true;
}

static void convert(struct mics_pool *pool, void *dst, enum mics_dtype to, const void *src,
                    enum mics_dtype from, uint64_t count)
{
    mics_host_sum_blocks(pool, &(struct mics_args_sum_blocks){.dst = dst,
                                                              .src = src,
                                                              .count = count,
                                                              .parts = 1,
                                                              .dst_dtype = to,
                                                              .src_dtype = from});
}

/* Numbers of many magnitudes, a function of `seed`. */
static float *varied_floats(uint64_t count, uint64_t seed)
{
    float *out = random_floats(count, seed);

    for (uint64_t i = 0; i < count; i++)
        out[i] *= expf((float)(i / 100 % 13) - 6);
    return out;
}

/* The reference ------------------------------------------------------------------------------ */

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static float read_one(const void *array, uint64_t i, enum mics_dtype dtype)
{
    const struct mics_int8_block *int8 = (const struct mics_int8_block *)array + i / MICS_BLOCK;
    const struct mics_int4_block *int4 = (const struct mics_int4_block *)array + i / MICS_BLOCK;
    const uint64_t sub = i % MICS_BLOCK / MICS_SUB_BLOCK, at = i % MICS_SUB_BLOCK;

    if (dtype == MICS_F32)
        return ((const float *)array)[i];
    if (dtype == MICS_BF16)
        return float_of((uint32_t)((const uint16_t *)array)[i] << 16);
    if (dtype == MICS_F16)
        return mics_f16_widen(((const uint16_t *)array)[i]);
    if (dtype == MICS_INT8)
        return int8->scale * (float)int8->steps[i % MICS_BLOCK];
    const int nibble = int4->steps[sub][at % 16] >> (at / 16 * 4) & 15;
    return float_of((uint32_t)int4->scale[sub] << 16) * (float)(nibble < 8 ? nibble : nibble - 16);
}

/* The smallest number of `bits` significant bits that is not below the largest |x| / most. */
static float reference_scale(const float *x, uint64_t count, int most, int bits)
{
    float largest = 0;
    int exponent;

    for (uint64_t i = 0; i < count; i++) {
        if (!isfinite(x[i]))
            return NAN;
        largest = fmaxf(largest, fabsf(x[i]));
    }
    if (largest == 0)
        return 0;
    frexp((double)largest / most, &exponent);
    const double unit = ldexp(1, exponent - bits);
    const double scale = ceil((double)largest / most / unit) * unit;
    return scale < 0x1p-126 ? 0 : (float)scale;
}

static int reference_step(const struct mics_args_sum_blocks *args, float x, float scale, uint64_t i)
{
    const uint64_t stream = (uint64_t)1 << 63 | (uint64_t)args->replica << 32 | args->step;
    const uint64_t element = args->first + i, at = element % MICS_BLOCK;
    uint32_t words[4];

    if (!(scale > 0))
        return 0;
    if (!args->stochastic)
        return (int)nearbyintf((1 / scale) * x);
    mics_philox(args->seed, stream, element / MICS_BLOCK * 32 + at % 32, words);
    const double u = ((words[at / 64] >> (at / 32 % 2 * 16) & 0xffff) + 0.5) / 65536;
    const float sum = (float)(fabsf(x / scale) + (float)u);
    return x < 0 ? -(int)sum : (int)sum;
}

static void reference_blocks(const struct mics_args_sum_blocks *args, const float *x, void *dst)
{
    const bool wide = args->dst_dtype == MICS_INT8;
    const uint64_t size = wide ? MICS_BLOCK : MICS_SUB_BLOCK;
    const uint64_t all = mics_ceil_div(args->count, MICS_BLOCK) * MICS_BLOCK;

    memset(dst, 0, mics_wire_bytes(args->dst_dtype, args->count));
    for (uint64_t i = 0; i < all; i++) {
        const float scale =
            reference_scale(x + i / size * size, size, wide ? 127 : 7, wide ? 17 : 8);
        const int step = reference_step(args, x[i], scale, i);
        struct mics_int8_block *int8 = (struct mics_int8_block *)dst + i / MICS_BLOCK;
        struct mics_int4_block *int4 = (struct mics_int4_block *)dst + i / MICS_BLOCK;
        const uint64_t sub = i % MICS_BLOCK / MICS_SUB_BLOCK, at = i % MICS_SUB_BLOCK;

        if (wide) {
            int8->scale = scale;
            int8->steps[i % MICS_BLOCK] = (int8_t)step;
        } else {
            int4->scale[sub] = (uint16_t)(bits_of(scale) >> 16);
            int4->steps[sub][at % 16] |= (uint8_t)((step & 15) << (at / 16 * 4));
        }
    }
}

static void reference(const struct mics_args_sum_blocks *args, void *dst)
{
    const uint64_t all = mics_ceil_div(args->count, MICS_BLOCK) * MICS_BLOCK;
    float *sum = calloc(all + 1, sizeof *sum);

    for (uint64_t i = 0; sum && i < args->count; i++)
        for (uint32_t part = 0; part < args->parts; part++) {
            const float x =
                read_one((const char *)args->src + part * args->stride, i, args->src_dtype);

            sum[i] = part == 0 ? x : sum[i] + x;
        }
    if (!sum)
        abort();
    if (mics_dtype_is_blocks(args->dst_dtype))
        reference_blocks(args, sum, dst);
    else if (mics_dtype_is_half(args->dst_dtype))
        mics_numbers_from_f32(args->dst_dtype == MICS_BF16 ? MICS_STORAGE_BF16 : MICS_STORAGE_F16,
                              sum, dst, args->count);
    else
        memcpy(dst, sum, args->count * sizeof *sum);
    free(sum);
}

/* `parts` arrays of a type, one behind the other. */
static void *new_parts(enum mics_dtype dtype, uint64_t count, uint32_t parts)
{
    const uint64_t bytes = mics_wire_bytes(dtype, count);
    char *out = new_array(dtype, parts * mics_round_up(count, MICS_BLOCK));

    for (uint32_t part = 0; part < parts; part++) {
        float *x = varied_floats(count, count + part);

        reference(
            &(struct mics_args_sum_blocks){
                .src = x, .count = count, .parts = 1, .dst_dtype = dtype, .src_dtype = MICS_F32},
            out + part * bytes);
        free(x);
    }
    return out;
}

static void check_against_reference(struct mics_pool *pool, enum mics_dtype from,
                                    enum mics_dtype to, uint64_t count, uint32_t parts)
{
    void *src = new_parts(from, count, parts);
    void *got = new_array(to, count), *want = new_array(to, count);
    struct mics_args_sum_blocks args = {.dst = got,
                                        .src = src,
                                        .count = count,
                                        .stride = mics_wire_bytes(from, count),
                                        .parts = parts,
                                        .dst_dtype = to,
                                        .src_dtype = from,
                                        .replica = parts,
                                        .seed = 0x123456789abcdefu,
                                        .step = 77,
                                        .first = 512};

    for (int stochastic = 0; stochastic < 2; stochastic++) {
        args.stochastic = stochastic;
        mics_host_sum_blocks(pool, &args);
        reference(&args, want);
        CHECK(memcmp(got, want, mics_wire_bytes(to, count)) == 0);
        CHECK(is_untouched_behind(got, to, count));
    }
    free(src);
    free(got);
    free(want);
}

static void any_types_and_parts_give_the_bits_of_the_reference(void)
{
    for (size_t from = 0; from < LENGTH(wire_dtypes); from++)
        for (size_t to = 0; to < LENGTH(wire_dtypes); to++)
            for (size_t c = 0; c < LENGTH(block_cases); c++)
                check_against_reference(pools[(c + to) % POOLS], wire_dtypes[from], wire_dtypes[to],
                                        block_cases[c].count, 1 + (uint32_t)(c + from) % 3 * 2);
}

/* The formats -------------------------------------------------------------------------------- */

static double steps_of(enum mics_dtype dtype)
{
    return dtype == MICS_INT8 ? MICS_INT8_MAX : MICS_INT4_MAX;
}

static uint64_t scaled_together(enum mics_dtype dtype)
{
    return dtype == MICS_INT8 ? MICS_BLOCK : MICS_SUB_BLOCK;
}

/* The largest |x| of the block, or sub-block, of element i. */
static double largest_around(const float *x, uint64_t i, uint64_t count, enum mics_dtype dtype)
{
    const uint64_t size = scaled_together(dtype), begin = i / size * size;
    double largest = 0;

    for (uint64_t k = begin; k < count && k < begin + size; k++)
        largest = fmax(largest, fabs((double)x[k]));
    return largest;
}

/* A step is up to one unit in the last place of its scale longer than the largest |x| needs. */
static void an_element_is_off_by_half_a_step_at_most(void)
{
    for (size_t t = 0; t < LENGTH(block_types); t++)
        for (size_t c = 0; c < LENGTH(block_cases); c++) {
            const enum mics_dtype dtype = block_types[t];
            const uint64_t count = block_cases[c].count;
            float *x = varied_floats(count, c + 1), *back = new_array(MICS_F32, count);
            void *blocks = new_array(dtype, count);
            const double longer = dtype == MICS_INT8 ? 0x1p-16 : 0x1p-7;

            convert(pools[c % POOLS], blocks, dtype, x, MICS_F32, count);
            convert(pools[c % POOLS], back, MICS_F32, blocks, dtype, count);
            for (uint64_t i = 0; i < count; i++) {
                const double step = largest_around(x, i, count, dtype) / steps_of(dtype);

                CHECK(fabs((double)back[i] - x[i]) <= step * (1 + longer) * (0.5 + 0x1p-16));
            }
            free(x);
            free(back);
            free(blocks);
        }
}

/* With every scale of the format's precision, and the largest step in every block. */
static void values_on_the_grid_are_exact_and_stay(void)
{
    enum { COUNT = 64 * MICS_BLOCK };

    for (size_t t = 0; t < LENGTH(block_types); t++)
        for (unsigned stochastic = 0; stochastic < 2; stochastic++) {
            const enum mics_dtype dtype = block_types[t];
            const uint64_t size = scaled_together(dtype);
            const int most = (int)steps_of(dtype);
            float *x = random_floats(COUNT, t + 5), *back = new_array(MICS_F32, COUNT);
            void *blocks = new_array(dtype, COUNT), *again = new_array(dtype, COUNT);
            struct mics_args_sum_blocks args = {.dst = blocks,
                                                .src = x,
                                                .count = COUNT,
                                                .parts = 1,
                                                .dst_dtype = dtype,
                                                .stochastic = stochastic};

            for (uint64_t i = 0; i < COUNT; i++) {
                const uint32_t kept = dtype == MICS_INT8 ? ~0x7fu : ~0xffffu;
                const float scale = float_of(bits_of(expf((float)(i / size % 160) - 80)) & kept);

                x[i] = scale * (i % size == 9 ? (float)-most : truncf(x[i] * (float)most));
            }
            mics_host_sum_blocks(pools[t], &args);
            convert(pools[t], back, MICS_F32, blocks, dtype, COUNT);
            for (uint64_t i = 0; i < COUNT; i++)
                CHECK(back[i] == x[i]);
            convert(pools[t], again, dtype, back, MICS_F32, COUNT);
            CHECK(memcmp(again, blocks, mics_wire_bytes(dtype, COUNT)) == 0);
            free(x);
            free(back);
            free(blocks);
            free(again);
        }
}

/* One number in every 17 of the significands. */
static void the_largest_number_is_never_clamped(void)
{
    struct mics_int8_block int8;
    struct mics_int4_block int4;

    for (uint32_t significand = 0; significand < 1u << 23; significand += 17) {
        const float x = float_of(0x40000000u | significand);

        convert(pools[0], &int8, MICS_INT8, &x, MICS_F32, 1);
        convert(pools[0], &int4, MICS_INT4, &x, MICS_F32, 1);
        CHECK(int8.steps[0] == 127 && int4.steps[0][0] == 7);
        CHECK((double)int8.scale * 127 >= x && (double)int8.scale * 127 <= x * (1 + 0x1p-16));
        CHECK((double)read_one(&int4, 0, MICS_INT4) >= x &&
              (double)read_one(&int4, 0, MICS_INT4) <= x * (1 + 0x1p-7));
    }
}

/* Whether blocks, or sub-blocks, differ only in that of `element`. */
static bool differ_only_at(const void *a, const void *b, uint64_t count, uint64_t element,
                           enum mics_dtype dtype)
{
    const uint64_t size = scaled_together(dtype);
    bool inside = false, outside = false;

    for (uint64_t i = 0; i < count; i++) {
        const float x = read_one(a, i, dtype), y = read_one(b, i, dtype);

        *(i / size == element / size ? &inside : &outside) |= !(x == y);
    }
    return inside && !outside;
}

static void a_large_block_does_not_touch_others(void)
{
    enum { COUNT = 5 * MICS_BLOCK + 33 };
    static const uint64_t elements[] = {0, 255, 256, 700, 1311};

    for (size_t t = 0; t < LENGTH(block_types); t++)
        for (size_t e = 0; e < LENGTH(elements); e++) {
            const enum mics_dtype dtype = block_types[t];
            float *x = random_floats(COUNT, 3);
            void *plain = new_array(dtype, COUNT), *large = new_array(dtype, COUNT);

            convert(pools[0], plain, dtype, x, MICS_F32, COUNT);
            x[elements[e]] = 1e20f;
            convert(pools[0], large, dtype, x, MICS_F32, COUNT);
            CHECK(differ_only_at(plain, large, COUNT, elements[e], dtype));
            free(x);
            free(plain);
            free(large);
        }
}

/* In one of the parts of a sum, and after a second conversion, too. */
static void nan_and_infinity_make_their_block_nan(void)
{
    enum { COUNT = 3 * MICS_BLOCK + 7, PARTS = 3 };
    static const uint32_t bits[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xff800001u,
                                    0x7fffffffu};

    for (size_t t = 0; t < LENGTH(block_types); t++)
        for (size_t b = 0; b < LENGTH(bits); b++) {
            const enum mics_dtype dtype = block_types[t];
            const uint64_t bytes = mics_wire_bytes(dtype, COUNT), size = scaled_together(dtype);
            const uint64_t element = b * 190 + 3;
            float *x = random_floats(COUNT, 3);
            char *parts = new_array(dtype, PARTS * 4 * MICS_BLOCK);
            void *sum = new_array(dtype, COUNT);

            for (uint32_t part = 0; part < PARTS; part++) {
                const float kept = x[element];

                memcpy(x + element, part == b % PARTS ? &bits[b] : &bits[0],
                       part == b % PARTS ? 4 : 0);
                convert(pools[0], parts + part * bytes, dtype, x, MICS_F32, COUNT);
                x[element] = kept;
            }
            mics_host_sum_blocks(pools[0], &(struct mics_args_sum_blocks){.dst = sum,
                                                                          .src = parts,
                                                                          .count = COUNT,
                                                                          .stride = bytes,
                                                                          .parts = PARTS,
                                                                          .dst_dtype = dtype,
                                                                          .src_dtype = dtype});
            convert(pools[0], x, MICS_F32, sum, dtype, COUNT);
            for (uint64_t i = 0; i < COUNT; i++)
                CHECK(isnan(x[i]) == (i / size == element / size));
            free(x);
            free(parts);
            free(sum);
        }
}

static void zeros_and_subnormal_scales_are_zeros(void)
{
    static const float numbers[] = {0, -0.0f, 0x1p-149f, -0x1p-126f, 0x1.8p-124f, -0x1p-120f};
    static const bool int8_zero[] = {true, true, true, true, true, true};
    static const bool int4_zero[] = {true, true, true, true, true, false};
    static const struct mics_int8_block zero8;
    static const struct mics_int4_block zero4;
    float x[MICS_BLOCK] = {0};

    for (size_t n = 0; n < LENGTH(numbers); n++) {
        struct mics_int8_block int8;
        struct mics_int4_block int4;

        x[100] = numbers[n];
        convert(pools[0], &int8, MICS_INT8, x, MICS_F32, MICS_BLOCK);
        convert(pools[0], &int4, MICS_INT4, x, MICS_F32, MICS_BLOCK);
        CHECK((memcmp(&int8, &zero8, sizeof int8) == 0) == int8_zero[n]);
        CHECK((memcmp(&int4, &zero4, sizeof int4) == 0) == int4_zero[n]);
    }
}

/* Stochastic rounding ------------------------------------------------------------------------ */

static void convert_at_random(void *dst, enum mics_dtype to, const float *x, uint64_t count,
                              uint32_t replica, uint64_t seed, uint32_t step, uint64_t first)
{
    mics_host_sum_blocks(pools[0], &(struct mics_args_sum_blocks){.dst = dst,
                                                                  .src = x,
                                                                  .count = count,
                                                                  .parts = 1,
                                                                  .dst_dtype = to,
                                                                  .stochastic = true,
                                                                  .replica = replica,
                                                                  .seed = seed,
                                                                  .step = step,
                                                                  .first = first});
}

/* Over 10,000 keys the mean is within four standard deviations. */
static void the_mean_of_many_keys_is_the_number(void)
{
    enum { KEYS = 10000 };

    for (size_t t = 0; t < LENGTH(block_types); t++) {
        const enum mics_dtype dtype = block_types[t];
        float *x = random_floats(MICS_BLOCK, t + 2), back[MICS_BLOCK];
        double sum[MICS_BLOCK] = {0};
        void *block = new_array(dtype, MICS_BLOCK);

        for (uint32_t key = 0; key < KEYS; key++) {
            convert_at_random(block, dtype, x, MICS_BLOCK, key % 7, 11, key, key * MICS_BLOCK);
            convert(pools[0], back, MICS_F32, block, dtype, MICS_BLOCK);
            for (int i = 0; i < MICS_BLOCK; i++)
                sum[i] += back[i];
        }
        for (uint64_t i = 0; i < MICS_BLOCK; i++) {
            const struct mics_int4_block *int4 = block;
            const double scale = dtype == MICS_INT8
                                     ? (double)((const struct mics_int8_block *)block)->scale
                                     : (double)float_of((uint32_t)int4->scale[i / 32] << 16);
            const double steps = fabs(x[i] / scale), part = steps - floor(steps);
            const double deviation = sqrt(part * (1 - part) / KEYS);

            CHECK_NEAR(sum[i] / KEYS / scale, x[i] / scale, 4 * deviation + 0x1p-16);
        }
        free(x);
        free(block);
    }
}

static void random_numbers_depend_on_the_key_alone(void)
{
    enum { COUNT = 6 * MICS_BLOCK, HALF = COUNT / 2 };
    const uint64_t bytes = mics_wire_bytes(MICS_INT8, COUNT);
    float *x = random_floats(COUNT, 4);
    char *whole = new_array(MICS_INT8, COUNT), *other = new_array(MICS_INT8, COUNT);

    convert_at_random(whole, MICS_INT8, x, COUNT, 1, 2, 3, 0);
    convert_at_random(other + bytes / 2, MICS_INT8, x + HALF, HALF, 1, 2, 3, HALF);
    convert_at_random(other, MICS_INT8, x, HALF, 1, 2, 3, 0);
    CHECK(memcmp(whole, other, bytes) == 0);
    convert_at_random(other, MICS_INT8, x, COUNT, 0, 2, 3, 0);
    CHECK(memcmp(whole, other, bytes) != 0);
    convert_at_random(other, MICS_INT8, x, COUNT, 1, 0, 3, 0);
    CHECK(memcmp(whole, other, bytes) != 0);
    convert_at_random(other, MICS_INT8, x, COUNT, 1, 2, 0, 0);
    CHECK(memcmp(whole, other, bytes) != 0);
    convert_at_random(other, MICS_INT8, x, COUNT, 1, 2, 3, MICS_BLOCK);
    CHECK(memcmp(whole, other, bytes) != 0);
    free(x);
    free(whole);
    free(other);
}

static void arrays_in_blocks_have_whole_blocks(void)
{
    CHECK_INT(mics_wire_bytes(MICS_INT8, 0), 0);
    CHECK_INT(mics_wire_bytes(MICS_INT8, 1), 260);
    CHECK_INT(mics_wire_bytes(MICS_INT8, 512), 520);
    CHECK_INT(mics_wire_bytes(MICS_INT4, 256), 144);
    CHECK_INT(mics_wire_bytes(MICS_INT4, 257), 288);
    CHECK_INT(mics_wire_bytes(MICS_U8, 257), 257);
    CHECK_INT(mics_wire_bytes(MICS_BF16, 257), 514);
}

int main(void)
{
    open_pools();
    TAP_RUN(arrays_in_blocks_have_whole_blocks);
    TAP_RUN(any_types_and_parts_give_the_bits_of_the_reference);
    TAP_RUN(an_element_is_off_by_half_a_step_at_most);
    TAP_RUN(values_on_the_grid_are_exact_and_stay);
    TAP_RUN(the_largest_number_is_never_clamped);
    TAP_RUN(a_large_block_does_not_touch_others);
    TAP_RUN(nan_and_infinity_make_their_block_nan);
    TAP_RUN(zeros_and_subnormal_scales_are_zeros);
    TAP_RUN(the_mean_of_many_keys_is_the_number);
    TAP_RUN(random_numbers_depend_on_the_key_alone);
    return close_pools();
}
