/* SPDX-License-Identifier: Apache-2.0 */
/*
 * products.h - who computes a matrix product on the host, for devices, tests and benchmarks.
 */
#ifndef MICS_KERNELS_HOST_PRODUCTS_H
#define MICS_KERNELS_HOST_PRODUCTS_H

#include "base/err.h"
#include "ops.h"

struct mics_pool;

enum mics_product_method { MICS_PRODUCT_OPENBLAS, MICS_PRODUCT_OWN, MICS_PRODUCT_ONEDNN };

/* The method of mics_host_matmul(): a function of the processor, the libraries, MICS_ONEDNN and the
 * operation. */
enum mics_product_method mics_product_method(struct mics_pool *pool,
                                             const struct mics_op_matmul *args);

/* mics_host_matmul() by a given method: OpenBLAS only if all is in fp32, oneDNN only if k > 0 and
 * `out` is not narrower than the operands. */
void mics_host_matmul_by(struct mics_pool *pool, const struct mics_op_matmul *args,
                         enum mics_product_method method);

/* Do what mics_host_matmul() would do once for products of this shape; what the pointers point to
 * is not accessed. */
enum mics_status mics_host_matmul_prepare(struct mics_pool *pool, const struct mics_op_matmul *args,
                                          struct mics_err *err);

#endif
