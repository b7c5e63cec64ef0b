/* SPDX-License-Identifier: Apache-2.0 */
/* The emulated matrix instructions and asynchronous copies, on products and copies by hand. */
#include "cuda/tensor.cuh"

#include "tap.h"

#include <stdlib.h>

/* c = a b' for a, b in shared memory, [16][16] and [8][16]; `trans`: b is [16][8] there. */
template <typename T, bool trans>
__global__ void multiply(float *c, const uint16_t *a, const uint16_t *b)
{
    MICS_SHARED(uint16_t, tile_a, [16][16]);
    MICS_SHARED(uint16_t, tile_b, [16][16]);
    unsigned lane = threadIdx.x, g = lane / 4, t = lane % 4 * 2;
    uint32_t fa[4], fb[4];
    float sum[4] = {};

    for (unsigned i = lane; i < 256; i += 32) {
        tile_a[i / 16][i % 16] = a[i];
        tile_b[i / 16][i % 16] = 0;
    }
    __syncwarp();
    for (unsigned i = lane; i < 128; i += 32)
        tile_b[trans ? i / 8 : i / 16][trans ? i % 8 : i % 16] = b[i];
    __syncwarp();
    mics_ldmatrix(fa, mics_shared(&tile_a[lane % 16][lane / 16 * 8]));
    if (trans)
        mics_ldmatrix_trans(fb, mics_shared(&tile_b[lane % 16][lane / 16 * 8]));
    else
        mics_ldmatrix(fb, mics_shared(&tile_b[lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8]));
    mics_mma<T>(sum, fa, fb[0], fb[1]);
    for (unsigned i = 0; i < 4; i++)
        c[(g + i / 2 * 8) * 8 + t + i % 2] = sum[i];
}

/* Small whole numbers, whose sums are exact. */
static float number(unsigned i, unsigned seed)
{
    return (float)((i * 7 + seed * 13) % 11) - 5;
}

template <typename T> static void check_product(bool trans)
{
    uint16_t a[256], b[128];
    float c[128];

    for (unsigned i = 0; i < 256; i++)
        a[i] = mics_half_type<T>::narrow(number(i, 1));
    for (unsigned i = 0; i < 128; i++)
        b[i] = mics_half_type<T>::narrow(number(i, 2));
    CHECK_INT(trans ? MICS_LAUNCH((multiply<T, true>), 1, 32, 0, nullptr, c, a, b)
                    : MICS_LAUNCH((multiply<T, false>), 1, 32, 0, nullptr, c, a, b),
              cudaSuccess);
    for (unsigned m = 0; m < 16; m++)
        for (unsigned n = 0; n < 8; n++) {
            float want = 0;

            for (unsigned k = 0; k < 16; k++)
                want += number(m * 16 + k, 1) * number(trans ? k * 8 + n : n * 16 + k, 2);
            CHECK_NEAR(c[m * 8 + n], want, 0);
        }
}

static void a_warp_multiplies_matrices(void)
{
    check_product<mics_bf16>(false);
    check_product<mics_f16>(false);
}

static void a_warp_multiplies_with_a_transposed_load(void)
{
    check_product<mics_bf16>(true);
    check_product<mics_f16>(true);
}

/* Three groups of copies, of which all but `pending` are waited for; the third is of zeros. */
template <int pending> __global__ void copy(float *out, const float *in)
{
    MICS_SHARED(float, tile, [12]);

    mics_copy_async(mics_shared(tile), in);
    mics_copy_commit();
    mics_copy_async(mics_shared(tile + 4), in + 4);
    mics_copy_commit();
    mics_copy_async_or_zero(mics_shared(tile + 8), in, false);
    mics_copy_async_word_or_zero(mics_shared(tile + 8), in + 5, true);
    mics_copy_commit();
    mics_copy_wait<pending>();
    for (unsigned i = 0; i < 12; i++)
        out[i] = tile[i];
}

static void copies_arrive_when_they_are_waited_for(void)
{
    alignas(16) float in[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    float out[12];

    CHECK_INT(MICS_LAUNCH(copy<0>, 1, 1, 0, nullptr, out, in), cudaSuccess);
    CHECK(out[0] == 1 && out[7] == 8 && out[8] == 6 && out[9] == 0 && out[11] == 0);
    CHECK_INT(MICS_LAUNCH(copy<1>, 1, 1, 0, nullptr, out, in), cudaSuccess);
    CHECK(out[3] == 4 && out[4] == 5 && isnan(out[8]) && isnan(out[11]));
    CHECK_INT(MICS_LAUNCH(copy<2>, 1, 1, 0, nullptr, out, in), cudaSuccess);
    CHECK(out[0] == 1 && isnan(out[4]) && isnan(out[9]));
}

__global__ void load_rows(uint32_t *out, unsigned stride)
{
    MICS_DYNAMIC_SHARED(unsigned char, tile);
    uint32_t r[4];

    memset(tile + threadIdx.x * stride, 0, 16);
    __syncwarp();
    mics_ldmatrix(r, mics_shared(tile + threadIdx.x * stride));
    out[threadIdx.x] = r[0];
}

static void rows_in_the_same_banks_are_counted(void)
{
    uint32_t out[32];
    uint64_t before = emu_bank_conflicts;

    CHECK_INT(MICS_LAUNCH(load_rows, 1, 32, 32 * 144, nullptr, out, 144), cudaSuccess);
    CHECK_INT(emu_bank_conflicts - before, 0);
    CHECK_INT(MICS_LAUNCH(load_rows, 1, 32, 32 * 128, nullptr, out, 128), cudaSuccess);
    CHECK_INT(emu_bank_conflicts - before, 4);
}

int main(void)
{
    setenv("MICS_EMULATED_ORDER", "early", 1); /* results are there when a launch returns */
    TAP_RUN(a_warp_multiplies_matrices);
    TAP_RUN(a_warp_multiplies_with_a_transposed_load);
    TAP_RUN(copies_arrive_when_they_are_waited_for);
    TAP_RUN(rows_in_the_same_banks_are_counted);
    return tap_done();
}
