/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - shared by the checks of the GPU's operations: arrays on host and device, runs,
 * comparisons.
 *
 * The same sources run on a GPU and, in every test run, on the emulator. An operation is run twice
 * from the same initial state and must give the same bits (the emulator runs the threads in another
 * order the second time), or once with AddressSanitizer; then its results are compared with those
 * of the host's operation in fp32 on the same numbers. Arrays are exactly as long as they are
 * declared, so that AddressSanitizer or compute-sanitizer sees what goes beyond them; outputs are
 * NaN before.
 */
#ifndef MICS_TESTS_GPU_CHECK_H
#define MICS_TESTS_GPU_CHECK_H

#include "cuda/kernels.h"
#include "host/kernels.h"
#include "host/numbers.h"
#include "operation.h"
#include "tap.h"

#include <stdarg.h>
#include <stdlib.h>

#ifdef MICS_EMULATED
#include "order.h"
#else
static inline void emu_order(uint64_t seed)
{
    (void)seed;
}
#endif

/* `count` elements of a type. */
struct tensor {
    enum mics_dtype dtype;
    size_t count;
    float *values; /* at the beginning; the host's operation works on them */
    void *device;
    char *memory; /* device points a little way into it */
    char *begin;  /* the bytes that device has at the beginning */
    char *got;    /* those after an operation */
};

/* An array of the case that is running. */
struct noted {
    struct tensor tensor;
    bool written; /* it may change */
};

static struct suite {
    struct mics_cuda_at at;
    struct mics_pool *pool;
    char name[128]; /* of the case */
    int bad;        /* checks that failed before it */
    struct noted noted[24];
    size_t count;
} gpu;

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

static inline size_t array_bytes(const struct tensor *a)
{
    return a->count * mics_dtype_bytes(a->dtype);
}

static inline void array_send(const struct tensor *a)
{
    must(cudaMemcpy(a->device, a->begin, array_bytes(a), cudaMemcpyHostToDevice), "copy");
}

/* Widen the bytes of an array. */
static inline float *array_widen(const struct tensor *a, const char *bytes)
{
    float *out = need(a->count * sizeof(float));

    mics_numbers_to_f32(storage_of(a->dtype), bytes, out, a->count);
    return out;
}

/* One element. */
static inline float array_at(const struct tensor *a, const char *bytes, size_t i)
{
    float out;

    mics_numbers_to_f32(storage_of(a->dtype), bytes + i * mics_dtype_bytes(a->dtype), &out, 1);
    return out;
}

/* An array of given numbers, rounded to its type, `shift` elements away from an aligned address. */
static inline struct tensor array_of(enum mics_dtype dtype, const float *numbers, size_t count,
                                     unsigned shift)
{
    struct tensor a = {.dtype = dtype, .count = count};
    const size_t away = shift * mics_dtype_bytes(dtype);

    a.begin = need(array_bytes(&a));
    a.got = need(array_bytes(&a));
    mics_numbers_from_f32(storage_of(dtype), numbers, a.begin, count);
    a.values = array_widen(&a, a.begin);
    must(cudaMalloc((void **)&a.memory, array_bytes(&a) + away), "cudaMalloc");
    a.device = a.memory + away;
    array_send(&a);
    return a;
}

/* Numbers in [-scale, scale), a function of `seed`. */
static inline struct tensor array_random(enum mics_dtype dtype, size_t count, float scale,
                                         uint64_t seed, unsigned shift)
{
    float *numbers = need(count * sizeof(float));
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    struct tensor a;

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
static inline struct tensor array_output(enum mics_dtype dtype, size_t count, unsigned shift)
{
    struct tensor a = array_random(dtype, count, 1, 1, shift);

    memset(a.begin, 0xff, array_bytes(&a));
    array_send(&a);
    return a;
}

static inline void array_free(struct tensor *a)
{
    must(cudaFree(a->memory), "cudaFree");
    free(a->values);
    free(a->begin);
    free(a->got);
}

static inline void arrays_free(struct tensor *const arrays[])
{
    for (; *arrays; arrays++)
        array_free(*arrays);
}

#define ARRAYS_FREE(...) arrays_free((struct tensor *const[]){__VA_ARGS__, NULL})

/* Builds without AddressSanitizer compare the bits of two runs. */
static const bool runs_twice = !TAP_ASAN;

/* After the first run: keep the result, and restore the initial state for the second. */
static inline void after_first(struct tensor *const outs[])
{
    must(cudaStreamSynchronize(gpu.at.stream), "a kernel");
    for (; *outs; outs++) {
        must(cudaMemcpy((*outs)->got, (*outs)->device, array_bytes(*outs), cudaMemcpyDeviceToHost),
             "copy");
        if (runs_twice)
            array_send(*outs);
    }
    emu_order(runs_twice ? 7 : 0);
}

/* After the second: its bits are those of the first. */
static inline void after_second(struct tensor *const outs[])
{
    must(cudaStreamSynchronize(gpu.at.stream), "a kernel");
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
        struct tensor *const run_outs[] = {__VA_ARGS__, NULL};                                     \
        CHECK_INT(mics_cuda_##name(&gpu.at, args), cudaSuccess);                                   \
        after_first(run_outs);                                                                     \
        if (!runs_twice)                                                                           \
            break;                                                                                 \
        CHECK_INT(mics_cuda_##name(&gpu.at, args), cudaSuccess);                                   \
        after_second(run_outs);                                                                    \
    } while (0)

/* The largest |got - want| / max(1, |want|); infinite where only one is NaN. */
static inline double array_error(const struct tensor *a, const float *want)
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

/* A result agrees with what the host made in its values: to `tolerance` in fp32, and in 16 bits
 * to half a unit of the last place and as much more. */
#define CHECK_ARRAY(a, want, tolerance)                                                            \
    CHECK_NEAR(array_error(a, want), 0,                                                            \
               half_unit((a)->dtype) + half_least((a)->dtype) + (tolerance))

/* --- cases that the recordings of the PTX share: operation.h */

/* Grids are made for `multiprocessors`; 0: for many. */
static inline void case_begin(struct suite *suite, int multiprocessors, const char *name, ...)
{
    va_list args;

    suite->at.multiprocessors = multiprocessors ? multiprocessors : 132;
    suite->count = 0;
    suite->bad = tap_bad;
    va_start(args, name);
    vsnprintf(suite->name, sizeof(suite->name), name, args);
    va_end(args);
}

static inline struct tensor case_note(struct suite *suite, struct tensor tensor)
{
    if (suite->count == LENGTH(suite->noted))
        abort();
    memcpy(tensor.got, tensor.begin, array_bytes(&tensor));
    suite->noted[suite->count++] = (struct noted){.tensor = tensor};
    return tensor;
}

static inline struct tensor case_random(struct suite *suite, const char *name,
                                        enum mics_dtype dtype, size_t count, float scale,
                                        uint64_t seed, unsigned shift)
{
    (void)name;
    return case_note(suite, array_random(dtype, count, scale, seed, shift));
}

static inline struct tensor case_output(struct suite *suite, const char *name,
                                        enum mics_dtype dtype, size_t count, unsigned shift)
{
    (void)name;
    return case_note(suite, array_output(dtype, count, shift));
}

/* Device memory with these bytes, or with 0xff (NULL); `shift` in bytes. */
static inline void *case_bytes(struct suite *suite, const char *name, const void *from,
                               size_t bytes, unsigned shift)
{
    struct tensor a = {.dtype = MICS_U8, .count = bytes, .begin = need(bytes), .got = need(bytes)};

    (void)name;
    must(cudaMalloc((void **)&a.memory, bytes + shift), "cudaMalloc");
    a.device = a.memory + shift;
    if (from)
        memcpy(a.begin, from, bytes);
    else
        memset(a.begin, 0xff, bytes);
    array_send(&a);
    return case_note(suite, a).device;
}

static inline struct noted *case_find(struct suite *suite, const void *device)
{
    struct noted *noted = suite->noted;

    while (noted->tensor.device != device)
        if (++noted == suite->noted + suite->count)
            abort();
    return noted;
}

/* The operation writes to `device`, but the result is not compared. */
static inline void case_scratch(struct suite *suite, const void *device)
{
    case_find(suite, device)->written = true;
}

/* Round the values to the array's type. */
static inline void case_round(struct tensor *tensor)
{
    const enum mics_storage_dtype to = storage_of(tensor->dtype);

    mics_numbers_from_f32(to, tensor->values, tensor->begin, tensor->count);
    mics_numbers_to_f32(to, tensor->begin, tensor->values, tensor->count);
}

/* Round the values and copy them to the device, for what the host computed first. */
static inline void case_send(struct suite *suite, struct tensor *tensor)
{
    (void)suite;
    case_round(tensor);
    array_send(tensor);
    memcpy(tensor->got, tensor->begin, array_bytes(tensor));
}

/* After a run of an operation: keep its results, and restore what was there before if it runs
 * `again`. */
static inline void case_keep(struct suite *suite, bool again)
{
    must(cudaStreamSynchronize(suite->at.stream), "a kernel");
    for (size_t i = 0; i < suite->count; i++) {
        const struct tensor *a = &suite->noted[i].tensor;
        char *result = need(array_bytes(a));

        must(cudaMemcpy(result, a->device, array_bytes(a), cudaMemcpyDeviceToHost), "copy");
        if (again)
            must(cudaMemcpy(a->device, a->got, array_bytes(a), cudaMemcpyHostToDevice), "copy");
        memcpy(a->got, result, array_bytes(a));
        free(result);
    }
    emu_order(again ? 7 : 0);
}

/* After the second: the bits are those of the first. */
static inline void case_compare(struct suite *suite)
{
    must(cudaStreamSynchronize(suite->at.stream), "a kernel");
    emu_order(0);
    for (size_t i = 0; i < suite->count; i++) {
        const struct tensor *a = &suite->noted[i].tensor;
        char *again = need(array_bytes(a));

        must(cudaMemcpy(again, a->device, array_bytes(a), cudaMemcpyDeviceToHost), "copy");
        CHECK(memcmp(again, a->got, array_bytes(a)) == 0);
        free(again);
    }
}

/* Run an operation twice. */
#define CASE_DEVICE(suite, call)                                                                   \
    do {                                                                                           \
        CHECK_INT(call, cudaSuccess);                                                              \
        case_keep(suite, runs_twice);                                                              \
        if (!runs_twice)                                                                           \
            break;                                                                                 \
        CHECK_INT(call, cudaSuccess);                                                              \
        case_compare(suite);                                                                       \
    } while (0)

static inline void case_expect(struct suite *suite, const struct tensor *tensor, double tolerance)
{
    case_scratch(suite, tensor->device);
    CHECK_ARRAY(tensor, tensor->values, tolerance);
}

/* The bits of `of`, rounded. */
static inline void case_expect_copy(struct suite *suite, struct tensor *copy,
                                    const struct tensor *of, double tolerance)
{
    float *from = array_widen(of, of->got);
    uint16_t *want = need(copy->count * sizeof *want);

    (void)tolerance;
    mics_numbers_from_f32(storage_of(copy->dtype), from, want, copy->count);
    case_scratch(suite, copy->device);
    CHECK(memcmp(copy->got, want, array_bytes(copy)) == 0);
    free(from);
    free(want);
}

static inline void case_expect_bytes(struct suite *suite, const void *device, const void *want,
                                     size_t bytes)
{
    case_scratch(suite, device);
    CHECK(memcmp(case_find(suite, device)->tensor.got, want, bytes) == 0);
}

static inline void case_expect_double(struct suite *suite, const void *device, double want,
                                      double relative)
{
    double got;

    case_scratch(suite, device);
    memcpy(&got, case_find(suite, device)->tensor.got, sizeof(got));
    CHECK((isnan(got) && isnan(want)) || fabs(got / want - 1) <= relative);
}

/* Of numbers, equal bits, or both NaN. */
static inline void case_expect_numbers(struct suite *suite, const void *device, const void *want,
                                       uint64_t count, enum mics_dtype dtype)
{
    const struct tensor *a = &case_find(suite, device)->tensor;
    const size_t each = mics_dtype_bytes(dtype);
    bool same = true;

    case_scratch(suite, device);
    if (mics_dtype_is_blocks(dtype)) {
        CHECK(memcmp(a->got, want, a->count) == 0);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        const struct tensor numbers = {.dtype = dtype};
        const float x = array_at(&numbers, a->got, i), y = array_at(&numbers, want, i);

        same &= memcmp(a->got + i * each, (const char *)want + i * each, each) == 0 ||
                (isnan(x) && isnan(y));
    }
    CHECK(same);
}

/* What no operation may write to is as it was. */
static inline void case_end(struct suite *suite)
{
    for (size_t i = 0; i < suite->count; i++) {
        struct tensor *a = &suite->noted[i].tensor;

        CHECK(suite->noted[i].written || memcmp(a->got, a->begin, array_bytes(a)) == 0);
        array_free(a);
    }
    if (tap_bad > suite->bad)
        printf("# case %s\n", suite->name);
}

/* Open the device and the pool; a machine without a GPU bails out. */
static inline void open_gpu(void)
{
    gpu.at.multiprocessors = 132;
    must(cudaStreamCreate(&gpu.at.stream), "cudaStreamCreate");
    must(cudaMalloc(&gpu.at.workspace, MICS_CUDA_WORKSPACE_BYTES), "cudaMalloc");
    must(cudaMemset(gpu.at.workspace, 0xff, MICS_CUDA_WORKSPACE_BYTES), "cudaMemset");
    must(mics_cuda_products_open(&gpu.at.products), "cuBLASLt");
    gpu.pool = mics_pool_new(1);
    if (!gpu.pool)
        abort();
}

static inline int close_gpu(void)
{
    mics_cuda_products_close(gpu.at.products);
    must(cudaFree(gpu.at.workspace), "cudaFree");
    must(cudaStreamDestroy(gpu.at.stream), "cudaStreamDestroy");
    mics_pool_free(gpu.pool);
    return tap_done();
}

#endif
