/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_mixed.c - matrix products of and into bf16: the tiles of product.c, between widening and rounding.
 *
 * A block of the result (ROWS x COLUMNS) is held in fp32 until all of k is added, then finished and rounded
 * once. Blocks of a and panels of b are widened as they are packed, each element once for 256 additions.
 */
#include "base/num.h"
#include "host/bf16.h"
#include "host/product.h"
#include "host/tile.h"

#define DEPTH   256
#define PANEL   64
#define ROWS    256
#define COLUMNS 256
#define RUN     16 /* rows transposed at a time */

struct buffers {
    float sum[ROWS * COLUMNS];
    float block[ROWS * DEPTH];  /* of a' */
    float panel[DEPTH * PANEL]; /* of b' */
};

/* to[i][j] = element at + i ld + j, i < rows, j < columns. */
MICS_TYPED void pack_rows(float *to, size_t ld_to, const void *from, uint64_t at, size_t ld,
                          uint32_t rows, uint32_t columns, const enum mics_dtype type)
{
    for (uint32_t i = 0; i < rows; i++, at += ld, to += ld_to) {
        uint32_t j = 0;

        for (; j + MICS_LANES <= columns; j += MICS_LANES)
            mics_vstore(to + j, mics_vload_as(from, at + j, type));
        for (; j < columns; j++)
            to[j] = mics_load_as(from, at + j, type);
    }
}

/* to[i][j] = element at + j ld + i. */
MICS_TYPED void pack_transposed(float *to, size_t ld_to, const void *from, uint64_t at, size_t ld,
                                uint32_t rows, uint32_t columns, const enum mics_dtype type)
{
    for (uint32_t run = 0; run < rows; run += RUN) {
        const uint32_t stop = rows - run < RUN ? rows : run + RUN;

        for (uint32_t j = 0; j < columns; j++)
            for (uint32_t i = run; i < stop; i++)
                to[i * ld_to + j] = mics_load_as(from, at + j * ld + i, type);
    }
}

/* Rows [row, row + rows) and columns [column, column + columns) of a matrix, or of its transpose. */
MICS_TYPED void pack(float *to, size_t ld_to, const void *from, size_t ld, bool transposed,
                     uint32_t row, uint32_t rows, uint32_t column, uint32_t columns,
                     const enum mics_dtype type)
{
    if (transposed)
        pack_transposed(to, ld_to, from, (uint64_t)column * ld + row, ld, rows, columns, type);
    else
        pack_rows(to, ld_to, from, (uint64_t)row * ld + column, ld, rows, columns, type);
}

struct block {
    uint32_t row, rows, column, columns;
};

/* sum += the products of k in [k, k + depth), up to whole vectors of columns. */
MICS_TYPED void add_depth(const struct mics_op_matmul *args, struct buffers *buffers,
                          const struct block *block, uint32_t k, uint32_t depth,
                          const enum mics_dtype type)
{
    pack(buffers->block, DEPTH, args->a, args->lda, args->trans_a, block->row, block->rows, k,
         depth, type);
    for (uint32_t column = 0; column < block->columns; column += PANEL) {
        const uint32_t columns = (uint32_t)mics_min_u64(block->columns - column, PANEL);
        const uint32_t width = (uint32_t)mics_round_up(columns, MICS_LANES);

        for (uint32_t i = 0; i < depth && columns < width; i++)
            memset(buffers->panel + i * PANEL + columns, 0, (width - columns) * sizeof(float));
        pack(buffers->panel, PANEL, args->b, args->ldb, args->trans_b, k, depth,
             block->column + column, columns, type);
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

static void make_block(const struct mics_op_matmul *args, struct buffers *buffers,
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
        mics_product_finish(args, block->row + i, block->column, block->columns,
                            buffers->sum + i * COLUMNS);
}

void mics_product_mixed(const struct mics_op_matmul *args)
{
    struct buffers buffers;
    struct block block;

    for (block.row = 0; block.row < args->m; block.row += ROWS)
        for (block.column = 0; block.column < args->n; block.column += COLUMNS) {
            block.rows = (uint32_t)mics_min_u64(args->m - block.row, ROWS);
            block.columns = (uint32_t)mics_min_u64(args->n - block.column, COLUMNS);
            make_block(args, &buffers, &block);
        }
}
