/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product.h - one shape of matrix products by cuBLASLt: its key, its descriptors, and the form and
 * algorithm that are chosen for it. Private to products.c, which keeps the shapes in a table.
 *
 * A form is the part of the epilogue that cuBLASLt does: all of it, only the bias, or nothing; the
 * rest is a pass of elementwise.cu. Nothing here takes a lock.
 */
#ifndef MICS_KERNELS_CUDA_PRODUCT_H
#define MICS_KERNELS_CUDA_PRODUCT_H

#include "cuda/kernels.h"

#include <cublasLt.h>

/* How products are computed. */
struct mics_cuda_product_library {
    cublasLtHandle_t handle;
    bool tf32; /* for fp32 operands */
    bool warm; /* something was measured before */
};

/* The key of a product in the table. Zeroed by memset() first, because padding is compared too. */
struct mics_cuda_product_key {
    uint32_t m, n, k, lda, ldb, ldout;
    uint8_t trans_a, trans_b, dtype, out_dtype; /* enum mics_dtype */
    uint8_t add, bias, pre_gelu, gelu_of;       /* 1: not NULL; add 2: it is out */
    uint8_t half;                               /* 1: it may use only half of the workspace */
    uint8_t aligned[4]; /* bytes, up to 128: of a, b, out and add, bias and the others */
};

/* A form: the part of the epilogue that cuBLASLt does, and its descriptor. */
struct mics_cuda_product_form {
    bool bias, gelu;
    cublasLtMatmulDesc_t desc; /* its pointers are set again for each call */
};

/* One shape. */
struct mics_cuda_product {
    struct mics_cuda_product *next; /* of its bucket */
    struct mics_cuda_product_key key;
    cublasLtMatrixLayout_t a, b, out; /* cuBLASLt's A and B; of C and D */
    struct mics_cuda_product_form form;
    cublasLtMatmulAlgo_t algo;
    bool prepared; /* chosen, by measurement or as asked for */
};

enum { MICS_CUDA_PRODUCT_TEXT = 192 }; /* bytes of a key as a line */

/* The key of a product. `half`: it may use only half of the workspace. */
struct mics_cuda_product_key mics_cuda_product_key_of(const struct mics_args_matmul *args,
                                                      bool half);

/* The key as a line of the cache file, which begins with the shape. */
void mics_cuda_product_describe(const struct mics_cuda_product_library *library,
                                const struct mics_cuda_product_key *key,
                                char text[MICS_CUDA_PRODUCT_TEXT]);

/* A product without a form; the caller frees it. */
cublasStatus_t mics_cuda_product_new(const struct mics_cuda_product_key *key,
                                     struct mics_cuda_product **out);
void mics_cuda_product_free(struct mics_cuda_product *product); /* NULL is fine */

/* Use cuBLASLt's first proposal from now on. `args` is of the product's shape, as below. */
cublasStatus_t mics_cuda_product_settle_on_first(const struct mics_cuda_product_library *library,
                                                 const struct mics_args_matmul *args,
                                                 struct mics_cuda_product *product);

/* What the fastest proposal is. */
struct mics_cuda_product_timing {
    int number, proposed; /* from 1 on, of how many */
    float took_ms;
};

/* Use the fastest proposal, timed on the operation's own operands. */
cublasStatus_t mics_cuda_product_settle_on_fastest(struct mics_cuda_product_library *library,
                                                   const struct mics_cuda_at *at,
                                                   const struct mics_args_matmul *args,
                                                   struct mics_cuda_product *product,
                                                   struct mics_cuda_product_timing *out);

/* Use an earlier choice of this or another process. False: cuBLASLt does not accept it. */
bool mics_cuda_product_settle_on_choice(const struct mics_cuda_product_library *library,
                                        const struct mics_args_matmul *args,
                                        struct mics_cuda_product *product,
                                        const struct mics_matmul_choice *choice);

/* What the product uses; `text` describes its key. */
struct mics_matmul_choice mics_cuda_product_choice_of(const struct mics_cuda_product *product,
                                                      const char *text);

/* Enqueue a product that has a form, and the rest of its epilogue. */
cublasStatus_t mics_cuda_product_run(const struct mics_cuda_product_library *library,
                                     const struct mics_cuda_at *at,
                                     const struct mics_args_matmul *args,
                                     const struct mics_cuda_product *product);

#endif
