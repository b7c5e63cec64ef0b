/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile.h - products of small matrices in the first caches: the inner loop of attention and of our
 * own matrix products.
 */
#ifndef MICS_KERNELS_HOST_TILE_H
#define MICS_KERNELS_HOST_TILE_H

#include "host/vector.h"

#include <stdbool.h>
#include <stddef.h>

#define MICS_TILE_INLINE static inline __attribute__((always_inline))

/* Vectors side by side in the widest strip of a product, and rows of them: with the operands, as
 * many as fit the registers. A sum waits some four cycles for its next addition, so there must be
 * eight sums at least, and with more the loads need not be in time. Products of pairs of bf16 have
 * strips of MICS_TILE_PAIR_ROWS. */
#define MICS_TILE_VECTORS   (MICS_LANES == 16 ? 4 : 2)
#define MICS_TILE_ROWS      (MICS_LANES == 4 ? 4 : 6)
#define MICS_TILE_PAIR_ROWS 4

/* A product c = a b, or c += a b. a[rows, depth] may have any strides; rows of b and c are
 * `width` elements. Rows of b are read up to a multiple of MICS_LANES. */
struct mics_tile {
    float *c;
    const float *a, *b;
    size_t row_step, depth_step; /* from one element of a to the next in its column, in its row */
    size_t ldb, ldc;
    uint32_t rows, depth, width;
    bool add;
    /* Only where c is far: what is added instead of c, unless NULL: a matrix whose rows are ldc
     * apart, and a row. */
    const float *matrix, *bias;
};

/* sum + a b, or with `pairs` sum + a0 b0 + a1 b1 of pairs of bf16, a0 in the lower half. The
 * processor flushes subnormal numbers of pairs to 0. */
MICS_TILE_INLINE mics_vf mics_tile_add(mics_vf sum, const float *a, mics_vf b, const bool pairs)
{
#if MICS_HAS_PAIRS
    if (pairs)
        return (mics_vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)b,
                                         (__m512bh)_mm512_set1_ps(*(const mics_f_loose *)a));
#endif
    (void)pairs;
    return sum + *a * b;
}

/* Add a matrix, whose rows are ld apart, to sums, of which the last in a row may be of `rest`
 * columns only. With ld 0, a row. */
MICS_TILE_INLINE void mics_tile_add_far(mics_vf sum[][4], const float *matrix, size_t ld,
                                        const unsigned rows, const unsigned vectors, unsigned whole,
                                        unsigned rest)
{
    for (unsigned r = 0; r < rows; r++, matrix += ld) {
        for (unsigned v = 0; v < whole; v++)
            sum[r][v] += mics_vload(matrix + v * MICS_LANES);
        if (whole < vectors)
            sum[r][vectors - 1] += mics_vload_part(matrix + whole * MICS_LANES, rest);
    }
}

/* `rows` x `vectors` sums, held in registers (both are constants where this is used). Where c is
 * `far`, it is fetched meanwhile. */
MICS_TILE_INLINE void mics_tile_step(const struct mics_tile *t, uint32_t row, uint32_t column,
                                     const unsigned rows, const unsigned vectors, const bool far,
                                     const bool pairs)
{
    const float *a = t->a + row * t->row_step, *b = t->b + column;
    const size_t at = row * t->ldc + column;
    float *c = t->c + at;
    const unsigned rest = t->width - column; /* the last vector may not be whole if c is far */
    const unsigned whole = far && rest < vectors * MICS_LANES ? vectors - 1 : vectors;
    const float *const matrix = t->add ? c : t->matrix ? t->matrix + at : NULL;
    mics_vf sum[8][4];

    for (unsigned r = 0; r < rows; r++)
        for (unsigned v = 0; v < vectors; v++) {
            if (far)
                __builtin_prefetch(c + r * t->ldc + v * MICS_LANES, 1);
            if (far && t->matrix)
                __builtin_prefetch(matrix + r * t->ldc + v * MICS_LANES);
            sum[r][v] = !far && t->add ? mics_vload(c + r * t->ldc + v * MICS_LANES) : (mics_vf){0};
        }
    for (uint32_t k = 0; k < t->depth; k++, a += t->depth_step, b += t->ldb) {
        mics_vf of_b[4];

        for (unsigned v = 0; v < vectors; v++)
            of_b[v] = mics_vload(b + v * MICS_LANES);
        for (unsigned r = 0; r < rows; r++)
            for (unsigned v = 0; v < vectors; v++)
                sum[r][v] = mics_tile_add(sum[r][v], a + r * t->row_step, of_b[v], pairs);
    }
    if (far && matrix)
        mics_tile_add_far(sum, matrix, t->ldc, rows, vectors, whole, rest % MICS_LANES);
    if (far && t->bias)
        mics_tile_add_far(sum, t->bias + column, 0, rows, vectors, whole, rest % MICS_LANES);
    for (unsigned r = 0; r < rows; r++, c += t->ldc) {
        for (unsigned v = 0; v < whole; v++)
            mics_vstore(c + v * MICS_LANES, sum[r][v]);
        if (whole < vectors)
            mics_vstore_part(c + whole * MICS_LANES, sum[r][vectors - 1], rest % MICS_LANES);
    }
}

/* One strip of columns: as many rows at a time as fill the registers, then four, two and one. The
 * last eight are two times four, which is faster than six and two. */
MICS_TILE_INLINE void mics_tile_strip(const struct mics_tile *t, uint32_t column,
                                      const unsigned vectors, const bool far, const bool pairs)
{
    const unsigned full = pairs ? MICS_TILE_PAIR_ROWS : MICS_TILE_ROWS;
    const unsigned rows = vectors == MICS_TILE_VECTORS ? full : 8;
    uint32_t row = 0;

    for (; row + rows <= t->rows && t->rows - row != rows + 2; row += rows)
        mics_tile_step(t, row, column, rows, vectors, far, pairs);
    for (; row + 4 <= t->rows; row += 4)
        mics_tile_step(t, row, column, 4, vectors, far, pairs);
    for (; row + 2 <= t->rows; row += 2)
        mics_tile_step(t, row, column, 2, vectors, far, pairs);
    for (; row < t->rows; row++)
        mics_tile_step(t, row, column, 1, vectors, far, pairs);
}

MICS_TILE_INLINE void mics_tile_strips(const struct mics_tile *t, const bool far, const bool pairs)
{
    const unsigned wide = MICS_TILE_VECTORS * MICS_LANES;
    uint32_t column = 0;

    for (; column + wide <= t->width; column += wide)
        mics_tile_strip(t, column, MICS_TILE_VECTORS, far, pairs);
    if (wide > 2 * MICS_LANES && column + 2 * MICS_LANES <= t->width) {
        mics_tile_strip(t, column, 2, far, pairs);
        column += 2 * MICS_LANES;
    }
    for (; column < t->width; column += MICS_LANES)
        mics_tile_strip(t, column, 1, far, pairs);
}

/* With c in the first cache, and a width that is a multiple of MICS_LANES. */
static inline void mics_tile_product(const struct mics_tile *t)
{
    mics_tile_strips(t, false, false);
}

/* With c anywhere, and any width. What is added is added last. */
static inline void mics_tile_product_far(const struct mics_tile *t)
{
    mics_tile_strips(t, true, false);
}

/* The same with pairs of bf16 in the place of each number of a and b; `depth` counts pairs. Without
 * MICS_HAS_PAIRS they are not to be called. */
static inline void mics_tile_product_pairs(const struct mics_tile *t)
{
    mics_tile_strips(t, false, true);
}

static inline void mics_tile_product_pairs_far(const struct mics_tile *t)
{
    mics_tile_strips(t, true, true);
}

#endif
