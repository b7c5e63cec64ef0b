/* SPDX-License-Identifier: Apache-2.0 */
/* The emulator's own tests: barriers, shuffles, shared memory, and what it must refuse. */
#include "cuda/gpu.h"

#include <cuda_bf16.h>
#include <unistd.h>

#include "tap.h"

#include <stdlib.h>

/* Expected errors are not shown. */
static int quiet_begin(void)
{
    int saved = dup(STDERR_FILENO);

    fflush(stderr);
    if (!freopen("/dev/null", "w", stderr))
        CHECK(!"opened /dev/null");
    return saved;
}

static void quiet_end(int saved)
{
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
}

#define CHECK_FAILS(launch)                                                                        \
    do {                                                                                           \
        int saved = quiet_begin();                                                                 \
        cudaError_t got = (launch);                                                                \
                                                                                                   \
        quiet_end(saved);                                                                          \
        CHECK_INT(got, cudaErrorLaunchFailure);                                                    \
        CHECK_INT(cudaGetLastError(), cudaErrorLaunchFailure);                                     \
        cudaDeviceReset();                                                                         \
    } while (0)

__global__ void number(int *out, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);

    if (i < n)
        out[i] = i;
}

static void every_thread_of_a_grid_runs_once(void)
{
    int out[1000];

    memset(out, 0xff, sizeof(out));
    CHECK_INT(MICS_LAUNCH(number, 8, 128, 0, nullptr, out, 1000), cudaSuccess);
    for (int i = 0; i < 1000; i++)
        CHECK_INT(out[i], i);
}

__global__ void indices(unsigned *out)
{
    unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);

    out[block * blockDim.x * blockDim.y * blockDim.z + thread]++;
}

static void indices_have_three_dimensions(void)
{
    unsigned out[2 * 3 * 4 * 30] = {};

    CHECK_INT(MICS_LAUNCH(indices, dim3(2, 3, 4), dim3(5, 3, 2), 0, nullptr, out), cudaSuccess);
    for (unsigned one : out)
        CHECK_INT(one, 1);
}

/* out = in reversed inside each block, through shared memory, some rounds. */
template <int rounds> __global__ void reverse(float *out, const float *in)
{
    MICS_SHARED(float, tile, [256]);
    unsigned i = threadIdx.x, n = blockDim.x, at = blockIdx.x * n + i;
    float value = in[at];

    for (int round = 0; round < rounds; round++) {
        tile[i] = value;
        __syncthreads();
        value = tile[n - 1 - i];
        __syncthreads();
    }
    out[at] = value;
}

static void barriers_separate_writes_from_reads_in_any_order(void)
{
    float in[512], out[512];

    for (int i = 0; i < 512; i++)
        in[i] = (float)i;
    for (uint64_t order = 0; order < 4; order++) {
        emu_set_order(order);
        CHECK_INT(MICS_LAUNCH(reverse<3>, 2, 256, 0, nullptr, out, in), cudaSuccess);
        for (int i = 0; i < 512; i++)
            CHECK(out[i] == in[i / 256 * 256 + 255 - i % 256]);
    }
    emu_set_order(0);
}

__global__ void forget_barrier(float *out)
{
    MICS_SHARED(float, tile, [64]);

    tile[threadIdx.x] = 1;
    out[threadIdx.x] = tile[(threadIdx.x + 1) % 64];
}

static void a_missing_barrier_shows_as_nan(void)
{
    float out[64];
    int bad = 0;

    CHECK_INT(MICS_LAUNCH(forget_barrier, 1, 64, 0, nullptr, out), cudaSuccess);
    for (float one : out)
        bad += isnan(one);
    CHECK(bad > 0);
}

__global__ void count_predicates(int *out)
{
    int i = (int)threadIdx.x;

    out[3 * i] = __syncthreads_count(i % 3 == 0);
    out[3 * i + 1] = __syncthreads_or(i == 77);
    out[3 * i + 2] = __syncthreads_and(i != 77);
}

static void barriers_count_predicates(void)
{
    int out[300];

    CHECK_INT(MICS_LAUNCH(count_predicates, 1, 100, 0, nullptr, out), cudaSuccess);
    for (int i = 0; i < 100; i++) {
        CHECK_INT(out[3 * i], 34);
        CHECK_INT(out[3 * i + 1], 1);
        CHECK_INT(out[3 * i + 2], 0);
    }
}

__global__ void shuffle(int *out)
{
    int i = (int)threadIdx.x, value = 100 * i;
    int *mine = out + 6 * i;

    mine[0] = __shfl_sync(~0u, value, 5);
    mine[1] = __shfl_xor_sync(~0u, value, 1);
    mine[2] = __shfl_up_sync(~0u, value, 2);
    mine[3] = __shfl_down_sync(~0u, value, 3, 16);
    mine[4] = (int)__ballot_sync(~0u, i % 2);
    mine[5] = __any_sync(~0u, i == 40) * 2 + __all_sync(~0u, i < 40);
}

static void lanes_of_a_warp_exchange_values(void)
{
    int out[6 * 64];

    for (uint64_t order = 0; order < 4; order++) {
        emu_set_order(order);
        CHECK_INT(MICS_LAUNCH(shuffle, 1, 64, 0, nullptr, out), cudaSuccess);
        for (int i = 0; i < 64; i++) {
            int lane = i % 32, *mine = out + 6 * i;

            CHECK_INT(mine[0], 100 * (i / 32 * 32 + 5));
            CHECK_INT(mine[1], 100 * (i ^ 1));
            CHECK_INT(mine[2], 100 * (lane < 2 ? i : i - 2));
            CHECK_INT(mine[3], 100 * (lane % 16 + 3 < 16 ? i + 3 : i));
            CHECK_INT((unsigned)mine[4], 0xaaaaaaaau);
            CHECK_INT(mine[5], i < 32 ? 1 : 2);
        }
    }
    emu_set_order(0);
}

__global__ void add_halves(float *out)
{
    unsigned i = threadIdx.x, half = i < 16 ? 0xffffu : 0xffff0000u;
    float sum = (float)i;

    for (int step = 8; step > 0; step /= 2)
        sum += __shfl_xor_sync(half, sum, step);
    out[i] = sum;
}

static void halves_of_a_warp_diverge(void)
{
    float out[32];

    CHECK_INT(MICS_LAUNCH(add_halves, 1, 32, 0, nullptr, out), cudaSuccess);
    CHECK_NEAR(out[3], 120, 0);
    CHECK_NEAR(out[30], 376, 0);
}

__global__ void leave_early(int *out)
{
    if (threadIdx.x < 10)
        return;
    __syncthreads();
    out[threadIdx.x] = 1;
}

__global__ void warp_leaves_early(int *out)
{
    if (threadIdx.x < 10)
        return;
    out[threadIdx.x] = __shfl_sync(~0u, 1, 20);
}

__global__ void split_at_barrier(int *out)
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __shfl_sync(threadIdx.x < 40 ? ~0u : 1u << threadIdx.x % 32, 1, 0);
    out[threadIdx.x] = 1;
}

__global__ void different_operations(int *out)
{
    if (threadIdx.x < 16)
        out[threadIdx.x] = __shfl_sync(~0u, 1, 0);
    else
        out[threadIdx.x] = (int)__ballot_sync(~0u, 1);
}

static void threads_that_wait_for_ever_fail_the_launch(void)
{
    int out[6 * 64];

    CHECK_FAILS(MICS_LAUNCH(leave_early, 1, 64, 0, nullptr, out));
    CHECK_FAILS(MICS_LAUNCH(warp_leaves_early, 1, 64, 0, nullptr, out));
    CHECK_FAILS(MICS_LAUNCH(split_at_barrier, 1, 64, 0, nullptr, out));
    CHECK_FAILS(MICS_LAUNCH(different_operations, 1, 64, 0, nullptr, out));
    CHECK_INT(MICS_LAUNCH(shuffle, 1, 32, 0, nullptr, out), cudaSuccess);
}

__global__ void fill_dynamic(float *out, int n)
{
    MICS_DYNAMIC_SHARED(float, tile);

    if (threadIdx.x == 0)
        out[n] = tile[n - 1]; /* undefined yet */
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        tile[i] = (float)i;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        out[i] = tile[n - 1 - i];
}

static void large_shared_memory_must_be_requested(void)
{
    enum { N = 20000 };
    static float out[N + 1];

    CHECK_INT(MICS_LAUNCH(fill_dynamic, 1, 64, N * sizeof(float), nullptr, out, N),
              cudaErrorInvalidValue);
    CHECK_INT(cudaGetLastError(), cudaSuccess); /* the launch has returned it */
    CHECK_INT(cudaFuncSetAttribute(fill_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   N * (int)sizeof(float)),
              cudaSuccess);
    CHECK_INT(MICS_LAUNCH(fill_dynamic, 1, 64, N * sizeof(float), nullptr, out, N), cudaSuccess);
    CHECK(isnan(out[N]));
    CHECK_NEAR(out[0], N - 1, 0);
    CHECK_INT(MICS_LAUNCH(fill_dynamic, 1, 2048, 0, nullptr, out, N),
              cudaErrorInvalidConfiguration);
    CHECK_INT(cudaGetLastError(), cudaSuccess);
}

__global__ void count_all(float *sum, unsigned *count)
{
    atomicAdd(sum, 0.5f);
    atomicAdd(count, 2u);
}

static void atomics_and_memory_work(void)
{
    float *sum, got;
    unsigned *count, got_count;

    CHECK_INT(cudaMalloc(&sum, sizeof(*sum)), cudaSuccess);
    CHECK_INT(cudaMalloc(&count, sizeof(*count)), cudaSuccess);
    cudaMemcpy(&got, sum, sizeof(got), cudaMemcpyDeviceToHost);
    CHECK(isnan(got));
    cudaMemset(sum, 0, sizeof(*sum));
    cudaMemset(count, 0, sizeof(*count));
    CHECK_INT(MICS_LAUNCH(count_all, 5, 70, 0, nullptr, sum, count), cudaSuccess);
    cudaMemcpy(&got, sum, sizeof(got), cudaMemcpyDeviceToHost);
    cudaMemcpy(&got_count, count, sizeof(got_count), cudaMemcpyDeviceToHost);
    CHECK_NEAR(got, 175, 0);
    CHECK_INT(got_count, 700);
    cudaFree(sum);
    cudaFree(count);
}

static void bf16_rounds_to_nearest_even(void)
{
    static const struct {
        float from;
        unsigned short to;
    } cases[] = {{1.0f, 0x3f80},     {1.00390625f, 0x3f80}, {1.01171875f, 0x3f82}, {-2.0f, 0xc000},
                 {INFINITY, 0x7f80}, {3.4e38f, 0x7f80},     {1.003907f, 0x3f81}};

    for (const auto &one : cases)
        CHECK_INT(__bfloat16_as_ushort(__float2bfloat16(one.from)), one.to);
    CHECK(isnan(__bfloat162float(__float2bfloat16(NAN))));
}

int main(void)
{
    setenv("MICS_EMULATED_ORDER", "early", 1); /* results are there when a launch returns */
    TAP_RUN(every_thread_of_a_grid_runs_once);
    TAP_RUN(indices_have_three_dimensions);
    TAP_RUN(barriers_separate_writes_from_reads_in_any_order);
    TAP_RUN(a_missing_barrier_shows_as_nan);
    TAP_RUN(barriers_count_predicates);
    TAP_RUN(lanes_of_a_warp_exchange_values);
    TAP_RUN(halves_of_a_warp_diverge);
    TAP_RUN(threads_that_wait_for_ever_fail_the_launch);
    TAP_RUN(large_shared_memory_must_be_requested);
    TAP_RUN(atomics_and_memory_work);
    TAP_RUN(bf16_rounds_to_nearest_even);
    return tap_done();
}
