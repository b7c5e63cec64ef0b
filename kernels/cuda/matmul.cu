/* SPDX-License-Identifier: Apache-2.0 */
/*
 * matmul.cu - matrix products by cuBLASLt, with bias, residual and GELU.
 *
 * Sums in fp32, of bf16 or fp32 operands; tf32 only with MICS_TF32=1 in the environment.
 * Descriptors and algorithms are kept by shape (products.cuh). The first time that a shape is met,
 * forms and algorithms are measured on the stream, which the caller waits for, and memory may be
 * allocated for that while; MICS_CUDA_MEASURE=0 takes cuBLASLt's first proposal instead, the same
 * in every run.
 *
 * What cuBLASLt does not take goes its own way: without a sum (k = 0) there is only the epilogue; a
 * bf16 result of fp32 operands is made in fp32 in half of the workspace, some rows at a time, and
 * rounded from there.
 *
 * 2 m n k flops: bound by arithmetic but for small shapes. fp32 within 1e-6 of the host, relative
 * to the sum of magnitudes; bf16 results are rounded once, with a GELU in a pass of its own or of a
 * bf16 gelu_of once more.
 */
#include "cuda/products.cuh"
#include "cuda/vector.cuh"

#define SLAB_BYTES (MICS_CUDA_WORKSPACE_BYTES / 2)
#define SLAB_ROWS  64 /* a slab has a multiple of them */

/* Where cuBLASLt writes: to pre_gelu, where the GELU is a pass of its own and reads it from
 * there. */
static void *destination(const struct mics_op_matmul *args, const struct mics_product *product,
                         const struct mics_product_form *form, void *out)
{
    if (args->pre_gelu && !form->gelu && args->dtype == args->out_dtype &&
        product->key.aligned[3] >= product->key.aligned[2])
        return args->pre_gelu;
    return out;
}

static cublasStatus_t set_pointers(const struct mics_op_matmul *args,
                                   const struct mics_product_form *form)
{
    const void *aux = args->pre_gelu ? args->pre_gelu : args->gelu_of;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

    if (form->bias)
        status = cublasLtMatmulDescSetAttribute(form->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                &args->bias, sizeof(args->bias));
    if (status == CUBLAS_STATUS_SUCCESS && form->gelu)
        status = cublasLtMatmulDescSetAttribute(
            form->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof(aux));
    return status;
}

cublasStatus_t mics_product_run(const struct mics_cuda_at *at, const struct mics_op_matmul *args,
                                const struct mics_product *product,
                                const struct mics_product_form *form,
                                const cublasLtMatmulAlgo_t *algo, void *out)
{
    const float alpha = 1, beta = args->add ? 1.0f : 0.0f;
    void *to = destination(args, product, form, out);
    struct mics_epilogue rest = {.out = out,
                                 .pre_gelu = form->gelu ? NULL : args->pre_gelu,
                                 .product = to,
                                 .add = NULL,
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
        status = cublasLtMatmul(
            at->products->handle, form->desc, &alpha, args->b, product->a, args->a, product->b,
            &beta, args->add ? args->add : to, product->out, to, product->out, algo, at->workspace,
            MICS_CUDA_WORKSPACE_BYTES / (product->key.half ? 2 : 1), at->stream);
    if (status != CUBLAS_STATUS_SUCCESS || (!rest.pre_gelu && !rest.bias && !rest.gelu_of))
        return status;
    return mics_epilogue_launch(at->stream, &rest) == cudaSuccess ? status
                                                                  : CUBLAS_STATUS_EXECUTION_FAILED;
}

static cudaError_t multiply(const struct mics_cuda_at *at, const struct mics_op_matmul *args,
                            bool half)
{
    struct mics_product *product = NULL;
    cublasStatus_t status;

    pthread_mutex_lock(&at->products->lock);
    status = mics_product_find(at, args, half, &product);
    if (status == CUBLAS_STATUS_SUCCESS)
        status =
            mics_product_run(at, args, product, &product->form, &product->form.algos[0], args->out);
    pthread_mutex_unlock(&at->products->lock);
    return mics_product_error(status);
}

/* The epilogue of rows [row, row + m), whose product is at `product`. */
static cudaError_t finish(const struct mics_cuda_at *at, const struct mics_op_matmul *args,
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

/* A bf16 result of fp32 operands. */
static cudaError_t multiply_slabs(const struct mics_cuda_at *at, const struct mics_op_matmul *args)
{
    const size_t fit = SLAB_BYTES / (args->n * sizeof(float)) / SLAB_ROWS * SLAB_ROWS;
    float *slab = (float *)((char *)at->workspace + SLAB_BYTES);
    cudaError_t error = cudaSuccess;

    if (fit == 0)
        return cudaErrorInvalidValue;
    for (uint32_t row = 0; row < args->m && error == cudaSuccess; row += (uint32_t)fit) {
        const uint32_t m = args->m - row < fit ? args->m - row : (uint32_t)fit;
        struct mics_op_matmul part = {};

        part.out = slab;
        part.a = (const float *)args->a + (args->trans_a ? row : (size_t)row * args->lda);
        part.b = args->b;
        part.m = m;
        part.n = part.ldout = args->n;
        part.k = args->k;
        part.lda = args->lda;
        part.ldb = args->ldb;
        part.trans_a = args->trans_a;
        part.trans_b = args->trans_b;
        error = multiply(at, &part, true);
        if (error == cudaSuccess)
            error = finish(at, args, row, m, slab);
    }
    return error;
}

cudaError_t mics_cuda_matmul(const struct mics_cuda_at *at, const struct mics_op_matmul *args)
{
    if (args->m == 0 || args->n == 0)
        return cudaSuccess;
    if (args->k == 0)
        return finish(at, args, 0, args->m, NULL);
    if (args->dtype == MICS_F32 && args->out_dtype == MICS_BF16)
        return multiply_slabs(at, args);
    return multiply(at, args, false);
}
