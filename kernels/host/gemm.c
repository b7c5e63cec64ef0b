/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm.c - our own matrix products, on one thread; and the epilogue of a product, whoever
 * multiplied.
 *
 * Products are within k * 2^-24 of one in double, relative to the sum of magnitudes; bf16 results
 * are rounded once.
 */
#include "host/products.h"

#include "base/num.h"
#include "host/tile.h"
#include "host/vector.h"
#include "host/vmath.h"

#include <stdalign.h>
#include <string.h>

/*
 * The epilogue: one pass over a row while it is in the cache.
 */

/* Element `at` of out is column `column`. */
MICS_TYPED void finish_vector(const struct mics_args_matmul *args, mics_vf x, uint64_t at,
                              uint32_t column, unsigned count, const enum mics_dtype dtype,
                              const enum mics_dtype out_dtype)
{
    if (args->add)
        x += mics_vload_lanes(args->add, at, count, out_dtype);
    if (args->bias)
        x += mics_vload_lanes(args->bias, column, count, dtype);
    if (args->pre_gelu) {
        mics_vstore_lanes(args->pre_gelu, at, x, count, dtype);
        x = mics_vgelu(mics_vload_lanes(args->pre_gelu, at, count, dtype));
    } else if (args->gelu_of) {
        x *= mics_vgelu_slope(mics_vload_lanes(args->gelu_of, at, count, dtype));
    }
    mics_vstore_lanes(args->out, at, x, count, out_dtype);
}

MICS_TYPED void finish_row(const struct mics_args_matmul *args, uint32_t row, uint32_t column,
                           uint32_t count, const float *x, const enum mics_dtype dtype,
                           const enum mics_dtype out_dtype)
{
    const uint64_t at = (uint64_t)row * args->ldout + column;

    for (uint32_t i = 0; i < count; i += MICS_LANES) {
        const unsigned lanes = count - i < MICS_LANES ? count - i : MICS_LANES;

        finish_vector(args, mics_vload_lanes(x, i, lanes, MICS_F32), at + i, column + i, lanes,
                      dtype, out_dtype);
    }
}

void mics_epilogue_columns(const struct mics_args_matmul *args, uint32_t row, uint32_t column,
                           uint32_t count, const float *x)
{
    const enum mics_dtype out = args->out_dtype;

    if (args->dtype == MICS_BF16 && out == MICS_BF16)
        finish_row(args, row, column, count, x, MICS_BF16, MICS_BF16);
    else if (args->dtype == MICS_BF16)
        finish_row(args, row, column, count, x, MICS_BF16, MICS_F32);
    else if (args->dtype == MICS_F16 && out == MICS_F16)
        finish_row(args, row, column, count, x, MICS_F16, MICS_F16);
    else if (args->dtype == MICS_F16)
        finish_row(args, row, column, count, x, MICS_F16, MICS_F32);
    else if (out == MICS_BF16)
        finish_row(args, row, column, count, x, MICS_F32, MICS_BF16);
    else if (out == MICS_F16)
        finish_row(args, row, column, count, x, MICS_F32, MICS_F16);
    else
        finish_row(args, row, column, count, x, MICS_F32, MICS_F32);
}

void mics_epilogue(const struct mics_args_matmul *args)
{
    struct mics_args_matmul rest = *args;
    float wide[256];
    const uint32_t most = sizeof wide / sizeof wide[0];

    rest.add = rest.bias = NULL;
    for (uint32_t i = 0; (args->pre_gelu || args->gelu_of) && i < args->m; i++) {
        const uint64_t row = (uint64_t)i * args->ldout;

        if (args->out_dtype == MICS_F32) {
            mics_epilogue_columns(&rest, i, 0, args->n, (float *)args->out + row);
            continue;
        }
        for (uint32_t j = 0; j < args->n; j += most) {
            const uint32_t columns = (uint32_t)mics_min_u64(args->n - j, most);

            for (uint32_t x = 0; x < columns; x++)
                wide[x] = mics_load_as(args->out, row + j + x, MICS_BF16);
            mics_epilogue_columns(&rest, i, j, columns, wide);
        }
    }
}

/*
 * Our own product, of and into fp32 or bf16, as Goto and van de Geijn, "Anatomy of High-Performance
 * Matrix Multiplication", 2008: a block of a (BLOCK_ROWS x DEPTH) stays in the second cache while
 * panels of b (DEPTH x PANEL), packed side by side, pass over it. Rows of a are read where they
 * are; a' is packed in groups of rows of two tiles, and bf16 is widened as it is packed, or
 * multiplied in pairs, of which a' is packed in strips of rows of one tile.
 *
 * An element's value depends on its row of a, its column of b and k only: products are summed from
 * 0 within a block of k, blocks one after the other.
 */

#define DEPTH       384
#define PANEL       (MICS_TILE_VECTORS * MICS_LANES)
#define STRIP       MICS_TILE_ROWS
#define PAIR_STRIP  MICS_TILE_PAIR_ROWS
#define GROUP       (2 * STRIP) /* rows of a' that are packed side by side */
#define LINE_GROUPS 4           /* groups that fill whole lines */
#define PACK_AHEAD  8           /* rows of memory that are fetched early */
#define BLOCK_ROWS  512
/* Rows and columns of sums in a buffer. */
#define SUM_ROWS    512
#define SUM_COLUMNS (128 / PANEL * PANEL)

struct buffers {
    alignas(MICS_LINE) float a[(BLOCK_ROWS + GROUP) * DEPTH];
    alignas(MICS_LINE) float b[DEPTH * PANEL];
    alignas(MICS_LINE) float sum[SUM_ROWS * SUM_COLUMNS];
};

/* `rows` x `columns` of an operand: of the matrix from an element on, or of its transpose. */
struct region {
    const void *from;
    size_t ld;
    uint32_t rows, columns;
    bool transposed;
};

static struct region region_of_a(const struct mics_args_matmul *args, uint32_t row, uint32_t rows,
                                 uint32_t k, uint32_t depth)
{
    const uint64_t at =
        args->trans_a ? (uint64_t)k * args->lda + row : (uint64_t)row * args->lda + k;

    return (struct region){mics_element(args->a, at, args->dtype), args->lda, rows, depth,
                           args->trans_a};
}

static struct region region_of_b(const struct mics_args_matmul *args, uint32_t k, uint32_t depth,
                                 uint32_t column, uint32_t columns)
{
    const uint64_t at =
        args->trans_b ? (uint64_t)column * args->ldb + k : (uint64_t)k * args->ldb + column;

    return (struct region){mics_element(args->b, at, args->dtype), args->ldb, depth, columns,
                           args->trans_b};
}

/* to[i][j] = element (i, j) of a region that is not transposed. */
MICS_TYPED void pack_rows(float *to, size_t ld_to, const struct region *region,
                          const enum mics_dtype dtype)
{
    for (uint32_t i = 0; i < region->rows; i++, to += ld_to) {
        const uint64_t at = i * region->ld;
        uint32_t j = 0;

        for (; j + MICS_LANES <= region->columns; j += MICS_LANES)
            mics_vstore(to + j, mics_vload_as(region->from, at + j, dtype));
        for (; j < region->columns; j++)
            to[j] = mics_load_as(region->from, at + j, dtype);
    }
}

/* to[i][j] = element (i, j) of a region that is transposed, MICS_SQUARE of each where possible. */
MICS_TYPED void pack_transposed(float *to, size_t ld_to, const struct region *region,
                                const enum mics_dtype dtype)
{
    const uint32_t rows = region->rows / MICS_SQUARE * MICS_SQUARE;
    const uint32_t columns = region->columns / MICS_SQUARE * MICS_SQUARE;
    float square[MICS_SQUARE * MICS_SQUARE];

    for (uint32_t j = 0; j < columns; j += MICS_SQUARE)
        for (uint32_t i = 0; i < rows; i += MICS_SQUARE) {
            const uint64_t at = j * region->ld + i;

            if (dtype == MICS_F32) {
                mics_transpose_square(to + i * ld_to + j, ld_to, (const float *)region->from + at,
                                      region->ld);
                continue;
            }
            for (uint32_t x = 0; x < MICS_SQUARE; x++)
                for (uint32_t y = 0; y < MICS_SQUARE; y++)
                    square[x * MICS_SQUARE + y] =
                        mics_load_as(region->from, at + x * region->ld + y, dtype);
            mics_transpose_square(to + i * ld_to + j, ld_to, square, MICS_SQUARE);
        }
    for (uint32_t j = 0; j < region->columns; j++)
        for (uint32_t i = j < columns ? rows : 0; i < region->rows; i++)
            to[i * ld_to + j] = mics_load_as(region->from, j * region->ld + i, dtype);
}

/* to[i / GROUP][j][i % GROUP] = element (i, j) of a region that is transposed, as many groups at a
 * time as fill whole lines of memory. */
MICS_TYPED void pack_groups(float *to, const struct region *region, const enum mics_dtype dtype)
{
    for (uint32_t first = 0; first < region->rows; first += LINE_GROUPS * GROUP) {
        const uint32_t end = (uint32_t)mics_min_u64(region->rows, first + LINE_GROUPS * GROUP);

        for (uint32_t j = 0; j < region->columns; j++) {
            const uint64_t at = j * region->ld;
            float *group = to + (size_t)first * DEPTH + j * GROUP;
            uint32_t i = first;

            for (size_t line = 0; line < LINE_GROUPS * GROUP * sizeof(float); line += MICS_LINE)
                __builtin_prefetch((const char *)mics_element(
                                       region->from, at + PACK_AHEAD * region->ld + first, dtype) +
                                   line);
            for (; dtype == MICS_F32 && i + GROUP <= end; i += GROUP, group += GROUP * DEPTH)
                memcpy(group, (const float *)region->from + at + i, GROUP * sizeof(float));
            for (; i < end; i += GROUP, group += GROUP * DEPTH)
                for (uint32_t x = 0; x < GROUP && i + x < end; x++)
                    group[x] = mics_load_as(region->from, at + i + x, dtype);
        }
    }
}

/* A panel of b', in rows of ld_to, with zeros up to a whole vector of columns. */
MICS_TYPED void pack_panel(float *to, size_t ld_to, const struct region *region,
                           const enum mics_dtype dtype)
{
    const uint32_t rest = (uint32_t)mics_round_up(region->columns, MICS_LANES) - region->columns;

    for (uint32_t i = 0; i < region->rows && rest > 0; i++)
        memset(to + i * ld_to + region->columns, 0, rest * sizeof(float));
    if (region->transposed)
        pack_transposed(to, ld_to, region, dtype);
    else
        pack_rows(to, ld_to, region, dtype);
}

/* How to prefetch a region while `rows` of another are multiplied, of `depth` numbers of k. */
static struct mics_prefetch prefetch_of(const struct region *region, enum mics_dtype dtype,
                                        uint32_t rows, uint32_t depth)
{
    const size_t each = mics_dtype_bytes(dtype);
    struct mics_prefetch prefetch = {
        .row = region->from,
        .step = region->ld * each,
        .bytes = (region->transposed ? region->rows : region->columns) * each,
        .rows = region->transposed ? region->columns : region->rows};
    const uint64_t pieces = prefetch.rows * mics_ceil_div(prefetch.bytes, MICS_PREFETCH_PIECE);
    const uint64_t stretches = (uint64_t)mics_ceil_div(rows, MICS_TILE_ROWS) *
                               mics_ceil_div(depth, mics_tile_stretch(depth));

    prefetch.each = (uint32_t)mics_ceil_div(pieces, mics_max_u64(stretches, 1));
    return prefetch;
}

/*
 * Pairs of bf16: neighbours in k take the place of a number in fp32, so a[m][k] and b'[n][k] are
 * read as they are, and rows k and k + 1 of the other forms are interleaved.
 */

/* to[i] = {low[i], high[i]}; high NULL: zeros */
static inline void interleave(float *to, const uint16_t *low, const uint16_t *high, uint32_t count)
{
    uint32_t i = 0;

#if MICS_HAS_PAIRS
    const __m512i from_first =
        _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                         37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i from_last = _mm512_add_epi16(from_first, _mm512_set1_epi16(16));

    for (; high && i + 2 * MICS_LANES <= count; i += 2 * MICS_LANES) {
        const __m512i lows = _mm512_loadu_si512(low + i), highs = _mm512_loadu_si512(high + i);

        _mm512_storeu_si512(to + i, _mm512_permutex2var_epi16(lows, from_first, highs));
        _mm512_storeu_si512(to + i + MICS_LANES, _mm512_permutex2var_epi16(lows, from_last, highs));
    }
#endif
    for (; i < count; i++) {
        const uint32_t pair = low[i] | (high ? (uint32_t)high[i] << 16 : 0);

        memcpy(to + i, &pair, sizeof pair);
    }
}

/* Pair k of row i of a matrix whose rows are along k. */
static inline float pair_at(const uint16_t *from, uint32_t k, uint32_t depth)
{
    const uint32_t pair = from[2 * k] | (2 * k + 1 < depth ? (uint32_t)from[2 * k + 1] << 16 : 0);
    float bits;

    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

/* A panel of pairs: region->rows counts single rows of k. */
static void pack_panel_pairs(float *to, size_t ld_to, const struct region *region)
{
    const uint32_t pairs = (region->rows + 1) / 2;
    const uint32_t rest = (uint32_t)mics_round_up(region->columns, MICS_LANES) - region->columns;
    const uint16_t *from = region->from;

    for (uint32_t i = 0; i < pairs && rest > 0; i++)
        memset(to + i * ld_to + region->columns, 0, rest * sizeof(float));
    if (!region->transposed) {
        for (uint32_t i = 0; i < pairs; i++, from += 2 * region->ld)
            interleave(to + i * ld_to, from, 2 * i + 1 < region->rows ? from + region->ld : NULL,
                       region->columns);
    } else if (region->rows % 2 == 0 && region->ld % 2 == 0) {
        const struct region wide = {from, region->ld / 2, pairs, region->columns, true};

        pack_transposed(to, ld_to, &wide, MICS_F32);
    } else {
        for (uint32_t j = 0; j < region->columns; j++)
            for (uint32_t i = 0; i < pairs; i++)
                to[i * ld_to + j] = pair_at(from + j * region->ld, i, region->rows);
    }
}

#define SQUARE_PAIRS 4 /* of k, that pack_strip_square() takes */
#if MICS_HAS_PAIRS
_Static_assert(PAIR_STRIP == 4, "a strip's rows of a pair of k fill a quarter of a vector");
#endif

/* SQUARE_PAIRS pairs of k of 2 * MICS_LANES columns of a', whose rows are ld apart. */
static inline void pack_strip_square(float *to, const uint16_t *from, size_t ld)
{
#if MICS_HAS_PAIRS
    __m512i strips[2][SQUARE_PAIRS]; /* four of each: their parts of a pair of k */

    for (unsigned j = 0; j < SQUARE_PAIRS; j++, from += 2 * ld) {
        const __m512i low = _mm512_loadu_si512(from), high = _mm512_loadu_si512(from + ld);

        strips[0][j] = _mm512_unpacklo_epi16(low, high); /* strips 0, 2, 4 and 6 */
        strips[1][j] = _mm512_unpackhi_epi16(low, high);
    }
    for (unsigned odd = 0; odd < 2; odd++) {
        const __m512i *x = strips[odd];
        const __m512i low01 = _mm512_shuffle_i32x4(x[0], x[1], 0x44);
        const __m512i high01 = _mm512_shuffle_i32x4(x[0], x[1], 0xee);
        const __m512i low23 = _mm512_shuffle_i32x4(x[2], x[3], 0x44);
        const __m512i high23 = _mm512_shuffle_i32x4(x[2], x[3], 0xee);
        float *strip = to + odd * PAIR_STRIP * DEPTH;

        _mm512_storeu_si512(strip, _mm512_shuffle_i32x4(low01, low23, 0x88));
        _mm512_storeu_si512(strip + 2 * PAIR_STRIP * DEPTH,
                            _mm512_shuffle_i32x4(low01, low23, 0xdd));
        _mm512_storeu_si512(strip + 4 * PAIR_STRIP * DEPTH,
                            _mm512_shuffle_i32x4(high01, high23, 0x88));
        _mm512_storeu_si512(strip + 6 * PAIR_STRIP * DEPTH,
                            _mm512_shuffle_i32x4(high01, high23, 0xdd));
    }
#else
    (void)to, (void)from, (void)ld;
#endif
}

/* As pack_strips(), of pairs: region->columns counts single columns of k. */
static void pack_strips_pairs(float *to, const struct region *region)
{
    const uint32_t wide = 2 * MICS_LANES, pairs = (region->columns + 1) / 2;
    const uint32_t square_pairs = region->columns / (2 * SQUARE_PAIRS) * SQUARE_PAIRS;
    const uint16_t *from = region->from;
    float line[2 * MICS_LANES] = {0};

    for (uint32_t first = 0; first < region->rows; first += wide, to += (size_t)wide * DEPTH) {
        const uint32_t count = region->rows - first < wide ? region->rows - first : wide;
        uint32_t j = 0;

        for (; count == wide && j < square_pairs; j += SQUARE_PAIRS)
            pack_strip_square(to + j * PAIR_STRIP, from + (size_t)2 * j * region->ld + first,
                              region->ld);
        for (; j < pairs; j++) {
            const uint16_t *low = from + (size_t)2 * j * region->ld + first;

            interleave(line, low, 2 * j + 1 < region->columns ? low + region->ld : NULL, count);
            for (uint32_t x = 0; x < count; x += PAIR_STRIP)
                memcpy(to + (size_t)x * DEPTH + j * PAIR_STRIP, line + x,
                       PAIR_STRIP * sizeof(float));
        }
    }
}

struct block {
    uint32_t row, rows, column, columns; /* of the result */
    float *to;
    size_t ld;
    bool add;                   /* to += */
    const float *matrix, *bias; /* otherwise to = their sum += ; NULL: nothing */
};

/* to = or += a b' of a block of k: `tile` has a, where it is to be read. While a panel is
 * multiplied the next one is prefetched. A panel that needs no change is packed as it is
 * multiplied by the first rows. Where a' is packed and k is short, most of the time goes into the
 * result, so panels are as wide as the buffer allows, and it is passed row by row. */
MICS_TYPED void multiply_panels(const struct mics_args_matmul *args, struct mics_tile tile,
                                float *panel, const struct block *block, uint32_t k, uint32_t depth,
                                const enum mics_dtype dtype, const bool pairs)
{
    const bool by_rows = args->trans_a && tile.depth > 0 && tile.depth <= MICS_TILE_SHALLOW;
    const uint32_t wide = by_rows ? DEPTH / tile.depth * PANEL : PANEL;
    const uint32_t group = pairs ? PAIR_STRIP : GROUP;
    const uint32_t step = !args->trans_a ? block->rows : by_rows && !pairs ? STRIP : group;

    for (uint32_t column = 0; column < block->columns; column += wide) {
        const uint32_t columns = (uint32_t)mics_min_u64(block->columns - column, wide);
        const uint32_t more = (uint32_t)mics_min_u64(block->columns - column - columns, wide);
        const struct region b = region_of_b(args, k, depth, block->column + column, columns);
        const struct region next =
            region_of_b(args, k, depth, block->column + column + columns, more);
        struct mics_prefetch prefetch = prefetch_of(&next, dtype, block->rows, tile.depth);
        const bool packed = pairs || dtype != MICS_F32 || b.transposed || by_rows ||
                            columns < PANEL || block->rows < MICS_TILE_ROWS;
        struct mics_tile rows = tile;

        if (pairs)
            pack_panel_pairs(panel, wide, &b);
        else if (packed)
            pack_panel(panel, wide, &b, dtype);
        rows.b = panel;
        rows.ldb = wide;
        rows.bias = block->bias ? block->bias + column : NULL;
        rows.width = columns;
        rows.prefetch = more > 0 ? &prefetch : NULL;
        for (uint32_t row = 0; row < block->rows; row += step) {
            const size_t at = row * block->ld + column;

            rows.rows = (uint32_t)mics_min_u64(block->rows - row, step);
            rows.a = tile.a + (row / group * (size_t)group * DEPTH + row % group);
            rows.c = block->to + at;
            rows.matrix = block->matrix ? block->matrix + at : NULL;
            if (pairs) {
                mics_tile_product_pairs_far(&rows);
            } else if (row > 0 || packed) {
                mics_tile_product_far(&rows);
            } else {
                rows.b = b.from;
                rows.ldb = b.ld;
                mics_tile_product_packing(&rows, panel);
                rows.b = panel;
                rows.ldb = wide;
            }
        }
    }
}

/* to = or += the products of k in [k, k + depth). */
MICS_TYPED void add_depth(const struct mics_args_matmul *args, struct buffers *buffers,
                          const struct block *block, uint32_t k, uint32_t depth,
                          const enum mics_dtype dtype, const bool pairs)
{
    const struct region a = region_of_a(args, block->row, block->rows, k, depth);
    struct mics_tile tile = {.a = buffers->a,
                             .row_step = DEPTH,
                             .depth_step = 1,
                             .ldc = block->ld,
                             .depth = depth,
                             .add = block->add};

    if (pairs) {
        tile.depth = (depth + 1) / 2;
        if (args->trans_a) {
            pack_strips_pairs(buffers->a, &a);
            tile.row_step = 1;
            tile.depth_step = PAIR_STRIP;
        } else if (depth % 2 == 0 && a.ld % 2 == 0) {
            tile.a = a.from;
            tile.row_step = a.ld / 2;
        } else {
            for (uint32_t i = 0; i < a.rows; i++)
                for (uint32_t j = 0; j < tile.depth; j++)
                    buffers->a[i * DEPTH + j] =
                        pair_at((const uint16_t *)a.from + i * a.ld, j, depth);
        }
    } else if (args->trans_a) {
        pack_groups(buffers->a, &a, dtype);
        tile.row_step = 1;
        tile.depth_step = GROUP;
    } else if (dtype == MICS_F32) {
        tile.a = a.from;
        tile.row_step = a.ld;
    } else {
        pack_rows(buffers->a, DEPTH, &a, dtype);
    }
    multiply_panels(args, tile, buffers->b, block, k, depth, dtype, pairs);
}

/* `count` in the fewest parts of at most `most`, which are about equal and multiples of 8. */
static uint32_t even_part(uint32_t count, uint32_t most)
{
    const uint64_t parts = mics_max_u64(mics_ceil_div(count, most), 1);

    return (uint32_t)mics_round_up(mics_ceil_div(count, parts), 8);
}

uint32_t mics_gemm_block_rows(uint32_t rows)
{
    return even_part(rows, BLOCK_ROWS);
}

static void add_block(const struct mics_args_matmul *args, struct buffers *buffers,
                      struct block block, bool pairs)
{
    const uint32_t most = even_part(args->k, pairs ? 2 * DEPTH : DEPTH);
    uint32_t k = 0;

    do { /* once if k is 0, for the zeros */
        const uint32_t depth = (uint32_t)mics_min_u64(args->k - k, most);

        if (pairs)
            add_depth(args, buffers, &block, k, depth, MICS_BF16, true);
        else if (args->dtype == MICS_BF16)
            add_depth(args, buffers, &block, k, depth, MICS_BF16, false);
        else if (args->dtype == MICS_F16)
            add_depth(args, buffers, &block, k, depth, MICS_F16, false);
        else
            add_depth(args, buffers, &block, k, depth, MICS_F32, false);
        block.add = true;
        block.matrix = block.bias = NULL;
        k += depth;
    } while (k < args->k);
}

/* Are sums made in a buffer? Not where nothing follows that reads two-byte numbers. */
static bool needs_buffer(const struct mics_args_matmul *args)
{
    if (mics_dtype_is_half(args->dtype) && args->out_dtype == MICS_F32)
        return args->bias || args->pre_gelu || args->gelu_of;
    return mics_dtype_is_half(args->dtype) || mics_dtype_is_half(args->out_dtype);
}

/* Where a buffer is needed, sums are made there, and rounded once. */
void mics_gemm(const struct mics_args_matmul *args, bool pairs)
{
    const bool staged = needs_buffer(args), add = !staged && args->add == args->out;
    const uint32_t rows = even_part(args->m, staged ? SUM_ROWS : BLOCK_ROWS);
    const uint32_t columns = staged ? SUM_COLUMNS : args->n;
    struct buffers buffers;

    for (uint32_t row = 0; row < args->m; row += rows)
        for (uint32_t column = 0; column < args->n; column += columns) {
            const size_t at = (size_t)row * args->ldout + column;
            struct block block = {.row = row,
                                  .rows = (uint32_t)mics_min_u64(args->m - row, rows),
                                  .column = column,
                                  .columns = (uint32_t)mics_min_u64(args->n - column, columns),
                                  .to = buffers.sum,
                                  .ld = SUM_COLUMNS,
                                  .add = add};

            if (!staged) {
                block.to = (float *)args->out + at;
                block.ld = args->ldout;
                block.matrix = args->add && !add ? (const float *)args->add + at : NULL;
                block.bias = args->bias ? (const float *)args->bias + column : NULL;
            }
            add_block(args, &buffers, block, pairs);
            for (uint32_t i = 0; staged && i < block.rows; i++)
                mics_epilogue_columns(args, row + i, column, block.columns,
                                      buffers.sum + i * SUM_COLUMNS);
        }
    if (!staged)
        mics_epilogue(args);
}
