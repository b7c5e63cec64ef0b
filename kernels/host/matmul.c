/* SPDX-License-Identifier: Apache-2.0 */
/*
 * matmul.c - matrix products in pieces, by OpenBLAS called single-threaded from the pool.
 *
 * m or n is cut into pieces whose size is a function of the shape only, each one call: the result does
 * not depend on the number of threads. A bias, or what is added, is written into `out` first, which costs
 * no more than the zeros that the library would write there; the activation follows while a piece is near.
 *
 * Versions of OpenBLAS that are older than the processor take it for an older one and use half of its
 * vectors' width (0.3.21 takes Zen 4 and 5 for Haswell; OPENBLAS_CORETYPE=SkylakeX in the environment
 * corrects it). Then our own product, in product.c, is nearly twice as fast, and is used. What is in bf16
 * goes through the same tiles (product_mixed.c).
 */
#include "host/bf16.h"
#include "host/flat.h"
#include "host/kernels.h"
#include "host/product.h"

#include <cblas.h>
#include <string.h>

#define PIECE_MULTIPLE 64
#define PIECES_MAX     64
#define OWN_SIDE       256
#define PIECE_FLOPS    4e6 /* some 30 microseconds: less is not worth a thread's waking */

struct matmul {
    const struct mics_op_matmul *args;
    uint32_t piece; /* rows or columns of one call */
    bool rows;      /* m is cut, not n */
    bool own;       /* by our own product */
    bool mixed;     /* not all in fp32 */
};

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

/* The side to cut: the larger; for our own product that whose cutting repeats no transposition, unless
 * it is short. */
static bool cut_rows(const struct mics_op_matmul *args, bool own)
{
    if (own && args->trans_a != args->trans_b && (args->trans_a ? args->m : args->n) >= OWN_SIDE)
        return args->trans_a;
    return args->m >= args->n;
}

/* Rows or columns of each piece of a side. */
static uint32_t piece_size(const struct mics_op_matmul *args, uint32_t side)
{
    double flops_each = 2.0 * args->m * args->n * args->k / side;
    uint32_t piece = side / PIECES_MAX + 1;

    if (flops_each * piece < PIECE_FLOPS)
        piece = flops_each * side <= PIECE_FLOPS ? side : (uint32_t)(PIECE_FLOPS / flops_each);
    piece = (piece / PIECE_MULTIPLE + 1) * PIECE_MULTIPLE;
    return piece < side ? piece : side;
}

/* What the product is added to: add, bias, or zeros. */
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

/* The sum is in `out`: the activation, if there is one. */
static void finish(const struct mics_op_matmul *args)
{
    struct mics_op_matmul rest = *args;

    rest.add = rest.bias = NULL;
    for (uint32_t i = 0; (args->pre_gelu || args->gelu_of) && i < args->m; i++)
        mics_product_finish(&rest, i, 0, args->n, (float *)args->out + (size_t)i * args->ldout);
}

/* Element `count` of an array that may not be there. */
static void *skip(const void *from, size_t count, enum mics_dtype dtype)
{
    return from ? mics_at(from, count, dtype) : NULL;
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

/* Zeros are written by the library, which costs less. */
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

/* All in fp32. */
static void multiply(const struct mics_op_matmul *args, bool own)
{
    if (own) {
        start(args);
        mics_product(args);
    } else {
        call_library(args);
    }
    finish(args);
}

static void matmul_pieces(void *context, uint64_t begin, uint64_t end)
{
    const struct matmul *matmul = context;
    const struct mics_op_matmul *args = matmul->args;
    uint32_t side = matmul->rows ? args->m : args->n;
    uint64_t step = matmul->own ? end - begin : 1; /* our own needs no fixed pieces */

    for (uint64_t i = begin; i < end; i += step) {
        uint32_t first = (uint32_t)i * matmul->piece;
        uint32_t size = (uint32_t)mics_min_u64(step * matmul->piece, side - first);
        struct mics_op_matmul part = matmul->rows ? part_of(args, first, size, 0, args->n)
                                                  : part_of(args, 0, args->m, first, size);

        if (matmul->mixed)
            mics_product_mixed(&part);
        else
            multiply(&part, matmul->own);
    }
}

void mics_host_matmul(struct mics_pool *pool, const struct mics_op_matmul *args)
{
    const bool mixed = args->dtype == MICS_BF16 || args->out_dtype == MICS_BF16;
    struct matmul matmul = {.args = args, .own = mixed || library_is_behind(), .mixed = mixed};
    uint32_t side;

    if (args->m == 0 || args->n == 0)
        return;
    if (openblas_get_num_threads() != 1)
        openblas_set_num_threads(1);
    matmul.rows = cut_rows(args, matmul.own);
    side = matmul.rows ? args->m : args->n;
    matmul.piece = piece_size(args, side);
    mics_pool_run(pool, mics_ceil_div(side, matmul.piece), 1, matmul_pieces, &matmul);
}
