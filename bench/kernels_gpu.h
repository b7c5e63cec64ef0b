/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_gpu.h - what the measurements of the GPU's operations share: memory, and a clock. */
#ifndef MICS_BENCH_KERNELS_GPU_H
#define MICS_BENCH_KERNELS_GPU_H

#include "cuda/kernels.h"

#define RUNS 15 /* timed ones of each operation; the median counts */

/* Device memory: four areas of random numbers in [-0.5, 0.5), valid as bf16 and as fp32, tokens,
 * scalars. */
struct bench {
    struct mics_cuda_at at;
    char *a, *b, *c, *d;
    int32_t *tokens;
    double *sum;
    struct mics_op_scalars *scalars;
};

/* Say what failed and exit, unless it is a success. */
void must(cudaError_t error, const char *what);

/* Microseconds of one run of `run`: the median of RUNS, after some that do not count. */
double time_us(struct bench *x, cudaError_t (*run)(struct bench *x, const void *context),
               const void *context);

/* The matrix products of a step, each beside the same product by cuBLASLt alone. */
void measure_products(struct bench *x);

#endif
