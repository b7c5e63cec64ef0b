/* SPDX-License-Identifier: Apache-2.0 */
/*
 * products.c - matrix products in pieces, by OpenBLAS or oneDNN called single-threaded from the
 * pool, or our own.
 *
 * The result is cut into pieces whose size is a function of the shape only, each one call: it does
 * not depend on the number of threads. For OpenBLAS a bias, or what is added, is written into `out`
 * first, which costs no more than the zeros that the library would write there; the activation
 * follows while a piece is in the cache.
 *
 * Who multiplies is decided by mics_product_method() from the processor, the libraries and the
 * types, never from timings, so that all ranks and a resumed job do the same:
 *
 *     fp32            OpenBLAS, or our own tiles where it uses half of the width of the vectors
 *     bf16            oneDNN where the processor multiplies bf16, else our own tiles
 *     fp32 into bf16  our own tiles
 *
 * In fp32 oneDNN 2.6 is 1.02 to 1.11 times as fast as OpenBLAS for a b and a b', and slower for
 * a' b (docs/cpu.md): too little for a library of 11 MiB in every process.
 *
 * Versions of OpenBLAS that are older than the processor take it for an older one and use half of
 * its vectors' width (0.3.21 takes Zen 4 and 5 for Haswell; OPENBLAS_CORETYPE=SkylakeX in the
 * environment corrects it). Then our own product is nearly twice as fast, and is used.
 *
 * 2 m n k flops. The own products are within k * 2^-24 of a product in double, relative to the sum
 * of magnitudes; bf16 results are rounded once.
 */
#include "host/products.h"

#include "base/num.h"
#include "host/kernels.h"
#include "host/onednn.h"
#include "host/pool.h"
#include "host/tile.h"
#include "host/vector.h"
#include "host/vmath.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

/*
 * What follows a product: one pass over a row while it is in the cache.
 */

/* A vector, or the first `count` of its lanes. */
MICS_TYPED mics_vf load_lanes(const void *from, uint64_t i, unsigned count,
                              const enum mics_dtype dtype)
{
    return count == MICS_LANES ? mics_vload_as(from, i, dtype)
                               : mics_vload_part_as(from, i, count, dtype);
}

MICS_TYPED void store_lanes(void *to, uint64_t i, mics_vf value, unsigned count,
                            const enum mics_dtype dtype)
{
    if (count == MICS_LANES)
        mics_vstore_as(to, i, value, dtype);
    else
        mics_vstore_part_as(to, i, value, count, dtype);
}

/* Element `at` of out is column `column`. */
MICS_TYPED void finish_vector(const struct mics_op_matmul *args, mics_vf x, uint64_t at,
                              uint32_t column, unsigned count, const enum mics_dtype dtype,
                              const enum mics_dtype out_dtype)
{
    if (args->add)
        x += load_lanes(args->add, at, count, out_dtype);
    if (args->bias)
        x += load_lanes(args->bias, column, count, dtype);
    if (args->pre_gelu) {
        store_lanes(args->pre_gelu, at, x, count, dtype);
        x = mics_vgelu(load_lanes(args->pre_gelu, at, count, dtype));
    } else if (args->gelu_of) {
        x *= mics_vgelu_slope(load_lanes(args->gelu_of, at, count, dtype));
    }
    store_lanes(args->out, at, x, count, out_dtype);
}

MICS_TYPED void finish_row(const struct mics_op_matmul *args, uint32_t row, uint32_t column,
                           uint32_t count, const float *x, const enum mics_dtype dtype,
                           const enum mics_dtype out_dtype)
{
    const uint64_t at = (uint64_t)row * args->ldout + column;

    for (uint32_t i = 0; i < count; i += MICS_LANES) {
        const unsigned lanes = count - i < MICS_LANES ? count - i : MICS_LANES;

        finish_vector(args, load_lanes(x, i, lanes, MICS_F32), at + i, column + i, lanes, dtype,
                      out_dtype);
    }
}

/* What follows a product, of columns [column, column + count) of a row: from x[count] add what is
 * to be added, apply the activation, store. x may be where the row of out is in fp32. */
static void finish_columns(const struct mics_op_matmul *args, uint32_t row, uint32_t column,
                           uint32_t count, const float *x)
{
    const bool out_bf16 = args->out_dtype == MICS_BF16;

    if (args->dtype == MICS_BF16 && out_bf16)
        finish_row(args, row, column, count, x, MICS_BF16, MICS_BF16);
    else if (args->dtype == MICS_BF16)
        finish_row(args, row, column, count, x, MICS_BF16, MICS_F32);
    else if (out_bf16)
        finish_row(args, row, column, count, x, MICS_F32, MICS_BF16);
    else
        finish_row(args, row, column, count, x, MICS_F32, MICS_F32);
}

/*
 * Our own product in fp32, as Goto and van de Geijn, "Anatomy of High-Performance Matrix
 * Multiplication", 2008: a block of a (ROWS x DEPTH) stays in the second cache while panels of b
 * (DEPTH x PANEL), packed side by side, pass over it. a is read one number at a time, so only a
 * transposed one is packed.
 */

#define DEPTH       256
#define PANEL       64
#define ROWS        512 /* of a block of a that is not packed */
#define PACKED_ROWS 256 /* of one that is packed */
#define RUN         16  /* of a row that is transposed at a time: a line of the cache */

struct buffers {
    float panel[DEPTH * PANEL];
    float block[PACKED_ROWS * DEPTH];
};

/* to[i][j] = from[j][i] for i < rows, j < columns. */
static void transpose(float *to, size_t ld_to, const float *from, size_t ld_from, uint32_t rows,
                      uint32_t columns)
{
    for (uint32_t run = 0; run < rows; run += RUN) {
        uint32_t stop = rows - run < RUN ? rows : run + RUN;

        for (uint32_t j = 0; j < columns; j++)
            for (uint32_t i = run; i < stop; i++)
                to[i * ld_to + j] = from[j * ld_from + i];
    }
}

/* Rows [k, k + depth) and columns [column, column + columns) of b as a panel; 0 up to whole
 * vectors. */
static void pack_panel(float *to, const struct mics_op_matmul *args, uint32_t k, uint32_t depth,
                       uint32_t column, uint32_t columns)
{
    size_t ldb = args->ldb, rest = mics_round_up(columns, MICS_LANES) - columns;
    const float *from =
        (const float *)args->b + (args->trans_b ? column * ldb + k : k * ldb + column);

    if (args->trans_b)
        transpose(to, PANEL, from, ldb, depth, columns);
    for (uint32_t i = 0; i < depth; i++, to += PANEL) {
        if (!args->trans_b)
            memcpy(to, from + i * ldb, columns * sizeof(float));
        memset(to + columns, 0, rest * sizeof(float));
    }
}

/* The last, partial vector of columns, in a padded tile. */
static void add_edge(const struct mics_tile *panel, uint32_t columns)
{
    float edge[4][MICS_LANES];

    for (uint32_t row = 0; row < panel->rows; row += 4) {
        struct mics_tile tile = *panel;

        tile.rows = (uint32_t)mics_min_u64(panel->rows - row, 4);
        tile.a = panel->a + row * panel->row_step;
        tile.c = edge[0];
        tile.ldc = MICS_LANES;
        tile.width = MICS_LANES;
        for (uint32_t i = 0; i < tile.rows; i++)
            memcpy(edge[i], panel->c + (row + i) * panel->ldc, columns * sizeof(float));
        mics_tile_product(&tile);
        for (uint32_t i = 0; i < tile.rows; i++)
            memcpy(panel->c + (row + i) * panel->ldc, edge[i], columns * sizeof(float));
    }
}

/* out += a block of `rows` x `depth` of a, from `a` on, times all of b. */
static void add_block(const struct mics_op_matmul *args, struct mics_tile tile, uint32_t row,
                      uint32_t k, float *panel)
{
    for (uint32_t column = 0; column < args->n; column += PANEL) {
        uint32_t columns = args->n - column < PANEL ? args->n - column : PANEL;

        pack_panel(panel, args, k, tile.depth, column, columns);
        tile.c = (float *)args->out + (size_t)row * args->ldout + column;
        tile.b = panel;
        tile.width = columns / MICS_LANES * MICS_LANES;
        mics_tile_product(&tile);
        tile.c += tile.width;
        tile.b += tile.width;
        if (columns > tile.width)
            add_edge(&tile, columns - tile.width);
    }
}

/* out += a' b' of struct mics_op_matmul, all in fp32; its other parts are the caller's. */
void mics_product(const struct mics_op_matmul *args)
{
    struct buffers buffers;
    uint32_t most = args->trans_a ? PACKED_ROWS : ROWS;

    for (uint32_t row = 0; row < args->m; row += most)
        for (uint32_t k = 0; k < args->k; k += DEPTH) {
            struct mics_tile tile = {
                .a = (const float *)args->a + (size_t)row * args->lda + k,
                .row_step = args->lda,
                .depth_step = 1,
                .ldb = PANEL,
                .ldc = args->ldout,
                .rows = args->m - row < most ? args->m - row : most,
                .depth = args->k - k < DEPTH ? args->k - k : DEPTH,
                .add = true,
            };

            if (args->trans_a) {
                transpose(buffers.block, DEPTH,
                          (const float *)args->a + (size_t)k * args->lda + row, args->lda,
                          tile.rows, tile.depth);
                tile.a = buffers.block;
                tile.row_step = DEPTH;
            }
            add_block(args, tile, row, k, buffers.panel);
        }
}

/*
 * Products of and into bf16: the same tiles, between widening and rounding.
 *
 * A block of the result (MIXED_ROWS x COLUMNS) is held in fp32 until all of k is added, then
 * finished and rounded once. Blocks of a and panels of b are widened as they are packed, each
 * element once for 256 additions.
 */

#define MIXED_ROWS 256
#define COLUMNS    256

struct mixed_buffers {
    float sum[MIXED_ROWS * COLUMNS];
    float block[MIXED_ROWS * DEPTH]; /* of a' */
    float panel[DEPTH * PANEL];      /* of b' */
};

/* to[i][j] = element at + i ld + j, i < rows, j < columns. */
MICS_TYPED void pack_rows(float *to, size_t ld_to, const void *from, uint64_t at, size_t ld,
                          uint32_t rows, uint32_t columns, const enum mics_dtype dtype)
{
    for (uint32_t i = 0; i < rows; i++, at += ld, to += ld_to) {
        uint32_t j = 0;

        for (; j + MICS_LANES <= columns; j += MICS_LANES)
            mics_vstore(to + j, mics_vload_as(from, at + j, dtype));
        for (; j < columns; j++)
            to[j] = mics_load_as(from, at + j, dtype);
    }
}

/* to[i][j] = element at + j ld + i. */
MICS_TYPED void pack_transposed(float *to, size_t ld_to, const void *from, uint64_t at, size_t ld,
                                uint32_t rows, uint32_t columns, const enum mics_dtype dtype)
{
    for (uint32_t run = 0; run < rows; run += RUN) {
        const uint32_t stop = rows - run < RUN ? rows : run + RUN;

        for (uint32_t j = 0; j < columns; j++)
            for (uint32_t i = run; i < stop; i++)
                to[i * ld_to + j] = mics_load_as(from, at + j * ld + i, dtype);
    }
}

/* Rows [row, row + rows) and columns [column, column + columns) of a matrix, or of its
 * transpose. */
MICS_TYPED void pack(float *to, size_t ld_to, const void *from, size_t ld, bool transposed,
                     uint32_t row, uint32_t rows, uint32_t column, uint32_t columns,
                     const enum mics_dtype dtype)
{
    if (transposed)
        pack_transposed(to, ld_to, from, (uint64_t)column * ld + row, ld, rows, columns, dtype);
    else
        pack_rows(to, ld_to, from, (uint64_t)row * ld + column, ld, rows, columns, dtype);
}

struct block {
    uint32_t row, rows, column, columns;
};

/* sum += the products of k in [k, k + depth), up to whole vectors of columns. */
MICS_TYPED void add_depth(const struct mics_op_matmul *args, struct mixed_buffers *buffers,
                          const struct block *block, uint32_t k, uint32_t depth,
                          const enum mics_dtype dtype)
{
    pack(buffers->block, DEPTH, args->a, args->lda, args->trans_a, block->row, block->rows, k,
         depth, dtype);
    for (uint32_t column = 0; column < block->columns; column += PANEL) {
        const uint32_t columns = (uint32_t)mics_min_u64(block->columns - column, PANEL);
        const uint32_t width = (uint32_t)mics_round_up(columns, MICS_LANES);

        for (uint32_t i = 0; i < depth && columns < width; i++)
            memset(buffers->panel + i * PANEL + columns, 0, (width - columns) * sizeof(float));
        pack(buffers->panel, PANEL, args->b, args->ldb, args->trans_b, k, depth,
             block->column + column, columns, dtype);
        mics_tile_product(&(struct mics_tile){
            .c = buffers->sum + column,
            .a = buffers->block,
            .b = buffers->panel,
            .row_step = DEPTH,
            .depth_step = 1,
            .ldb = PANEL,
            .ldc = COLUMNS,
            .rows = block->rows,
            .depth = depth,
            .width = width,
            .add = k > 0,
        });
    }
}

static void make_block(const struct mics_op_matmul *args, struct mixed_buffers *buffers,
                       const struct block *block)
{
    if (args->k == 0)
        memset(buffers->sum, 0, sizeof buffers->sum);
    for (uint32_t k = 0; k < args->k; k += DEPTH) {
        const uint32_t depth = (uint32_t)mics_min_u64(args->k - k, DEPTH);

        if (args->dtype == MICS_BF16)
            add_depth(args, buffers, block, k, depth, MICS_BF16);
        else
            add_depth(args, buffers, block, k, depth, MICS_F32);
    }
    for (uint32_t i = 0; i < block->rows; i++)
        finish_columns(args, block->row + i, block->column, block->columns,
                       buffers->sum + i * COLUMNS);
}

static void product_mixed(const struct mics_op_matmul *args)
{
    struct mixed_buffers buffers;
    struct block block;

    for (block.row = 0; block.row < args->m; block.row += MIXED_ROWS)
        for (block.column = 0; block.column < args->n; block.column += COLUMNS) {
            block.rows = (uint32_t)mics_min_u64(args->m - block.row, MIXED_ROWS);
            block.columns = (uint32_t)mics_min_u64(args->n - block.column, COLUMNS);
            make_block(args, &buffers, &block);
        }
}

/*
 * The product of an operation, cut into pieces.
 *
 * OpenBLAS packs both operands of each call: rows of a once for each column of pieces, columns of b
 * once for each row of them. With pieces of m by n that is in proportion to 1 / m + 1 / n of the
 * flops. So pieces are few and nearly square: with 64 to 128 columns of 1024 rows, packing took a
 * fifth of the time of a Llama's products (docs/cpu.md).
 */

#define PIECE_MULTIPLE 64
#define PIECES_LEAST   8 /* for as many threads, unless they would be small */
#define OWN_SIDE       256
#define LARGE_PIECE    (512.0 * 512) /* elements of more pieces than the least */

/* How a method's products are cut. */
static const struct cut {
    double piece_flops; /* about 30 microseconds: for less, waking a thread costs more than it
                         * saves */
    double pieces_most;
} cuts[] = {
    [MICS_PRODUCT_OPENBLAS] = {4e6, 64},
    [MICS_PRODUCT_OWN] = {4e6, 64},
    /* For matrix units. Each piece packs what is not cut: of a transposed a, rows. */
    [MICS_PRODUCT_ONEDNN] = {64e6, 64},
};
static const double pieces_of_transposed = 16; /* by oneDNN */

struct matmul {
    const struct mics_op_matmul *args;
    struct mics_onednn *onednn;
    enum mics_product_method method;
    uint32_t m, n;   /* of a piece; the last of a row or column may be smaller */
    uint32_t across; /* pieces side by side */
};

static bool is_mixed(const struct mics_op_matmul *args)
{
    return args->dtype == MICS_BF16 || args->out_dtype == MICS_BF16;
}

/* Whether OpenBLAS uses narrower vectors than this machine has. */
static bool library_is_behind(void)
{
    static const char *const narrow[] = {"Haswell", "Zen", "Sandybridge"};
    const char *core = openblas_get_corename();

    for (size_t i = 0; MICS_LANES == 16 && i < sizeof(narrow) / sizeof(narrow[0]); i++)
        if (strcmp(core, narrow[i]) == 0)
            return true;
    return false;
}

enum mics_product_method mics_product_method(struct mics_pool *pool,
                                             const struct mics_op_matmul *args)
{
    if (!is_mixed(args))
        return library_is_behind() ? MICS_PRODUCT_OWN : MICS_PRODUCT_OPENBLAS;
    if (args->dtype == MICS_BF16 && args->k > 0 && mics_onednn_has_bf16(mics_pool_onednn(pool)))
        return MICS_PRODUCT_ONEDNN;
    return MICS_PRODUCT_OWN;
}

/* The side to cut where only one is: the larger; for our own product the side whose cut repeats no
 * transposition, unless it is short; for oneDNN n where only b is packed, unless it is short. */
static bool cut_rows(const struct mics_op_matmul *args, enum mics_product_method method)
{
    if (method == MICS_PRODUCT_OWN && args->trans_a != args->trans_b &&
        (args->trans_a ? args->m : args->n) >= OWN_SIDE)
        return args->trans_a;
    if (method == MICS_PRODUCT_ONEDNN && !args->trans_a && args->n >= OWN_SIDE)
        return false;
    return args->m >= args->n;
}

/* Rows or columns of each of `pieces` of a side. */
static uint32_t piece_size(uint32_t side, uint64_t pieces)
{
    return (uint32_t)mics_min_u64(mics_round_up(mics_ceil_div(side, pieces), PIECE_MULTIPLE), side);
}

/* At least `pieces`, as far as the sides allow, of the shape that is packed least. */
static void cut_both_sides(struct matmul *matmul, uint64_t pieces)
{
    double least = INFINITY;

    for (uint64_t down = 1; down <= pieces; down++) {
        const uint32_t m = piece_size(matmul->args->m, down);
        const uint32_t n = piece_size(matmul->args->n, mics_ceil_div(pieces, down));
        const double packing = 1.0 / m + 1.0 / n;

        if (packing < least) {
            least = packing;
            matmul->m = m;
            matmul->n = n;
        }
    }
}

static struct matmul cut_product(struct mics_pool *pool, const struct mics_op_matmul *args,
                                 enum mics_product_method method)
{
    struct matmul matmul = {.args = args,
                            .onednn = mics_pool_onednn(pool),
                            .method = method,
                            .m = args->m,
                            .n = args->n};
    double most = cuts[method].pieces_most;

    if (method == MICS_PRODUCT_OPENBLAS)
        most = fmin(most, fmax(PIECES_LEAST, (double)args->m * args->n / LARGE_PIECE));
    else if (method == MICS_PRODUCT_ONEDNN && args->trans_a)
        most = pieces_of_transposed;
    const double flops = 2.0 * args->m * args->n * args->k;
    const uint64_t pieces = (uint64_t)fmax(1, fmin(most, flops / cuts[method].piece_flops));

    if (method == MICS_PRODUCT_OPENBLAS)
        cut_both_sides(&matmul, pieces);
    else if (cut_rows(args, method))
        matmul.m = piece_size(args->m, pieces);
    else
        matmul.n = piece_size(args->n, pieces);
    matmul.across = (uint32_t)mics_ceil_div(args->n, matmul.n);
    return matmul;
}

/* Initialise out, to which the product is added: add, bias, or zeros. */
static void start(const struct mics_op_matmul *args)
{
    const size_t bytes = args->n * sizeof(float);
    const float *add = args->add, *bias = args->bias;
    float *out = args->out;

    for (uint32_t i = 0; i < args->m; i++, out += args->ldout) {
        if (!add && bias)
            memcpy(out, bias, bytes);
        else if (!add)
            memset(out, 0, bytes);
        else if (add != args->out)
            memcpy(out, add + (size_t)i * args->ldout, bytes);
        for (uint32_t j = 0; add && bias && j < args->n; j++)
            out[j] += bias[j];
    }
}

/* Apply the activation, if there is one, to the sum in `out`. */
static void finish(const struct mics_op_matmul *args)
{
    struct mics_op_matmul rest = *args;
    float wide[COLUMNS];

    rest.add = rest.bias = NULL;
    for (uint32_t i = 0; (args->pre_gelu || args->gelu_of) && i < args->m; i++) {
        const uint64_t row = (uint64_t)i * args->ldout;

        if (args->out_dtype == MICS_F32) {
            finish_columns(&rest, i, 0, args->n, (float *)args->out + row);
            continue;
        }
        for (uint32_t j = 0; j < args->n; j += COLUMNS) {
            const uint32_t columns = (uint32_t)mics_min_u64(args->n - j, COLUMNS);

            pack_rows(wide, COLUMNS, args->out, row + j, 0, 1, columns, MICS_BF16);
            finish_columns(&rest, i, j, columns, wide);
        }
    }
}

/* Element `count` of an array that may be NULL. */
static void *skip(const void *from, size_t count, enum mics_dtype dtype)
{
    return from ? mics_element(from, count, dtype) : NULL;
}

/* Rows [row, row + m) and columns [column, column + n) as a product of its own. */
static struct mics_op_matmul part_of(const struct mics_op_matmul *args, uint32_t row, uint32_t m,
                                     uint32_t column, uint32_t n)
{
    const size_t to = (size_t)row * args->ldout + column;
    struct mics_op_matmul part = *args;

    part.a = skip(args->a, args->trans_a ? row : (size_t)row * args->lda, args->dtype);
    part.b = skip(args->b, args->trans_b ? (size_t)column * args->ldb : column, args->dtype);
    part.out = skip(args->out, to, args->out_dtype);
    part.add = skip(args->add, to, args->out_dtype);
    part.pre_gelu = skip(args->pre_gelu, to, args->dtype);
    part.gelu_of = skip(args->gelu_of, to, args->dtype);
    part.bias = skip(args->bias, column, args->dtype);
    part.m = m;
    part.n = n;
    return part;
}

/* Without add and bias the library writes the zeros itself, which is cheaper. */
static void call_library(const struct mics_op_matmul *args)
{
    const bool add = args->add || args->bias;

    if (add)
        start(args);
    cblas_sgemm(CblasRowMajor, args->trans_a ? CblasTrans : CblasNoTrans,
                args->trans_b ? CblasTrans : CblasNoTrans, (int)args->m, (int)args->n, (int)args->k,
                1.0f, args->a, (int)args->lda, args->b, (int)args->ldb, add ? 1.0f : 0.0f,
                args->out, (int)args->ldout);
}

/*
 * By oneDNN, which adds what is added and the bias before it rounds. A GELU is of what is stored,
 * so it follows; but GELU's derivative must be applied before the rounding: such products go
 * through fp32, in blocks that are high, because oneDNN packs b for each of them.
 */

#define STAGED_ROWS    1024
#define STAGED_COLUMNS 64

static bool is_staged(const struct mics_op_matmul *args)
{
    return args->gelu_of && args->out_dtype == MICS_BF16;
}

/* The call for a block of at most STAGED_ROWS x STAGED_COLUMNS, or for all of a piece that is not
 * staged. */
static struct mics_op_matmul onednn_call(const struct mics_op_matmul *block, float *staged)
{
    struct mics_op_matmul call = *block;

    call.pre_gelu = NULL;
    call.gelu_of = NULL;
    if (is_staged(block)) {
        call.out = staged;
        call.ldout = STAGED_COLUMNS;
        call.out_dtype = MICS_F32;
        call.add = call.bias = NULL;
    } else if (call.add) {
        call.add = call.out;
    }
    return call;
}

static void copy_added(const struct mics_op_matmul *args)
{
    const size_t each = mics_dtype_bytes(args->out_dtype), row = args->ldout * each;

    for (uint32_t i = 0; args->add && args->add != args->out && i < args->m; i++)
        memcpy((char *)args->out + i * row, (const char *)args->add + i * row, args->n * each);
}

static void make_staged(struct mics_onednn *onednn, const struct mics_op_matmul *args)
{
    float staged[STAGED_ROWS * STAGED_COLUMNS];

    for (uint32_t row = 0; row < args->m; row += STAGED_ROWS)
        for (uint32_t column = 0; column < args->n; column += STAGED_COLUMNS) {
            const uint32_t rows = (uint32_t)mics_min_u64(args->m - row, STAGED_ROWS);
            const uint32_t columns = (uint32_t)mics_min_u64(args->n - column, STAGED_COLUMNS);
            const struct mics_op_matmul block = part_of(args, row, rows, column, columns);
            const struct mics_op_matmul call = onednn_call(&block, staged);

            if (!mics_onednn_multiply(onednn, &call))
                return;
            for (uint32_t i = 0; i < rows; i++)
                finish_columns(&block, i, 0, columns, staged + i * STAGED_COLUMNS);
        }
}

static void multiply_by_onednn(struct mics_onednn *onednn, const struct mics_op_matmul *args)
{
    if (is_staged(args)) {
        make_staged(onednn, args);
        return;
    }
    const struct mics_op_matmul call = onednn_call(args, NULL);

    copy_added(args);
    if (mics_onednn_multiply(onednn, &call))
        finish(args);
}

/* The primitives that multiply_by_onednn() will use. */
static enum mics_status prepare_piece(struct mics_onednn *onednn, const struct mics_op_matmul *args,
                                      unsigned threads, struct mics_err *err)
{
    const uint32_t m = is_staged(args) ? STAGED_ROWS : args->m;
    const uint32_t n = is_staged(args) ? STAGED_COLUMNS : args->n;
    enum mics_status status = MICS_OK;

    for (uint32_t row = 0; row < args->m && status == MICS_OK; row += m)
        for (uint32_t column = 0; column < args->n && status == MICS_OK; column += n) {
            const struct mics_op_matmul block =
                part_of(args, row, (uint32_t)mics_min_u64(args->m - row, m), column,
                        (uint32_t)mics_min_u64(args->n - column, n));
            float unused;
            const struct mics_op_matmul call = onednn_call(&block, &unused);

            status = mics_onednn_prepare(onednn, &call, threads, err);
        }
    return status;
}

static void multiply(const struct mics_op_matmul *args, const struct matmul *matmul)
{
    if (matmul->method == MICS_PRODUCT_ONEDNN) {
        multiply_by_onednn(matmul->onednn, args);
        return;
    }
    if (is_mixed(args)) {
        product_mixed(args);
        return;
    }
    if (matmul->method == MICS_PRODUCT_OWN) {
        start(args);
        mics_product(args);
    } else {
        call_library(args);
    }
    finish(args);
}

static uint64_t piece_count(const struct matmul *matmul)
{
    return mics_ceil_div(matmul->args->m, matmul->m) * matmul->across;
}

/* A piece, or, of a product that is cut in one direction, some side by side as one. */
static struct mics_op_matmul pieces_at(const struct matmul *matmul, uint64_t first, uint64_t count)
{
    const struct mics_op_matmul *args = matmul->args;
    const bool down = matmul->across == 1;
    const uint32_t row = (uint32_t)(first / matmul->across) * matmul->m;
    const uint32_t column = (uint32_t)(first % matmul->across) * matmul->n;

    return part_of(
        args, row, (uint32_t)mics_min_u64(down ? count * matmul->m : matmul->m, args->m - row),
        column, (uint32_t)mics_min_u64(down ? matmul->n : count * matmul->n, args->n - column));
}

static void matmul_pieces(void *context, uint64_t begin, uint64_t end)
{
    const struct matmul *matmul = context;
    /* our own needs no fixed pieces */
    const uint64_t step = matmul->method == MICS_PRODUCT_OWN ? end - begin : 1;

    for (uint64_t i = begin; i < end; i += step) {
        const struct mics_op_matmul part = pieces_at(matmul, i, step);

        multiply(&part, matmul);
    }
}

void mics_host_matmul_by(struct mics_pool *pool, const struct mics_op_matmul *args,
                         enum mics_product_method method)
{
    if (args->m == 0 || args->n == 0)
        return;
    if (openblas_get_num_threads() != 1)
        openblas_set_num_threads(1);
    struct matmul matmul = cut_product(pool, args, method);
    mics_pool_run(pool, piece_count(&matmul), 1, matmul_pieces, &matmul);
}

void mics_host_matmul(struct mics_pool *pool, const struct mics_op_matmul *args)
{
    mics_host_matmul_by(pool, args, mics_product_method(pool, args));
}

enum mics_status mics_host_matmul_prepare(struct mics_pool *pool, const struct mics_op_matmul *args,
                                          struct mics_err *err)
{
    const enum mics_product_method method = mics_product_method(pool, args);
    enum mics_status status = MICS_OK;

    if (method != MICS_PRODUCT_ONEDNN || args->m == 0 || args->n == 0)
        return MICS_OK;
    const struct matmul matmul = cut_product(pool, args, method);
    for (uint64_t i = 0; i < piece_count(&matmul) && status == MICS_OK; i++) {
        const struct mics_op_matmul part = pieces_at(&matmul, i, 1);

        status = prepare_piece(matmul.onednn, &part, mics_pool_threads(pool), err);
    }
    return status;
}
