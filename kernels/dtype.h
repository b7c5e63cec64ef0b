/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtype.h - types of numbers in device memory.
 *
 * bf16 is the upper half of an fp32: 8 bits of exponent, 7 of mantissa. On the host it is a
 * uint16_t. Every conversion to it rounds to nearest, ties to even; a NaN stays a NaN.
 */
#ifndef MICS_KERNELS_DTYPE_H
#define MICS_KERNELS_DTYPE_H

#include <stddef.h>
#include <stdint.h>

/* MICS_U8: bytes, to be moved only. */
enum mics_dtype { MICS_F32, MICS_F64, MICS_BF16, MICS_U8 };

static inline size_t mics_dtype_bytes(enum mics_dtype dtype)
{
    return dtype == MICS_F64 ? 8 : dtype == MICS_F32 ? 4 : dtype == MICS_BF16 ? 2 : 1;
}

/* The address of element `i` of an array. */
static inline void *mics_element(const void *base, uint64_t i, enum mics_dtype dtype)
{
    return (char *)(uintptr_t)base + i * mics_dtype_bytes(dtype);
}

#endif
