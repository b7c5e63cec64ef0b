/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks.c - times of conversions to and from blocks of 8 and 4 bits on one core, from memory,
 * against a copy of as many numbers in fp32.
 *
 *     blocks [MIB]        (bench/compress; MIB of fp32, default 128)
 *
 * A row is "name seconds-per-element ratio", tab-separated: the ratio is to the copy's time. Every
 * round runs the copy and all conversions once; the least CPU time of each counts. The arrays are
 * larger than caches, and are written before, so that no page is mapped in the measurement.
 */
#include "host/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { ROUNDS = 15, PARTS = 4 };

struct arrays {
    struct mics_pool *pool;
    float *numbers, *copy;
    void *int8, *int4, *out; /* PARTS arrays of a quarter of the elements, and results */
    uint64_t count;
};

static double cpu_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void *allocate(uint64_t bytes)
{
    void *memory = NULL;

    if (posix_memalign(&memory, (size_t)2 << 20, bytes + ((size_t)2 << 20)) != 0) {
        fputs("blocks: out of memory\n", stderr);
        exit(1);
    }
    madvise(memory, bytes, MADV_HUGEPAGE);
    return memset(memory, 1, bytes);
}

static void convert(const struct arrays *x, void *dst, enum mics_dtype to, const void *src,
                    enum mics_dtype from, uint32_t parts, bool stochastic)
{
    const uint64_t count = x->count / parts;

    mics_host_sum_blocks(x->pool, &(struct mics_args_sum_blocks){
                                      .dst = dst,
                                      .src = src,
                                      .count = count,
                                      .stride = mics_wire_bytes(from, count),
                                      .parts = parts,
                                      .dst_dtype = to,
                                      .src_dtype = from,
                                      .stochastic = stochastic,
                                  });
}

static void copy(struct arrays *x)
{
    memcpy(x->copy, x->numbers, x->count * sizeof(float));
}

static void quantise_int8(struct arrays *x)
{
    convert(x, x->int8, MICS_INT8, x->numbers, MICS_F32, 1, false);
}

static void quantise_int8_stochastic(struct arrays *x)
{
    convert(x, x->out, MICS_INT8, x->numbers, MICS_F32, 1, true);
}

static void quantise_int4(struct arrays *x)
{
    convert(x, x->int4, MICS_INT4, x->numbers, MICS_F32, 1, false);
}

static void quantise_int4_stochastic(struct arrays *x)
{
    convert(x, x->out, MICS_INT4, x->numbers, MICS_F32, 1, true);
}

static void dequantise_int8(struct arrays *x)
{
    convert(x, x->copy, MICS_F32, x->int8, MICS_INT8, 1, false);
}

static void dequantise_int4(struct arrays *x)
{
    convert(x, x->copy, MICS_F32, x->int4, MICS_INT4, 1, false);
}

static void sum_int8(struct arrays *x)
{
    convert(x, x->out, MICS_INT8, x->int8, MICS_INT8, PARTS, false);
}

static void sum_int8_to_fp32(struct arrays *x)
{
    convert(x, x->copy, MICS_F32, x->int8, MICS_INT8, PARTS, false);
}

static void sum_int4_to_int8(struct arrays *x)
{
    convert(x, x->out, MICS_INT8, x->int4, MICS_INT4, PARTS, false);
}

/* Elements are those that are read. */
static const struct row {
    const char *name;
    void (*run)(struct arrays *x);
} rows[] = {
    {"copy of fp32", copy},
    {"quantise int8", quantise_int8},
    {"quantise int4", quantise_int4},
    {"quantise int8, stochastic", quantise_int8_stochastic},
    {"quantise int4, stochastic", quantise_int4_stochastic},
    {"dequantise int8", dequantise_int8},
    {"dequantise int4", dequantise_int4},
    {"sum of 4 int8, to int8", sum_int8},
    {"sum of 4 int8, to fp32", sum_int8_to_fp32},
    {"sum of 4 int4, to int8", sum_int4_to_int8},
};

enum { ROWS = sizeof rows / sizeof *rows };

int main(int argc, char **argv)
{
    const uint64_t mib = argc > 1 ? strtoull(argv[1], NULL, 10) : 128;
    struct arrays x = {.pool = mics_pool_new(1), .count = mib << 18};
    double best[ROWS] = {0};

    if (argc > 2 || mib == 0 || mib > 16384 || !x.pool) {
        fputs("usage: blocks [MIB]\n", stderr);
        return 2;
    }
    x.numbers = allocate(x.count * sizeof(float));
    x.copy = allocate(x.count * sizeof(float));
    x.int8 = allocate(mics_wire_bytes(MICS_INT8, x.count));
    x.int4 = allocate(mics_wire_bytes(MICS_INT4, x.count));
    x.out = allocate(mics_wire_bytes(MICS_INT8, x.count));
    for (uint64_t i = 0; i < x.count; i++)
        x.numbers[i] = (float)((uint32_t)(i * 2654435761u) >> 8) * 0x1p-24f - 0.5f;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < ROWS; i++) {
            const double before = cpu_s();

            rows[i].run(&x);
            const double seconds = cpu_s() - before;
            best[i] = round == 0 || seconds < best[i] ? seconds : best[i];
        }
    for (int i = 0; i < ROWS; i++)
        printf("%s\t%.3e\t%.2f\n", rows[i].name, best[i] / (double)x.count, best[i] / best[0]);
    free(x.numbers);
    free(x.copy);
    free(x.int8);
    free(x.int4);
    free(x.out);
    mics_pool_free(x.pool);
    return 0;
}
