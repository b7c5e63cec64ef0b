/* SPDX-License-Identifier: Apache-2.0 */
/*
 * products.c - matrix products in pieces, by OpenBLAS or oneDNN called single-threaded from the
 * pool, or our own.
 *
 * The result is cut into pieces, each one call, whose size is a function of the shape only; or of
 * the threads, too, if they are our own products: so it does not depend on the number of threads.
 * For OpenBLAS a bias, or what is added, is written into `out` first, which costs no more than the
 * zeros that the library would write there; the activation follows while a piece is in the cache.
 *
 * Who multiplies is decided by mics_product_method() from the processor, the libraries and the
 * types, never from timings, so that all ranks and a resumed job do the same:
 *
 *     fp32            our own where mics is compiled for AVX-512, or for AVX2 and the processor has
 *                     no wider vectors; else OpenBLAS, which chooses its kernels at run time
 *     bf16            oneDNN where the processor has matrix units (AMX); our own on pairs of bf16
 *                     where it has AVX512-BF16 only and mics is compiled for it; oneDNN where
 *                     mics is not; else our own in fp32 arithmetic
 *     fp32 into bf16  our own
 *
 * Measured against OpenBLAS 0.3.21 (bench/results), our own is 1.2 to 1.6 times as fast on Ice
 * Lake, 1.0 to 1.3 times on Zen 3, and was 1.0 to 1.2 times on Zen 4 with earlier tiles. oneDNN
 * 2.6 is faster in some shapes and slower in others: too little for a library of 11 MiB in every
 * process.
 *
 * 2 m n k flops.
 */
#include "host/products.h"

#include "base/limits.h"
#include "base/num.h"
#include "host/blas.h"
#include "host/kernels.h"
#include "host/onednn.h"
#include "host/pool.h"
#include "host/tile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

/*
 * The product of an operation, cut into pieces.
 *
 * OpenBLAS packs both operands of each call: rows of a once for each column of pieces, columns of b
 * once for each row of them. With pieces of m by n that is in proportion to 1 / m + 1 / n of the
 * flops. So pieces are few and nearly square: with 64 to 128 columns of 1024 rows, packing took a
 * fifth of the time of a Llama's products (bench/results).
 */

#define PIECES_LEAST 8 /* for as many threads, unless they would be small */
#define ONEDNN_SIDE  256
#define LARGE_PIECE  (512.0 * 512) /* elements of more pieces than the least */
#define WIDE_PIECE   (512.0 * 256) /* where a is not packed */

/* What a costs that is read where it is, for each piece anew, of what packing it would. */
static const double a_in_place = 0.1;

/* What packing an element costs, in multiplications. */
static const double packing_flops = 20;

/* How a method's products are cut. */
static const struct cut {
    double piece_flops; /* about 30 microseconds: for less, waking a thread costs more than it
                         * saves */
    double pieces_most;
    uint32_t rows, columns; /* of a piece, a multiple of them */
} cuts[] = {
    [MICS_PRODUCT_OPENBLAS] = {4e6, 64, 64, 64},
    [MICS_PRODUCT_OWN] = {4e6, 64, 32, MICS_TILE_VECTORS *MICS_LANES},
    [MICS_PRODUCT_PAIRS] = {8e6, 64, 32, MICS_TILE_VECTORS *MICS_LANES},
    /* For matrix units. Each piece packs what is not cut: of a transposed a, rows. */
    [MICS_PRODUCT_ONEDNN] = {64e6, 64, 64, 64},
};
static const double pieces_of_transposed = 16; /* by oneDNN */

static bool has_matrix_units(void)
{
    unsigned a, b, c, d = 0;

#if defined(__x86_64__)
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return false;
#endif
    return d >> 22 & 1; /* AMX-BF16 */
}

bool mics_product_has_pairs(void)
{
    return MICS_HAS_PAIRS;
}

enum mics_product_method mics_product_of_bf16(const struct mics_pool *pool)
{
    const struct mics_onednn *onednn = mics_pool_onednn(pool);

    switch (mics_onednn_asked(onednn)) {
    case MICS_ONEDNN_NEVER:
        return MICS_PRODUCT_OWN;
    case MICS_ONEDNN_ALWAYS:
        return MICS_PRODUCT_ONEDNN;
    case MICS_ONEDNN_AUTO:
        break;
    }
    if (mics_onednn_can_bf16() && (!MICS_HAS_PAIRS || has_matrix_units()))
        return MICS_PRODUCT_ONEDNN;
    return MICS_HAS_PAIRS ? MICS_PRODUCT_PAIRS : MICS_PRODUCT_OWN;
}

bool mics_product_pairs_bf16(const struct mics_pool *pool)
{
    return MICS_HAS_PAIRS && mics_product_of_bf16(pool) != MICS_PRODUCT_OWN;
}

static enum mics_status describe_onednn(struct mics_onednn *onednn, char *text, size_t size,
                                        struct mics_err *err)
{
    char library[64];
    const enum mics_status status = mics_onednn_describe(onednn, library, sizeof library, err);

    if (status == MICS_OK)
        snprintf(text, size, "%s%s", library, MICS_HAS_PAIRS ? " and AVX512-BF16" : "");
    return status;
}

enum mics_status mics_product_describe(const struct mics_pool *pool, char *text, size_t size,
                                       struct mics_err *err)
{
    const enum mics_product_method method = mics_product_of_bf16(pool);

    if (method == MICS_PRODUCT_ONEDNN)
        return describe_onednn(mics_pool_onednn(pool), text, size, err);
    snprintf(text, size, "%s", method == MICS_PRODUCT_PAIRS ? "AVX512-BF16" : "fp32 arithmetic");
    return MICS_OK;
}

/* A build for AVX2 may run on a processor with AVX-512, where OpenBLAS is ahead. */
static enum mics_product_method method_of_fp32(void)
{
#if defined(__AVX2__) && !defined(__AVX512F__)
    return __builtin_cpu_supports("avx512f") ? MICS_PRODUCT_OPENBLAS : MICS_PRODUCT_OWN;
#else
    return MICS_LANES == 16 ? MICS_PRODUCT_OWN : MICS_PRODUCT_OPENBLAS;
#endif
}

enum mics_status mics_product_open(unsigned threads, struct mics_err *err)
{
    const enum mics_status status = mics_blas_open(err);

    if (status != MICS_OK || method_of_fp32() != MICS_PRODUCT_OPENBLAS)
        return status;
    return mics_limits_try_memory(threads * MICS_BLAS_BUFFER_BYTES, err);
}

enum mics_product_method mics_product_method(struct mics_pool *pool,
                                             const struct mics_args_matmul *args)
{
    enum mics_product_method method;

    if (args->dtype == MICS_F32 && args->out_dtype == MICS_F32)
        return method_of_fp32();
    if (args->dtype != MICS_BF16)
        return MICS_PRODUCT_OWN;
    method = mics_product_of_bf16(pool);
    return method == MICS_PRODUCT_ONEDNN && args->k == 0 ? MICS_PRODUCT_OWN : method;
}

/* The side that oneDNN's products are cut at: the larger, but n where only b is packed, unless it
 * is short. */
static bool cut_rows(const struct mics_args_matmul *args)
{
    return args->m >= args->n && (args->trans_a || args->n < ONEDNN_SIDE);
}

/* Rows or columns of each of `pieces` of a side. */
static uint32_t piece_size(uint32_t side, uint64_t pieces, uint32_t multiple)
{
    const uint64_t size = mics_round_up(mics_ceil_div(side, pieces), multiple);

    return (uint32_t)mics_min_u64(size, side);
}

/* Whether our own product reads a where it is. */
static bool in_place(const struct mics_product *product)
{
    const struct mics_args_matmul *args = product->args;

    return !args->trans_a && (product->method == MICS_PRODUCT_PAIRS ||
                              (product->method == MICS_PRODUCT_OWN && args->dtype == MICS_F32));
}

/* Elements of the result that fall to the busiest of `threads`, which claim pieces of m x n in
 * turn: whole ones, then those that are left at the edges. */
static double largest_share(const struct mics_args_matmul *args, uint32_t m, uint32_t n,
                            unsigned threads)
{
    const double whole = (double)m * n, all = (double)args->m * args->n;
    const uint64_t count = (uint64_t)(args->m / m) * (args->n / n);
    const double in_turn = whole * (double)mics_ceil_div(count, threads);
    const double edges = all - whole * (double)count;
    const double edge = fmax((double)(args->m % m) * n, (double)m * (args->n % n));

    if (count % threads != 0)
        return fmax(in_turn, all / threads);
    return in_turn + fmax(edges / threads, edge);
}

/* About `pieces`, as far as the sides allow, which take `threads` the least time: by what is packed
 * and, of our own products, of which any part has the same bits, by how evenly they are shared. */
static void cut_both_sides(struct mics_product *product, uint64_t pieces, unsigned threads)
{
    const struct mics_args_matmul *args = product->args;
    const bool own = product->method != MICS_PRODUCT_OPENBLAS;
    const double of_a = in_place(product) ? a_in_place : 1;
    const struct cut *cut = &cuts[product->method];
    double least = INFINITY;
    bool enough = false;

    for (uint64_t down = 1; down <= pieces; down++) {
        const uint32_t m = piece_size(args->m, down, cut->rows);
        const uint32_t n = piece_size(args->n, mics_ceil_div(pieces, down), cut->columns);
        const uint64_t count = mics_ceil_div(args->m, m) * mics_ceil_div(args->n, n);
        const double packing = 1.0 / (own ? mics_gemm_block_rows(m) : m) + of_a / n;
        const double share = own ? largest_share(args, m, n, threads) : 1;
        const double time = share * (1 + packing_flops * packing);
        const bool nearly = 4 * count >= 3 * pieces; /* sides are rounded */

        if (nearly < enough || (nearly == enough && time >= least))
            continue;
        enough = nearly;
        least = time;
        product->m = m;
        product->n = n;
    }
}

struct mics_product mics_product_cut(struct mics_pool *pool, const struct mics_args_matmul *args,
                                     enum mics_product_method method, double least_flops,
                                     unsigned threads)
{
    struct mics_product product = {.args = args,
                                   .onednn = mics_pool_onednn(pool),
                                   .method = method,
                                   .m = args->m,
                                   .n = args->n};
    double most = cuts[method].pieces_most;

    if (method != MICS_PRODUCT_ONEDNN)
        most = fmin(most, fmax(PIECES_LEAST, (double)args->m * args->n /
                                                 (in_place(&product) ? WIDE_PIECE : LARGE_PIECE)));
    else if (args->trans_a)
        most = pieces_of_transposed;
    const double flops = 2.0 * args->m * args->n * args->k;
    const double each = fmax(least_flops, cuts[method].piece_flops);
    const uint64_t pieces = (uint64_t)fmax(1, fmin(most, flops / each));

    if (method != MICS_PRODUCT_ONEDNN)
        cut_both_sides(&product, pieces, threads);
    else if (cut_rows(args))
        product.m = piece_size(args->m, pieces, cuts[method].rows);
    else
        product.n = piece_size(args->n, pieces, cuts[method].columns);
    return product;
}

double mics_product_piece_flops(enum mics_product_method method)
{
    return cuts[method].piece_flops;
}

/* Element `count` of an array that may be NULL. */
static void *skip(const void *from, size_t count, enum mics_dtype dtype)
{
    return from ? mics_element(from, count, dtype) : NULL;
}

/* Rows [row, row + m) and columns [column, column + n) as a product of its own. */
static struct mics_args_matmul part_of(const struct mics_args_matmul *args, uint32_t row,
                                       uint32_t m, uint32_t column, uint32_t n)
{
    const size_t to = (size_t)row * args->ldout + column;
    struct mics_args_matmul part = *args;

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

/* Initialise out, to which OpenBLAS adds the product: add, bias, or zeros. */
static void start(const struct mics_args_matmul *args)
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

static void multiply_by_openblas(const struct mics_args_matmul *args)
{
    const bool add = args->add || args->bias;

    if (add)
        start(args);
    mics_blas()->sgemm(CblasRowMajor, args->trans_a ? CblasTrans : CblasNoTrans,
                       args->trans_b ? CblasTrans : CblasNoTrans, (int)args->m, (int)args->n,
                       (int)args->k, 1.0f, args->a, (int)args->lda, args->b, (int)args->ldb,
                       add ? 1.0f : 0.0f, args->out, (int)args->ldout);
    mics_epilogue(args);
}

/*
 * By oneDNN, which adds what is added and the bias before it rounds. A GELU is of what is stored,
 * so it follows; but GELU's derivative must be applied before the rounding: such products go
 * through fp32, in blocks that are high, because oneDNN packs b for each of them.
 */

#define STAGED_ROWS    1024
#define STAGED_COLUMNS 64

static bool is_staged(const struct mics_args_matmul *args)
{
    return args->gelu_of && args->out_dtype == MICS_BF16;
}

/* The call for a block of at most STAGED_ROWS x STAGED_COLUMNS, or for all of a piece that is not
 * staged. */
static struct mics_args_matmul onednn_call(const struct mics_args_matmul *block, float *staged)
{
    struct mics_args_matmul call = *block;

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

static void copy_added(const struct mics_args_matmul *args)
{
    const size_t each = mics_dtype_bytes(args->out_dtype), row = args->ldout * each;

    for (uint32_t i = 0; args->add && args->add != args->out && i < args->m; i++)
        memcpy((char *)args->out + i * row, (const char *)args->add + i * row, args->n * each);
}

static void make_staged(struct mics_onednn *onednn, const struct mics_args_matmul *args)
{
    float staged[STAGED_ROWS * STAGED_COLUMNS];

    for (uint32_t row = 0; row < args->m; row += STAGED_ROWS)
        for (uint32_t column = 0; column < args->n; column += STAGED_COLUMNS) {
            const uint32_t rows = (uint32_t)mics_min_u64(args->m - row, STAGED_ROWS);
            const uint32_t columns = (uint32_t)mics_min_u64(args->n - column, STAGED_COLUMNS);
            const struct mics_args_matmul block = part_of(args, row, rows, column, columns);
            const struct mics_args_matmul call = onednn_call(&block, staged);

            if (!mics_onednn_multiply(onednn, &call))
                return;
            for (uint32_t i = 0; i < rows; i++)
                mics_epilogue_columns(&block, i, 0, columns, staged + i * STAGED_COLUMNS);
        }
}

static void multiply_by_onednn(struct mics_onednn *onednn, const struct mics_args_matmul *args)
{
    if (is_staged(args)) {
        make_staged(onednn, args);
        return;
    }
    const struct mics_args_matmul call = onednn_call(args, NULL);

    copy_added(args);
    if (mics_onednn_multiply(onednn, &call))
        mics_epilogue(args);
}

/* The primitives that multiply_by_onednn() will use. */
static enum mics_status prepare_piece(struct mics_onednn *onednn,
                                      const struct mics_args_matmul *args, unsigned threads,
                                      struct mics_err *err)
{
    const uint32_t m = is_staged(args) ? STAGED_ROWS : args->m;
    const uint32_t n = is_staged(args) ? STAGED_COLUMNS : args->n;
    enum mics_status status = MICS_OK;

    for (uint32_t row = 0; row < args->m && status == MICS_OK; row += m)
        for (uint32_t column = 0; column < args->n && status == MICS_OK; column += n) {
            const struct mics_args_matmul block =
                part_of(args, row, (uint32_t)mics_min_u64(args->m - row, m), column,
                        (uint32_t)mics_min_u64(args->n - column, n));
            float unused;
            const struct mics_args_matmul call = onednn_call(&block, &unused);

            status = mics_onednn_prepare(onednn, &call, threads, err);
        }
    return status;
}

void mics_product_multiply(const struct mics_product *product, const struct mics_args_matmul *args)
{
    if (product->method == MICS_PRODUCT_ONEDNN) {
        multiply_by_onednn(product->onednn, args);
        return;
    }
    if (product->method == MICS_PRODUCT_OPENBLAS) {
        multiply_by_openblas(args);
        return;
    }
    mics_gemm(args, product->method == MICS_PRODUCT_PAIRS);
}

uint64_t mics_product_pieces(const struct mics_product *product)
{
    return mics_ceil_div(product->args->m, product->m) *
           mics_ceil_div(product->args->n, product->n);
}

struct mics_args_matmul mics_product_piece(const struct mics_product *product, uint64_t i)
{
    const struct mics_args_matmul *args = product->args;
    const uint64_t across = mics_ceil_div(args->n, product->n);
    const uint32_t row = (uint32_t)(i / across) * product->m;
    const uint32_t column = (uint32_t)(i % across) * product->n;

    return part_of(args, row, (uint32_t)mics_min_u64(product->m, args->m - row), column,
                   (uint32_t)mics_min_u64(product->n, args->n - column));
}

static void matmul_pieces(void *context, uint64_t begin, uint64_t end)
{
    const struct mics_product *product = context;

    for (uint64_t i = begin; i < end; i++) {
        const struct mics_args_matmul piece = mics_product_piece(product, i);

        mics_product_multiply(product, &piece);
    }
}

void mics_product_begin(void)
{
    if (mics_blas()->get_num_threads() != 1)
        mics_blas()->set_num_threads(1);
}

void mics_host_matmul_with_method(struct mics_pool *pool, const struct mics_args_matmul *args,
                                  enum mics_product_method method)
{
    if (args->m == 0 || args->n == 0)
        return;
    mics_product_begin();
    struct mics_product product = mics_product_cut(pool, args, method, 0, mics_pool_threads(pool));
    mics_pool_run(pool, mics_product_pieces(&product), 1, matmul_pieces, &product);
}

void mics_host_matmul(struct mics_pool *pool, const struct mics_args_matmul *args)
{
    mics_host_matmul_with_method(pool, args, mics_product_method(pool, args));
}

enum mics_status mics_host_matmul_prepare(struct mics_pool *pool,
                                          const struct mics_args_matmul *args, struct mics_err *err)
{
    const enum mics_product_method method = mics_product_method(pool, args);
    const unsigned threads = mics_pool_threads(pool);
    enum mics_status status = MICS_OK;

    if (method != MICS_PRODUCT_ONEDNN || args->m == 0 || args->n == 0)
        return MICS_OK;
    const struct mics_product product = mics_product_cut(pool, args, method, 0, threads);
    for (uint64_t i = 0; i < mics_product_pieces(&product) && status == MICS_OK; i++) {
        const struct mics_args_matmul piece = mics_product_piece(&product, i);

        status = prepare_piece(product.onednn, &piece, threads, err);
    }
    return status;
}
