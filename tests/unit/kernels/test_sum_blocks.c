/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and conversions of arrays in blocks, against loops over single elements. */
#include "host/numbers.h"
#include "host/pool.h"
#include "kernels.h"

static const enum mics_dtype types[] = {MICS_F32, MICS_BF16, MICS_INT8, MICS_INT4};
static const uint64_t counts[] = {0, 1, 31, 32, 33, 255, 256, 257, 4097, 70000};

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* An array of a type with room behind it, to see what is written too far. */
static void *new_array(enum mics_dtype dtype, uint64_t count)
{
    const uint64_t bytes = mics_wire_bytes(dtype, count);
    unsigned char *out = malloc(bytes + 64);

    if (!out)
        abort();
    return memset(out, 0xa5, bytes + 64);
}

static bool is_untouched_behind(const void *array, enum mics_dtype dtype, uint64_t count)
{
    const unsigned char *end = (const unsigned char *)array + mics_wire_bytes(dtype, count);

    for (int i = 0; i < 64; i++)
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

/* The largest |x| of the (sub-)block of element i. */
static float largest_around(const float *x, uint64_t i, uint64_t count, enum mics_dtype dtype)
{
    const uint64_t size = dtype == MICS_INT8 ? MICS_BLOCK : MICS_SUB_BLOCK;
    float largest = 0;

    for (uint64_t k = i / size * size; k < count && k < (i / size + 1) * size; k++)
        largest = fmaxf(largest, fabsf(x[k]));
    return largest;
}

static void an_element_is_off_by_half_a_step_at_most(void)
{
    for (int t = 2; t < 4; t++)
        for (size_t c = 0; c < LENGTH(counts); c++) {
            const uint64_t count = counts[c];
            float *x = random_floats(count, c + 1), *back = new_array(MICS_F32, count);
            void *blocks = new_array(types[t], count);
            const double steps = types[t] == MICS_INT8 ? MICS_INT8_MAX : MICS_INT4_MAX;
            const double wider =
                types[t] == MICS_INT8 ? 0x1p-16 : 0x1p-7; /* the scale's rounding */

            for (uint64_t i = 0; i < count; i++)
                x[i] *= expf((float)(i / 100 % 13));
            convert(pools[c % POOLS], blocks, types[t], x, MICS_F32, count);
            convert(pools[c % POOLS], back, MICS_F32, blocks, types[t], count);
            for (uint64_t i = 0; i < count; i++) {
                const double largest = largest_around(x, i, count, types[t]);

                CHECK(fabs((double)back[i] - x[i]) <=
                      largest / steps * (1 + wider) * (0.5 + 0x1p-16));
            }
            CHECK(is_untouched_behind(blocks, types[t], count));
            CHECK(is_untouched_behind(back, MICS_F32, count));
            free(x);
            free(back);
            free(blocks);
        }
}

int main(void)
{
    open_pools();
    TAP_RUN(an_element_is_off_by_half_a_step_at_most);
    return close_pools();
}
