/* SPDX-License-Identifier: Apache-2.0 */
/*
 * products.h - who computes a matrix product on the host, for devices, tests and benchmarks.
 */
#ifndef MICS_KERNELS_HOST_PRODUCTS_H
#define MICS_KERNELS_HOST_PRODUCTS_H

#include "base/err.h"
#include "ops.h"

#include <stdbool.h>
#include <stddef.h>

struct mics_pool;

enum mics_product_method {
    MICS_PRODUCT_OPENBLAS,
    MICS_PRODUCT_OWN,   /* in fp32 arithmetic, whatever the types */
    MICS_PRODUCT_PAIRS, /* our own, of bf16 by AVX512-BF16, which takes subnormal numbers as 0 */
    MICS_PRODUCT_ONEDNN,
};

/* Whether this build can use MICS_PRODUCT_PAIRS. */
bool mics_product_has_pairs(void);

/* The method for operands in bf16 and k > 0: a function of the processor, the build and
 * MICS_ONEDNN. Not MICS_PRODUCT_OWN where they are multiplied in hardware. */
enum mics_product_method mics_product_of_bf16(const struct mics_pool *pool);

/* Whether kernels other than mics_host_matmul() multiply pairs of bf16, too. */
bool mics_product_pairs_bf16(const struct mics_pool *pool);

/* Write all that decides how a product of bf16 is rounded: "AVX512-BF16", "fp32 arithmetic" or
 * oneDNN's version and instructions. Errors: oneDNN's, if it cannot be opened. */
enum mics_status mics_product_describe(const struct mics_pool *pool, char *text, size_t size,
                                       struct mics_err *err);

/* The method of mics_host_matmul(): a function of the processor, the libraries, MICS_ONEDNN and the
 * operation. */
enum mics_product_method mics_product_method(struct mics_pool *pool,
                                             const struct mics_args_matmul *args);

/* Open OpenBLAS and, where mics_product_method() can choose it, check that each of `threads` can
 * map the buffer that it packs panels in: without one a product would never end.
 * MICS_ERR_UNSUPPORTED, MICS_ERR_NOMEM. */
enum mics_status mics_product_open(unsigned threads, struct mics_err *err);

/* mics_host_matmul() by a given method: OpenBLAS only if all is in fp32, pairs only of
 * bf16, oneDNN only if k > 0 and `out` is not narrower than the operands. */
void mics_host_matmul_with_method(struct mics_pool *pool, const struct mics_args_matmul *args,
                                  enum mics_product_method method);

/* Do what mics_host_matmul() would do once for products of this shape; what the pointers point to
 * is not accessed. */
enum mics_status mics_host_matmul_prepare(struct mics_pool *pool,
                                          const struct mics_args_matmul *args,
                                          struct mics_err *err);

/* gemm.c: parts of an operation, on one thread. For products.c ------------------------------- */

/* All of a piece: with `pairs` by MICS_PRODUCT_PAIRS, else by MICS_PRODUCT_OWN. */
void mics_gemm(const struct mics_args_matmul *args, bool pairs);

/* Rows of a at a time, of a piece of `rows`, by which each packed part of b is multiplied. */
uint32_t mics_gemm_block_rows(uint32_t rows);

/* The epilogue of a product, of columns [column, column + count) of a row: to x[count] add what is
 * to be added, apply the activation, store. x may be where the row of out is in fp32. */
void mics_epilogue_columns(const struct mics_args_matmul *args, uint32_t row, uint32_t column,
                           uint32_t count, const float *x);

/* Apply the activation, if there is one, to the sum in `out`. */
void mics_epilogue(const struct mics_args_matmul *args);

#endif
