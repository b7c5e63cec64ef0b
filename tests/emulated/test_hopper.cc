/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulated products of a warpgroup, bulk copies and their barriers, against plain sums.
 *
 * Where an element lies in shared memory is written here once more, from the PTX manual's drawings of the layouts with
 * 128-byte swizzle, not with the descriptors that are under test.
 */
#include "cuda/bulk.cuh"

#include <unistd.h>
#include <vector>

#include "tap.h"

/* Small whole numbers, whose sums are exact. */
static float number(unsigned i, unsigned j, unsigned seed)
{
    return (float)((i * 7 + j * 5 + seed * 13) % 11) - 5;
}

static uint16_t bits_of(float value)
{
    return __bfloat16_as_ushort(__float2bfloat16(value));
}

/* Errors that are meant are not shown. */
template <typename F> static cudaError_t quietly(F launch)
{
    int saved = dup(STDERR_FILENO);
    cudaError_t error;

    fflush(stderr);
    CHECK(freopen("/dev/null", "w", stderr) != nullptr);
    error = launch();
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    cudaDeviceReset();
    return error;
}

/* The drawing: atoms of 8 rows of 8 chunks of 16 bytes; in row r of an atom, logical chunk c is chunk c ^ r. Atoms
 * of one column block follow each other downwards, column blocks of 64 numbers one after another. */
static unsigned place(unsigned rows, unsigned row, unsigned column)
{
    unsigned atom = column / 64 * (rows / 8) + row / 8, chunk = column % 64 / 8;

    return atom * 1024 + row % 8 * 128 + (chunk ^ (row % 8)) * 16 + column % 8 * 2;
}

template <int rows, int columns> static void write_tile(unsigned char *tile, unsigned seed)
{
    for (unsigned i = threadIdx.x; i < rows * columns; i += blockDim.x) {
        uint16_t bits = bits_of(number(i / columns, i % columns, seed));

        memcpy(tile + place(rows, i / columns, i % columns), &bits, sizeof(bits));
    }
}

template <int blocks> static void store(float *c, const float (&d)[blocks][4])
{
    unsigned warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

    for (unsigned n = 0; n < blocks; n++)
        for (unsigned i = 0; i < 4; i++)
            c[(warp * 16 + g + i / 2 * 8) * (blocks * 8) + n * 8 + t * 2 + i % 2] = d[n][i];
}

/* c[64, N] = 1 + a b: a is a tile of [64, K], or of [K, 64] when MN-major; b of [N, K] or [K, N]. */
template <enum mics_major a_major, enum mics_major b_major, int N, int K>
__global__ void multiply(float *c)
{
    MICS_DYNAMIC_SHARED(unsigned char, memory);
    constexpr bool a_k = a_major == MICS_K_MAJOR, b_k = b_major == MICS_K_MAJOR;
    constexpr int a_rows = a_k ? 64 : K, b_rows = b_k ? N : K;
    mics_shared_at a = mics_shared(memory), b = a + 64 * K * 2;
    float d[N / 8][4];

    write_tile<a_rows, a_k ? K : 64>(memory, 1);
    write_tile<b_rows, b_k ? K : N>(memory + 64 * K * 2, 2);
    mics_async_fence();
    __syncthreads();
    for (unsigned n = 0; n < N / 8; n++)
        d[n][0] = d[n][1] = d[n][2] = d[n][3] = 1;
    mics_wgmma_settle(d);
    mics_wgmma_fence();
    for (unsigned k = 0; k < K / 16; k++)
        mics_wgmma<a_major, b_major>(
            d, a_k ? mics_matrix_k<a_rows>(a, 0, k) : mics_matrix_mn<a_rows>(a, 0, k),
            b_k ? mics_matrix_k<b_rows>(b, 0, k) : mics_matrix_mn<b_rows>(b, 0, k), true);
    mics_wgmma_commit();
    mics_wgmma_wait<0>();
    mics_wgmma_settle(d);
    store(c, d);
}

template <enum mics_major a_major, enum mics_major b_major, int N, int K>
static void check_product(void)
{
    std::vector<float> c(64 * N);
    unsigned wrong = 0;

    auto kernel = multiply<a_major, b_major, N, K>;
    CHECK_INT(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 128 << 10),
              cudaSuccess);
    CHECK_INT(MICS_LAUNCH(kernel, 1, 128, (64 + N) * K * 2, nullptr, c.data()), cudaSuccess);
    for (unsigned m = 0; m < 64; m++)
        for (unsigned n = 0; n < N; n++) {
            float want = 1;

            for (unsigned k = 0; k < K; k++)
                want += (a_major == MICS_K_MAJOR ? number(m, k, 1) : number(k, m, 1)) *
                        (b_major == MICS_K_MAJOR ? number(n, k, 2) : number(k, n, 2));
            wrong += c[m * N + n] != want;
        }
    CHECK_INT(wrong, 0);
}

static void tiles_are_multiplied_in_each_way(void)
{
    check_product<MICS_K_MAJOR, MICS_K_MAJOR, 64, 64>();
    check_product<MICS_K_MAJOR, MICS_K_MAJOR, 128, 128>();
    check_product<MICS_K_MAJOR, MICS_K_MAJOR, 32, 192>();
    check_product<MICS_K_MAJOR, MICS_MN_MAJOR, 64, 64>();
    check_product<MICS_K_MAJOR, MICS_MN_MAJOR, 128, 128>();
    check_product<MICS_MN_MAJOR, MICS_K_MAJOR, 64, 128>();
    check_product<MICS_MN_MAJOR, MICS_MN_MAJOR, 128, 64>();
}

/* Rows 64 and on of a tile, columns 64 and on of a tile, and the left factor in registers: c[64, 64] = a b with a the
 * rows from 64 on of [128, 128] rounded through accumulators, b the columns from 64 on of [64, 128]. */
__global__ void multiply_held(float *c)
{
    MICS_DYNAMIC_SHARED(unsigned char, memory);
    mics_shared_at b = mics_shared(memory);
    unsigned warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float s[8][4], d[8][4];
    uint32_t a[4][4];

    write_tile<64, 128>(memory, 2);
    mics_async_fence();
    __syncthreads();
    for (unsigned n = 0; n < 8; n++)
        for (unsigned i = 0; i < 4; i++)
            s[n][i] = number(warp * 16 + g + i / 2 * 8, n * 8 + t * 2 + i % 2, 1);
    for (int k = 0; k < 4; k++)
        mics_wgmma_left(a[k], s, k);
    mics_wgmma_settle(a);
    mics_wgmma_fence();
    for (unsigned k = 0; k < 4; k++)
        mics_wgmma<MICS_MN_MAJOR>(d, a[k], mics_matrix_mn<64>(b, 64, k), k > 0);
    mics_wgmma_commit();
    mics_wgmma_wait<0>();
    mics_wgmma_settle(d);
    store(c, d);
}

static void the_left_factor_may_be_in_registers(void)
{
    std::vector<float> c(64 * 64);
    unsigned wrong = 0;

    CHECK_INT(MICS_LAUNCH(multiply_held, 1, 128, 64 * 128 * 2, nullptr, c.data()), cudaSuccess);
    for (unsigned m = 0; m < 64; m++)
        for (unsigned n = 0; n < 64; n++) {
            float want = 0;

            for (unsigned k = 0; k < 64; k++)
                want += number(m, k, 1) * number(k, 64 + n, 2);
            wrong += c[m * 64 + n] != want;
        }
    CHECK_INT(wrong, 0);
}

enum mistake {
    NONE,
    NO_ASYNC_FENCE,
    NO_FENCE,
    OVERWRITTEN, /* the tile, before the wait */
    READ_EARLY,  /* the accumulators */
    WRITTEN_EARLY,
    LEFT_CHANGED, /* a in registers */
    MISALIGNED,
    WARPS_DIFFER,
    WARP_ABSENT
};

/* c[64, 64] = a b of ones and a tile of ones, with one thing wrong. */
__global__ void blunder(float *c, enum mistake mistake)
{
    MICS_DYNAMIC_SHARED(uint16_t, tile);
    unsigned warp = threadIdx.x / 32;
    mics_shared_at b = mics_shared(tile) + (mistake == MISALIGNED ? 128 : 0);
    uint32_t a[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
    float d[8][4];

    for (unsigned i = threadIdx.x; i < 2 * 64 * 64; i += 128)
        tile[i] = 0x3f80;
    if (mistake != NO_ASYNC_FENCE)
        mics_async_fence();
    __syncthreads();
    if (mistake == WARP_ABSENT && warp == 2)
        return;
    if (mistake != NO_FENCE)
        mics_wgmma_fence();
    mics_wgmma<MICS_MN_MAJOR>(d, a, mics_matrix_mn<64>(b, 0, 0), false);
    mics_wgmma<MICS_MN_MAJOR>(
        d, a, mics_matrix_mn<64>(b, 0, mistake == WARPS_DIFFER && warp == 3 ? 2 : 1), true);
    mics_wgmma_commit();
    if (mistake == OVERWRITTEN) {
        tile[threadIdx.x] = 0;
        mics_async_fence();
    }
    if (mistake == READ_EARLY)
        store(c, d);
    if (mistake == WRITTEN_EARLY)
        d[1][1] = 0;
    if (mistake == LEFT_CHANGED)
        a[2] = 0;
    mics_wgmma_wait<0>();
    if (mistake != READ_EARLY)
        store(c, d);
}

/* Whether the launch fails, or its result is not what it should be. */
static bool shows(enum mistake mistake)
{
    std::vector<float> c(64 * 64);
    cudaError_t error = quietly([&]() {
        return MICS_LAUNCH(blunder, 1, 128, 2 * 64 * 64 * 2, nullptr, c.data(), mistake);
    });

    for (float one : c)
        if (error == cudaSuccess && one != 32)
            return true;
    return error != cudaSuccess;
}

static void mistakes_show(void)
{
    CHECK(!shows(NONE));
    CHECK(shows(NO_ASYNC_FENCE));
    CHECK(shows(NO_FENCE));
    CHECK(shows(OVERWRITTEN));
    CHECK(shows(READ_EARLY));
    CHECK(shows(WRITTEN_EARLY));
    CHECK(shows(LEFT_CHANGED));
    CHECK(shows(MISALIGNED));
    CHECK(shows(WARPS_DIFFER));
    CHECK(shows(WARP_ABSENT));
}

static const unsigned BOX = 16, T = 21, HEADS = 3, WIDTH = 40, STRIDE = 128;

/* One box of 64 columns by 16 rows, unswizzled again into out[16][64]. */
__global__ void fetch(uint16_t *out, const __grid_constant__ CUtensorMap map, unsigned head,
                      unsigned row, unsigned b, bool wait)
{
    MICS_DYNAMIC_SHARED(unsigned char, memory);
    mics_shared_at at = mics_shared(memory), barrier = at + BOX * 128;

    if (threadIdx.x == 0) {
        mics_mbarrier_init(barrier, 1);
        mics_mbarrier_publish();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        mics_mbarrier_expect(barrier, BOX * 128);
        mics_bulk_load(at, &map, barrier, 0, head, row, b);
    }
    if (wait)
        mics_mbarrier_wait(barrier, 0);
    for (unsigned i = threadIdx.x; i < BOX * 64; i += 32)
        memcpy(&out[i], memory + place(BOX, i / 64, i % 64), 2);
    __syncthreads();
    mics_mbarrier_wait(barrier, 0);
}

static void boxes_arrive_swizzled_and_zero_outside(void)
{
    std::vector<uint16_t> tensor(2 * T * STRIDE), out(BOX * 64);
    CUtensorMap map;
    unsigned wrong = 0;

    for (size_t i = 0; i < tensor.size(); i++)
        tensor[i] = (uint16_t)(i + 1);
    CHECK_INT(mics_tensor_map_make(&map, {tensor.data(), 2, T, HEADS, WIDTH, STRIDE}, BOX),
              cudaSuccess);
    for (unsigned row : {0u, 16u})
        for (unsigned b : {0u, 1u}) {
            CHECK_INT(
                MICS_LAUNCH(fetch, 1, 32, BOX * 128 + 8, nullptr, out.data(), map, 2, row, b, true),
                cudaSuccess);
            for (unsigned i = 0; i < BOX * 64; i++) {
                unsigned t = row + i / 64, d = i % 64;
                size_t from = (size_t)(b * T + t) * STRIDE + 2 * WIDTH + d;

                wrong += out[i] != (t < T && d < WIDTH ? tensor[from] : 0);
            }
        }
    CHECK_INT(wrong, 0);
}

static void boxes_arrive_no_earlier_than_they_are_waited_for(void)
{
    std::vector<uint16_t> tensor(2 * T * STRIDE, 1), out(BOX * 64);
    CUtensorMap map;

    CHECK_INT(mics_tensor_map_make(&map, {tensor.data(), 2, T, HEADS, WIDTH, STRIDE}, BOX),
              cudaSuccess);
    CHECK_INT(MICS_LAUNCH(fetch, 1, 32, BOX * 128 + 8, nullptr, out.data(), map, 0, 0, 0, false),
              cudaSuccess);
    CHECK_INT(out[0], 0xffff);
    CHECK_INT(out[BOX * 64 - 1], 0xffff);
}

static void maps_that_the_driver_refuses(void)
{
    alignas(16) uint16_t tensor[64];
    CUtensorMap map;

    CHECK_INT(mics_tensor_map_make(&map, {tensor + 1, 1, 1, 1, 64, 64}, 16), cudaErrorInvalidValue);
    CHECK_INT(mics_tensor_map_make(&map, {tensor, 1, 1, 1, 12, 12}, 16), cudaErrorInvalidValue);
    CHECK_INT(mics_tensor_map_make(&map, {tensor, 1, 1, 1, 64, 64}, 257), cudaErrorInvalidValue);
    CHECK_INT(mics_tensor_map_make(&map, {tensor, 0, 1, 1, 64, 64}, 16), cudaErrorInvalidValue);
}

static const unsigned STAGES = 2, ROUNDS = 7;

/* Thread 128 fills a ring of two stages; 128 others sum what they find, `arrivals` of them say so. */
__global__ void ring(float *out, const __grid_constant__ CUtensorMap map, unsigned arrivals)
{
    MICS_DYNAMIC_SHARED(unsigned char, memory);
    mics_shared_at at = mics_shared(memory), full = at + STAGES * BOX * 128, empty = full + 16;
    float sum = 0;

    if (threadIdx.x == 0) {
        for (unsigned s = 0; s < STAGES; s++) {
            mics_mbarrier_init(full + s * 8, 1);
            mics_mbarrier_init(empty + s * 8, arrivals);
        }
        mics_mbarrier_publish();
    }
    __syncthreads();
    for (unsigned j = 0; j < ROUNDS; j++) {
        unsigned s = j % STAGES, turn = j / STAGES % 2;
        uint16_t bits;

        if (threadIdx.x == 128) {
            mics_mbarrier_wait(empty + s * 8, turn ^ 1);
            mics_mbarrier_expect(full + s * 8, BOX * 128);
            mics_bulk_load(at + s * BOX * 128, &map, full + s * 8, 0, 0, j, 0);
        } else if (threadIdx.x < 128) {
            mics_mbarrier_wait(full + s * 8, turn);
            memcpy(&bits, memory + s * BOX * 128 + place(BOX, 0, threadIdx.x % 64), 2);
            sum += __bfloat162float(__ushort_as_bfloat16(bits));
            if (threadIdx.x < arrivals)
                mics_mbarrier_arrive(empty + s * 8);
        }
    }
    if (threadIdx.x < 128)
        out[threadIdx.x] = sum;
}

/* Of 128; all, when threads wait for ever. */
static unsigned wrong_sums(unsigned arrivals, uint64_t seed)
{
    std::vector<uint16_t> tensor(32 * 64);
    std::vector<float> out(128);
    CUtensorMap map;
    cudaError_t error;
    unsigned wrong = 0;

    for (unsigned i = 0; i < tensor.size(); i++)
        tensor[i] = bits_of(number(i / 64, i % 64, 1));
    CHECK_INT(mics_tensor_map_make(&map, {tensor.data(), 1, 32, 1, 64, 64}, BOX), cudaSuccess);
    emu_set_order(seed);
    error = quietly([&]() {
        return MICS_LAUNCH(ring, 1, 160, STAGES * BOX * 128 + 32, nullptr, out.data(), map,
                           arrivals);
    });
    emu_set_order(0);
    if (error != cudaSuccess)
        return 128;
    for (unsigned i = 0; i < 128; i++) {
        float want = 0;

        for (unsigned j = 0; j < ROUNDS; j++)
            want += number(j, i % 64, 1);
        wrong += !(out[i] == want);
    }
    return wrong;
}

static void a_ring_works_when_all_readers_arrive(void)
{
    for (uint64_t seed = 0; seed < 20; seed++)
        CHECK_INT(wrong_sums(128, seed), 0);
}

static void a_ring_shows_a_reader_that_does_not_arrive(void)
{
    unsigned wrong = 0;

    for (uint64_t seed = 0; seed < 20; seed++)
        wrong += wrong_sums(32, seed);
    CHECK(wrong > 0);
}

/* Two warps in turns, by two named barriers. */
__global__ void take_turns(unsigned *out, bool sync)
{
    MICS_SHARED(unsigned, steps, [1]);
    unsigned warp = threadIdx.x / 32;

    if (threadIdx.x == 0)
        steps[0] = 0;
    __syncthreads();
    if (warp == 1)
        mics_barrier_arrive(1, 64);
    for (unsigned i = 0; i < 5; i++) {
        if (sync)
            mics_barrier_sync(1 + warp, 64);
        if (threadIdx.x % 32 == 0)
            out[steps[0]++] = warp;
        if (sync)
            mics_barrier_arrive(2 - warp, 64);
        __syncwarp();
    }
}

static void named_barriers_order_warps(void)
{
    unsigned out[10];

    for (uint64_t seed = 0; seed < 10; seed++) {
        unsigned wrong = 0;

        emu_set_order(seed);
        CHECK_INT(MICS_LAUNCH(take_turns, 1, 64, 0, nullptr, out, true), cudaSuccess);
        for (unsigned i = 0; i < 10; i++)
            wrong += out[i] != i % 2;
        CHECK_INT(wrong, 0);
    }
    emu_set_order(0);
    CHECK_INT(MICS_LAUNCH(take_turns, 1, 64, 0, nullptr, out, false), cudaSuccess);
    CHECK(out[0] == out[1]);
}

/* A wait that nobody ends, a barrier that is none, a copy that nobody waits for. */
__global__ void get_stuck(const __grid_constant__ CUtensorMap map, unsigned how)
{
    MICS_DYNAMIC_SHARED(unsigned char, memory);
    mics_shared_at at = mics_shared(memory), barrier = at + BOX * 128;

    if (how != 1)
        mics_mbarrier_init(barrier, 1);
    if (how != 2)
        mics_mbarrier_publish();
    if (how > 0)
        mics_mbarrier_expect(barrier, BOX * 128);
    if (how > 1)
        mics_bulk_load(at, &map, barrier, 0, 0, 0, 0);
    if (how == 0)
        mics_mbarrier_wait(barrier, 0);
}

static void misuse_of_barriers_shows(void)
{
    alignas(16) uint16_t tensor[16 * 64] = {};
    CUtensorMap map;

    CHECK_INT(mics_tensor_map_make(&map, {tensor, 1, 16, 1, 64, 64}, BOX), cudaSuccess);
    for (unsigned how = 0; how < 4; how++)
        CHECK_INT(quietly([&]() {
                      return MICS_LAUNCH(get_stuck, 1, 1, BOX * 128 + 8, nullptr, map, how);
                  }),
                  cudaErrorLaunchFailure);
}

int main(void)
{
    setenv("MICS_EMULATED_ORDER", "early", 1); /* results are there when a launch returns */
    TAP_RUN(tiles_are_multiplied_in_each_way);
    TAP_RUN(the_left_factor_may_be_in_registers);
    TAP_RUN(mistakes_show);
    TAP_RUN(boxes_arrive_swizzled_and_zero_outside);
    TAP_RUN(boxes_arrive_no_earlier_than_they_are_waited_for);
    TAP_RUN(maps_that_the_driver_refuses);
    TAP_RUN(a_ring_works_when_all_readers_arrive);
    TAP_RUN(a_ring_shows_a_reader_that_does_not_arrive);
    TAP_RUN(named_barriers_order_warps);
    TAP_RUN(misuse_of_barriers_shows);
    return tap_done();
}
