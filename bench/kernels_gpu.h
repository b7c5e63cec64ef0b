/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_gpu.h - what the measurements of the GPU's operations share: memory, and a clock. */
#ifndef MICS_BENCH_KERNELS_GPU_H
#define MICS_BENCH_KERNELS_GPU_H

#include "cuda/kernels.h"

#include <stddef.h>

#define RUNS       15                   /* times taken of each operation; the median counts */
#define REPEATS    4                    /* of the operation in each */
#define AREA       ((size_t)1200 << 20) /* bytes of each area: many times the L2 cache */
#define TOKENS     65536u
#define VOCABULARY 50257u /* tokens are below */

#ifdef __cplusplus
extern "C" {
#endif

/* Device memory: four areas of random numbers in [-0.5, 0.5), valid as bf16 and as fp32, tokens,
 * scalars. */
struct bench {
    struct mics_cuda_at at;
    int capability; /* 90: compute capability 9.0 */
    char *a, *b, *c, *d;
    int32_t *tokens;
    double *sum;
    struct mics_op_scalars *scalars;
};

/* Say what failed and exit, unless it is a success. */
void must(cudaError_t error, const char *what);

/* Microseconds of one run of `run`: the median of RUNS times of REPEATS runs each, after some that
 * do not count. */
double time_us(struct bench *x, cudaError_t (*run)(struct bench *x, const void *context),
               const void *context);

/* Copy `bytes`, a multiple of 16, by a kernel of our own that does nothing else. */
cudaError_t copy_by_kernel(cudaStream_t stream, void *to, const void *from, size_t bytes);

/* The operations that memory bounds, each beside a copy of as many bytes. */
void measure_memory(struct bench *x);

/* The matrix products of a step, each beside the same product by cuBLASLt alone. */
void measure_products(struct bench *x);

/* Attention, forward and gradient, by each kernel that this GPU has. */
void measure_attention(struct bench *x);

#ifdef __cplusplus
}
#endif

#endif
