/* SPDX-License-Identifier: Apache-2.0 */
/* product_form.cu - the forms that a matrix product can have, and the algorithms proposed for
 * each. */
#include "cuda/products.cuh"

#include <string.h>

#define SET(desc, name, value)                                                                     \
    if (status == CUBLAS_STATUS_SUCCESS)                                                           \
    status =                                                                                       \
        cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_##name, &(value), sizeof(value))

/* The descriptor of a form; its pointers are set again for each call. */
static cublasStatus_t make_desc(const struct mics_cuda_products *products,
                                const struct mics_op_matmul *args, struct mics_product_form *form)
{
    const bool tf32 = products->tf32 && args->dtype == MICS_F32;
    const int32_t trans_a = args->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t trans_b = args->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint32_t epilogue =
        (form->bias ? CUBLASLT_EPILOGUE_BIAS : 0) | (!form->gelu      ? 0
                                                     : args->pre_gelu ? CUBLASLT_EPILOGUE_GELU_AUX
                                                                      : CUBLASLT_EPILOGUE_DGELU);
    const void *aux = args->pre_gelu ? args->pre_gelu : args->gelu_of;
    const int64_t aux_ld = args->ldout;
    cublasStatus_t status;

    status = cublasLtMatmulDescCreate(
        &form->desc, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
    SET(form->desc, TRANSA, trans_a);
    SET(form->desc, TRANSB, trans_b);
    if (epilogue != 0)
        SET(form->desc, EPILOGUE, epilogue);
    if (form->bias)
        SET(form->desc, BIAS_POINTER, args->bias);
    if (form->gelu) {
        SET(form->desc, EPILOGUE_AUX_POINTER, aux);
        SET(form->desc, EPILOGUE_AUX_LD, aux_ld);
    }
    return status;
}

#undef SET

#define PREFER(name, value)                                                                        \
    if (status == CUBLAS_STATUS_SUCCESS)                                                           \
    status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_##name,         \
                                                  &(value), sizeof(value))

/* What cuBLASLt proposes for a form: partial sums only in fp32. No proposal is no error. */
static cublasStatus_t find_algos(const struct mics_cuda_products *products,
                                 const struct mics_product *product, struct mics_product_form *form)
{
    const uint64_t workspace = MICS_CUDA_WORKSPACE_BYTES / (product->key.half ? 2 : 1);
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t a = product->key.aligned[1], b = product->key.aligned[0],
                   out = product->key.aligned[2];
    cublasLtMatmulHeuristicResult_t found[MICS_PRODUCT_ALGOS];
    cublasLtMatmulPreference_t preference = NULL;
    cublasStatus_t status = cublasLtMatmulPreferenceCreate(&preference);
    int count = 0;

    PREFER(MAX_WORKSPACE_BYTES, workspace);
    PREFER(REDUCTION_SCHEME_MASK, schemes);
    PREFER(MIN_ALIGNMENT_A_BYTES, a);
    PREFER(MIN_ALIGNMENT_B_BYTES, b);
    PREFER(MIN_ALIGNMENT_C_BYTES, out);
    PREFER(MIN_ALIGNMENT_D_BYTES, out);
    if (status == CUBLAS_STATUS_SUCCESS &&
        cublasLtMatmulAlgoGetHeuristic(products->handle, form->desc, product->a, product->b,
                                       product->out, product->out, preference, MICS_PRODUCT_ALGOS,
                                       found, &count) != CUBLAS_STATUS_SUCCESS)
        count = 0;
    for (int i = 0; i < count; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS)
            form->algos[form->count++] = found[i].algo;
    if (preference)
        cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

#undef PREFER

/* The forms worth trying; returns how many. cuBLASLt's epilogues are asked for only where they
 * are documented: a bias of the result's type, GELU in bf16 with aligned rows. */
static int list_forms(const struct mics_op_matmul *args, const struct mics_product_key *key,
                      struct mics_product_form forms[MICS_PRODUCT_FORMS])
{
    const bool wide = key->aligned[3] >= 16, gelu = key->pre_gelu || key->gelu_of;
    const bool bias_fits = key->bias && wide && args->dtype == args->out_dtype;
    const bool gelu_fits = gelu && wide && key->bf16 && key->out_bf16 && key->aligned[2] >= 16 &&
                           args->ldout % 8 == 0 && (!key->bias || (bias_fits && key->pre_gelu));
    int count = 0;

    memset(forms, 0, MICS_PRODUCT_FORMS * sizeof(*forms));
    if (gelu_fits) {
        forms[count].gelu = true;
        forms[count++].bias = key->bias;
    }
    if (bias_fits)
        forms[count++].bias = true;
    count++; /* nothing */
    return count;
}

static void free_forms(struct mics_product_form *forms, int count, int but)
{
    for (int i = 0; i < count; i++)
        if (i != but && forms[i].desc)
            cublasLtMatmulDescDestroy(forms[i].desc);
}

cublasStatus_t mics_product_choose(const struct mics_cuda_at *at, const struct mics_op_matmul *args,
                                   struct mics_product *product)
{
    struct mics_product_form forms[MICS_PRODUCT_FORMS];
    const int count = list_forms(args, &product->key, forms);
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    int best = -1;

    for (int i = 0; i < count && status == CUBLAS_STATUS_SUCCESS; i++) {
        /* A bias added later would be added to a rounded sum: only where there is no other way. */
        if (i > 0 && forms[i - 1].bias && !forms[i].bias && forms[i - 1].count > 0)
            break;
        status = make_desc(at->products, args, &forms[i]);
        if (status == CUBLAS_STATUS_SUCCESS)
            status = find_algos(at->products, product, &forms[i]);
    }
    for (int i = count - 1; i >= 0; i--)
        if (forms[i].count > 0)
            best = i;
    if (status == CUBLAS_STATUS_SUCCESS && best < 0)
        status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (status == CUBLAS_STATUS_SUCCESS && at->products->measure)
        mics_product_measure(at, args, product, forms, &best);
    if (status == CUBLAS_STATUS_SUCCESS)
        product->form = forms[best];
    free_forms(forms, count, status == CUBLAS_STATUS_SUCCESS ? best : -1);
    return status;
}
