/* SPDX-License-Identifier: Apache-2.0 */
/*
 * products.h - parts of matrix products outside of cuBLASLt (products.c): the rest of an epilogue
 * as a separate kernel (elementwise.cu), and the cache of chosen algorithms on disk
 * (product_cache.c).
 */
#ifndef MICS_KERNELS_CUDA_PRODUCTS_H
#define MICS_KERNELS_CUDA_PRODUCTS_H

#include "base/err.h"
#include "cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x = product (+ add) (+ bias); then as in mics_args_matmul. `product` is [m, n] with rows of
 * ldproduct: of fp32 where dtype is, else of out_dtype; NULL is 0. The others have rows of
 * ldout. Any may be out but bias. */
struct mics_epilogue {
    void *out, *pre_gelu;
    const void *product, *add, *bias, *gelu_of;
    uint32_t m, n, ldout, ldproduct;
    enum mics_dtype dtype, out_dtype;
};

/* m and n are 1 or more. */
cudaError_t mics_epilogue_launch(cudaStream_t stream, const struct mics_epilogue *epilogue);

/*
 * The choices of one kind of GPU with one version of cuBLASLt: a text file in $XDG_CACHE_HOME/mics,
 * or $HOME/.cache/mics, that is replaced as a whole and ends in a checksum. Keys are one line of
 * text. Failures cost time but not the run: a file that cannot be used is ignored, with one
 * warning.
 */
struct mics_product_cache;

/* FNV-1a of 64 bits. */
static inline uint64_t mics_product_hash(const void *data, size_t length)
{
    const unsigned char *bytes = (const unsigned char *)data;
    uint64_t hash = 14695981039346656037u;

    for (size_t i = 0; i < length; i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash;
}

/* `tuning` names the GPU and the library. A file that does not exist is an empty one. NULL: no
 * memory. */
struct mics_product_cache *mics_product_cache_open(const char *tuning);
bool mics_product_cache_find(const struct mics_product_cache *cache, const char *key,
                             struct mics_matmul_choice *out);
void mics_product_cache_put(struct mics_product_cache *cache, const char *key,
                            const struct mics_matmul_choice *choice);
/* Write the file if anything was put; entries that other processes have added meanwhile are
 * kept. */
void mics_product_cache_save(struct mics_product_cache *cache);
/* The path of the file; NULL: neither variable is set. */
const char *mics_product_cache_path(const struct mics_product_cache *cache);
/* One line about what failed; NULL: nothing. */
const char *mics_product_cache_warning(const struct mics_product_cache *cache);
void mics_product_cache_free(struct mics_product_cache *cache); /* NULL is fine */

#ifdef __cplusplus
}
#endif

#endif
