/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels_gpu.c - rates of the GPU operations, compared with their bounds.
 *
 * Memory-bound operations are compared with a copy of the same number of bytes in the same run
 * (kernels_gpu_memory.c), matrix products with plain cuBLASLt (kernels_gpu_products.c), and
 * attention kernels with each other (kernels_gpu_attention.c). Each time is the median of several
 * measurements between events, each over a few launches, so that launch overhead on the host is
 * hidden, as in a step.
 *
 *     kernels_gpu        (make gpu-bench; about a minute; it needs 5 GB of device memory)
 */
#include "kernels_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATTERN ((size_t)64 << 20)

void must(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "kernels_gpu: %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

double time_us(struct bench *x, cudaError_t (*run)(struct bench *x, const void *context),
               const void *context)
{
    cudaEvent_t start, stop;
    float took[RUNS];

    must(cudaEventCreate(&start), "cudaEventCreate");
    must(cudaEventCreate(&stop), "cudaEventCreate");
    for (int i = -3; i < RUNS; i++) {
        must(cudaEventRecord(start, x->at.stream), "cudaEventRecord");
        for (int repeat = 0; repeat < REPEATS; repeat++)
            must(run(x, context), "an operation");
        must(cudaEventRecord(stop, x->at.stream), "cudaEventRecord");
        must(cudaEventSynchronize(stop), "an operation");
        if (i >= 0)
            must(cudaEventElapsedTime(&took[i], start, stop), "cudaEventElapsedTime");
    }
    must(cudaEventDestroy(start), "cudaEventDestroy");
    must(cudaEventDestroy(stop), "cudaEventDestroy");
    qsort(took, RUNS, sizeof(took[0]), by_size);
    return took[RUNS / 2] * 1e3 / REPEATS;
}

/* Pseudo-random bf16 numbers below 0.5 in every area; the last area is positive because it holds
 * second moments. */
static void fill(struct bench *x)
{
    uint16_t *pattern = malloc(PATTERN);
    char *const areas[] = {x->a, x->b, x->c, x->d};
    uint32_t state = 1;

    if (!pattern)
        exit(1);
    for (size_t area = 0; area < 4; area++) {
        for (size_t i = 0; i < PATTERN / 2; i++) {
            state = state * 1664525u + 1013904223u;
            pattern[i] = (uint16_t)(0x3d80 + (state >> 24) % 0x180); /* 0.0625 to 0.5 */
            if (area < 3 && (state >> 23 & 1))
                pattern[i] |= 0x8000;
        }
        for (size_t at = 0; at < AREA; at += PATTERN)
            must(cudaMemcpy(areas[area] + at, pattern, AREA - at < PATTERN ? AREA - at : PATTERN,
                            cudaMemcpyHostToDevice),
                 "copy");
    }
    free(pattern);
}

/* Tokens with frequencies like those of natural text: a few frequent, many rare. */
static void send_tokens(struct bench *x)
{
    int32_t *tokens = malloc(TOKENS * sizeof(*tokens));
    uint32_t state = 7;

    if (!tokens)
        exit(1);
    for (uint32_t i = 0; i < TOKENS; i++) {
        state = state * 1664525u + 1013904223u;
        const double u = (double)(state >> 8) / (1 << 24);

        tokens[i] = (int32_t)(u * u * u * u * VOCABULARY);
    }
    must(cudaMemcpy(x->tokens, tokens, TOKENS * sizeof(*tokens), cudaMemcpyHostToDevice), "copy");
    free(tokens);
}

static void open_bench(struct bench *x)
{
    const struct mics_args_scalars scalars = {.targets = 1000, .squared_norm = 1};
    struct cudaDeviceProp prop;
    char **const areas[] = {&x->a, &x->b, &x->c, &x->d};

    must(cudaGetDeviceProperties(&prop, 0), "no GPU");
    printf("%s, %d multiprocessors\n", prop.name, prop.multiProcessorCount);
    x->at.multiprocessors = prop.multiProcessorCount;
    x->capability = prop.major * 10 + prop.minor;
    must(cudaStreamCreate(&x->at.stream), "cudaStreamCreate");
    must(cudaMalloc(&x->at.workspace, MICS_CUDA_WORKSPACE_BYTES), "cudaMalloc");
    must(mics_cuda_products_open(&x->at.products), "cuBLASLt");
    for (size_t i = 0; i < 4; i++)
        must(cudaMalloc((void **)areas[i], AREA), "cudaMalloc");
    must(cudaMalloc((void **)&x->tokens, TOKENS * sizeof(int32_t)), "cudaMalloc");
    must(cudaMalloc((void **)&x->sum, sizeof(double)), "cudaMalloc");
    must(cudaMalloc((void **)&x->scalars, sizeof(scalars)), "cudaMalloc");
    must(cudaMemcpy(x->scalars, &scalars, sizeof(scalars), cudaMemcpyHostToDevice), "copy");
    must(cudaMemset(x->sum, 0, sizeof(double)), "cudaMemset");
    send_tokens(x);
    fill(x);
}

int main(void)
{
    struct bench x = {0};

    setvbuf(stdout, NULL, _IOLBF, 0);
    open_bench(&x);
    measure_products(&x);
    fill(&x);
    measure_attention(&x);
    fill(&x);
    measure_memory(&x);
    mics_cuda_products_close(x.at.products);
    return cudaDeviceReset() != cudaSuccess;
}
