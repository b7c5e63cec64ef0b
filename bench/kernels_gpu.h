/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_gpu.h - memory and timing shared by the GPU benchmarks. */
#ifndef MICS_BENCH_KERNELS_GPU_H
#define MICS_BENCH_KERNELS_GPU_H

#include "cuda/kernels.h"

#include <stddef.h>

#define RUNS       15                   /* measurements of each operation; the median is reported */
#define REPEATS    4                    /* launches in each measurement */
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
    struct mics_args_scalars *scalars;
};

/* If the call failed, print what failed and exit. */
void must(cudaError_t error, const char *what);

/* Microseconds of one run of `run`: the median of RUNS times of REPEATS runs each, after some that
 * do not count. */
double time_us(struct bench *x, cudaError_t (*run)(struct bench *x, const void *context),
               const void *context);

/* Copy `bytes`, a multiple of 16, by a kernel of our own that does nothing else. */
cudaError_t copy_by_kernel(cudaStream_t stream, void *to, const void *from, size_t bytes);

/* The memory-bound operations, each compared with a copy of the same number of bytes. */
void measure_memory(struct bench *x);

/* The matrix products of a step, each compared with the same product by plain cuBLASLt. */
void measure_products(struct bench *x);

/* Attention, forward and gradient, with each kernel that this GPU supports. */
void measure_attention(struct bench *x);

#ifdef __cplusplus
}
#endif

#endif
