/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product.h - matrix products without a library.
 */
#ifndef MICS_KERNELS_HOST_PRODUCT_H
#define MICS_KERNELS_HOST_PRODUCT_H

#include "ops.h"

/* What struct mics_op_matmul says, in the caller's thread. An element's value depends on its row of a,
 * its column of b and k only, not on m, n or where it lies. */
void mics_product(const struct mics_op_matmul *args);

#endif
