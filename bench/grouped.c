/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grouped.c - products of experts with their rows on the host, beside ordinary products of as many
 * flops.
 *
 *     grouped [THREADS [f32|bf16]]        (bench/experts kernels)
 *
 * For each layer and distribution of rows, and for the three products of gate and up (forward, the
 * gradient of their input, the gradient of the weights): GFLOP/s of one product of all rows with
 * one matrix, and the time of the grouped product and of one ordinary product for each expert,
 * relative to it. Medians of rounds in which the three take turns.
 */
#include "base/clock.h"
#include "base/num.h"
#include "host/kernels.h"
#include "host/pool.h"
#include "host/products.h"
#include "host/vector.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 7, FORMS = 3, WAYS = 3 };

static const struct layer {
    const char *name;
    uint32_t tokens, E, k, C, F; /* F of gate and up together */
} layers[] = {
    {"8 of 1792 x 512, 2 each", 1024, 8, 2, 512, 1792},
    {"64 of 1024 x 1024, 8 each", 512, 64, 8, 1024, 1024},
    {"128 of 768 x 1024, 8 each", 512, 128, 8, 1024, 768},
    {"16 of 256 x 128, 4 each", 512, 16, 4, 128, 256},
};

enum spread { EVEN, SKEWED, ONE, SPREADS };
static const char *const spreads[] = {"even", "skewed", "one expert"};
static const char *const forms[] = {"forward", "grad of input", "grad of weights"};

struct bench {
    const struct layer *layer;
    struct mics_pool *pool;
    enum mics_dtype dtype;
    uint32_t rows, offsets[MICS_EXPERTS_MAX + 1];
    uint64_t stride;
    void *x, *y, *weights, *grads;
};

/* Rows of each expert: as many for all, the e-th in proportion to 1 / (e + 1), or all for one. */
static void spread_rows(struct bench *b, enum spread spread)
{
    const uint32_t E = b->layer->E;
    double total = 0, sum = 0;

    for (uint32_t e = 0; e < E; e++)
        total += spread == EVEN ? 1 : spread == SKEWED ? 1.0 / (e + 1) : e == E / 2;
    for (uint32_t e = 0; e < E; e++) {
        b->offsets[e] = (uint32_t)(sum / total * b->rows + .5);
        sum += spread == EVEN ? 1 : spread == SKEWED ? 1.0 / (e + 1) : e == E / 2;
    }
    b->offsets[E] = b->rows;
}

static void run_grouped(const struct bench *b, int form)
{
    const struct layer *l = b->layer;

    if (form < 2)
        mics_host_grouped_matmul(b->pool,
                                 &(struct mics_args_grouped_matmul){.out = form ? b->x : b->y,
                                                                    .a = form ? b->y : b->x,
                                                                    .b = b->weights,
                                                                    .offsets = b->offsets,
                                                                    .stride = b->stride,
                                                                    .rows = b->rows,
                                                                    .E = l->E,
                                                                    .n = form ? l->C : l->F,
                                                                    .k = form ? l->F : l->C,
                                                                    .trans_b = form == 0,
                                                                    .dtype = b->dtype});
    else
        mics_host_grouped_matmul_grad(
            b->pool, &(struct mics_args_grouped_matmul_grad){.out = b->grads,
                                                             .a = b->y,
                                                             .b = b->x,
                                                             .offsets = b->offsets,
                                                             .stride = b->stride,
                                                             .rows = b->rows,
                                                             .E = l->E,
                                                             .m = l->F,
                                                             .n = l->C,
                                                             .dtype = b->dtype,
                                                             .grad_dtype = MICS_F32});
}

/* The product of rows [first, first + rows) with the matrix of expert e. */
static void run_product(const struct bench *b, int form, uint32_t e, uint32_t first, uint32_t rows)
{
    const struct layer *l = b->layer;
    void *const x = mics_element(b->x, (uint64_t)first * l->C, b->dtype);
    void *const y = mics_element(b->y, (uint64_t)first * l->F, b->dtype);
    struct mics_args_matmul args = {.dtype = b->dtype, .out_dtype = b->dtype};

    if (form == 2) {
        args.out = mics_element(b->grads, e * b->stride, MICS_F32);
        args.a = y;
        args.b = x;
        args.m = args.lda = l->F;
        args.n = args.ldb = args.ldout = l->C;
        args.k = rows;
        args.trans_a = true;
        args.out_dtype = MICS_F32;
    } else {
        args.out = form ? x : y;
        args.a = form ? y : x;
        args.b = mics_element(b->weights, e * b->stride, b->dtype);
        args.m = rows;
        args.n = args.ldout = form ? l->C : l->F;
        args.k = args.lda = form ? l->F : l->C;
        args.ldb = l->C;
        args.trans_b = form == 0;
    }
    mics_host_matmul(b->pool, &args);
}

static void run(const struct bench *b, int form, int way)
{
    if (way == 0)
        run_product(b, form, 0, 0, b->rows);
    else if (way == 1)
        run_grouped(b, form);
    else
        for (uint32_t e = 0; e < b->layer->E; e++)
            if (b->offsets[e + 1] > b->offsets[e])
                run_product(b, form, e, b->offsets[e], b->offsets[e + 1] - b->offsets[e]);
}

/* Time: that of the processor for one thread, so that other programs disturb less. */
static double clock_s(const struct bench *b)
{
    struct timespec now;

    if (mics_pool_threads(b->pool) > 1)
        return mics_now_s();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int by_value(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return a < b ? -1 : a > b;
}

static void compare(const struct bench *b, const char *spread)
{
    const struct layer *l = b->layer;

    for (int form = 0; form < FORMS; form++) {
        double seconds[WAYS][ROUNDS];

        for (int round = -1; round < ROUNDS; round++)
            for (int way = 0; way < WAYS; way++) {
                const double before = clock_s(b);

                run(b, form, way);
                if (round >= 0)
                    seconds[way][round] = clock_s(b) - before;
            }
        for (int way = 0; way < WAYS; way++)
            qsort(seconds[way], ROUNDS, sizeof(double), by_value);
        const double one = seconds[0][ROUNDS / 2];
        printf("%-26s %-11s %-16s %8.1f %10.2f %12.2f\n", l->name, spread, forms[form],
               2.0 * b->rows * l->C * l->F / one / 1e9, seconds[1][ROUNDS / 2] / one,
               seconds[2][ROUNDS / 2] / one);
        fflush(stdout);
    }
}

static void *make_array(uint64_t count, enum mics_dtype dtype)
{
    void *out = malloc(count * mics_dtype_bytes(dtype));

    if (!out) {
        fputs("grouped: out of memory\n", stderr);
        exit(1);
    }
    for (uint64_t i = 0; i < count; i++)
        mics_store_as(out, i, (float)(i % 97) / 97 - 0.5f, dtype);
    return out;
}

static void measure(const struct layer *layer, struct mics_pool *pool, enum mics_dtype dtype)
{
    struct bench b = {
        .layer = layer, .pool = pool, .dtype = dtype, .rows = layer->tokens * layer->k};

    b.stride = mics_round_up((uint64_t)layer->C * layer->F, 64);
    b.x = make_array((uint64_t)b.rows * layer->C, dtype);
    b.y = make_array((uint64_t)b.rows * layer->F, dtype);
    b.weights = make_array(layer->E * b.stride, dtype);
    b.grads = make_array(layer->E * b.stride, MICS_F32);
    for (int spread = 0; spread < SPREADS; spread++) {
        spread_rows(&b, (enum spread)spread);
        compare(&b, spreads[spread]);
    }
    free(b.x);
    free(b.y);
    free(b.weights);
    free(b.grads);
}

int main(int argc, char **argv)
{
    const unsigned threads = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1;
    const enum mics_dtype dtype = argc > 2 && strcmp(argv[2], "bf16") == 0 ? MICS_BF16 : MICS_F32;
    struct mics_pool *pool = threads > 0 ? mics_pool_new(threads) : NULL;
    struct mics_err err;

    if (!pool || mics_product_open(threads, &err) != MICS_OK) {
        fputs("usage: grouped [THREADS [f32|bf16]]\n", stderr);
        return 2;
    }
    printf("%-26s %-11s %-16s %8s %10s %12s\n", "experts", "rows", "product", "GFLOP/s", "grouped",
           "one by one");
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++)
        measure(&layers[i], pool, dtype);
    mics_pool_free(pool);
    return 0;
}
