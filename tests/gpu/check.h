/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - shared by the checks of the GPU's operations: arrays on host and device, runs,
 * comparisons.
 *
 * The same sources run on a GPU and, in every test run, on the emulator. An operation is run twice
 * from the same initial state and must give the same bits (the emulator runs the threads in another
 * order the second time); then its results are compared with those of the host's operation in fp32
 * on the same numbers. Arrays are exactly as long as they are declared, so that AddressSanitizer or
 * compute-sanitizer sees what goes beyond them; outputs are NaN before.
 */
#ifndef MICS_TESTS_GPU_CHECK_H
#define MICS_TESTS_GPU_CHECK_H

#include "cuda/kernels.h"
#include "host/kernels.h"
#include "host/numbers.h"
#include "tap.h"

#include <stdlib.h>

#ifdef MICS_EMULATED
#include "order.h"
#else
static inline void emu_order(uint64_t seed)
{
    (void)seed;
}
#endif

/* Sizes at which kernels break. */
static const uint32_t sizes[] = {0, 1, 31, 32, 33, 4097};

#define SIZES         (sizeof(sizes) / sizeof(sizes[0]))
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const enum mics_dtype dtypes[] = {MICS_F32, MICS_BF16};

static struct mics_cuda_at at;
static struct mics_pool *pool;

/* `count` elements of a type. */
struct array {
    enum mics_dtype dtype;
    size_t count;
    float *values; /* at the beginning; the host's operation works on them */
    void *device;
    char *memory; /* device points a little way into it */
    char *begin;  /* the bytes that device has at the beginning */
    char *got;    /* those after an operation */
};

static inline void must(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    printf("Bail out! %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

static inline void *need(size_t bytes)
{
    void *memory = calloc(1, bytes + 1);

    if (!memory)
        abort();
    return memory;
}

static inline size_t array_bytes(const struct array *a)
{
    return a->count * mics_dtype_bytes(a->dtype);
}

static inline void array_send(const struct array *a)
{
    must(cudaMemcpy(a->device, a->begin, array_bytes(a), cudaMemcpyHostToDevice), "copy");
}

/* Widen the bytes of an array. */
static inline float *array_widen(const struct array *a, const char *bytes)
{
    float *out = need(a->count * sizeof(float));

    mics_numbers_to_f32(a->dtype == MICS_BF16 ? MICS_STORAGE_BF16 : MICS_STORAGE_F32, bytes, out,
                        a->count);
    return out;
}

/* One element. */
static inline float array_at(const struct array *a, const char *bytes, size_t i)
{
    float out;

    mics_numbers_to_f32(a->dtype == MICS_BF16 ? MICS_STORAGE_BF16 : MICS_STORAGE_F32,
                        bytes + i * mics_dtype_bytes(a->dtype), &out, 1);
    return out;
}

/* An array of given numbers, rounded to its type, `shift` elements away from an aligned address. */
static inline struct array array_of(enum mics_dtype dtype, const float *numbers, size_t count,
                                    unsigned shift)
{
    struct array a = {.dtype = dtype, .count = count};
    const size_t away = shift * mics_dtype_bytes(dtype);

    a.begin = need(array_bytes(&a));
    a.got = need(array_bytes(&a));
    mics_numbers_from_f32(dtype == MICS_BF16 ? MICS_STORAGE_BF16 : MICS_STORAGE_F32, numbers,
                          a.begin, count);
    a.values = array_widen(&a, a.begin);
    must(cudaMalloc((void **)&a.memory, array_bytes(&a) + away), "cudaMalloc");
    a.device = a.memory + away;
    array_send(&a);
    return a;
}

/* Numbers in [-scale, scale), a function of `seed`. */
static inline struct array array_random(enum mics_dtype dtype, size_t count, float scale,
                                        uint64_t seed, unsigned shift)
{
    float *numbers = need(count * sizeof(float));
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    struct array a;

    for (size_t i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        numbers[i] = scale * (float)((double)(state >> 11) / 4503599627370496.0 - 1.0);
    }
    a = array_of(dtype, numbers, count, shift);
    free(numbers);
    return a;
}

/* An output: NaN. */
static inline struct array array_output(enum mics_dtype dtype, size_t count, unsigned shift)
{
    struct array a = array_random(dtype, count, 1, 1, shift);

    memset(a.begin, 0xff, array_bytes(&a));
    array_send(&a);
    return a;
}

static inline void array_free(struct array *a)
{
    must(cudaFree(a->memory), "cudaFree");
    free(a->values);
    free(a->begin);
    free(a->got);
}

static inline void arrays_send(struct array *const arrays[])
{
    for (; *arrays; arrays++)
        array_send(*arrays);
}

static inline void arrays_free(struct array *const arrays[])
{
    for (; *arrays; arrays++)
        array_free(*arrays);
}

#define ARRAYS_SEND(...) arrays_send((struct array *const[]){__VA_ARGS__, NULL})
#define ARRAYS_FREE(...) arrays_free((struct array *const[]){__VA_ARGS__, NULL})

/* After the first run: keep the result, and restore the initial state for the second. */
static inline void after_first(struct array *const outs[])
{
    must(cudaStreamSynchronize(at.stream), "a kernel");
    for (; *outs; outs++) {
        must(cudaMemcpy((*outs)->got, (*outs)->device, array_bytes(*outs), cudaMemcpyDeviceToHost),
             "copy");
        array_send(*outs);
    }
    emu_order(7);
}

/* After the second: its bits are those of the first. */
static inline void after_second(struct array *const outs[])
{
    must(cudaStreamSynchronize(at.stream), "a kernel");
    emu_order(0);
    for (; *outs; outs++) {
        char *again = need(array_bytes(*outs));

        must(cudaMemcpy(again, (*outs)->device, array_bytes(*outs), cudaMemcpyDeviceToHost),
             "copy");
        CHECK(memcmp(again, (*outs)->got, array_bytes(*outs)) == 0);
        free(again);
    }
}

/* Run mics_cuda_NAME(&at, args) twice; the arrays that follow are what it writes. */
#define RUN(name, args, ...)                                                                       \
    do {                                                                                           \
        struct array *const run_outs[] = {__VA_ARGS__, NULL};                                      \
        CHECK_INT(mics_cuda_##name(&at, args), cudaSuccess);                                       \
        after_first(run_outs);                                                                     \
        CHECK_INT(mics_cuda_##name(&at, args), cudaSuccess);                                       \
        after_second(run_outs);                                                                    \
    } while (0)

/* The largest |got - want| / max(1, |want|); infinite where only one is NaN. */
static inline double array_error(const struct array *a, const float *want)
{
    float *got = array_widen(a, a->got);
    double worst = 0;

    for (size_t i = 0; i < a->count; i++) {
        const double error = isnan(want[i]) && isnan(got[i]) ? 0
                             : got[i] == want[i]
                                 ? 0
                                 : fabs((double)got[i] - want[i]) / fmax(1, fabs((double)want[i]));

        worst = error <= worst ? worst : isnan(error) ? INFINITY : error;
    }
    free(got);
    return worst;
}

/* A result agrees with what the host made in its values: to `tolerance` in fp32, and in bf16 to
 * half a unit of the last place (2^-8 of the number at most) and as much more. */
#define CHECK_ARRAY(a, want, tolerance)                                                            \
    CHECK_NEAR(array_error(a, want), 0,                                                            \
               (a)->dtype == MICS_BF16 ? 0.00391 + (tolerance) : (tolerance))

/* Grids are made for 2 multiprocessors, so that few blocks have much to do; or for many. */
static inline void few_multiprocessors(bool few)
{
    at.multiprocessors = few ? 2 : 132;
}

/* Open the device and the pool; a machine without a GPU bails out. */
static inline void open_gpu(void)
{
    few_multiprocessors(false);
    must(cudaStreamCreate(&at.stream), "cudaStreamCreate");
    must(cudaMalloc(&at.workspace, MICS_CUDA_WORKSPACE_BYTES), "cudaMalloc");
    must(cudaMemset(at.workspace, 0xff, MICS_CUDA_WORKSPACE_BYTES), "cudaMemset");
    must(mics_cuda_products_open(&at.products), "cuBLASLt");
    pool = mics_pool_new(1);
    if (!pool)
        abort();
}

static inline int close_gpu(void)
{
    mics_cuda_products_close(at.products);
    must(cudaFree(at.workspace), "cudaFree");
    must(cudaStreamDestroy(at.stream), "cudaStreamDestroy");
    mics_pool_free(pool);
    return tap_done();
}

#endif
