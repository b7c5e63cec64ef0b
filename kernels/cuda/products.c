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
 * algorithm a shape gets is decided once and kept, with their descriptors, in a hash table:
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

#include <cublasLt.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLAB_BYTES (MICS_CUDA_WORKSPACE_BYTES / 2)

enum {
    SLAB_ROWS = 64, /* a slab has a multiple of them */
    FORMS = 3,
    BUCKETS = 256,
    FINALISTS = 4, /* proposals that are timed again, the fastest in one run */
    REPEAT = 3,    /* runs of those that are timed, after one that is not */
    WARM_MS = 30,  /* until an idle GPU has raised its clocks */
    KEY_TEXT = 192 /* bytes of a key as a line */
};

/* A later proposal must take less than this fraction of the best time so far, so that noise seldom
 * decides. */
static const float margin = 0.98f;

/* The key of a product in the table. Zeroed by memset() first, because padding is compared too. */
struct key {
    uint32_t m, n, k, lda, ldb, ldout;
    uint8_t trans_a, trans_b, dtype, out_dtype; /* enum mics_dtype */
    uint8_t add, bias, pre_gelu, gelu_of;       /* 1: not NULL; add 2: it is out */
    uint8_t half;                               /* 1: it may use only half of the workspace */
    uint8_t aligned[4]; /* bytes, up to 128: of a, b, out and add, bias and the others */
};

/* A form: the part of the epilogue that cuBLASLt does, and its descriptor. */
struct form {
    bool bias, gelu;
    cublasLtMatmulDesc_t desc; /* its pointers are set again for each call */
};

/* One shape. */
struct product {
    struct product *next; /* of its bucket */
    struct key key;
    cublasLtMatrixLayout_t a, b, out; /* cuBLASLt's A and B; of C and D */
    struct form form;
    cublasLtMatmulAlgo_t algo;
    bool prepared; /* chosen, by measurement or as asked for */
};

/* A note for the user that was not taken yet. */
struct note {
    struct note *next;
    int level;
    char text[MICS_CUDA_NOTE_BYTES];
};

struct mics_cuda_products {
    cublasLtHandle_t handle;
    char tuning[MICS_CUDA_TUNING_BYTES];
    bool tf32;            /* MICS_TF32=1 */
    bool measure;         /* unless MICS_CUDA_MEASURE=0 */
    pthread_mutex_t lock; /* guards all below, and descriptors from being set until they are used */
    struct product *buckets[BUCKETS];
    bool warm;           /* something was measured before */
    struct note *notes;  /* oldest first */
    struct note **after; /* where the next one goes */
};

_Static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(((struct mics_matmul_choice *)0)->algorithm),
               "an algorithm is 64 opaque bytes, which the same version of cuBLASLt understands");

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
        error = error_of(cublasLtCreate(&products->handle));
    if (error != cudaSuccess) {
        free(products);
        return error;
    }
    pthread_mutex_init(&products->lock, NULL);
    products->after = &products->notes;
    products->tf32 = mics_cuda_switch("MICS_TF32", false);
    products->measure = mics_cuda_switch("MICS_CUDA_MEASURE", true);
    *out = products;
    return cudaSuccess;
}

const char *mics_cuda_products_tuning(const struct mics_cuda_products *products)
{
    return products->tuning;
}

static void free_form(struct form *form)
{
    if (form->desc)
        cublasLtMatmulDescDestroy(form->desc);
    form->desc = NULL;
}

/* NULL is fine. */
static void free_product(struct product *product)
{
    if (!product)
        return;
    free_form(&product->form);
    if (product->a)
        cublasLtMatrixLayoutDestroy(product->a);
    if (product->b)
        cublasLtMatrixLayoutDestroy(product->b);
    if (product->out)
        cublasLtMatrixLayoutDestroy(product->out);
    free(product);
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
            struct product *first = products->buckets[i];

            products->buckets[i] = first->next;
            free_product(first);
        }
    cublasLtDestroy(products->handle);
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

/* The largest power of two up to 128 that divides both addresses. */
static uint8_t alignment(const void *p, const void *q)
{
    const uintptr_t bits = (uintptr_t)p | (uintptr_t)q | 128;

    return (uint8_t)(bits & -bits);
}

static struct key key_of(const struct mics_args_matmul *args, bool half)
{
    struct key key;

    memset(&key, 0, sizeof key);
    key.m = args->m;
    key.n = args->n;
    key.k = args->k;
    key.lda = args->lda;
    key.ldb = args->ldb;
    key.ldout = args->ldout;
    key.trans_a = args->trans_a;
    key.trans_b = args->trans_b;
    key.dtype = (uint8_t)args->dtype;
    key.out_dtype = (uint8_t)args->out_dtype;
    key.add = !args->add ? 0 : args->add == args->out ? 2 : 1;
    key.bias = args->bias != NULL;
    key.pre_gelu = args->pre_gelu != NULL;
    key.gelu_of = args->gelu_of != NULL;
    key.half = half;
    key.aligned[0] = alignment(args->a, NULL);
    key.aligned[1] = alignment(args->b, NULL);
    key.aligned[2] = alignment(args->out, args->add);
    key.aligned[3] =
        alignment(args->bias, (const void *)((uintptr_t)args->pre_gelu | (uintptr_t)args->gelu_of));
    return key;
}

/* A type of matrices. */
struct type {
    const char *name;
    cudaDataType_t cuda;
};

static const struct type *type_of(uint8_t dtype)
{
    static const struct type types[] = {[MICS_F32] = {"fp32", CUDA_R_32F},
                                        [MICS_BF16] = {"bf16", CUDA_R_16BF},
                                        [MICS_F16] = {"fp16", CUDA_R_16F}};

    return &types[dtype];
}

/* The key as a line of the cache file, which begins with the shape. */
static void describe(const struct mics_cuda_products *products, const struct key *key,
                     char text[KEY_TEXT])
{
    static const char *const add[] = {"", ", add", ", add in place"};

    snprintf(
        text, KEY_TEXT,
        "[%u, %u] of %u, %c%c, %s to %s%s%s%s%s%s, rows of %u, %u, %u, aligned to %u, %u, %u, %u",
        key->m, key->n, key->k, key->trans_a ? 't' : 'n', key->trans_b ? 't' : 'n',
        key->dtype == MICS_F32 && products->tf32 ? "tf32" : type_of(key->dtype)->name,
        type_of(key->out_dtype)->name, add[key->add], key->bias ? ", bias" : "",
        key->pre_gelu ? ", GELU" : "", key->gelu_of ? ", GELU's slope" : "",
        key->half ? ", half the workspace" : "", key->lda, key->ldb, key->ldout, key->aligned[0],
        key->aligned[1], key->aligned[2], key->aligned[3]);
}

static struct product **bucket_of(struct mics_cuda_products *products, const struct key *key)
{
    return &products->buckets[mics_product_hash(key, sizeof *key) % BUCKETS];
}

/* NULL: not in the table. */
static struct product *find(struct mics_cuda_products *products, const struct key *key)
{
    struct product *product = *bucket_of(products, key);

    while (product && memcmp(&product->key, key, sizeof *key) != 0)
        product = product->next;
    return product;
}

/* A product without a form; cuBLASLt's matrices, columns first. It is not in the table. */
static cublasStatus_t new_product(const struct key *key, struct product **out)
{
    const cudaDataType_t type = type_of(key->dtype)->cuda;
    const cudaDataType_t out_type = type_of(key->out_dtype)->cuda;
    const uint32_t k = key->k, m = key->m, n = key->n;
    struct product *product = calloc(1, sizeof *product);
    cublasStatus_t status;

    if (!product)
        return CUBLAS_STATUS_ALLOC_FAILED;
    product->key = *key;
    status = cublasLtMatrixLayoutCreate(&product->a, type, key->trans_b ? k : n,
                                        key->trans_b ? n : k, key->ldb);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatrixLayoutCreate(&product->b, type, key->trans_a ? m : k,
                                            key->trans_a ? k : m, key->lda);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatrixLayoutCreate(&product->out, out_type, n, m, key->ldout);
    if (status == CUBLAS_STATUS_SUCCESS)
        *out = product;
    else
        free_product(product);
    return status;
}

#define SET(desc, name, value)                                                                     \
    if (status == CUBLAS_STATUS_SUCCESS)                                                           \
    status =                                                                                       \
        cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_##name, &(value), sizeof(value))

/* The pointers of a form's epilogue. */
static cublasStatus_t set_pointers(const struct mics_args_matmul *args, const struct form *form)
{
    const void *aux = args->pre_gelu ? args->pre_gelu : args->gelu_of;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

    if (form->bias)
        SET(form->desc, BIAS_POINTER, args->bias);
    if (form->gelu)
        SET(form->desc, EPILOGUE_AUX_POINTER, aux);
    return status;
}

static cublasStatus_t make_desc(const struct mics_cuda_products *products,
                                const struct mics_args_matmul *args, struct form *form)
{
    const bool tf32 = products->tf32 && args->dtype == MICS_F32;
    const int32_t trans_a = args->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t trans_b = args->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint32_t gelu = args->pre_gelu ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_DGELU;
    const uint32_t epilogue =
        (form->bias ? (uint32_t)CUBLASLT_EPILOGUE_BIAS : 0) | (form->gelu ? gelu : 0);
    const int64_t aux_ld = args->ldout;
    cublasStatus_t status;

    status = cublasLtMatmulDescCreate(
        &form->desc, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
    SET(form->desc, TRANSA, trans_a);
    SET(form->desc, TRANSB, trans_b);
    if (epilogue != 0)
        SET(form->desc, EPILOGUE, epilogue);
    if (form->gelu)
        SET(form->desc, EPILOGUE_AUX_LD, aux_ld);
    return status == CUBLAS_STATUS_SUCCESS ? set_pointers(args, form) : status;
}

#undef SET

static uint64_t workspace_bytes(const struct key *key)
{
    return MICS_CUDA_WORKSPACE_BYTES / (key->half ? 2 : 1);
}

#define PREFER(name, value)                                                                        \
    if (status == CUBLAS_STATUS_SUCCESS)                                                           \
    status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_##name,         \
                                                  &(value), sizeof(value))

/* What cuBLASLt proposes for a form, `limit` at most: partial sums only in fp32. Having no proposal
 * is not an error. */
static cublasStatus_t propose(const struct mics_cuda_products *products,
                              const struct product *product, const struct form *form, int limit,
                              cublasLtMatmulAlgo_t *algos, int *count)
{
    const uint64_t workspace = workspace_bytes(&product->key);
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t a = product->key.aligned[1], b = product->key.aligned[0],
                   out = product->key.aligned[2];
    cublasLtMatmulHeuristicResult_t found[MICS_PRODUCT_PROPOSALS];
    cublasLtMatmulPreference_t preference = NULL;
    cublasStatus_t status = cublasLtMatmulPreferenceCreate(&preference);
    int proposed = 0;

    PREFER(MAX_WORKSPACE_BYTES, workspace);
    PREFER(REDUCTION_SCHEME_MASK, schemes);
    PREFER(MIN_ALIGNMENT_A_BYTES, a);
    PREFER(MIN_ALIGNMENT_B_BYTES, b);
    PREFER(MIN_ALIGNMENT_C_BYTES, out);
    PREFER(MIN_ALIGNMENT_D_BYTES, out);
    if (status == CUBLAS_STATUS_SUCCESS &&
        cublasLtMatmulAlgoGetHeuristic(products->handle, form->desc, product->a, product->b,
                                       product->out, product->out, preference, limit, found,
                                       &proposed) != CUBLAS_STATUS_SUCCESS)
        proposed = 0;
    *count = 0;
    for (int i = 0; i < proposed; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS)
            algos[(*count)++] = found[i].algo;
    if (preference)
        cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

#undef PREFER

/* The forms to try; returns their number. cuBLASLt's epilogues are used only where they are
 * documented: a bias of the result's type, GELU in 16 bits with aligned rows. */
static int list_forms(const struct mics_args_matmul *args, const struct key *key,
                      struct form forms[FORMS])
{
    const bool wide = key->aligned[3] >= 16, gelu = key->pre_gelu || key->gelu_of;
    const bool bias_fits = key->bias && wide && args->dtype == args->out_dtype;
    const bool gelu_fits = gelu && wide && args->dtype != MICS_F32 &&
                           args->dtype == args->out_dtype && key->aligned[2] >= 16 &&
                           args->ldout % 8 == 0 && (!key->bias || (bias_fits && key->pre_gelu));
    int count = 0;

    memset(forms, 0, FORMS * sizeof *forms);
    if (gelu_fits) {
        forms[count].gelu = true;
        forms[count++].bias = key->bias;
    }
    if (bias_fits)
        forms[count++].bias = true;
    return count + 1; /* the last has no epilogue */
}

/* Where cuBLASLt writes: to pre_gelu if the GELU is a separate pass, which reads it from there. */
static void *destination(const struct mics_args_matmul *args, const struct key *key,
                         const struct form *form)
{
    if (args->pre_gelu && !form->gelu && args->dtype == args->out_dtype &&
        key->aligned[3] >= key->aligned[2])
        return args->pre_gelu;
    return args->out;
}

/* Enqueue a product in one form with one algorithm, and the rest of its epilogue. `args` is
 * of the product's shape. */
static cublasStatus_t run(const struct mics_cuda_at *at, const struct mics_args_matmul *args,
                          const struct product *product, const struct form *form,
                          const cublasLtMatmulAlgo_t *algo)
{
    const float alpha = 1, beta = args->add ? 1.0f : 0.0f;
    void *to = destination(args, &product->key, form);
    const struct mics_epilogue rest = {.out = args->out,
                                       .pre_gelu = form->gelu ? NULL : args->pre_gelu,
                                       .product = to,
                                       .bias = form->bias ? NULL : args->bias,
                                       .gelu_of = form->gelu ? NULL : args->gelu_of,
                                       .m = args->m,
                                       .n = args->n,
                                       .ldout = args->ldout,
                                       .ldproduct = args->ldout,
                                       .dtype = args->dtype,
                                       .out_dtype = args->out_dtype};
    cublasStatus_t status = set_pointers(args, form);

    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmul(at->products->handle, form->desc, &alpha, args->b, product->a,
                                args->a, product->b, &beta, args->add ? args->add : to,
                                product->out, to, product->out, algo, at->workspace,
                                workspace_bytes(&product->key), at->stream);
    if (status != CUBLAS_STATUS_SUCCESS || (!rest.pre_gelu && !rest.bias && !rest.gelu_of))
        return status;
    return mics_epilogue_launch(at->stream, &rest) == cudaSuccess ? status
                                                                  : CUBLAS_STATUS_EXECUTION_FAILED;
}

/* A candidate: a form with an algorithm. */
struct proposals {
    struct form forms[FORMS];
    struct proposal {
        int form, number; /* from 1 on, as proposed */
        cublasLtMatmulAlgo_t algo;
    } list[MICS_PRODUCT_PROPOSALS];
    int count;
};

/* Up to `limit` proposals: those of all forms in turns, so that each form is among them; the first
 * is the first of the form with most of the epilogue. */
static cublasStatus_t list_proposals(const struct mics_cuda_products *products,
                                     const struct mics_args_matmul *args,
                                     const struct product *product, int limit,
                                     struct proposals *out)
{
    cublasLtMatmulAlgo_t algos[FORMS][MICS_PRODUCT_PROPOSALS];
    int counts[FORMS] = {0};
    const int forms = list_forms(args, &product->key, out->forms);
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

    for (int i = 0; i < forms && status == CUBLAS_STATUS_SUCCESS; i++) {
        /* A separate pass adds the bias to a rounded sum, so this is the last resort. */
        if (i > 0 && out->forms[i - 1].bias && !out->forms[i].bias && counts[i - 1] > 0)
            break;
        status = make_desc(products, args, &out->forms[i]);
        if (status == CUBLAS_STATUS_SUCCESS)
            status = propose(products, product, &out->forms[i], limit, algos[i], &counts[i]);
    }
    out->count = 0;
    for (int i = 0; i < limit && status == CUBLAS_STATUS_SUCCESS; i++)
        for (int f = 0; f < forms && out->count < limit; f++)
            if (i < counts[f]) {
                out->list[out->count] = (struct proposal){f, out->count + 1, algos[f][i]};
                out->count++;
            }
    return status == CUBLAS_STATUS_SUCCESS && out->count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED
                                                              : status;
}

/* Milliseconds of a run, the mean of `runs` after one that is not timed, on the operation's own
 * operands; negative where it fails. */
static float time_ms(const struct mics_cuda_at *at, const struct mics_args_matmul *args,
                     const struct product *product, const struct proposals *proposals, int which,
                     int runs, cudaEvent_t const events[2])
{
    const struct proposal *proposal = &proposals->list[which];
    float took = -1;

    for (int i = 0; i < runs + 1; i++) {
        if (i == 1 && cudaEventRecord(events[0], at->stream) != cudaSuccess)
            return -1;
        if (run(at, args, product, &proposals->forms[proposal->form], &proposal->algo) !=
            CUBLAS_STATUS_SUCCESS)
            return -1;
    }
    if (cudaEventRecord(events[1], at->stream) != cudaSuccess ||
        cudaEventSynchronize(events[1]) != cudaSuccess ||
        cudaEventElapsedTime(&took, events[0], events[1]) != cudaSuccess)
        return -1;
    return took / (float)runs;
}

/* Run the first proposal until the GPU has raised its clocks. */
static void warm_up(const struct mics_cuda_at *at, const struct mics_args_matmul *args,
                    const struct product *product, const struct proposals *proposals,
                    cudaEvent_t const events[2])
{
    float warmed = 0, last = 1;

    for (int i = 0; i < 1000 && warmed < WARM_MS && last > 0; i++) {
        last = time_ms(at, args, product, proposals, 0, REPEAT, events);
        warmed += (REPEAT + 1) * last;
    }
    at->products->warm = true;
}

/* Keep the FINALISTS that are fastest in one run, in the order in which they were proposed. */
static void screen(const struct mics_cuda_at *at, const struct mics_args_matmul *args,
                   const struct product *product, struct proposals *proposals,
                   cudaEvent_t const events[2])
{
    float took[MICS_PRODUCT_PROPOSALS];
    int kept = 0;

    if (proposals->count <= FINALISTS)
        return;
    for (int i = 0; i < proposals->count; i++) {
        const float time = time_ms(at, args, product, proposals, i, 1, events);

        took[i] = time >= 0 ? time : INFINITY;
    }
    for (int i = 0; i < proposals->count; i++) {
        int faster = 0;

        for (int j = 0; j < proposals->count; j++)
            faster += took[j] < took[i] || (j < i && took[j] == took[i]);
        if (faster < FINALISTS && took[i] < INFINITY)
            proposals->list[kept++] = proposals->list[i];
    }
    proposals->count = kept;
}

/* Time the proposals that are fastest in one run, which are left in *proposals; *best is the
 * fastest, *took its milliseconds. */
static cublasStatus_t measure(const struct mics_cuda_at *at, const struct mics_args_matmul *args,
                              const struct product *product, struct proposals *proposals, int *best,
                              float *took)
{
    cudaEvent_t events[2] = {NULL, NULL};

    *took = -1;
    if (cudaEventCreate(&events[0]) == cudaSuccess && cudaEventCreate(&events[1]) == cudaSuccess) {
        if (!at->products->warm)
            warm_up(at, args, product, proposals, events);
        screen(at, args, product, proposals, events);
        for (int i = 0; i < proposals->count; i++) {
            const float time = time_ms(at, args, product, proposals, i, REPEAT, events);

            if (time >= 0 && (*took < 0 || time < *took * margin)) {
                *took = time;
                *best = i;
            }
        }
    }
    for (int i = 0; i < 2; i++)
        if (events[i])
            cudaEventDestroy(events[i]);
    (void)cudaGetLastError(); /* else the next launch would report it */
    return *took >= 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

/* Use one of the proposals for the product from now on. */
static void settle(struct product *product, struct proposals *proposals, int which)
{
    const struct proposal *proposal = &proposals->list[which];

    free_form(&product->form);
    product->form = proposals->forms[proposal->form];
    product->algo = proposal->algo;
    proposals->forms[proposal->form].desc = NULL;
}

static void drop(struct proposals *proposals)
{
    for (int i = 0; i < FORMS; i++)
        free_form(&proposals->forms[i]);
}

/* Use cuBLASLt's first proposal. */
static cublasStatus_t settle_on_first(const struct mics_cuda_products *products,
                                      const struct mics_args_matmul *args, struct product *product)
{
    struct proposals proposals = {.count = 0};
    const cublasStatus_t status = list_proposals(products, args, product, 1, &proposals);

    if (status == CUBLAS_STATUS_SUCCESS)
        settle(product, &proposals, 0);
    drop(&proposals);
    return status;
}

/* Use the fastest proposal. */
static cublasStatus_t settle_on_fastest(const struct mics_cuda_at *at,
                                        const struct mics_args_matmul *args,
                                        struct product *product)
{
    struct proposals proposals = {.count = 0};
    cublasStatus_t status =
        list_proposals(at->products, args, product, MICS_PRODUCT_PROPOSALS, &proposals);
    const int proposed = proposals.count;
    char text[KEY_TEXT];
    float took = 0;
    int best = 0;

    if (status == CUBLAS_STATUS_SUCCESS)
        status = measure(at, args, product, &proposals, &best, &took);
    if (status == CUBLAS_STATUS_SUCCESS) {
        settle(product, &proposals, best);
        describe(at->products, &product->key, text);
        add_note(at->products, 2, "product %s: proposal %d of %d%s%s, %.3g ms", text,
                 proposals.list[best].number, proposed, product->form.bias ? ", with its bias" : "",
                 product->form.gelu ? ", with its GELU" : "", (double)took);
    }
    drop(&proposals);
    return status;
}

/* Use an earlier choice of this or another process. False: cuBLASLt does not accept it. */
static bool settle_on_choice(const struct mics_cuda_products *products,
                             const struct mics_args_matmul *args, struct product *product,
                             const struct mics_matmul_choice *choice)
{
    struct form forms[FORMS], *form = NULL;
    const int count = list_forms(args, &product->key, forms);
    cublasLtMatmulHeuristicResult_t result;
    cublasLtMatmulAlgo_t algo;

    memcpy(&algo, choice->algorithm, sizeof algo);
    for (int i = 0; i < count && !form; i++)
        if (forms[i].bias == choice->bias && forms[i].gelu == choice->gelu)
            form = &forms[i];
    if (!form)
        return false;
    if (make_desc(products, args, form) != CUBLAS_STATUS_SUCCESS ||
        cublasLtMatmulAlgoCheck(products->handle, form->desc, product->a, product->b, product->out,
                                product->out, &algo, &result) != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > workspace_bytes(&product->key)) {
        free_form(form);
        return false;
    }
    free_form(&product->form);
    product->form = *form;
    product->algo = algo;
    return true;
}

static struct mics_matmul_choice choice_of(const struct product *product, const char *text)
{
    struct mics_matmul_choice choice = {.product = mics_product_hash(text, strlen(text)),
                                        .bias = product->form.bias,
                                        .gelu = product->form.gelu};

    memcpy(choice.algorithm, &product->algo, sizeof choice.algorithm);
    return choice;
}

/* Look up the product of a shape in the table; a new one is added, with the first proposal. `half`:
 * it may use only half of the workspace. */
static cublasStatus_t get_product(const struct mics_cuda_at *at,
                                  const struct mics_args_matmul *args, bool half,
                                  struct product **out)
{
    const struct key key = key_of(args, half);
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

    *out = find(at->products, &key);
    if (*out)
        return status;
    status = new_product(&key, out);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = settle_on_first(at->products, args, *out);
    if (status != CUBLAS_STATUS_SUCCESS) {
        free_product(*out);
        return status;
    }
    struct product **bucket = bucket_of(at->products, &key);
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
                             struct product *product, const char *text)
{
    struct mics_matmul_choice choice;
    cublasStatus_t status;

    if (product->prepared || !now->cache)
        return CUBLAS_STATUS_SUCCESS;
    if (mics_product_cache_find(now->cache, text, &choice) &&
        settle_on_choice(now->at->products, args, product, &choice)) {
        now->known++;
        return CUBLAS_STATUS_SUCCESS;
    }
    status = settle_on_fastest(now->at, args, product);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    now->measured++;
    choice = choice_of(product, text);
    mics_product_cache_put(now->cache, text, &choice);
    return status;
}

static cublasStatus_t prepare(struct preparation *now, const struct mics_args_matmul *args,
                              bool given, struct mics_matmul_choice *choice)
{
    const struct mics_cuda_at *at = now->at;
    struct product *product;
    char text[KEY_TEXT];
    cublasStatus_t status = get_product(at, args, false, &product);

    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    describe(at->products, &product->key, text);
    if (!given) {
        status = choose(now, args, product, text);
        *choice = choice_of(product, text);
    } else if (choice->product != mics_product_hash(text, strlen(text)) ||
               !settle_on_choice(at->products, args, product, choice)) {
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
    struct product *product = NULL;
    cublasStatus_t status;

    pthread_mutex_lock(&at->products->lock);
    status = get_product(at, args, half, &product);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = run(at, args, product, &product->form, &product->algo);
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
