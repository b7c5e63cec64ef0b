/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtype.h - types of numbers in device memory.
 *
 * bf16 is the upper half of an fp32: 8 bits of exponent, 7 of mantissa. fp16 is binary16 of IEEE
 * 754: 5 bits of exponent, 10 of mantissa, up to 65504, subnormal below 2^-14. On the host each is
 * a uint16_t. Every conversion to them rounds to nearest, ties to even; a NaN stays a NaN, and what
 * is too large for fp16 becomes infinite.
 *
 * INT8 and INT4 are arrays in blocks of MICS_BLOCK elements, for messages: an element is a whole
 * number of steps of the scale of its block (INT8) or its sub-block (INT4). A last block that is
 * not full has zeros behind the end of the array.
 */
#ifndef MICS_KERNELS_DTYPE_H
#define MICS_KERNELS_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* MICS_U8: bytes, to be moved only. */
enum mics_dtype { MICS_F32, MICS_F64, MICS_BF16, MICS_U8, MICS_INT8, MICS_INT4, MICS_F16 };

/* Elements of a block, and of an INT4 block's sub-blocks. */
#define MICS_BLOCK     256
#define MICS_SUB_BLOCK 32

/* The largest whole number of steps, up or down. */
#define MICS_INT8_MAX 127
#define MICS_INT4_MAX 7

/*
 * The scale is the largest |x| / MICS_INT8_MAX, rounded up to 17 significant bits, of which every
 * multiple is exact in fp32 and the largest multiple is never below the largest |x|. So no element
 * is clamped, and a block rounded to nearest does not change when it is read and written again. It
 * is 0, as are all steps, where it would be below the smallest normal number. An infinity or a NaN
 * makes it NaN, and so every element that is read of the block; the steps are then 0.
 */
struct mics_int8_block {
    float scale;
    int8_t steps[MICS_BLOCK];
};

/*
 * As above with MICS_INT4_MAX, one scale for each sub-block, rounded up to bf16. Steps are in two's
 * complement: in byte i of a sub-block, element i in the lower half, i + 16 in the upper one.
 */
struct mics_int4_block {
    uint16_t scale[MICS_BLOCK / MICS_SUB_BLOCK];
    uint8_t steps[MICS_BLOCK / MICS_SUB_BLOCK][MICS_SUB_BLOCK / 2];
};

static inline bool mics_dtype_is_blocks(enum mics_dtype dtype)
{
    return dtype == MICS_INT8 || dtype == MICS_INT4;
}

/* Is it one of the types of two bytes, beside which there is an fp32 master? */
static inline bool mics_dtype_is_half(enum mics_dtype dtype)
{
    return dtype == MICS_BF16 || dtype == MICS_F16;
}

/* Bytes of an element; not of INT8 and INT4. */
static inline size_t mics_dtype_bytes(enum mics_dtype dtype)
{
    return dtype == MICS_F64 ? 8 : dtype == MICS_F32 ? 4 : mics_dtype_is_half(dtype) ? 2 : 1;
}

/* Bytes of `count` elements, whole blocks of INT8 and INT4; and so the offset of element `count` of
 * an array, which is then a multiple of MICS_BLOCK. */
static inline uint64_t mics_wire_bytes(enum mics_dtype dtype, uint64_t count)
{
    const uint64_t blocks = count / MICS_BLOCK + (count % MICS_BLOCK != 0);

    if (dtype == MICS_INT8)
        return blocks * sizeof(struct mics_int8_block);
    if (dtype == MICS_INT4)
        return blocks * sizeof(struct mics_int4_block);
    return count * mics_dtype_bytes(dtype);
}

/* The address of element `i` of an array. */
static inline void *mics_element(const void *base, uint64_t i, enum mics_dtype dtype)
{
    return (char *)(uintptr_t)base + mics_wire_bytes(dtype, i);
}

#endif
