/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grouped.c - products of experts with their rows.
 *
 * Each expert's product is cut into pieces as any other of its shape is (products.c). The pieces of
 * all experts are one parallel region: threads claim them one by one, so that neither small experts
 * nor one with most of the rows leave threads idle.
 *
 * A primitive of oneDNN belongs to one shape, and takes longer to make than a product of an expert
 * may. So what depends on the number of rows, m, or k of gradients, is cut into few sizes: powers
 * of two, and a rest that our own product multiplies.
 *
 * 2 rows m n flops.
 */
#include "base/num.h"
#include "host/kernels.h"
#include "host/products.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>

/* Pieces of our own products for each thread, unless they would be small: more let threads end
 * closer together, fewer pack less. */
#define PIECES_PER_THREAD 16

/* What an element of the result costs, in multiplications: with few rows it is most of the time. */
#define RESULT_FLOPS 16

/* Pieces of oneDNN's products, and the fewest of m or k that it gets. */
enum { ONEDNN_ROWS = 256, ONEDNN_COLUMNS = 512, ONEDNN_K = 1024, ONEDNN_LEAST = 16 };

/* The products of an operation. */
struct grouped {
    struct mics_args_matmul (*product)(const void *args, uint32_t expert);
    const void *args;
    struct mics_pool *pool;
    enum mics_product_method method, rest_method; /* the latter, of what oneDNN leaves */
    uint32_t E;
    bool by_k;                            /* the number of rows is k, not m */
    uint32_t first[MICS_EXPERTS_MAX + 1]; /* piece of each expert; the last is their number */
    uint32_t m[MICS_EXPERTS_MAX], n[MICS_EXPERTS_MAX]; /* of a piece */
    atomic_uint next;
};

static double work_of(const struct mics_args_matmul *args)
{
    return 2.0 * args->m * args->n * ((double)args->k + RESULT_FLOPS);
}

/* An expert without rows has no result, or one of zeros; with `add` nothing is added. */
static bool has_work(const struct mics_args_matmul *args)
{
    return args->m > 0 && args->n > 0 && !(args->k == 0 && args->add);
}

/* Returns the work of all pieces. */
static double cut_products(struct grouped *grouped)
{
    const unsigned threads = mics_pool_threads(grouped->pool);
    const bool own = grouped->method == MICS_PRODUCT_OWN || grouped->method == MICS_PRODUCT_PAIRS;
    uint32_t pieces = 0;
    double total = 0;

    for (uint32_t e = 0; e < grouped->E; e++) {
        const struct mics_args_matmul args = grouped->product(grouped->args, e);

        total += has_work(&args) ? work_of(&args) : 0;
    }
    for (uint32_t e = 0; e < grouped->E; e++) {
        const struct mics_args_matmul args = grouped->product(grouped->args, e);

        grouped->first[e] = pieces;
        if (!has_work(&args))
            continue;
        const double share = fmax(1, round(work_of(&args) * threads / total));
        /* Rows of a transposed matrix are along k: a few at a time come faster from memory. */
        const bool large = own && !args.trans_b;
        struct mics_product product =
            mics_product_cut(grouped->pool, &args, grouped->method,
                             large ? total / (threads * PIECES_PER_THREAD) : 0, (unsigned)share);

        if (grouped->method == MICS_PRODUCT_ONEDNN) {
            product.m = (uint32_t)mics_min_u64(args.m, ONEDNN_ROWS);
            product.n = (uint32_t)mics_min_u64(args.n, ONEDNN_COLUMNS);
        }
        grouped->m[e] = product.m;
        grouped->n[e] = product.n;
        pieces += (uint32_t)mics_product_pieces(&product);
    }
    grouped->first[grouped->E] = pieces;
    return total;
}

/* The first power of two of at most `count`, and at most `most`; 0: below ONEDNN_LEAST. */
static uint32_t part_size(uint32_t count, uint32_t most)
{
    uint32_t size = most;

    while (size > count)
        size /= 2;
    return size >= ONEDNN_LEAST ? size : 0;
}

/* Multiply a piece by oneDNN in parts of few sizes, the rest by our own. */
static void multiply_parts(const struct grouped *grouped, const struct mics_product *product,
                           const struct mics_args_matmul *piece)
{
    const struct mics_product own = {.method = grouped->rest_method};
    const size_t each = mics_dtype_bytes(piece->dtype);
    const uint32_t count = grouped->by_k ? piece->k : piece->m;
    struct mics_args_matmul part = *piece;
    uint32_t done = 0;

    while (done < count) {
        const uint32_t size = part_size(count - done, grouped->by_k ? ONEDNN_K : ONEDNN_ROWS);
        const uint32_t now = size > 0 ? size : count - done;

        *(grouped->by_k ? &part.k : &part.m) = now;
        mics_product_multiply(size > 0 ? product : &own, &part);
        done += now;
        part.a = (const char *)part.a + now * part.lda * each;
        if (grouped->by_k) {
            part.b = (const char *)part.b + now * part.ldb * each;
            part.add = part.out;
        } else {
            part.out = (char *)part.out + now * part.ldout * mics_dtype_bytes(part.out_dtype);
        }
    }
}

static uint32_t expert_of(const struct grouped *grouped, uint32_t piece)
{
    uint32_t low = 0, high = grouped->E;

    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;

        if (grouped->first[middle] <= piece)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* What each thread does. */
static void claim_pieces(void *context, uint64_t begin, uint64_t end)
{
    struct grouped *grouped = context;
    const uint32_t pieces = grouped->first[grouped->E];

    (void)begin, (void)end;
    for (;;) {
        const uint32_t i = atomic_fetch_add(&grouped->next, 1);

        if (i >= pieces)
            return;
        const uint32_t e = expert_of(grouped, i);
        const struct mics_args_matmul args = grouped->product(grouped->args, e);
        const struct mics_product product = {.args = &args,
                                             .onednn = mics_pool_onednn(grouped->pool),
                                             .method =
                                                 args.k > 0 ? grouped->method : MICS_PRODUCT_OWN,
                                             .m = grouped->m[e],
                                             .n = grouped->n[e]};
        const struct mics_args_matmul piece = mics_product_piece(&product, i - grouped->first[e]);

        if (product.method == MICS_PRODUCT_ONEDNN)
            multiply_parts(grouped, &product, &piece);
        else
            mics_product_multiply(&product, &piece);
    }
}

/* With the members up to E set. */
static void multiply_all(struct grouped *grouped)
{
    assert(grouped->E <= MICS_EXPERTS_MAX);
    atomic_init(&grouped->next, 0);
    grouped->rest_method =
        mics_product_has_pairs() && grouped->product(grouped->args, 0).dtype == MICS_BF16
            ? MICS_PRODUCT_PAIRS
            : MICS_PRODUCT_OWN;
    mics_product_begin();
    const double total = cut_products(grouped);
    const double useful = total / mics_product_piece_flops(MICS_PRODUCT_OWN);
    const double threads = fmax(1, fmin(useful, mics_pool_threads(grouped->pool)));

    mics_pool_run(grouped->pool, (uint64_t)threads, 1, claim_pieces, grouped);
}

static struct mics_args_matmul product_of_rows(const void *context, uint32_t e)
{
    const struct mics_args_grouped_matmul *args = context;
    const uint64_t first = args->offsets[e];

    return (struct mics_args_matmul){
        .out = mics_element(args->out, first * args->n, args->dtype),
        .a = mics_element(args->a, first * args->k, args->dtype),
        .b = mics_element(args->b, e * args->stride, args->dtype),
        .m = args->offsets[e + 1] - args->offsets[e],
        .n = args->n,
        .k = args->k,
        .lda = args->k,
        .ldb = args->trans_b ? args->k : args->n,
        .ldout = args->n,
        .trans_b = args->trans_b,
        .dtype = args->dtype,
        .out_dtype = args->dtype,
    };
}

static struct mics_args_matmul product_of_grad(const void *context, uint32_t e)
{
    const struct mics_args_grouped_matmul_grad *args = context;
    const uint64_t first = args->offsets[e];
    void *const out = mics_element(args->out, e * args->stride, args->grad_dtype);

    return (struct mics_args_matmul){
        .out = out,
        .a = mics_element(args->a, first * args->m, args->dtype),
        .b = mics_element(args->b, first * args->n, args->dtype),
        .add = args->add ? out : NULL,
        .m = args->m,
        .n = args->n,
        .k = args->offsets[e + 1] - args->offsets[e],
        .lda = args->m,
        .ldb = args->n,
        .ldout = args->n,
        .trans_a = true,
        .dtype = args->dtype,
        .out_dtype = args->grad_dtype,
    };
}

/* Who multiplies products of these types. */
static enum mics_product_method method_of(struct mics_pool *pool, enum mics_dtype dtype,
                                          enum mics_dtype out_dtype)
{
    return mics_product_method(
        pool, &(struct mics_args_matmul){.k = 1, .dtype = dtype, .out_dtype = out_dtype});
}

void mics_host_grouped_matmul_with_method(struct mics_pool *pool,
                                          const struct mics_args_grouped_matmul *args,
                                          enum mics_product_method method)
{
    struct grouped grouped = {
        .product = product_of_rows, .args = args, .pool = pool, .method = method, .E = args->E};

    multiply_all(&grouped);
}

void mics_host_grouped_matmul(struct mics_pool *pool, const struct mics_args_grouped_matmul *args)
{
    mics_host_grouped_matmul_with_method(pool, args, method_of(pool, args->dtype, args->dtype));
}

/* Parts of k are added in the result, so oneDNN does not multiply where that is in bf16. */
void mics_host_grouped_matmul_grad_with_method(struct mics_pool *pool,
                                               const struct mics_args_grouped_matmul_grad *args,
                                               enum mics_product_method method)
{
    struct grouped grouped = {.product = product_of_grad,
                              .args = args,
                              .pool = pool,
                              .method = method,
                              .E = args->E,
                              .by_k = true};

    multiply_all(&grouped);
}

void mics_host_grouped_matmul_grad(struct mics_pool *pool,
                                   const struct mics_args_grouped_matmul_grad *args)
{
    enum mics_product_method method = method_of(pool, args->dtype, args->grad_dtype);

    if (method == MICS_PRODUCT_ONEDNN && args->grad_dtype != MICS_F32)
        method = mics_product_has_pairs() ? MICS_PRODUCT_PAIRS : MICS_PRODUCT_OWN;
    mics_host_grouped_matmul_grad_with_method(pool, args, method);
}
