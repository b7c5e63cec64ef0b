/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels_gpu_products.c - the matrix products of a step, with their epilogues, beside what
 * cuBLASLt gives for the bare product: the fastest of its first 8 proposals, measured in the same
 * run.
 */
#include "kernels_gpu.h"

#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>

enum { BIAS = 1, PRE_GELU = 2, GELU_OF = 4, ADD = 8, ACCUMULATE = 16 };

struct product {
    const char *name;
    uint32_t m, n, k;
    bool trans_a, trans_b;
    int with;
};

/* GPT-2 1.5B (C 1600, 16,384 rows), its head in chunks of 4,096 rows, and Llama 3 8B's largest. */
static const struct product products[] = {
    {"qkv, bias", 16384, 4800, 1600, false, false, BIAS},
    {"attention out, bias and residual", 16384, 1600, 1600, false, false, BIAS | ADD},
    {"MLP up, bias and GELU", 16384, 6400, 1600, false, false, BIAS | PRE_GELU},
    {"MLP down, bias and residual", 16384, 1600, 6400, false, false, BIAS | ADD},
    {"MLP down, grad in through GELU", 16384, 6400, 1600, false, true, GELU_OF},
    {"MLP up, grad in", 16384, 1600, 6400, false, true, 0},
    {"MLP up, grad weight onto fp32", 1600, 6400, 16384, true, false, ACCUMULATE},
    {"head", 4096, 50304, 1600, false, true, 0},
    {"head, grad in", 4096, 1600, 50304, false, false, 0},
    {"head, grad weight onto fp32", 50304, 1600, 4096, true, false, ACCUMULATE},
    {"Llama 8B gate and up", 8192, 28672, 4096, false, false, 0},
};

/* The product without its epilogue, by cuBLASLt itself. */
struct bare {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, out;
    cublasLtMatmulHeuristicResult_t found[8];
    int algo;
};

static void need(cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return;
    fprintf(stderr, "kernels_gpu: %s: cuBLASLt status %d\n", what, (int)status);
    exit(1);
}

static cudaError_t run_bare(struct bench *x, const void *context)
{
    const struct bare *bare = context;
    const float one = 1, zero = 0;

    need(cublasLtMatmul(bare->handle, bare->desc, &one, x->b, bare->a, x->a, bare->b, &zero, x->c,
                        bare->out, x->c, bare->out, &bare->found[bare->algo].algo, x->at.workspace,
                        MICS_CUDA_WORKSPACE_BYTES, x->at.stream),
         "a bare product");
    return cudaSuccess;
}

/* Microseconds of the fastest proposal. */
static double time_bare(struct bench *x, const struct product *p)
{
    const int32_t trans_a = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                  trans_b = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cudaDataType_t out = p->with & ACCUMULATE ? CUDA_R_32F : CUDA_R_16BF;
    const uint64_t workspace = MICS_CUDA_WORKSPACE_BYTES;
    cublasLtMatmulPreference_t preference;
    struct bare bare = {.handle = NULL};
    double best = 1e12;
    int count = 0;

    need(cublasLtCreate(&bare.handle), "create");
    need(cublasLtMatmulDescCreate(&bare.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "descriptor");
    need(cublasLtMatmulDescSetAttribute(bare.desc, CUBLASLT_MATMUL_DESC_TRANSA, &trans_a,
                                        sizeof(trans_a)),
         "A");
    need(cublasLtMatmulDescSetAttribute(bare.desc, CUBLASLT_MATMUL_DESC_TRANSB, &trans_b,
                                        sizeof(trans_b)),
         "B");
    need(cublasLtMatrixLayoutCreate(&bare.a, CUDA_R_16BF, p->trans_b ? p->k : p->n,
                                    p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n),
         "A");
    need(cublasLtMatrixLayoutCreate(&bare.b, CUDA_R_16BF, p->trans_a ? p->m : p->k,
                                    p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k),
         "B");
    need(cublasLtMatrixLayoutCreate(&bare.out, out, p->n, p->m, p->n), "D");
    need(cublasLtMatmulPreferenceCreate(&preference), "preference");
    need(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &workspace, sizeof(workspace)),
         "workspace");
    need(cublasLtMatmulAlgoGetHeuristic(bare.handle, bare.desc, bare.a, bare.b, bare.out, bare.out,
                                        preference, 8, bare.found, &count),
         "proposals");
    for (bare.algo = 0; bare.algo < count; bare.algo++) {
        const double took = time_us(x, run_bare, &bare);

        best = took < best ? took : best;
    }
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatrixLayoutDestroy(bare.a);
    cublasLtMatrixLayoutDestroy(bare.b);
    cublasLtMatrixLayoutDestroy(bare.out);
    cublasLtMatmulDescDestroy(bare.desc);
    cublasLtDestroy(bare.handle);
    return best;
}

static cudaError_t run_product(struct bench *x, const void *context)
{
    const struct product *p = context;
    const struct mics_op_matmul args = {
        .out = x->c,
        .a = x->a,
        .b = x->b,
        .bias = p->with & BIAS ? x->d : NULL,
        .add = p->with & ACCUMULATE ? (void *)x->c
               : p->with & ADD      ? x->d
                                    : NULL,
        .pre_gelu = p->with & PRE_GELU ? x->d : NULL,
        .gelu_of = p->with & GELU_OF ? x->d : NULL,
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .lda = p->trans_a ? p->m : p->k,
        .ldb = p->trans_b ? p->k : p->n,
        .ldout = p->n,
        .trans_a = p->trans_a,
        .trans_b = p->trans_b,
        .dtype = MICS_BF16,
        .out_dtype = p->with & ACCUMULATE ? MICS_F32 : MICS_BF16,
    };

    return mics_cuda_matmul(&x->at, &args);
}

void measure_products(struct bench *x)
{
    printf("%-36s %10s %10s %10s %6s\n", "matrix product, bf16", "us", "TFLOP/s", "bare", "ratio");
    for (size_t i = 0; i < sizeof(products) / sizeof(products[0]); i++) {
        const struct product *p = &products[i];
        const double flops = 2.0 * p->m * p->n * p->k;
        const double ours = time_us(x, run_product, p), bare = time_bare(x, p);

        printf("%-36s %10.1f %10.1f %10.1f %6.3f\n", p->name, ours, flops / ours / 1e6,
               flops / bare / 1e6, bare / ours);
    }
}
