/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cublasLt.cc - descriptors, proposals and refusals of the emulated cuBLASLt; the arithmetic is in
 * cublasLt_product.cc.
 */
#include "cublasLt_internal.h"
#include "queue.h"

#include <atomic>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROPOSALS 5
#define REFUSED   2
#define SLOW_MS   1000

struct emu_lt {
    int unused;
};

struct emu_lt_preference {
    uint64_t workspace;
    uint32_t schemes;
    uint32_t aligned[4]; /* a, b, c, d */
};

static cublasStatus_t refuse(cublasStatus_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static cublasStatus_t refuse(cublasStatus_t status, const char *format, ...)
{
    va_list rest;

    va_start(rest, format);
    fputs("emulated cuBLASLt: ", stderr);
    vfprintf(stderr, format, rest);
    fputc('\n', stderr);
    va_end(rest);
    return status;
}

template <typename T> static cublasStatus_t make(T **out, const T &value)
{
    *out = static_cast<T *>(malloc(sizeof(T)));
    if (!*out)
        return CUBLAS_STATUS_ALLOC_FAILED;
    **out = value;
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    return (size_t)emu_setting("MICS_EMULATED_CUBLASLT", 130000);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    return make(out, emu_lt{0});
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    if (scale != CUDA_R_32F)
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "a scale of type %d", scale);
    return make(out, emu_lt_desc{compute, false, false, CUBLASLT_EPILOGUE_DEFAULT, NULL, NULL, 0});
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

template <typename T> static bool take(T *to, const void *value, size_t bytes)
{
    if (bytes == sizeof(T))
        memcpy(to, value, bytes);
    return bytes == sizeof(T);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    int32_t operation = -1;
    bool good = false;

    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
    case CUBLASLT_MATMUL_DESC_TRANSB:
        good = take(&operation, value, bytes) && (operation | 1) == 1;
        (attribute == CUBLASLT_MATMUL_DESC_TRANSA ? desc->trans_a : desc->trans_b) = operation == 1;
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        good = take(&desc->epilogue, value, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        good = take(&desc->bias, value, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        good = take(&desc->aux, value, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        good = take(&desc->aux_ld, value, bytes);
        break;
    }
    return good ? CUBLAS_STATUS_SUCCESS
                : refuse(CUBLAS_STATUS_INVALID_VALUE, "attribute %d of a product", attribute);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t ld)
{
    if (rows == 0 || columns == 0 || ld < (int64_t)rows)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "%lu rows of %lu, %ld apart",
                      (unsigned long)rows, (unsigned long)columns, (long)ld);
    return make(out, emu_lt_layout{type, rows, columns, ld});
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    return make(out, emu_lt_preference{0, 7, {256, 256, 256, 256}});
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    bool good;

    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        good = take(&preference->workspace, value, bytes);
    else if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        good = take(&preference->schemes, value, bytes);
    else
        good = take(&preference->aligned[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                    value, bytes);
    return good ? CUBLAS_STATUS_SUCCESS
                : refuse(CUBLAS_STATUS_INVALID_VALUE, "attribute %d of a preference", attribute);
}

/* The shapes of op(A) op(B) = D agree, and C is as D. */
static bool shapes_agree(const struct emu_lt_desc *desc, const struct emu_lt_layout *a,
                         const struct emu_lt_layout *b, const struct emu_lt_layout *c,
                         const struct emu_lt_layout *d)
{
    const uint64_t n = desc->trans_a ? a->columns : a->rows;
    const uint64_t k = desc->trans_a ? a->rows : a->columns;
    const uint64_t k_of_b = desc->trans_b ? b->columns : b->rows;
    const uint64_t m = desc->trans_b ? b->rows : b->columns;

    return k == k_of_b && d->rows == n && d->columns == m && c->rows == n && c->columns == m;
}

/* Types that cuBLASLt documents, and epilogues of them that are certain. */
static bool types_agree(const struct emu_lt_desc *desc, const struct emu_lt_layout *a,
                        const struct emu_lt_layout *b, const struct emu_lt_layout *c,
                        const struct emu_lt_layout *d)
{
    const bool same = a->type == b->type && c->type == d->type;
    const bool fp32 = a->type == CUDA_R_32F && d->type == CUDA_R_32F;
    const bool half = a->type != CUDA_R_32F && d->type == a->type;
    const bool mixed = a->type != CUDA_R_32F && d->type == CUDA_R_32F;

    if (!same || !(fp32 || half || mixed))
        return false;
    if (desc->compute == CUBLAS_COMPUTE_32F_FAST_TF32 && !fp32)
        return false;
    switch (desc->epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
        return true;
    case CUBLASLT_EPILOGUE_BIAS:
        return (fp32 || half) && (size_t)desc->bias % 16 == 0;
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        return half && (size_t)desc->bias % 16 == 0 && (size_t)desc->aux % 16 == 0 &&
               desc->aux_ld % 8 == 0;
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_DGELU:
        return half && (size_t)desc->aux % 16 == 0 && desc->aux_ld % 8 == 0;
    default:
        return false;
    }
}

/* What an algorithm was proposed for; its pointers may change. */
static uint64_t signature(const struct emu_lt_desc *desc, const struct emu_lt_layout *const all[4])
{
    uint64_t hash = 1469598103934665603u;
    const uint64_t own[] = {(uint64_t)desc->compute, desc->trans_a, desc->trans_b, desc->epilogue,
                            (uint64_t)desc->aux_ld};

    for (uint64_t value : own)
        hash = (hash ^ value) * 1099511628211u;
    for (int i = 0; i < 4; i++) {
        const uint64_t theirs[] = {(uint64_t)all[i]->type, all[i]->rows, all[i]->columns,
                                   (uint64_t)all[i]->ld};

        for (uint64_t value : theirs)
            hash = (hash ^ value) * 1099511628211u;
    }
    return hash;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t *results, int *count)
{
    const struct emu_lt_layout *const all[] = {a, b, c, d};

    *count = 0;
    if (!shapes_agree(desc, a, b, c, d))
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "shapes that do not fit each other");
    if (!types_agree(desc, a, b, c, d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < PROPOSALS && i < requested; i++) {
        const uint64_t workspace = i * (preference->workspace / 64 / PROPOSALS);
        cublasLtMatmulHeuristicResult_t *result = &results[(*count)++];

        memset(result, 0, sizeof(*result));
        result->algo.data[0] = signature(desc, all);
        result->algo.data[1] = workspace;
        for (int j = 0; j < 4; j++)
            result->algo.data[2 + j] = preference->aligned[j];
        result->algo.data[6] = (uint64_t)i;
        result->workspaceSize = workspace;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    const struct emu_lt_layout *const all[] = {a, b, c, d};

    memset(result, 0, sizeof(*result));
    if (algo->data[0] != signature(desc, all))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (algo->data[6] >= PROPOSALS ||
        (long long)algo->data[6] == emu_setting("MICS_EMULATED_WITHDRAWN_PROPOSAL", -1))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    result->workspaceSize = algo->data[1];
    return CUBLAS_STATUS_SUCCESS;
}

static std::atomic<unsigned long> products;

unsigned long emu_lt_products(void)
{
    return products;
}

static void be_slow(uint64_t proposal)
{
    const long long fast = emu_setting("MICS_EMULATED_FAST_PROPOSAL", -1);

    if (fast >= 0 && (uint64_t)fast != proposal)
        emu_let_pass(SLOW_MS);
}

namespace
{

/* The arguments of a call, until it runs. */
struct product {
    struct emu_lt_desc desc;
    struct emu_lt_layout layouts[4];
    const void *operands[4];
    float alpha, beta;
    void *workspace;
    size_t workspace_bytes;
    uint64_t proposal;
};

} // namespace

static emu_step run(const struct product &p)
{
    const struct emu_lt_layout *const layouts[] = {&p.layouts[0], &p.layouts[1], &p.layouts[2],
                                                   &p.layouts[3]};

    if (p.workspace_bytes > 0)
        memset(p.workspace, 0xff, p.workspace_bytes);
    be_slow(p.proposal);
    return emu_lt_multiply(&p.desc, layouts, p.operands, p.alpha, p.beta, p.proposal + 1) ==
                   CUBLAS_STATUS_SUCCESS
               ? emu_step::DONE
               : emu_step::FAILED;
}

static void enqueue(const struct product &p, cudaStream_t stream)
{
    emu_work work;

    work.run = [p] { return run(p); };
    emu_enqueue(stream, std::move(work));
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    const struct emu_lt_layout *const all[] = {a_layout, b_layout, c_layout, d_layout};
    const void *const operands[] = {a, b, c, d};

    products++;
    if (!types_agree(desc, a_layout, b_layout, c_layout, d_layout))
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "types, or an epilogue's operands");
    if (algo->data[0] != signature(desc, all))
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "an algorithm of another product");
    if (algo->data[6] == REFUSED)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (algo->data[1] > workspace_bytes || (algo->data[1] > 0 && (size_t)workspace % 16 != 0))
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "a workspace of %zu bytes", workspace_bytes);
    for (int i = 0; i < 4; i++)
        if (!operands[i] || (size_t)operands[i] % algo->data[2 + i] != 0)
            return refuse(CUBLAS_STATUS_INVALID_VALUE, "operand %d less aligned than promised", i);
    if (d == a || d == b || (c == d && c_layout->ld != d_layout->ld))
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "a result in the place of an operand");
    enqueue({*desc,
             {*a_layout, *b_layout, *c_layout, *d_layout},
             {a, b, c, d},
             *static_cast<const float *>(alpha),
             *static_cast<const float *>(beta),
             workspace,
             algo->data[1],
             algo->data[6]},
            stream);
    return emu_note(cudaSuccess) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                : CUBLAS_STATUS_EXECUTION_FAILED;
}
