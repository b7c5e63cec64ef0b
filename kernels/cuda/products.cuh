/* SPDX-License-Identifier: Apache-2.0 */
/*
 * products.cuh - matrix products of cuBLASLt: what is made once for a shape.
 *
 * cuBLASLt counts columns first, we rows: out[m, n] = a' b' is its out^T = b'^T a'^T, so that our b
 * is its A, our a its B, and our bias, along a row, runs along its columns, as its epilogue wants
 * it.
 *
 * A product has up to three forms: all of its epilogue in cuBLASLt, only the bias, or nothing; the
 * rest is a pass of epilogue.cu. Of each form cuBLASLt proposes up to 16 algorithms. The form and
 * the algorithm that are fastest are found when a shape is first met (product_measure.cu), and
 * kept.
 */
#ifndef MICS_KERNELS_CUDA_PRODUCTS_CUH
#define MICS_KERNELS_CUDA_PRODUCTS_CUH

#include "cuda/epilogue.cuh"
#include "cuda/shapes.cuh"

#include <cublasLt.h>
#include <pthread.h>

#define MICS_PRODUCT_ALGOS 16
#define MICS_PRODUCT_FORMS 3

/* What decides how a product is done. A key of shapes.cuh. */
struct mics_product_key {
    uint32_t m, n, k, lda, ldb, ldout;
    uint8_t trans_a, trans_b, bf16, out_bf16;
    uint8_t add, bias, pre_gelu, gelu_of; /* whether they are there; add 2: it is out */
    uint8_t half;                         /* of the workspace is all it may use */
    uint8_t aligned[4]; /* bytes, up to 128: of a, b, out and add, bias and the others */
};

struct mics_product_form {
    bool bias, gelu; /* in cuBLASLt's epilogue */
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulAlgo_t algos[MICS_PRODUCT_ALGOS]; /* the first is used */
    int count;
};

/* One shape. */
struct mics_product {
    struct mics_shape shape;
    struct mics_product_key key;
    cublasLtMatrixLayout_t a, b, out; /* cuBLASLt's A and B; of C and D */
    struct mics_product_form form;
};

struct mics_cuda_products {
    cublasLtHandle_t handle;
    pthread_mutex_t lock; /* of all below, and of descriptors between their setting and their use */
    struct mics_shapes shapes; /* struct mics_product */
    bool tf32;                 /* MICS_TF32=1 */
    bool measure;              /* unless MICS_CUDA_MEASURE=0 */
    bool warm;                 /* something was measured before */
};

cudaError_t mics_product_error(cublasStatus_t status);

/* The product of a shape, made and measured where it was not met before. It belongs to the
 * table. Under the lock. */
cublasStatus_t mics_product_find(const struct mics_cuda_at *at, const struct mics_op_matmul *args,
                                 bool half, struct mics_product **out);

/* Choose the product's form and algorithm. */
cublasStatus_t mics_product_choose(const struct mics_cuda_at *at, const struct mics_op_matmul *args,
                                   struct mics_product *product);

/* Enqueue a product in one form with one algorithm, and what is left of its epilogue. `args` is
 * of the product's shape; its result goes to `out`, which need not be args->out. */
cublasStatus_t mics_product_run(const struct mics_cuda_at *at, const struct mics_op_matmul *args,
                                const struct mics_product *product,
                                const struct mics_product_form *form,
                                const cublasLtMatmulAlgo_t *algo, void *out);

/* Leave the fastest of the forms (some have no algorithm; not all) at *best, its fastest
 * algorithm first, by running each on the stream, which is waited for. `out` is only written
 * where nothing else reads it; else memory is allocated, and without it the first algorithm of
 * the first form is taken. */
void mics_product_measure(const struct mics_cuda_at *at, const struct mics_op_matmul *args,
                          const struct mics_product *product, struct mics_product_form *forms,
                          int *best);

#endif
