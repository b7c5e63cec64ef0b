/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.c - rates of the host kernels, compared with their bounds.
 *
 * Products and attention are compared with the rate of a 1024 x 1024 x 1024 sgemm by OpenBLAS on
 * one thread in the same run; memory-bound operations with memcpy() of the same number of bytes.
 * Each figure is the best of several repetitions. Flops of causal attention count what the mask
 * leaves. Methods of products are compared in pairs of runs, which a loaded machine disturbs less.
 *
 *     kernels [THREADS [f32|bf16 [products|turns]]]        (make bench)
 *
 * With `turns`, products are made for ever, a line after each piece of work: for bench/turns.
 */
#include "kernels_host.h"

#include "base/clock.h"
#include "base/num.h"
#include "host/blas.h"
#include "host/vector.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define REPEAT_S    0.15
#define HUGE_PAGE   ((size_t)2 << 20)
#define SMALL_BATCH 8 /* larger ones are for what memory bounds */

static const struct model models[] = {
    {"gpt2-124M, few tokens", 1, 64, 768, 12, 50257, 64, 8 * 1000 * 1000},
    {"gpt2-nano", 2, 256, 128, 4, 257, 256, 800 * 1000},
    {"gpt2-124M", 2, 256, 768, 12, 50257, 256, 8 * 1000 * 1000},
    {"out of cache", 48, 256, 768, 12, 50257, 512, 40 * 1000 * 1000},
};

static void fill_array(float *to, uint64_t count, unsigned period, float from,
                       enum mics_dtype dtype)
{
    for (uint64_t i = 0; i < count; i++)
        mics_store_as(to, i, (float)(i % period) / (float)period + from, dtype);
}

/* Pairs of bf16 are numbers of fp32 as well, for what is in fp32 in any case. */
static void fill(struct arrays *x)
{
    const uint64_t count = x->dtype == MICS_BF16 ? 2 * x->count : x->count;

    fill_array(x->a, count, 101, -0.5f, x->dtype);
    fill_array(x->b, count, 97, -0.5f, x->dtype);
    fill_array(x->c, count, 89, 0.01f, x->dtype);
    fill_array(x->d, count, 83, 1.0f, x->dtype);
}

double bench_clock_s(const struct arrays *x)
{
    struct timespec now;

    if (mics_pool_threads(x->pool) > 1)
        return mics_now_s();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Seconds of the fastest run. */
static double best_s(void (*run)(struct arrays *x), struct arrays *x)
{
    double best = 1e9, start = mics_now_s();

    run(x);
    do {
        double before = bench_clock_s(x);

        run(x);
        double took = bench_clock_s(x) - before;
        best = took < best ? took : best;
    } while (mics_now_s() - start < REPEAT_S);
    return best;
}

static void run_peak(struct arrays *x)
{
    mics_blas()->sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 1024, 1024, 1024, 1, x->a, 1024,
                       x->b, 1024, 0, x->c, 1024);
}

static struct {
    uint64_t bytes;
} copy_size;

static void run_memcpy(struct arrays *x)
{
    memcpy(x->b, x->a, copy_size.bytes / 2);
}

/* GB/s of a copy that reads and writes `bytes` in all. */
static double copy_rate(struct arrays *x, double bytes)
{
    copy_size.bytes = (uint64_t)bytes;
    if (copy_size.bytes / 2 > x->count * sizeof(float))
        copy_size.bytes = x->count * sizeof(float) * 2;
    return (double)copy_size.bytes / best_s(run_memcpy, x) / 1e9;
}

static void print_entry(struct arrays *x, const struct entry *e, double peak)
{
    double seconds, bytes;

    if (e->flops && x->model->B > SMALL_BATCH)
        return;
    fill(x);
    seconds = best_s(e->run, x);
    if (e->flops) {
        double rate = e->flops(x->model) / seconds / 1e9;

        printf("%-26s %10.1f us %8.1f GFLOP/s %5.2f of sgemm\n", e->name, seconds * 1e6, rate,
               rate / peak);
        return;
    }
    bytes = e->bytes(x->model) / (x->dtype == MICS_BF16 && !e->in_f32 ? 2 : 1);
    printf("%-26s %10.1f us %8.1f GB/s    %5.2f of memcpy\n", e->name, seconds * 1e6,
           bytes / seconds / 1e9, bytes / seconds / 1e9 / copy_rate(x, bytes));
}

static void print_entries(struct arrays *x, const struct entry *entries, double peak)
{
    for (const struct entry *e = entries; e->name; e++)
        print_entry(x, e, peak);
}

int main(int argc, char **argv)
{
    struct arrays x = {.count = 48 * 1000 * 1000, .scalars = {.targets = 1, .squared_norm = 1}};
    unsigned threads = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    const size_t bytes = 4 * x.count * sizeof(float);
    float *memory = aligned_alloc(HUGE_PAGE, mics_round_up(bytes, HUGE_PAGE));
    int32_t tokens[48 * 256];
    double peak;

    x.pool = mics_pool_new(threads > 0 ? threads : 1);
    if (argc > 2 && strcmp(argv[2], "bf16") == 0)
        x.dtype = MICS_BF16;
    if (!memory || !x.pool)
        return 1;
    madvise(memory, bytes, MADV_HUGEPAGE); /* as the arena of the engine */
    x.a = memory;
    x.b = memory + x.count;
    x.c = memory + 2 * x.count;
    x.d = memory + 3 * x.count;
    x.tokens = tokens;
    for (int i = 0; i < 48 * 256; i++)
        tokens[i] = i * 37 % 257;
    fill(&x);
    while (argc > 3 && strcmp(argv[3], "turns") == 0)
        for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
            x.model = &models[i];
            if (x.model->B <= SMALL_BATCH)
                bench_make_products(&x);
        }
    peak = 2.0 * 1024 * 1024 * 1024 / best_s(run_peak, &x) / 1e9;
    printf("%s, %u thread(s); OpenBLAS core %s, sgemm of 1024^3 on one: %.0f GFLOP/s\n",
           x.dtype == MICS_BF16 ? "bf16" : "f32", threads, mics_blas()->get_corename(), peak);
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        x.model = &models[i];
        printf("%s, B %u, T %u\n", models[i].name, models[i].B, models[i].T);
        if (x.model->B <= SMALL_BATCH)
            bench_compare_products(&x);
        if (argc > 3 && strcmp(argv[3], "products") == 0)
            continue;
        print_entries(&x, bench_products, peak);
        print_entries(&x, bench_passes, peak);
    }
    mics_pool_free(x.pool);
    free(memory);
    return 0;
}
