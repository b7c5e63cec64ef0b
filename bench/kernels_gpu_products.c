/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels_gpu_products.c - the matrix products of a step by our operation, compared with plain
 * cuBLASLt in the same run on the same random numbers: the fastest of its proposals with the same
 * types, epilogue and accumulation ("reference"), and the fastest without any ("bare").
 */
#include "kernels_gpu.h"

#include <cublasLt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { PROPOSALS = 64, FINALISTS = 4 };
#define NEVER 1e12 /* microseconds of an unsupported product */
#define REACH 0.95 /* of "reference", all products of the step together */

enum { BIAS = 1, PRE_GELU = 2, GELU_OF = 4, ADD = 8, ACCUMULATE = 16, FP32 = 32 };

struct product {
    const char *name;
    uint32_t m, n, k;
    bool trans_a, trans_b;
    int with;
    bool of_step; /* counts towards the target */
};

/* GPT-2 1.5B (C 1600, 24,576 rows), its head in chunks of 4,096 rows, and Llama 3 8B's largest. */
static const struct product products[] = {
    {"qkv, bias", 24576, 4800, 1600, false, false, BIAS, true},
    {"attention out, bias and residual", 24576, 1600, 1600, false, false, BIAS | ADD, true},
    {"MLP up, bias and GELU", 24576, 6400, 1600, false, false, BIAS | PRE_GELU, true},
    {"MLP down, bias and residual", 24576, 1600, 6400, false, false, BIAS | ADD, true},
    {"MLP down, grad in through GELU", 24576, 6400, 1600, false, true, GELU_OF, true},
    {"MLP up, grad in", 24576, 1600, 6400, false, true, 0, true},
    {"MLP up, grad weight, added", 1600, 6400, 24576, true, false, ACCUMULATE, true},
    {"head", 4096, 50304, 1600, false, true, 0, true},
    {"head, grad in", 4096, 1600, 50304, false, false, 0, true},
    {"head, grad weight, added", 50304, 1600, 4096, true, false, ACCUMULATE, true},
    {"head, grad weight, added in fp32", 50304, 1600, 4096, true, false, ACCUMULATE | FP32, false},
    {"Llama 8B gate and up", 8192, 28672, 4096, false, false, 0, false},
};

/* A product by plain cuBLASLt, with the same types, epilogue and accumulation, or without any. */
struct reference {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, out;
    cublasLtMatmulAlgo_t algo;
    const void *add;
};

struct proposal {
    cublasLtMatmulAlgo_t algo;
    double us;
};

static void need(cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return;
    fprintf(stderr, "kernels_gpu: %s: cuBLASLt status %d\n", what, (int)status);
    exit(1);
}

static cublasStatus_t multiply(struct bench *x, const struct reference *reference)
{
    const float one = 1, beta = reference->add ? 1.0f : 0.0f;

    return cublasLtMatmul(reference->handle, reference->desc, &one, x->b, reference->a, x->a,
                          reference->b, &beta, reference->add ? reference->add : x->c,
                          reference->out, x->c, reference->out, &reference->algo, x->at.workspace,
                          MICS_CUDA_WORKSPACE_BYTES, x->at.stream);
}

static cudaError_t run_reference(struct bench *x, const void *context)
{
    need(multiply(x, context), "a reference product");
    return cudaSuccess;
}

static void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name, const void *value,
                size_t bytes)
{
    need(cublasLtMatmulDescSetAttribute(desc, name, value, bytes), "descriptor");
}

/* The epilogue of `with`, as products.c asks for it. */
static void set_epilogue(struct bench *x, cublasLtMatmulDesc_t desc, const struct product *p)
{
    const uint32_t epilogue = (p->with & BIAS ? CUBLASLT_EPILOGUE_BIAS : 0) |
                              (p->with & PRE_GELU  ? CUBLASLT_EPILOGUE_GELU_AUX
                               : p->with & GELU_OF ? CUBLASLT_EPILOGUE_DGELU
                                                   : 0);
    const void *const side = x->d;
    const int64_t ld = p->n;

    if (epilogue == 0)
        return;
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue));
    if (p->with & BIAS)
        set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &side, sizeof(side));
    if (p->with & (PRE_GELU | GELU_OF)) {
        set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &side, sizeof(side));
        set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof(ld));
    }
}

static struct reference open_reference(struct bench *x, const struct product *p, bool same)
{
    const int32_t trans_a = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                  trans_b = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cudaDataType_t out = p->with & FP32 ? CUDA_R_32F : CUDA_R_16BF;
    struct reference reference = {.add = NULL};

    if (same && p->with & (ACCUMULATE | ADD))
        reference.add = p->with & ADD ? x->d : x->c;
    need(cublasLtCreate(&reference.handle), "create");
    need(cublasLtMatmulDescCreate(&reference.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "descriptor");
    set(reference.desc, CUBLASLT_MATMUL_DESC_TRANSA, &trans_a, sizeof(trans_a));
    set(reference.desc, CUBLASLT_MATMUL_DESC_TRANSB, &trans_b, sizeof(trans_b));
    if (same)
        set_epilogue(x, reference.desc, p);
    need(cublasLtMatrixLayoutCreate(&reference.a, CUDA_R_16BF, p->trans_b ? p->k : p->n,
                                    p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n),
         "A");
    need(cublasLtMatrixLayoutCreate(&reference.b, CUDA_R_16BF, p->trans_a ? p->m : p->k,
                                    p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k),
         "B");
    need(cublasLtMatrixLayoutCreate(&reference.out, out, p->n, p->m, p->n), "D");
    return reference;
}

static void close_reference(struct reference *reference)
{
    cublasLtMatrixLayoutDestroy(reference->a);
    cublasLtMatrixLayoutDestroy(reference->b);
    cublasLtMatrixLayoutDestroy(reference->out);
    cublasLtMatmulDescDestroy(reference->desc);
    cublasLtDestroy(reference->handle);
}

/* All that cuBLASLt proposes, partial sums being fp32, as many as fit; returns how many. */
static int propose(const struct reference *reference, struct proposal out[PROPOSALS])
{
    const uint64_t workspace = MICS_CUDA_WORKSPACE_BYTES;
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasLtMatmulHeuristicResult_t found[PROPOSALS];
    cublasLtMatmulPreference_t preference;
    int count = 0, good = 0;

    need(cublasLtMatmulPreferenceCreate(&preference), "preference");
    need(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &workspace, sizeof(workspace)),
         "workspace");
    need(cublasLtMatmulPreferenceSetAttribute(
             preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof(schemes)),
         "schemes");
    need(cublasLtMatmulAlgoGetHeuristic(reference->handle, reference->desc, reference->a,
                                        reference->b, reference->out, reference->out, preference,
                                        PROPOSALS, found, &count),
         "proposals");
    cublasLtMatmulPreferenceDestroy(preference);
    for (int i = 0; i < count; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS)
            out[good++].algo = found[i].algo;
    return good;
}

static int by_time(const void *a, const void *b)
{
    const struct proposal *x = a, *y = b;

    return (x->us > y->us) - (x->us < y->us);
}

/* Time each proposal in its second run, in microseconds; NEVER for one that is then refused. */
static void screen(struct bench *x, struct reference *reference, struct proposal *proposals,
                   int count)
{
    cudaEvent_t start, stop;

    must(cudaEventCreate(&start), "cudaEventCreate");
    must(cudaEventCreate(&stop), "cudaEventCreate");
    for (int i = 0; i < count; i++) {
        float took = 0;

        reference->algo = proposals[i].algo;
        proposals[i].us = NEVER;
        if (multiply(x, reference) != CUBLAS_STATUS_SUCCESS)
            continue;
        must(cudaEventRecord(start, x->at.stream), "cudaEventRecord");
        run_reference(x, reference);
        must(cudaEventRecord(stop, x->at.stream), "cudaEventRecord");
        must(cudaEventSynchronize(stop), "a reference product");
        must(cudaEventElapsedTime(&took, start, stop), "cudaEventElapsedTime");
        proposals[i].us = 1e3 * (double)took;
    }
    must(cudaEventDestroy(start), "cudaEventDestroy");
    must(cudaEventDestroy(stop), "cudaEventDestroy");
}

/* The fastest proposal, by the median of those that were fastest in a single run; *us: NEVER if
 * cuBLASLt has none. */
static struct reference fastest(struct bench *x, const struct product *p, bool same, double *us)
{
    struct proposal proposals[PROPOSALS];
    struct reference reference = open_reference(x, p, same);
    const int count = propose(&reference, proposals);
    cublasLtMatmulAlgo_t algo = {{0}};

    *us = NEVER;
    screen(x, &reference, proposals, count);
    qsort(proposals, (size_t)count, sizeof(proposals[0]), by_time);
    for (int i = 0; i < count && i < FINALISTS && proposals[i].us < NEVER; i++) {
        reference.algo = proposals[i].algo;
        const double took = time_us(x, run_reference, &reference);

        algo = took < *us ? proposals[i].algo : algo;
        *us = took < *us ? took : *us;
    }
    reference.algo = algo;
    return reference;
}

static struct mics_args_matmul args_of(const struct bench *x, const struct product *p)
{
    return (struct mics_args_matmul){
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
        .out_dtype = p->with & FP32 ? MICS_F32 : MICS_BF16,
    };
}

static cudaError_t run_product(struct bench *x, const void *context)
{
    const struct mics_args_matmul args = args_of(x, context);

    return mics_cuda_matmul(&x->at, &args);
}

/* As the engine does before its first step. */
static struct mics_matmul_choice prepare(struct bench *x, const struct product *p)
{
    const struct mics_args_matmul args = args_of(x, p);
    struct mics_matmul_choice choice;

    must(mics_cuda_products_prepare(&x->at, &args, 1, false, &choice), p->name);
    return choice;
}

/* The algorithms where ours is much slower, as lines for whoever looks into it. */
static void print_algorithms(const struct mics_matmul_choice *ours, const struct reference *other)
{
    const unsigned char *bytes[2] = {ours->algorithm, (const unsigned char *)&other->algo};

    for (int i = 0; i < 2; i++) {
        printf("# %s:", i ? "reference" : "ours     ");
        for (size_t k = 0; k < sizeof(other->algo); k++)
            printf("%s%02x", k % 4 ? "" : " ", bytes[i][k]);
        printf("\n");
    }
}

/* Ours and the reference in turns, so that both have the clocks of a GPU that is as warm; medians
 * of three. */
static void take_turns(struct bench *x, const struct product *p, const struct reference *reference,
                       double us[2])
{
    double took[2][3];

    for (int i = 0; i < 3; i++) {
        took[0][i] = time_us(x, run_product, p);
        took[1][i] = time_us(x, run_reference, reference);
    }
    for (int k = 0; k < 2; k++) {
        const double *t = took[k];
        const double low = fmin(t[0], t[1]), high = fmax(t[0], t[1]);

        us[k] = fmax(low, fmin(high, t[2]));
    }
}

void measure_products(struct bench *x)
{
    double all[2] = {0, 0}, us[2], bare;

    printf("%-36s %10s %10s %10s %10s %6s\n", "matrix product, bf16: TFLOP/s", "us", "ours",
           "reference", "bare", "ratio");
    for (size_t i = 0; i < sizeof(products) / sizeof(products[0]); i++) {
        const struct product *p = &products[i];
        const double flops = 2e-6 * p->m * p->n * p->k;
        const struct mics_matmul_choice choice = prepare(x, p);
        struct reference plain = fastest(x, p, false, &bare), same = fastest(x, p, true, &us[1]);

        const struct reference *other = us[1] < NEVER ? &same : &plain;
        take_turns(x, p, other, us);
        printf("%-36s %10.1f %10.1f %10.1f %10.1f %6.3f\n", p->name, us[0], flops / us[0],
               flops / us[1], flops / bare, us[1] / us[0]);
        if (us[1] < REACH * us[0])
            print_algorithms(&choice, other);
        for (int k = 0; k < 2; k++)
            all[k] += p->of_step ? us[k] : 0;
        close_reference(&plain);
        close_reference(&same);
    }
    printf("%-36s %10.1f %43.3f  at least %.2f: %s\n", "those of GPT-2 1.5B together", all[0],
           all[1] / all[0], REACH, all[1] / all[0] >= REACH ? "reached" : "missed");
}
