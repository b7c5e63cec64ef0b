/* SPDX-License-Identifier: Apache-2.0 */
/*
 * products.h - the product of our own in fp32, for tests on machines where OpenBLAS is used.
 */
#ifndef MICS_KERNELS_HOST_PRODUCTS_H
#define MICS_KERNELS_HOST_PRODUCTS_H

#include "ops.h"

/* out += a' b' of struct mics_op_matmul, all in fp32, in the caller's thread; its other parts are
 * the caller's. An element's value depends on its row of a, its column of b and k only. Takes 200
 * KB of the stack. */
void mics_product(const struct mics_op_matmul *args);

#endif
