/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/product.h"

#include "cuda/products.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FORMS = 3,
    FINALISTS = 4, /* proposals that are timed again, the fastest in one run */
    REPEAT = 3,    /* runs of those that are timed, after one that is not */
    WARM_MS = 30   /* until an idle GPU has raised its clocks */
};

/* A later proposal must take less than this fraction of the best time so far, so that noise seldom
 * decides. */
static const float margin = 0.98f;

_Static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(((struct mics_matmul_choice *)0)->algorithm),
               "an algorithm is 64 opaque bytes, which the same version of cuBLASLt understands");

static void free_form(struct mics_cuda_product_form *form)
{
    if (form->desc)
        cublasLtMatmulDescDestroy(form->desc);
    form->desc = NULL;
}

void mics_cuda_product_free(struct mics_cuda_product *product)
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

/* The largest power of two up to 128 that divides both addresses. */
static uint8_t alignment(const void *p, const void *q)
{
    const uintptr_t bits = (uintptr_t)p | (uintptr_t)q | 128;

    return (uint8_t)(bits & -bits);
}

struct mics_cuda_product_key mics_cuda_product_key_of(const struct mics_args_matmul *args,
                                                      bool half)
{
    struct mics_cuda_product_key key;

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

void mics_cuda_product_describe(const struct mics_cuda_product_library *library,
                                const struct mics_cuda_product_key *key,
                                char text[MICS_CUDA_PRODUCT_TEXT])
{
    static const char *const add[] = {"", ", add", ", add in place"};

    snprintf(
        text, MICS_CUDA_PRODUCT_TEXT,
        "[%u, %u] of %u, %c%c, %s to %s%s%s%s%s%s, rows of %u, %u, %u, aligned to %u, %u, %u, %u",
        key->m, key->n, key->k, key->trans_a ? 't' : 'n', key->trans_b ? 't' : 'n',
        key->dtype == MICS_F32 && library->tf32 ? "tf32" : type_of(key->dtype)->name,
        type_of(key->out_dtype)->name, add[key->add], key->bias ? ", bias" : "",
        key->pre_gelu ? ", GELU" : "", key->gelu_of ? ", GELU's slope" : "",
        key->half ? ", half the workspace" : "", key->lda, key->ldb, key->ldout, key->aligned[0],
        key->aligned[1], key->aligned[2], key->aligned[3]);
}

/* cuBLASLt's matrices, columns first. */
cublasStatus_t mics_cuda_product_new(const struct mics_cuda_product_key *key,
                                     struct mics_cuda_product **out)
{
    const cudaDataType_t type = type_of(key->dtype)->cuda;
    const cudaDataType_t out_type = type_of(key->out_dtype)->cuda;
    const uint32_t k = key->k, m = key->m, n = key->n;
    struct mics_cuda_product *product = calloc(1, sizeof *product);
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
        mics_cuda_product_free(product);
    return status;
}

#define SET(desc, name, value)                                                                     \
    if (status == CUBLAS_STATUS_SUCCESS)                                                           \
    status =                                                                                       \
        cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_##name, &(value), sizeof(value))

/* The pointers of a form's epilogue. */
static cublasStatus_t set_pointers(const struct mics_args_matmul *args,
                                   const struct mics_cuda_product_form *form)
{
    const void *aux = args->pre_gelu ? args->pre_gelu : args->gelu_of;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

    if (form->bias)
        SET(form->desc, BIAS_POINTER, args->bias);
    if (form->gelu)
        SET(form->desc, EPILOGUE_AUX_POINTER, aux);
    return status;
}

static cublasStatus_t make_desc(const struct mics_cuda_product_library *library,
                                const struct mics_args_matmul *args,
                                struct mics_cuda_product_form *form)
{
    const bool tf32 = library->tf32 && args->dtype == MICS_F32;
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

static uint64_t workspace_bytes(const struct mics_cuda_product_key *key)
{
    return MICS_CUDA_WORKSPACE_BYTES / (key->half ? 2 : 1);
}

#define PREFER(name, value)                                                                        \
    if (status == CUBLAS_STATUS_SUCCESS)                                                           \
    status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_##name,         \
                                                  &(value), sizeof(value))

/* What cuBLASLt proposes for a form, `limit` at most: partial sums only in fp32. Having no proposal
 * is not an error. */
static cublasStatus_t propose(const struct mics_cuda_product_library *library,
                              const struct mics_cuda_product *product,
                              const struct mics_cuda_product_form *form, int limit,
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
        cublasLtMatmulAlgoGetHeuristic(library->handle, form->desc, product->a, product->b,
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
static int list_forms(const struct mics_args_matmul *args, const struct mics_cuda_product_key *key,
                      struct mics_cuda_product_form forms[FORMS])
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
static void *destination(const struct mics_args_matmul *args,
                         const struct mics_cuda_product_key *key,
                         const struct mics_cuda_product_form *form)
{
    if (args->pre_gelu && !form->gelu && args->dtype == args->out_dtype &&
        key->aligned[3] >= key->aligned[2])
        return args->pre_gelu;
    return args->out;
}

/* Enqueue a product in one form with one algorithm, and the rest of its epilogue. `args` is
 * of the product's shape. */
static cublasStatus_t run(const struct mics_cuda_product_library *library,
                          const struct mics_cuda_at *at, const struct mics_args_matmul *args,
                          const struct mics_cuda_product *product,
                          const struct mics_cuda_product_form *form,
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
        status = cublasLtMatmul(library->handle, form->desc, &alpha, args->b, product->a, args->a,
                                product->b, &beta, args->add ? args->add : to, product->out, to,
                                product->out, algo, at->workspace, workspace_bytes(&product->key),
                                at->stream);
    if (status != CUBLAS_STATUS_SUCCESS || (!rest.pre_gelu && !rest.bias && !rest.gelu_of))
        return status;
    return mics_epilogue_launch(at->stream, &rest) == cudaSuccess ? status
                                                                  : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t mics_cuda_product_run(const struct mics_cuda_product_library *library,
                                     const struct mics_cuda_at *at,
                                     const struct mics_args_matmul *args,
                                     const struct mics_cuda_product *product)
{
    return run(library, at, args, product, &product->form, &product->algo);
}

/* A candidate: a form with an algorithm. */
struct proposals {
    struct mics_cuda_product_form forms[FORMS];
    struct proposal {
        int form, number; /* from 1 on, as proposed */
        cublasLtMatmulAlgo_t algo;
    } list[MICS_PRODUCT_PROPOSALS];
    int count;
};

/* Up to `limit` proposals: those of all forms in turns, so that each form is among them; the first
 * is the first of the form with most of the epilogue. */
static cublasStatus_t list_proposals(const struct mics_cuda_product_library *library,
                                     const struct mics_args_matmul *args,
                                     const struct mics_cuda_product *product, int limit,
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
        status = make_desc(library, args, &out->forms[i]);
        if (status == CUBLAS_STATUS_SUCCESS)
            status = propose(library, product, &out->forms[i], limit, algos[i], &counts[i]);
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
static float time_ms(const struct mics_cuda_product_library *library, const struct mics_cuda_at *at,
                     const struct mics_args_matmul *args, const struct mics_cuda_product *product,
                     const struct proposals *proposals, int which, int runs,
                     cudaEvent_t const events[2])
{
    const struct proposal *proposal = &proposals->list[which];
    float took = -1;

    for (int i = 0; i < runs + 1; i++) {
        if (i == 1 && cudaEventRecord(events[0], at->stream) != cudaSuccess)
            return -1;
        if (run(library, at, args, product, &proposals->forms[proposal->form], &proposal->algo) !=
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
static void warm_up(struct mics_cuda_product_library *library, const struct mics_cuda_at *at,
                    const struct mics_args_matmul *args, const struct mics_cuda_product *product,
                    const struct proposals *proposals, cudaEvent_t const events[2])
{
    float warmed = 0, last = 1;

    for (int i = 0; i < 1000 && warmed < WARM_MS && last > 0; i++) {
        last = time_ms(library, at, args, product, proposals, 0, REPEAT, events);
        warmed += (REPEAT + 1) * last;
    }
    library->warm = true;
}

/* Keep the FINALISTS that are fastest in one run, in the order in which they were proposed. */
static void screen(const struct mics_cuda_product_library *library, const struct mics_cuda_at *at,
                   const struct mics_args_matmul *args, const struct mics_cuda_product *product,
                   struct proposals *proposals, cudaEvent_t const events[2])
{
    float took[MICS_PRODUCT_PROPOSALS];
    int kept = 0;

    if (proposals->count <= FINALISTS)
        return;
    for (int i = 0; i < proposals->count; i++) {
        const float time = time_ms(library, at, args, product, proposals, i, 1, events);

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
static cublasStatus_t measure(struct mics_cuda_product_library *library,
                              const struct mics_cuda_at *at, const struct mics_args_matmul *args,
                              const struct mics_cuda_product *product, struct proposals *proposals,
                              int *best, float *took)
{
    cudaEvent_t events[2] = {NULL, NULL};

    *took = -1;
    if (cudaEventCreate(&events[0]) == cudaSuccess && cudaEventCreate(&events[1]) == cudaSuccess) {
        if (!library->warm)
            warm_up(library, at, args, product, proposals, events);
        screen(library, at, args, product, proposals, events);
        for (int i = 0; i < proposals->count; i++) {
            const float time = time_ms(library, at, args, product, proposals, i, REPEAT, events);

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
static void settle(struct mics_cuda_product *product, struct proposals *proposals, int which)
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

cublasStatus_t mics_cuda_product_settle_on_first(const struct mics_cuda_product_library *library,
                                                 const struct mics_args_matmul *args,
                                                 struct mics_cuda_product *product)
{
    struct proposals proposals = {.count = 0};
    const cublasStatus_t status = list_proposals(library, args, product, 1, &proposals);

    if (status == CUBLAS_STATUS_SUCCESS)
        settle(product, &proposals, 0);
    drop(&proposals);
    return status;
}

cublasStatus_t mics_cuda_product_settle_on_fastest(struct mics_cuda_product_library *library,
                                                   const struct mics_cuda_at *at,
                                                   const struct mics_args_matmul *args,
                                                   struct mics_cuda_product *product,
                                                   struct mics_cuda_product_timing *out)
{
    struct proposals proposals = {.count = 0};
    cublasStatus_t status =
        list_proposals(library, args, product, MICS_PRODUCT_PROPOSALS, &proposals);
    int best = 0;

    out->proposed = proposals.count;
    if (status == CUBLAS_STATUS_SUCCESS)
        status = measure(library, at, args, product, &proposals, &best, &out->took_ms);
    if (status == CUBLAS_STATUS_SUCCESS) {
        settle(product, &proposals, best);
        out->number = proposals.list[best].number;
    }
    drop(&proposals);
    return status;
}

bool mics_cuda_product_settle_on_choice(const struct mics_cuda_product_library *library,
                                        const struct mics_args_matmul *args,
                                        struct mics_cuda_product *product,
                                        const struct mics_matmul_choice *choice)
{
    struct mics_cuda_product_form forms[FORMS], *form = NULL;
    const int count = list_forms(args, &product->key, forms);
    cublasLtMatmulHeuristicResult_t result;
    cublasLtMatmulAlgo_t algo;

    memcpy(&algo, choice->algorithm, sizeof algo);
    for (int i = 0; i < count && !form; i++)
        if (forms[i].bias == choice->bias && forms[i].gelu == choice->gelu)
            form = &forms[i];
    if (!form)
        return false;
    if (make_desc(library, args, form) != CUBLAS_STATUS_SUCCESS ||
        cublasLtMatmulAlgoCheck(library->handle, form->desc, product->a, product->b, product->out,
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

struct mics_matmul_choice mics_cuda_product_choice_of(const struct mics_cuda_product *product,
                                                      const char *text)
{
    struct mics_matmul_choice choice = {.product = mics_product_hash(text, strlen(text)),
                                        .bias = product->form.bias,
                                        .gelu = product->form.gelu};

    memcpy(choice.algorithm, &product->algo, sizeof choice.algorithm);
    return choice;
}
