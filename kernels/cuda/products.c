/* SPDX-License-Identifier: Apache-2.0 */
/*
 * products.c - matrix products by cuBLASLt, with bias, residual and GELU.
 *
 * cuBLASLt's matrices are column-major, ours row-major: out[m, n] = a' b' is its out^T = b'^T a'^T,
 * so that our b is its A, our a its B, and our bias, along a row, runs along its columns, as its
 * epilogue wants it. Sums are in fp32, of bf16, fp16 or fp32 operands; tf32 only with MICS_TF32=1
 * in the environment.
 *
 * A product has up to three forms: all of its epilogue in cuBLASLt, only the bias, or nothing; the
 * rest is a pass of elementwise.cu. cuBLASLt proposes algorithms for each form. Which form and
 * algorithm a shape gets (product.h) is decided once and kept, with their descriptors, in a hash
 * table:
 *
 *   - mics_cuda_products_prepare(), before the first step, takes what the cache on disk has, else
 *     times MICS_PRODUCT_PROPOSALS of them; or it takes what another rank has chosen;
 *   - a shape that was not prepared gets cuBLASLt's first proposal when it is first launched:
 *     nothing is timed, allocated on the device or waited for.
 *
 * With MICS_CUDA_MEASURE=0 every shape gets the first proposal.
 *
 * Products that cuBLASLt does not support: for k = 0 only the epilogue runs; a 16-bit result of
 * fp32 operands is computed in fp32 in half of the workspace, in slabs of rows, with first
 * proposals, and then rounded.
 *
 * 2 m n k flops: bound by arithmetic but for small shapes. fp32 within 1e-6 of the host, relative
 * to the sum of magnitudes; 16-bit results are rounded once, and once more with a GELU in a
 * separate pass, a 16-bit gelu_of, or something to add (cuBLASLt 13.0 on an H100 rounds before it
 * adds).
 */
#include "cuda/products.h"

#include "cuda/product.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLAB_BYTES (MICS_CUDA_WORKSPACE_BYTES / 2)

enum {
    SLAB_ROWS = 64, /* a slab has a multiple of them */
    BUCKETS = 256
};

/* A note for the user that was not taken yet. */
struct note {
    struct note *next;
    int level;
    char text[MICS_CUDA_NOTE_BYTES];
};

struct mics_cuda_products {
    struct mics_cuda_product_library library;
    char tuning[MICS_CUDA_TUNING_BYTES];
    bool measure; /* unless MICS_CUDA_MEASURE=0 */
    /* Guards all below, library.warm, and descriptors from being set until they are used. */
    pthread_mutex_t lock;
    struct mics_cuda_product *buckets[BUCKETS];
    struct note *notes;  /* oldest first */
    struct note **after; /* where the next one goes */
};

static cudaError_t error_of(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return cudaSuccess;
    case CUBLAS_STATUS_ALLOC_FAILED:
        return cudaErrorMemoryAllocation;
    case CUBLAS_STATUS_INVALID_VALUE:
        return cudaErrorInvalidValue;
    case CUBLAS_STATUS_NOT_SUPPORTED:
    case CUBLAS_STATUS_ARCH_MISMATCH:
        return cudaErrorNotSupported;
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return cudaErrorInitializationError;
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return cudaErrorLaunchFailure;
    default:
        return cudaErrorUnknown;
    }
}

bool mics_cuda_switch(const char *name, bool otherwise)
{
    const char *value = getenv(name);

    return value && *value ? strcmp(value, "1") == 0 : otherwise;
}

static cudaError_t name_tuning(char text[MICS_CUDA_TUNING_BYTES])
{
    struct cudaDeviceProp prop;
    int device;
    cudaError_t error = cudaGetDevice(&device);

    if (error == cudaSuccess)
        error = cudaGetDeviceProperties(&prop, device);
    if (error == cudaSuccess)
        snprintf(text, MICS_CUDA_TUNING_BYTES, "%.100s, compute capability %d.%d, cuBLASLt %zu",
                 prop.name, prop.major, prop.minor, cublasLtGetVersion());
    return error;
}

cudaError_t mics_cuda_products_open(struct mics_cuda_products **out)
{
    struct mics_cuda_products *products = calloc(1, sizeof *products);

    if (!products)
        return cudaErrorMemoryAllocation;
    cudaError_t error = name_tuning(products->tuning);
    if (error == cudaSuccess)
        error = error_of(cublasLtCreate(&products->library.handle));
    if (error != cudaSuccess) {
        free(products);
        return error;
    }
    pthread_mutex_init(&products->lock, NULL);
    products->after = &products->notes;
    products->library.tf32 = mics_cuda_switch("MICS_TF32", false);
    products->measure = mics_cuda_switch("MICS_CUDA_MEASURE", true);
    *out = products;
    return cudaSuccess;
}

const char *mics_cuda_products_tuning(const struct mics_cuda_products *products)
{
    return products->tuning;
}

static struct note *take_note(struct mics_cuda_products *products)
{
    struct note *note = products->notes;

    if (note)
        products->notes = note->next;
    if (!products->notes)
        products->after = &products->notes;
    return note;
}

void mics_cuda_products_close(struct mics_cuda_products *products)
{
    if (!products)
        return;
    for (struct note *note; (note = take_note(products)) != NULL;)
        free(note);
    for (int i = 0; i < BUCKETS; i++)
        while (products->buckets[i]) {
            struct mics_cuda_product *first = products->buckets[i];

            products->buckets[i] = first->next;
            mics_cuda_product_free(first);
        }
    cublasLtDestroy(products->library.handle);
    pthread_mutex_destroy(&products->lock);
    free(products);
}

/* Add a note that is shown from `level` -v options on; 0 is a warning. Dropped if out of memory.
 * Under the lock. */
MICS_PRINTF(3, 4)
static void add_note(struct mics_cuda_products *products, int level, const char *fmt, ...)
{
    struct note *note = calloc(1, sizeof *note);
    va_list args;

    if (!note)
        return;
    note->level = level;
    va_start(args, fmt);
    vsnprintf(note->text, sizeof note->text, fmt, args);
    va_end(args);
    *products->after = note;
    products->after = &note->next;
}

bool mics_cuda_products_next_note(struct mics_cuda_products *products, int *level,
                                  char text[MICS_CUDA_NOTE_BYTES])
{
    pthread_mutex_lock(&products->lock);
    struct note *note = take_note(products);
    pthread_mutex_unlock(&products->lock);
    if (!note)
        return false;
    *level = note->level;
    memcpy(text, note->text, sizeof note->text);
    free(note);
    return true;
}

static struct mics_cuda_product **bucket_of(struct mics_cuda_products *products,
                                            const struct mics_cuda_product_key *key)
{
    return &products->buckets[mics_product_hash(key, sizeof *key) % BUCKETS];
}

/* NULL: not in the table. */
static struct mics_cuda_product *find(struct mics_cuda_products *products,
                                      const struct mics_cuda_product_key *key)
{
    struct mics_cuda_product *product = *bucket_of(products, key);

    while (product && memcmp(&product->key, key, sizeof *key) != 0)
        product = product->next;
    return product;
}

/* Look up the product of a shape in the table; a new one is added, with the first proposal. `half`:
 * it may use only half of the workspace. */
static cublasStatus_t get_product(const struct mics_cuda_at *at,
                                  const struct mics_args_matmul *args, bool half,
                                  struct mics_cuda_product **out)
{
    const struct mics_cuda_product_key key = mics_cuda_product_key_of(args, half);
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

    *out = find(at->products, &key);
    if (*out)
        return status;
    status = mics_cuda_product_new(&key, out);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = mics_cuda_product_settle_on_first(&at->products->library, args, *out);
    if (status != CUBLAS_STATUS_SUCCESS) {
        mics_cuda_product_free(*out);
        return status;
    }
    struct mics_cuda_product **bucket = bucket_of(at->products, &key);
    (*out)->next = *bucket;
    *bucket = *out;
    return status;
}

/* Whether cuBLASLt can do the product in one call. */
static bool is_single(const struct mics_args_matmul *args)
{
    return args->m > 0 && args->n > 0 && args->k > 0 &&
           (args->dtype != MICS_F32 || args->out_dtype == MICS_F32);
}

/* State of one mics_cuda_products_prepare(). */
struct preparation {
    const struct mics_cuda_at *at;
    struct mics_product_cache *cache; /* NULL: nothing is timed */
    int measured, known;              /* shapes that were timed, or found in the cache */
};

/* Choose how one product is done. */
static cublasStatus_t choose(struct preparation *now, const struct mics_args_matmul *args,
                             struct mics_cuda_product *product, const char *text)
{
    struct mics_cuda_product_library *library = &now->at->products->library;
    struct mics_cuda_product_timing timing;
    struct mics_matmul_choice choice;
    cublasStatus_t status;

    if (product->prepared || !now->cache)
        return CUBLAS_STATUS_SUCCESS;
    if (mics_product_cache_find(now->cache, text, &choice) &&
        mics_cuda_product_settle_on_choice(library, args, product, &choice)) {
        now->known++;
        return CUBLAS_STATUS_SUCCESS;
    }
    status = mics_cuda_product_settle_on_fastest(library, now->at, args, product, &timing);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    add_note(now->at->products, 2, "product %s: proposal %d of %d%s%s, %.3g ms", text,
             timing.number, timing.proposed, product->form.bias ? ", with its bias" : "",
             product->form.gelu ? ", with its GELU" : "", (double)timing.took_ms);
    now->measured++;
    choice = mics_cuda_product_choice_of(product, text);
    mics_product_cache_put(now->cache, text, &choice);
    return status;
}

static cublasStatus_t prepare(struct preparation *now, const struct mics_args_matmul *args,
                              bool given, struct mics_matmul_choice *choice)
{
    const struct mics_cuda_at *at = now->at;
    struct mics_cuda_product *product;
    char text[MICS_CUDA_PRODUCT_TEXT];
    cublasStatus_t status = get_product(at, args, false, &product);

    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    mics_cuda_product_describe(&at->products->library, &product->key, text);
    if (!given) {
        status = choose(now, args, product, text);
        *choice = mics_cuda_product_choice_of(product, text);
    } else if (choice->product != mics_product_hash(text, strlen(text)) ||
               !mics_cuda_product_settle_on_choice(&at->products->library, args, product, choice)) {
        status = CUBLAS_STATUS_INVALID_VALUE;
    }
    product->prepared = status == CUBLAS_STATUS_SUCCESS;
    return status;
}

/* Notes about a preparation. */
static void report(const struct preparation *now)
{
    const char *path = mics_product_cache_path(now->cache);
    const char *warning = mics_product_cache_warning(now->cache);

    if (warning)
        add_note(now->at->products, 0, "%s", warning);
    if (now->measured + now->known > 0)
        add_note(now->at->products, 1, "matrix products: %d shapes measured, %d known from %s",
                 now->measured, now->known, path ? path : "no cache");
}

cudaError_t mics_cuda_products_prepare(const struct mics_cuda_at *at,
                                       const struct mics_args_matmul *args, size_t count,
                                       bool given, struct mics_matmul_choice *choices)
{
    struct preparation now = {.at = at};
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

    if (!given)
        memset(choices, 0, count * sizeof *choices);
    pthread_mutex_lock(&at->products->lock);
    if (!given && at->products->measure) {
        now.cache = mics_product_cache_open(at->products->tuning);
        status = now.cache ? status : CUBLAS_STATUS_ALLOC_FAILED;
    }
    for (size_t i = 0; i < count && status == CUBLAS_STATUS_SUCCESS; i++)
        if (is_single(&args[i]))
            status = prepare(&now, &args[i], given, &choices[i]);
    if (now.cache) {
        mics_product_cache_save(now.cache);
        report(&now);
    }
    mics_product_cache_free(now.cache);
    pthread_mutex_unlock(&at->products->lock);
    return error_of(status);
}

static cudaError_t multiply(const struct mics_cuda_at *at, const struct mics_args_matmul *args,
                            bool half)
{
    struct mics_cuda_product *product = NULL;
    cublasStatus_t status;

    pthread_mutex_lock(&at->products->lock);
    status = get_product(at, args, half, &product);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = mics_cuda_product_run(&at->products->library, at, args, product);
    pthread_mutex_unlock(&at->products->lock);
    return error_of(status);
}

/* The epilogue of rows [row, row + m), whose product is at `product`. */
static cudaError_t finish(const struct mics_cuda_at *at, const struct mics_args_matmul *args,
                          uint32_t row, uint32_t m, const void *product)
{
    const size_t skip = (size_t)row * args->ldout, out = skip * mics_dtype_bytes(args->out_dtype);
    const size_t in = skip * mics_dtype_bytes(args->dtype);
    const struct mics_epilogue rest = {
        .out = (char *)args->out + out,
        .pre_gelu = args->pre_gelu ? (char *)args->pre_gelu + in : NULL,
        .product = product,
        .add = args->add ? (const char *)args->add + out : NULL,
        .bias = args->bias,
        .gelu_of = args->gelu_of ? (const char *)args->gelu_of + in : NULL,
        .m = m,
        .n = args->n,
        .ldout = args->ldout,
        .ldproduct = args->n,
        .dtype = args->dtype,
        .out_dtype = args->out_dtype,
    };

    return mics_epilogue_launch(at->stream, &rest);
}

/* A 16-bit result of fp32 operands. */
static cudaError_t multiply_slabs(const struct mics_cuda_at *at,
                                  const struct mics_args_matmul *args)
{
    const size_t fit = SLAB_BYTES / (args->n * sizeof(float)) / SLAB_ROWS * SLAB_ROWS;
    float *slab = (float *)((char *)at->workspace + SLAB_BYTES);
    cudaError_t error = cudaSuccess;

    if (fit == 0)
        return cudaErrorInvalidValue;
    for (uint32_t row = 0; row < args->m && error == cudaSuccess; row += (uint32_t)fit) {
        const uint32_t m = args->m - row < fit ? args->m - row : (uint32_t)fit;
        const struct mics_args_matmul part = {
            .out = slab,
            .a = (const float *)args->a + (args->trans_a ? row : (size_t)row * args->lda),
            .b = args->b,
            .m = m,
            .n = args->n,
            .k = args->k,
            .lda = args->lda,
            .ldb = args->ldb,
            .ldout = args->n,
            .trans_a = args->trans_a,
            .trans_b = args->trans_b,
        };

        error = multiply(at, &part, true);
        if (error == cudaSuccess)
            error = finish(at, args, row, m, slab);
    }
    return error;
}

cudaError_t mics_cuda_matmul(const struct mics_cuda_at *at, const struct mics_args_matmul *args)
{
    if (args->m == 0 || args->n == 0)
        return cudaSuccess;
    if (args->k == 0)
        return finish(at, args, 0, args->m, NULL);
    return is_single(args) ? multiply(at, args, false) : multiply_slabs(at, args);
}
