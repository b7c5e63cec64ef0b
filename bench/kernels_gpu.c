/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels_gpu.c - how fast the GPU's operations are, beside what bounds them.
 *
 * What memory bounds is compared with a copy of as many bytes by the runtime, in the same run;
 * matrix products with bare ones by cuBLASLt; attention stands alone, its flops those that the mask
 * leaves. Each time is the median of several runs between events. The arrays are larger than the L2
 * cache.
 *
 *     kernels_gpu        (make gpu-bench; about a minute; it needs 5 GB of device memory)
 */
#include "kernels_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS    32768u
#define B       32u
#define T       1024u
#define C       1600u
#define F       6400u
#define V       50304u
#define CHUNK   4096u                /* rows of logits */
#define COUNT   (100u << 20)         /* of an update */
#define AREA    ((size_t)1200 << 20) /* bytes of each area */
#define PATTERN ((size_t)64 << 20)

/* One line: what the operation must move at least. */
struct entry {
    const char *name;
    cudaError_t (*run)(struct bench *x, const void *context);
    double bytes;
};

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
        must(run(x, context), "an operation");
        must(cudaEventRecord(stop, x->at.stream), "cudaEventRecord");
        must(cudaEventSynchronize(stop), "an operation");
        if (i >= 0)
            must(cudaEventElapsedTime(&took[i], start, stop), "cudaEventElapsedTime");
    }
    must(cudaEventDestroy(start), "cudaEventDestroy");
    must(cudaEventDestroy(stop), "cudaEventDestroy");
    qsort(took, RUNS, sizeof(took[0]), by_size);
    return took[RUNS / 2] * 1e3;
}

/* An operation on the areas, as a function of the bench. */
#define OPERATION(name, kernel, ...)                                                               \
    static cudaError_t run_##name(struct bench *x, const void *context)                            \
    {                                                                                              \
        const struct mics_op_##kernel args = {__VA_ARGS__};                                        \
                                                                                                   \
        (void)context;                                                                             \
        return mics_cuda_##kernel(&x->at, &args);                                                  \
    }

OPERATION(cast, cast, x->c, x->a, COUNT, MICS_BF16, MICS_F32)
OPERATION(accumulate, accumulate, (float *)x->c, x->a, COUNT, MICS_BF16)
OPERATION(add, add, x->c, x->a, x->b, (uint64_t)ROWS *F, MICS_BF16)
OPERATION(gelu, gelu, x->c, x->a, (uint64_t)ROWS *F, MICS_BF16)
OPERATION(gelu_grad, gelu_grad, x->c, x->a, x->b, (uint64_t)ROWS *F, MICS_BF16)
OPERATION(swiglu, swiglu, x->c, x->a, ROWS, F, MICS_BF16)
OPERATION(swiglu_grad, swiglu_grad, x->c, x->a, x->b, ROWS, F, MICS_BF16)
OPERATION(rope, rope, x->c, 2 * B, T, 40, 128, 48 * 128, 10000, false, MICS_BF16, {0})
OPERATION(layernorm, layernorm, x->c, NULL, (float *)x->d, (float *)x->d + ROWS, x->a, NULL, x->b,
          x->b, ROWS, C, 1e-5f, MICS_BF16)
OPERATION(layernorm_add, layernorm, x->c, x->c + (AREA / 2), (float *)x->d, (float *)x->d + ROWS,
          x->a, x->b, x->b, x->b, ROWS, C, 1e-5f, MICS_BF16)
OPERATION(layernorm_grad, layernorm_grad, x->c, x->d + (16 << 20), x->d + (32 << 20), x->a, x->b,
          x->b, (float *)x->d, (float *)x->d + ROWS, ROWS, C, MICS_BF16, MICS_F32)
OPERATION(rmsnorm, rmsnorm, x->c, NULL, (float *)x->d, x->a, NULL, x->b, ROWS, 4096, 1e-5f,
          MICS_BF16)
OPERATION(rmsnorm_grad, rmsnorm_grad, x->c, x->d + (16 << 20), x->a, x->b, x->b, (float *)x->d,
          ROWS, 4096, MICS_BF16, MICS_F32)
OPERATION(bias_grad, bias_grad, x->c, x->a, ROWS, F, MICS_BF16, MICS_F32)
OPERATION(embedding, embedding, x->c, x->tokens, x->a, x->b, B, T, C, MICS_BF16)
OPERATION(embedding_grad, embedding_grad, x->c, x->d, x->tokens, x->a, B, T, C, V, MICS_BF16,
          MICS_F32)
OPERATION(cross_entropy, cross_entropy, x->c, x->tokens, x->sum, CHUNK, V, V, true, MICS_BF16)
OPERATION(squared_norm, squared_norm, x->sum, (float *)x->a, COUNT)
OPERATION(adamw, adamw, (float *)x->a, (float *)x->b, (float *)x->d, (uint16_t *)(x->c + AREA / 2),
          (float *)x->c, x->scalars, COUNT, COUNT / 2, 1e-6f, 0.9f, 0.95f, 1e-8f, 0.1f, 1, 9)
OPERATION(sgd, sgd, (float *)x->a, (float *)x->b, (uint16_t *)(x->c + AREA / 2), (float *)x->c,
          x->scalars, COUNT, COUNT / 2, 1e-6f, 0.9f, 0.1f, 1)

#define EACH(count) (2.0 * (double)(count)) /* bytes of bf16 */

static const struct entry entries[] = {
    {"cast fp32 to bf16", run_cast, 6.0 * COUNT},
    {"accumulate bf16 into fp32", run_accumulate, 10.0 * COUNT},
    {"add", run_add, 3 * EACH((size_t)ROWS *F)},
    {"gelu", run_gelu, 2 * EACH((size_t)ROWS *F)},
    {"gelu_grad", run_gelu_grad, 3 * EACH((size_t)ROWS *F)},
    {"swiglu", run_swiglu, 3 * EACH((size_t)ROWS *F)},
    {"swiglu_grad", run_swiglu_grad, 5 * EACH((size_t)ROWS *F)},
    {"rope, 40 heads of 128", run_rope, 2 * EACH(2.0 * ROWS * 40 * 128)},
    {"layernorm", run_layernorm, 2 * EACH((size_t)ROWS *C)},
    {"layernorm with residual", run_layernorm_add, 4 * EACH((size_t)ROWS *C)},
    {"layernorm_grad", run_layernorm_grad, 4 * EACH((size_t)ROWS *C)},
    {"rmsnorm, C 4096", run_rmsnorm, 2 * EACH((size_t)ROWS * 4096)},
    {"rmsnorm_grad, C 4096", run_rmsnorm_grad, 4 * EACH((size_t)ROWS * 4096)},
    {"bias_grad", run_bias_grad, EACH((size_t)ROWS *F)},
    {"embedding", run_embedding, 2 * EACH((size_t)ROWS *C)},
    {"embedding_grad, both", run_embedding_grad, EACH((size_t)ROWS *C) + 8.0 * T *C},
    {"cross_entropy", run_cross_entropy, 2 * EACH((size_t)CHUNK *V)},
    {"squared_norm", run_squared_norm, 4.0 * COUNT},
    {"adamw with copy", run_adamw, 30.0 * COUNT},
    {"sgd with copy", run_sgd, 22.0 * COUNT},
};

static cudaError_t run_copy(struct bench *x, const void *context)
{
    const double *bytes = context;
    const size_t half = (size_t)(*bytes / 2);

    return cudaMemcpyAsync(x->c, x->a, half < AREA ? half : AREA, cudaMemcpyDeviceToDevice,
                           x->at.stream);
}

static void measure_memory(struct bench *x)
{
    printf("%-36s %10s %10s %10s %6s\n", "bound by memory, bf16", "us", "GB/s", "copy", "ratio");
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        const double bytes = entries[i].bytes < 2.0 * AREA ? entries[i].bytes : 2.0 * AREA;
        const double took = time_us(x, entries[i].run, NULL), copy = time_us(x, run_copy, &bytes);
        const double rate = entries[i].bytes / took / 1e3, copied = bytes / copy / 1e3;

        printf("%-36s %10.1f %10.1f %10.1f %6.3f\n", entries[i].name, took, rate, copied,
               rate / copied);
    }
}

/* Causal attention of 16,384 tokens in sequences of 2,048, of 2,048 channels. */
static cudaError_t run_attention(struct bench *x, const void *context)
{
    const uint32_t D = *(const uint32_t *)context;

    return mics_cuda_attention(&x->at,
                               &(struct mics_op_attention){x->c, (float *)x->d, x->a, 8, 2048,
                                                           2048 / D, 2048 / D, D, true, MICS_BF16});
}

static cudaError_t run_attention_grad(struct bench *x, const void *context)
{
    const uint32_t D = *(const uint32_t *)context;

    return mics_cuda_attention_grad(
        &x->at, &(struct mics_op_attention_grad){x->b, (float *)x->d + (8 << 20), x->c + AREA / 2,
                                                 x->c, x->a, (float *)x->d, 8, 2048, 2048 / D,
                                                 2048 / D, D, true, MICS_BF16});
}

static void measure_attention(struct bench *x)
{
    const double flops = 2.0 * 8 * 2048 * 2049 * 2048; /* two products of the lower triangle */

    printf("%-36s %10s %10s\n", "attention, causal, T 2048, bf16", "us", "TFLOP/s");
    for (uint32_t D = 64; D <= 128; D *= 2) {
        const double forward = time_us(x, run_attention, &D),
                     backward = time_us(x, run_attention_grad, &D);

        printf("head %-3u forward  %29.1f %10.1f\n", D, forward, flops / forward / 1e6);
        printf("head %-3u backward %29.1f %10.1f\n", D, backward, 2.5 * flops / backward / 1e6);
    }
}

/* Pseudo-random bf16 numbers below 0.5 in every area; positive in the last, which has second
 * moments. */
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

/* Tokens as natural text has them: a few often, many rarely. */
static void send_tokens(struct bench *x)
{
    int32_t *tokens = malloc(ROWS * sizeof(*tokens));
    uint32_t state = 7;

    if (!tokens)
        exit(1);
    for (uint32_t i = 0; i < ROWS; i++) {
        state = state * 1664525u + 1013904223u;
        const double u = (double)(state >> 8) / (1 << 24);

        tokens[i] = (int32_t)(u * u * u * u * V);
    }
    must(cudaMemcpy(x->tokens, tokens, ROWS * sizeof(*tokens), cudaMemcpyHostToDevice), "copy");
    free(tokens);
}

static void open_bench(struct bench *x)
{
    const struct mics_op_scalars scalars = {.targets = 1000, .squared_norm = 1};
    struct cudaDeviceProp prop;
    char **const areas[] = {&x->a, &x->b, &x->c, &x->d};

    must(cudaGetDeviceProperties(&prop, 0), "no GPU");
    printf("%s, %d multiprocessors\n", prop.name, prop.multiProcessorCount);
    x->at.multiprocessors = prop.multiProcessorCount;
    must(cudaStreamCreate(&x->at.stream), "cudaStreamCreate");
    must(cudaMalloc(&x->at.workspace, MICS_CUDA_WORKSPACE_BYTES), "cudaMalloc");
    must(mics_cuda_products_open(&x->at.products), "cuBLASLt");
    for (size_t i = 0; i < 4; i++)
        must(cudaMalloc((void **)areas[i], AREA), "cudaMalloc");
    must(cudaMalloc((void **)&x->tokens, ROWS * sizeof(int32_t)), "cudaMalloc");
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
