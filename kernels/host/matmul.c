/* SPDX-License-Identifier: Apache-2.0 */
/*
 * matmul.c - matrix products, by OpenBLAS called single-threaded from the pool.
 *
 * The larger of m and n is cut into pieces whose size is a function of the shape only, each one call:
 * the result does not depend on the number of threads. A bias is written into `out` first and added to,
 * which costs no more than the zeros that the library would write there.
 */
#include "host/flat.h"
#include "host/kernels.h"

#include <cblas.h>
#include <string.h>

#define PIECE_MULTIPLE 64
#define PIECES_MAX     64
#define PIECE_FLOPS    4e6 /* some 30 microseconds: less is not worth a thread's waking */

struct matmul {
    const struct mics_op_matmul *args;
    uint32_t piece; /* rows or columns of one call */
    bool rows;      /* m is cut, not n */
};

/* Rows or columns of each piece of the larger side. */
static uint32_t piece_size(const struct mics_op_matmul *args, uint32_t side)
{
    double flops_each = 2.0 * args->m * args->n * args->k / side;
    uint32_t piece = side / PIECES_MAX + 1;

    if (flops_each * piece < PIECE_FLOPS)
        piece = flops_each * side <= PIECE_FLOPS ? side : (uint32_t)(PIECE_FLOPS / flops_each);
    piece = (piece / PIECE_MULTIPLE + 1) * PIECE_MULTIPLE;
    return piece < side ? piece : side;
}

static void write_bias(float *out, uint32_t ldout, uint32_t rows, const float *bias, uint32_t n,
                       bool add)
{
    for (uint32_t i = 0; i < rows; i++, out += ldout) {
        if (!add) {
            memcpy(out, bias, n * sizeof(float));
            continue;
        }
        for (uint32_t j = 0; j < n; j++)
            out[j] += bias[j];
    }
}

/* Rows [row, row + m) and columns [column, column + n) of the product. */
static void multiply(const struct mics_op_matmul *args, uint32_t row, uint32_t m, uint32_t column,
                     uint32_t n)
{
    const float *a = args->a + (args->trans_a ? row : (size_t)row * args->lda);
    const float *b = args->b + (args->trans_b ? (size_t)column * args->ldb : column);
    float *out = args->out + (size_t)row * args->ldout + column;
    float beta = args->beta;

    if (args->bias) {
        write_bias(out, args->ldout, m, args->bias + column, n, beta != 0);
        beta = 1;
    }
    cblas_sgemm(CblasRowMajor, args->trans_a ? CblasTrans : CblasNoTrans,
                args->trans_b ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)args->k, 1.0f, a,
                (int)args->lda, b, (int)args->ldb, beta, out, (int)args->ldout);
}

static void matmul_pieces(void *context, uint64_t begin, uint64_t end)
{
    const struct matmul *matmul = context;
    const struct mics_op_matmul *args = matmul->args;
    uint32_t side = matmul->rows ? args->m : args->n;

    for (uint64_t i = begin; i < end; i++) {
        uint32_t first = (uint32_t)i * matmul->piece;
        uint32_t size = matmul->piece < side - first ? matmul->piece : side - first;

        if (matmul->rows)
            multiply(args, first, size, 0, args->n);
        else
            multiply(args, 0, args->m, first, size);
    }
}

void mics_host_matmul(struct mics_pool *pool, const struct mics_op_matmul *args)
{
    struct matmul matmul = {.args = args, .rows = args->m >= args->n};
    uint32_t side = matmul.rows ? args->m : args->n;

    if (args->m == 0 || args->n == 0)
        return;
    if (openblas_get_num_threads() != 1)
        openblas_set_num_threads(1);
    matmul.piece = piece_size(args, side);
    mics_pool_run(pool, mics_ceil_div(side, matmul.piece), 1, matmul_pieces, &matmul);
}
