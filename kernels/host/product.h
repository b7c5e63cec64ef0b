/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product.h - matrix products of our own, in the caller's thread.
 *
 * An element's value depends on its row of a, its column of b and k only, not on m, n or where it lies.
 */
#ifndef MICS_KERNELS_HOST_PRODUCT_H
#define MICS_KERNELS_HOST_PRODUCT_H

#include "ops.h"

/* out += a' b' of struct mics_op_matmul, all in fp32; its other parts are the caller's. */
void mics_product(const struct mics_op_matmul *args);

/* All that struct mics_op_matmul says, of any types. Takes 600 KB of the stack. */
void mics_product_mixed(const struct mics_op_matmul *args);

/* What follows a product, of columns [column, column + count) of a row: from x[count] add what is to be added,
 * apply the activation, store. x may be where the row of out lies in fp32. */
void mics_product_finish(const struct mics_op_matmul *args, uint32_t row, uint32_t column,
                         uint32_t count, const float *x);

#endif
