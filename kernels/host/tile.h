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
 * many as fit the registers, 32 of AVX-512 or 16. A sum waits some four cycles for its next
 * addition, so there must be eight sums at least, and with more the loads need not be in time. With
 * 16 registers four rows of three are faster than six of two (bench/results): b stays in the first
 * cache, and less of a comes from the second.
 * Products of pairs of bf16 have strips of MICS_TILE_PAIR_ROWS. */
#define MICS_TILE_VECTORS   (MICS_LANES == 16 ? 4 : 3)
#define MICS_TILE_ROWS      (MICS_LANES == 16 ? 6 : 4)
#define MICS_TILE_PAIR_ROWS 4

#define MICS_LINE 64 /* bytes of a line of the cache */

/* Products of so few numbers of k take less time than c takes to come from memory: c is prefetched
 * for the next rows, not for these. */
#define MICS_TILE_SHALLOW 96

/* Memory that is prefetched into the second cache while a product goes on: `rows` of `bytes`,
 * `step` bytes apart, in pieces of MICS_PREFETCH_PIECE. */
struct mics_prefetch {
    const char *row;
    size_t step, bytes, at; /* in `row`, what is next */
    uint32_t rows, each;    /* pieces for each stretch of products */
};

#define MICS_PREFETCH_PIECE 256 /* bytes */

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
    struct mics_prefetch *prefetch; /* only where c is far; or NULL */
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

/* A vector, or the first `columns` of its lanes. */
MICS_TILE_INLINE mics_vf mics_tile_load(const float *from, bool whole, unsigned columns)
{
    return whole ? mics_vload(from) : mics_vload_part(from, columns);
}

MICS_TILE_INLINE void mics_tile_store(float *to, mics_vf value, bool whole, unsigned columns)
{
    if (whole)
        mics_vstore(to, value);
    else
        mics_vstore_part(to, value, columns);
}

/* Numbers of k between which memory is prefetched: a row of c each time. */
static inline uint32_t mics_tile_stretch(uint32_t depth)
{
    const uint32_t even = depth / MICS_TILE_ROWS / 8 * 8;

    return even > 32 ? even : 32;
}

/* Prefetch the next pieces. */
static inline void mics_prefetch_next(struct mics_prefetch *next)
{
    for (uint32_t i = 0; i < next->each && next->rows > 0; i++) {
        const size_t end = next->at + MICS_PREFETCH_PIECE;

        for (; next->at < end && next->at < next->bytes; next->at += MICS_LINE)
            __builtin_prefetch(next->row + next->at, 0, 2);
        if (next->at < next->bytes)
            continue;
        __builtin_prefetch(next->row + next->bytes - 1, 0, 2);
        next->row += next->step;
        next->rows--;
        next->at = 0;
    }
}

/* Prefetch a row of c, and of what is added to it. */
MICS_TILE_INLINE void mics_tile_prefetch_row(const float *c, const float *matrix,
                                             const unsigned vectors)
{
    for (unsigned v = 0; v < vectors; v++)
        __builtin_prefetch(c + v * MICS_LANES, 1);
    for (unsigned v = 0; matrix && matrix != c && v < vectors; v++)
        __builtin_prefetch(matrix + v * MICS_LANES);
}

/* DO for each of at most eight rows of sums, with the row as a constant: gcc keeps an array in
 * registers only if no index is a variable when the inner loops are unrolled. */
#define MICS_TILE_EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)

/* Add a matrix and a row, unless NULL, and store the sums. The last vector of a far c is a tile of
 * its own, of which `left` columns may be all that there is. */
MICS_TILE_INLINE void mics_tile_finish(mics_vf sum[8][4], float *c, const float *matrix,
                                       const float *bias, size_t ldc, unsigned left,
                                       const unsigned rows, const unsigned vectors, const bool far)
{
    const bool whole = !far || vectors > 1 || left >= MICS_LANES;

#define ADD_MATRIX(r)                                                                              \
    for (unsigned v = 0; (r) < rows && v < vectors; v++)                                           \
        sum[r][v] += mics_tile_load(matrix + (r)*ldc + (v)*MICS_LANES, whole, left);
#define ADD_BIAS(r)                                                                                \
    for (unsigned v = 0; (r) < rows && v < vectors; v++)                                           \
        sum[r][v] += mics_tile_load(bias + (v)*MICS_LANES, whole, left);
#define STORE(r)                                                                                   \
    for (unsigned v = 0; (r) < rows && v < vectors; v++)                                           \
        mics_tile_store(c + (r)*ldc + (v)*MICS_LANES, sum[r][v], whole, left);
    if (matrix) {
        MICS_TILE_EACH_ROW(ADD_MATRIX)
    }
    if (bias) {
        MICS_TILE_EACH_ROW(ADD_BIAS)
    }
    MICS_TILE_EACH_ROW(STORE)
#undef STORE
#undef ADD_BIAS
#undef ADD_MATRIX
}

/* `rows` x `vectors` sums, held in registers (both are constants where this is used). Where c is
 * `far`, it is prefetched meanwhile. Unless `copy` is NULL, the rows of b that are read are also
 * written there, one after the other. The loop is unrolled because what it costs itself takes the
 * place of instructions that multiply: most where another thread shares the core. */
MICS_TILE_INLINE void mics_tile_step(const struct mics_tile *t, uint32_t row, uint32_t column,
                                     const unsigned rows, const unsigned vectors, const bool far,
                                     const bool pairs, float *copy)
{
    const size_t row_step = t->row_step, depth_step = t->depth_step, ldb = t->ldb, ldc = t->ldc;
    const size_t at = row * ldc + column;
    const uint32_t depth = t->depth, stretch = mics_tile_stretch(depth);
    const float *a = t->a + row * row_step, *b = t->b + column;
    float *const c = t->c + at;
    const float *const matrix = t->add ? c : t->matrix ? t->matrix + at : NULL;
    const bool shallow = far && depth <= MICS_TILE_SHALLOW;
    mics_vf sum[8][4];

#define START(r)                                                                                   \
    for (unsigned v = 0; (r) < rows && v < vectors; v++)                                           \
        sum[r][v] = !far && t->add ? mics_vload(c + (r)*ldc + (v)*MICS_LANES) : (mics_vf){0};
#define ADD(r)                                                                                     \
    for (unsigned v = 0; (r) < rows && v < vectors; v++)                                           \
        sum[r][v] = mics_tile_add(sum[r][v], a + (r)*row_step, of_b[v], pairs);
    MICS_TILE_EACH_ROW(START)
    for (uint32_t r = rows; shallow && r < 2 * rows; r++)
        mics_tile_prefetch_row(c + r * ldc, matrix ? matrix + r * ldc : NULL, vectors);
    for (uint32_t k = 0, i = 0; k < depth; i++) {
        const uint32_t end = far && depth - k > stretch ? k + stretch : depth;

        if (far && !shallow && i < rows)
            mics_tile_prefetch_row(c + i * ldc, matrix ? matrix + i * ldc : NULL, vectors);
        if (far && t->prefetch)
            mics_prefetch_next(t->prefetch);
#pragma GCC unroll 4
        for (; k < end; k++, a += depth_step, b += ldb) {
            mics_vf of_b[4];

            for (unsigned v = 0; v < vectors; v++)
                of_b[v] = mics_vload(b + v * MICS_LANES);
            for (unsigned v = 0; copy && v < vectors; v++)
                mics_vstore(copy + (k * vectors + v) * MICS_LANES, of_b[v]);
            MICS_TILE_EACH_ROW(ADD)
        }
    }
    mics_tile_finish(sum, c, far ? matrix : NULL, far && t->bias ? t->bias + column : NULL, ldc,
                     t->width - column, rows, vectors, far);
#undef ADD
#undef START
}

/* One strip of columns: as many rows at a time as fill the registers, then four, two and one. The
 * last eight are two times four, which is faster than six and two. */
MICS_TILE_INLINE void mics_tile_strip(const struct mics_tile *t, uint32_t column,
                                      const unsigned vectors, const bool far, const bool pairs)
{
    const unsigned full = pairs ? MICS_TILE_PAIR_ROWS : MICS_TILE_ROWS;
    const unsigned most = MICS_LANES == 16 || vectors == 1 ? 8 : 6;
    const unsigned rows = vectors == MICS_TILE_VECTORS ? full : most;
    uint32_t row = 0;

    for (; row + rows <= t->rows && t->rows - row != rows + 2; row += rows)
        mics_tile_step(t, row, column, rows, vectors, far, pairs, NULL);
    for (; row + 4 <= t->rows; row += 4)
        mics_tile_step(t, row, column, 4, vectors, far, pairs, NULL);
    for (; row + 2 <= t->rows; row += 2)
        mics_tile_step(t, row, column, 2, vectors, far, pairs, NULL);
    for (; row < t->rows; row++)
        mics_tile_step(t, row, column, 1, vectors, far, pairs, NULL);
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

/* The same, of MICS_TILE_ROWS rows at least and a width of MICS_TILE_VECTORS vectors: the first
 * rows copy b, in whatever steps its rows are, to copy[depth][width], and the others read it there.
 * A strip of b is so packed while it is multiplied. */
static inline void mics_tile_product_packing(const struct mics_tile *t, float *copy)
{
    struct mics_tile rest = *t;

    mics_tile_step(t, 0, 0, MICS_TILE_ROWS, MICS_TILE_VECTORS, true, false, copy);
    rest.a += MICS_TILE_ROWS * t->row_step;
    rest.b = copy;
    rest.c += MICS_TILE_ROWS * t->ldc;
    rest.ldb = MICS_TILE_VECTORS * MICS_LANES;
    rest.rows -= MICS_TILE_ROWS;
    if (t->matrix)
        rest.matrix += MICS_TILE_ROWS * t->ldc;
    mics_tile_product_far(&rest);
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
