/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product.h - matrix products without a library.
 */
#ifndef MICS_KERNELS_HOST_PRODUCT_H
#define MICS_KERNELS_HOST_PRODUCT_H

#include "ops.h"

/* out += a' b' of struct mics_op_matmul, in the caller's thread; its other parts are the caller's. An element's value depends on its row of a,
 * its column of b and k only, not on m, n or where it lies. */
void mics_product(const struct mics_op_matmul *args);

#endif
