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

struct mics_onednn;
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

/* Parts of products, for grouped.c ---------------------------------------------------------- */

/* A product, cut into pieces of m x n; the last of a row or column may be smaller. */
struct mics_product {
    const struct mics_args_matmul *args;
    struct mics_onednn *onednn;
    enum mics_product_method method;
    uint32_t m, n;
};

/* Cut a product, m and n > 0, for `threads`, into pieces of at least `least_flops`, unless the
 * method's own least is more. Only the cut of our own products depends on the last two: the bits
 * of these do not depend on the cut. */
struct mics_product mics_product_cut(struct mics_pool *pool, const struct mics_args_matmul *args,
                                     enum mics_product_method method, double least_flops,
                                     unsigned threads);

/* The least of a method. */
double mics_product_piece_flops(enum mics_product_method method);

/* How many there are, and piece i as a product of its own. */
uint64_t mics_product_pieces(const struct mics_product *product);
struct mics_args_matmul mics_product_piece(const struct mics_product *product, uint64_t i);

/* To be called before an operation's first piece. */
void mics_product_begin(void);

/* Multiply a piece, in the calling thread, by the method of `product`. */
void mics_product_multiply(const struct mics_product *product, const struct mics_args_matmul *args);

/* mics_host_grouped_matmul() and mics_host_grouped_matmul_grad() by a given method, with the
 * conditions of mics_host_matmul_with_method() apart from k. */
void mics_host_grouped_matmul_with_method(struct mics_pool *pool,
                                          const struct mics_args_grouped_matmul *args,
                                          enum mics_product_method method);
void mics_host_grouped_matmul_grad_with_method(struct mics_pool *pool,
                                               const struct mics_args_grouped_matmul_grad *args,
                                               enum mics_product_method method);

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
