/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels_gpu_memory.c - the memory-bound operations.
 *
 * Each line compares the bandwidth of an operation (the bytes that it must move over its time) with
 * that of a copy of the same number of bytes, by the runtime or by our own kernel, whichever is
 * faster. The target for the optimizer, the norms and the loss is 0.85 of the copy.
 */
#include "kernels_gpu.h"

#include <stdio.h>

#define REACH    0.85
#define SEQUENCE 1024u

/* rows x C elements; `bytes` that each of them must move. */
struct entry {
    const char *name;
    cudaError_t (*run)(struct bench *x, const void *entry);
    uint32_t rows, C;
    double bytes;
    bool aim; /* has the target REACH */
};

/* An operation on the areas, as a function of the bench. */
#define OPERATION(name, kernel, ...)                                                               \
    static cudaError_t run_##name(struct bench *x, const void *entry)                              \
    {                                                                                              \
        const uint32_t rows = ((const struct entry *)entry)->rows;                                 \
        const uint32_t C = ((const struct entry *)entry)->C;                                       \
        const uint64_t count = (uint64_t)rows * C;                                                 \
        float *const mean = (float *)x->d, *const rstd = mean + rows;                              \
        const struct mics_args_##kernel args = {__VA_ARGS__};                                      \
                                                                                                   \
        (void)count;                                                                               \
        (void)rstd;                                                                                \
        return mics_cuda_##kernel(&x->at, &args);                                                  \
    }

OPERATION(cast, cast, x->c, x->a, count, MICS_BF16, MICS_F32)
OPERATION(accumulate, accumulate, (float *)x->c, x->a, count, MICS_BF16)
OPERATION(gelu, gelu, x->c, x->a, count, MICS_BF16, false)
OPERATION(gelu_grad, gelu_grad, x->c, x->a, x->b, count, MICS_BF16, false)
OPERATION(swiglu, swiglu, x->c, x->a, rows, C, MICS_BF16)
OPERATION(swiglu_grad, swiglu_grad, x->c, x->a, x->b, rows, C, MICS_BF16)
OPERATION(rope, rope, .data = x->c, .B = rows / SEQUENCE, .T = SEQUENCE, .heads = C / 128, .D = 128,
          .stride = C + 8 * 128, .base = 10000, .dtype = MICS_BF16)
OPERATION(layernorm, layernorm, x->c, mean, rstd, x->a, x->b, x->b, rows, C, 1e-5f, MICS_BF16)
OPERATION(layernorm_grad, layernorm_grad, x->c, x->d + (16 << 20), x->d + (32 << 20), x->a, x->b,
          x->b, mean, rstd, rows, C, MICS_BF16, MICS_F32)
OPERATION(rmsnorm, rmsnorm, x->c, rstd, x->a, x->b, rows, C, 1e-5f, MICS_BF16)
OPERATION(rmsnorm_grad, rmsnorm_grad, x->c, x->d + (16 << 20), x->a, x->b, x->b, rstd, rows, C,
          MICS_BF16, MICS_F32)
OPERATION(bias_grad, bias_grad, x->c, x->a, rows, C, MICS_BF16, MICS_F32)
OPERATION(embedding, embedding, x->c, x->tokens, x->a, x->b, rows / SEQUENCE, SEQUENCE, C,
          MICS_BF16, NULL)
OPERATION(embedding_grad, embedding_grad, x->c, x->d, x->tokens, x->a, rows / SEQUENCE, SEQUENCE, C,
          VOCABULARY, MICS_BF16, MICS_F32)
OPERATION(cross_entropy, cross_entropy, x->c, x->tokens, x->sum, rows, C, (C + 63) / 64 * 64, true,
          MICS_BF16, NULL, NULL)
OPERATION(squared_norm, squared_norm, x->sum, (float *)x->a, count, false)
#define UPDATE(name, KEY, second)                                                                  \
    OPERATION(name, update, MICS_OPT_##KEY, 9, (float *)x->a, {(float *)x->b, second},             \
              (uint16_t *)(x->c + AREA / 2), (float *)x->c, x->scalars, count, count / 2, 1e-6f,   \
              {0.9f, 0.95f, 1e-8f, 0.9f, 0.1f, 1}, false, NULL)
UPDATE(adamw, ADAMW, (float *)x->d)
UPDATE(sgd, SGD, NULL)
UPDATE(lion, LION, NULL)

static const struct entry entries[] = {
    {"adamw with copy, 100 M", run_adamw, 102400, 1024, 30, true},
    {"adamw with copy, a layer of 124M", run_adamw, 9229, 768, 30, true},
    {"sgd with copy, 100 M", run_sgd, 102400, 1024, 22, true},
    {"lion with copy, 100 M", run_lion, 102400, 1024, 22, true},
    {"layernorm, C 768", run_layernorm, 262144, 768, 4, true},
    {"layernorm, C 1600", run_layernorm, 131072, 1600, 4, true},
    {"layernorm_grad, C 768", run_layernorm_grad, 262144, 768, 8, true},
    {"layernorm_grad, C 1280", run_layernorm_grad, 131072, 1280, 8, true},
    {"layernorm_grad, C 1600", run_layernorm_grad, 131072, 1600, 8, true},
    {"rmsnorm, C 4096", run_rmsnorm, 65536, 4096, 4, true},
    {"rmsnorm_grad, C 4096", run_rmsnorm_grad, 65536, 4096, 8, true},
    {"rmsnorm_grad, C 8192", run_rmsnorm_grad, 32768, 8192, 8, true},
    {"cross_entropy, V 50257", run_cross_entropy, 8192, VOCABULARY, 4, true},
    {"cross_entropy, V 128256", run_cross_entropy, 4096, 128256, 4, true},
    {"squared_norm", run_squared_norm, 102400, 1024, 4, false},
    {"cast fp32 to bf16", run_cast, 102400, 1024, 6, false},
    {"accumulate bf16 into fp32", run_accumulate, 102400, 1024, 10, false},
    {"gelu", run_gelu, 65536, 6400, 4, false},
    {"gelu_grad", run_gelu_grad, 65536, 6400, 6, false},
    {"swiglu", run_swiglu, 16384, 11008, 6, false},
    {"swiglu_grad", run_swiglu_grad, 16384, 11008, 10, false},
    {"rope, 40 of 48 heads of 128", run_rope, 65536, 40 * 128, 4, false},
    {"bias_grad", run_bias_grad, 65536, 6400, 2, false},
    {"embedding, C 1600", run_embedding, 65536, 1600, 4, false},
    {"embedding_grad, C 1600", run_embedding_grad, 65536, 1600, 2, false},
};

/* Bytes that are copied: half of `bytes`, which counts both ways, as far as an area goes. */
static size_t copied(const void *bytes)
{
    const size_t half = (size_t)(*(const double *)bytes / 2) / 16 * 16;

    return half < AREA ? half : AREA;
}

static cudaError_t run_runtimes_copy(struct bench *x, const void *bytes)
{
    return cudaMemcpyAsync(x->c, x->a, copied(bytes), cudaMemcpyDeviceToDevice, x->at.stream);
}

static cudaError_t run_own_copy(struct bench *x, const void *bytes)
{
    return copy_by_kernel(x->at.stream, x->c, x->a, copied(bytes));
}

void measure_memory(struct bench *x)
{
    printf("%-36s %10s %10s %10s %10s %6s\n", "bound by memory, bf16", "us", "GB/s", "memcpy",
           "own copy", "ratio");
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        const struct entry *entry = &entries[i];
        const double bytes = entry->bytes * entry->rows * entry->C;
        const double took = time_us(x, entry->run, entry), moved = 2.0 * (double)copied(&bytes);
        const double theirs = moved / time_us(x, run_runtimes_copy, &bytes) / 1e3;
        const double own = moved / time_us(x, run_own_copy, &bytes) / 1e3;
        const double rate = bytes / took / 1e3, ratio = rate / (theirs > own ? theirs : own);

        printf("%-36s %10.1f %10.1f %10.1f %10.1f %6.3f%s\n", entry->name, took, rate, theirs, own,
               ratio,
               !entry->aim      ? ""
               : ratio >= REACH ? "  reached"
                                : "  missed");
    }
}
