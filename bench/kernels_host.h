/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_host.h - what bench/kernels measures: operations on arrays of a model's sizes. */
#ifndef MICS_BENCH_KERNELS_HOST_H
#define MICS_BENCH_KERNELS_HOST_H

#include "host/kernels.h"

struct model {
    const char *name;
    uint32_t B, T, C, H, V, chunk; /* chunk: rows of logits at a time */
    uint64_t params;               /* of an update */
};

/* Operands: arrays of `count` floats each, enough for the largest operation. */
struct arrays {
    float *a, *b, *c, *d;
    int32_t *tokens;
    struct mics_args_scalars scalars;
    uint64_t count;
    struct mics_pool *pool;
    const struct model *model;
    enum mics_dtype dtype; /* of activations and their gradients, and of parameters */
};

/* One line of the table. flops or bytes, in fp32, of one run; the other is 0. */
struct entry {
    const char *name;
    void (*run)(struct arrays *x);
    double (*flops)(const struct model *m);
    double (*bytes)(const struct model *m);
    bool in_f32; /* whatever the type of activations */
};

/* Compute-bound and memory-bound operations; each array ends with an entry without a name. */
extern const struct entry bench_products[], bench_passes[];

/* Measured time: CPU time for one thread, so that other programs disturb less. */
double bench_clock_s(const struct arrays *x);

/* Print how fast each method multiplies the matrices of a layer and of the head: the median of
 * paired runs, and their quartiles. */
void bench_compare_products(const struct arrays *x);

/* Make the same products by the method that training uses, each for some hundredths of a second;
 * print a line after each. */
void bench_make_products(const struct arrays *x);

static inline double rows(const struct model *m)
{
    return (double)m->B * m->T;
}

#endif
