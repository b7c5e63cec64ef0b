/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product.c - matrix products of our own.
 *
 * As Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008: a block of a (ROWS
 * x DEPTH) stays in the second cache while panels of b (DEPTH x PANEL), packed side by side, pass over
 * it. a is read one number at a time, so only a transposed one is packed.
 */
#include "host/product.h"

#include "base/num.h"
#include "host/tile.h"

#define DEPTH       256
#define PANEL       64
#define ROWS        512 /* of a block of a that is used where it lies */
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

/* Rows [k, k + depth) and columns [column, column + columns) of b as a panel; 0 up to whole vectors. */
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

/* The last, partial vector of columns: through a tile of its own. */
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
