/* SPDX-License-Identifier: Apache-2.0 */
/* products.cu - descriptors and algorithms of matrix products, kept by shape in a hash table. */
#include "cuda/products.cuh"

#include <stdlib.h>
#include <string.h>

cudaError_t mics_product_error(cublasStatus_t status)
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

static bool is_set(const char *name, const char *value)
{
    const char *found = getenv(name);

    return found && strcmp(found, value) == 0;
}

cudaError_t mics_cuda_products_open(struct mics_cuda_products **out)
{
    struct mics_cuda_products *products = (struct mics_cuda_products *)calloc(1, sizeof(*products));
    cublasStatus_t status;

    if (!products)
        return cudaErrorMemoryAllocation;
    status = cublasLtCreate(&products->handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        free(products);
        return mics_product_error(status);
    }
    pthread_mutex_init(&products->lock, NULL);
    products->shapes.key_bytes = sizeof(struct mics_product_key);
    products->tf32 = is_set("MICS_TF32", "1");
    products->measure = !is_set("MICS_CUDA_MEASURE", "0");
    *out = products;
    return cudaSuccess;
}

static void free_product(struct mics_product *product)
{
    if (product->form.desc)
        cublasLtMatmulDescDestroy(product->form.desc);
    if (product->a)
        cublasLtMatrixLayoutDestroy(product->a);
    if (product->b)
        cublasLtMatrixLayoutDestroy(product->b);
    if (product->out)
        cublasLtMatrixLayoutDestroy(product->out);
    free(product);
}

void mics_cuda_products_close(struct mics_cuda_products *products)
{
    struct mics_shape *shape;

    if (!products)
        return;
    while ((shape = mics_shapes_take(&products->shapes)) != NULL)
        free_product((struct mics_product *)shape);
    cublasLtDestroy(products->handle);
    pthread_mutex_destroy(&products->lock);
    free(products);
}

/* Of two addresses. */
static uint8_t alignment(const void *p, const void *q)
{
    return mics_alignment((uintptr_t)p | (uintptr_t)q);
}

static struct mics_product_key key_of(const struct mics_op_matmul *args, bool half)
{
    struct mics_product_key key;

    memset(&key, 0, sizeof(key));
    key.m = args->m;
    key.n = args->n;
    key.k = args->k;
    key.lda = args->lda;
    key.ldb = args->ldb;
    key.ldout = args->ldout;
    key.trans_a = args->trans_a;
    key.trans_b = args->trans_b;
    key.bf16 = args->dtype == MICS_BF16;
    key.out_bf16 = args->out_dtype == MICS_BF16;
    key.add = !args->add ? 0 : args->add == args->out ? 2 : 1;
    key.bias = args->bias != NULL;
    key.pre_gelu = args->pre_gelu != NULL;
    key.gelu_of = args->gelu_of != NULL;
    key.half = half;
    key.aligned[0] = alignment(args->a, NULL);
    key.aligned[1] = alignment(args->b, NULL);
    key.aligned[2] = alignment(args->out, args->add);
    key.aligned[3] =
        alignment(args->bias, (const void *)((size_t)args->pre_gelu | (size_t)args->gelu_of));
    return key;
}

/* cuBLASLt's matrices, columns first. */
static cublasStatus_t make_layouts(struct mics_product *product)
{
    const struct mics_product_key *key = &product->key;
    const cudaDataType_t type = key->bf16 ? CUDA_R_16BF : CUDA_R_32F;
    const cudaDataType_t out_type = key->out_bf16 ? CUDA_R_16BF : CUDA_R_32F;
    const uint32_t k = key->k, m = key->m, n = key->n;
    cublasStatus_t status;

    status = cublasLtMatrixLayoutCreate(&product->a, type, key->trans_b ? k : n,
                                        key->trans_b ? n : k, key->ldb);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatrixLayoutCreate(&product->b, type, key->trans_a ? m : k,
                                            key->trans_a ? k : m, key->lda);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatrixLayoutCreate(&product->out, out_type, n, m, key->ldout);
    return status;
}

cublasStatus_t mics_product_find(const struct mics_cuda_at *at, const struct mics_op_matmul *args,
                                 bool half, struct mics_product **out)
{
    const struct mics_product_key key = key_of(args, half);
    struct mics_product *product =
        (struct mics_product *)mics_shapes_find(&at->products->shapes, &key);
    cublasStatus_t status;

    *out = product;
    if (product)
        return CUBLAS_STATUS_SUCCESS;
    product = (struct mics_product *)calloc(1, sizeof(*product));
    if (!product)
        return CUBLAS_STATUS_ALLOC_FAILED;
    product->key = key;
    status = make_layouts(product);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = mics_product_choose(at, args, product);
    if (status != CUBLAS_STATUS_SUCCESS) {
        free_product(product);
        return status;
    }
    product->shape.key = &product->key;
    mics_shapes_add(&at->products->shapes, &product->shape);
    *out = product;
    return status;
}
