/* SPDX-License-Identifier: Apache-2.0 */
/* The emulated cuBLASLt refuses what the real one refuses, so that tests with it are meaningful. */
#include "cublasLt.h"
#include "tap.h"

#include <stdlib.h>

/* op(A) op(B) = D, 16 x 16 of fp32, and one proposal for it. */
struct product {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layout;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    int count;
    float *a, *b, *d;
};

static struct product open_product(uint32_t epilogue)
{
    struct product p = {};

    CHECK_INT(cublasLtCreate(&p.handle), CUBLAS_STATUS_SUCCESS);
    CHECK_INT(cublasLtMatmulDescCreate(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
              CUBLAS_STATUS_SUCCESS);
    CHECK_INT(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                             sizeof(epilogue)),
              CUBLAS_STATUS_SUCCESS);
    CHECK_INT(cublasLtMatrixLayoutCreate(&p.layout, CUDA_R_32F, 16, 16, 16), CUBLAS_STATUS_SUCCESS);
    CHECK_INT(cublasLtMatmulPreferenceCreate(&p.preference), CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulAlgoGetHeuristic(p.handle, p.desc, p.layout, p.layout, p.layout, p.layout,
                                   p.preference, 1, &p.result, &p.count);
    CHECK_INT(cudaMalloc((void **)&p.a, 17 * 16 * sizeof(float)), cudaSuccess);
    CHECK_INT(cudaMalloc((void **)&p.b, 17 * 16 * sizeof(float)), cudaSuccess);
    CHECK_INT(cudaMalloc((void **)&p.d, 17 * 16 * sizeof(float)), cudaSuccess);
    for (int i = 0; i < 17 * 16; i++)
        p.a[i] = p.b[i] = (float)(i % 17 == 0);
    return p;
}

static void close_product(struct product *p)
{
    cublasLtMatmulPreferenceDestroy(p->preference);
    cublasLtMatrixLayoutDestroy(p->layout);
    cublasLtMatmulDescDestroy(p->desc);
    cublasLtDestroy(p->handle);
    cudaFree(p->a);
    cudaFree(p->b);
    cudaFree(p->d);
}

static cublasStatus_t multiply(struct product *p, float *a, float *d, float beta)
{
    const float one = 1;

    return cublasLtMatmul(p->handle, p->desc, &one, a, p->layout, p->b, p->layout, &beta, d,
                          p->layout, d, p->layout, &p->result.algo, NULL, 0, NULL);
}

static void a_product_without_beta_does_not_read_what_was_there(void)
{
    struct product p = open_product(CUBLASLT_EPILOGUE_DEFAULT);

    CHECK_INT(p.count, 1);
    CHECK_INT(multiply(&p, p.a, p.d, 0), CUBLAS_STATUS_SUCCESS); /* new memory is NaN */
    CHECK(p.d[0] == 1 && p.d[1] == 0 && p.d[17] == 1);
    CHECK_INT(multiply(&p, p.a, p.d, 1), CUBLAS_STATUS_SUCCESS);
    CHECK(p.d[0] == 2 && p.d[1] == 0);
    close_product(&p);
}

static void operands_less_aligned_than_promised_are_refused(void)
{
    struct product p = open_product(CUBLASLT_EPILOGUE_DEFAULT);

    CHECK_INT(multiply(&p, p.a + 1, p.d, 0), CUBLAS_STATUS_INVALID_VALUE);
    CHECK_INT(multiply(&p, p.a, p.a, 0), CUBLAS_STATUS_INVALID_VALUE);
    close_product(&p);
}

static void an_algorithm_of_another_product_is_refused(void)
{
    const int32_t transposed = CUBLAS_OP_T;
    struct product p = open_product(CUBLASLT_EPILOGUE_DEFAULT);

    CHECK_INT(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                             sizeof(transposed)),
              CUBLAS_STATUS_SUCCESS);
    CHECK_INT(multiply(&p, p.a, p.d, 0), CUBLAS_STATUS_INVALID_VALUE);
    close_product(&p);
}

static void gelu_of_fp32_is_not_proposed(void)
{
    struct product p = open_product(CUBLASLT_EPILOGUE_GELU_AUX);

    CHECK_INT(p.count, 0);
    close_product(&p);
}

static void rows_that_overlap_are_refused(void)
{
    cublasLtMatrixLayout_t layout = NULL;

    CHECK_INT(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 16, 4, 15),
              CUBLAS_STATUS_INVALID_VALUE);
    CHECK_INT(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 0, 4, 15),
              CUBLAS_STATUS_INVALID_VALUE);
}

int main()
{
    setenv("MICS_EMULATED_ORDER", "early", 1); /* results are there when a call returns */
    TAP_RUN(a_product_without_beta_does_not_read_what_was_there);
    TAP_RUN(operands_less_aligned_than_promised_are_refused);
    TAP_RUN(an_algorithm_of_another_product_is_refused);
    TAP_RUN(gelu_of_fp32_is_not_proposed);
    TAP_RUN(rows_that_overlap_are_refused);
    return tap_done();
}
