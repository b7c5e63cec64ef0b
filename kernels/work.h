/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work.h - what one launch of an operation does: FLOPs, bytes of device memory, kernels.
 *
 * It follows from the arguments of the launch alone. An operation without a function here does not
 * compile.
 */
#ifndef MICS_KERNELS_WORK_H
#define MICS_KERNELS_WORK_H

#include "ops.h"

/* What determines the time of a launch. */
enum mics_work_class {
    MICS_WORK_PRODUCT,   /* a matrix product, by its shape */
    MICS_WORK_ATTENTION, /* by length and head size */
    MICS_WORK_MEMORY,    /* a pass over memory */
    MICS_WORK_COPY,      /* the device's own copy or memset */
    MICS_WORK_CALL,      /* a call on the host, of unknown duration */
};

struct mics_kernel_work {
    enum mics_work_class work_class;
    enum mics_dtype dtype; /* that a product or attention multiplies */
    double flops;          /* of attention: of the pairs that are not masked */
    double read, written;  /* bytes; an operand is counted once, whatever caches do */
    uint32_t kernels;      /* that a GPU runs for it, one after another */
    uint32_t m, n, k;      /* of a product, as the next two of its arguments */
    bool trans_a, trans_b;
    uint32_t out_bytes;    /* of a product: read and written for each element of its result */
    bool aligned;          /* of a product: rows of all operands are multiples of 16 bytes */
    uint32_t heads, T, D;  /* of attention: B H query heads, length, channels of a head */
    bool causal, gradient; /* of attention */
    uint32_t window;       /* of causal attention; 0: all tokens */
};

/* Pairs of a query and a key that it sees in a causal sequence of T, by area: T T / 2, or what a
 * window leaves of it. */
static inline double mics_attention_pairs(uint32_t T, uint32_t window)
{
    const double seen = mics_attention_window(window, T) ? window : T;

    return seen * (T - seen / 2);
}

/* `args` is the structure of the operation. Its pointers are compared with NULL and with each
 * other, and not followed. */
void mics_kernel_work_of(enum mics_kernel kernel, const void *args, struct mics_kernel_work *out);

#endif
