/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - the GPU's operations, one function for each structure of ops.h.
 *
 * Each enqueues work on a stream and returns at once; none allocates, none synchronises. They may
 * use the stream's workspace, which the next operation of the same stream overwrites. The error is
 * that of the launch; cudaErrorInvalidValue is for what an operation does not take.
 *
 * Zero, copy and call are the device's own.
 */
#ifndef MICS_KERNELS_CUDA_KERNELS_H
#define MICS_KERNELS_CUDA_KERNELS_H

#include "base/err.h"
#include "ops.h"

#include <cuda_runtime.h>

/* Of every stream: partial sums of reductions, and cuBLASLt's workspace. */
#define MICS_CUDA_WORKSPACE_BYTES (32u << 20)

/* A cuBLASLt handle, descriptors and chosen algorithms by shape, and lines for people about them. Any
 * thread may use it. */
struct mics_cuda_products;

/* attention.cc */
enum mics_attention_kernel { MICS_ATTENTION_MMA, MICS_ATTENTION_PLAIN, MICS_ATTENTION_HOPPER };

/* Which kernels compute attention on a GPU. All zero: `mma`, or `plain` for what it does not take.
 */
struct mics_attention_choice {
    enum mics_attention_kernel forward, grad;
    bool named; /* by MICS_CUDA_ATTENTION: no other kernel is used instead */
};

/* With the ending 0. */
#define MICS_CUDA_NOTE_BYTES   256
#define MICS_CUDA_TUNING_BYTES 192

/* A product of one shape is chosen among so many proposals at most. */
#define MICS_PRODUCT_PROPOSALS 4

/* Where an operation runs. */
struct mics_cuda_at {
    cudaStream_t stream;
    void *workspace; /* MICS_CUDA_WORKSPACE_BYTES, device memory, aligned to 256 bytes */
    int multiprocessors;
    struct mics_cuda_products *products; /* of the device */
    struct mics_attention_choice attention;
};

#ifdef __cplusplus
extern "C" {
#endif

/* An environment variable that is 0 or 1, or `otherwise` where it is not set. */
bool mics_cuda_switch(const char *name, bool otherwise);

/* For the current device. */
cudaError_t mics_cuda_products_open(struct mics_cuda_products **out);
void mics_cuda_products_close(struct mics_cuda_products *products); /* NULL is fine */
/* What choices depend on: "NVIDIA H200, compute capability 9.0, cuBLASLt 130101". It belongs to the
 * products. */
const char *mics_cuda_products_tuning(const struct mics_cuda_products *products);
/* Choose how `count` products are done, and leave that in choices[]; or, `given`, do them as
 * choices[] says, which was left by a GPU of the same tuning (cudaErrorInvalidValue: it is of other
 * products, or not accepted). Products are timed on their own operands, whose contents are lost,
 * where the cache (products.h) does not have them; the stream is waited for. */
cudaError_t mics_cuda_products_prepare(const struct mics_cuda_at *at,
                                       const struct mics_op_matmul *args, size_t count, bool given,
                                       struct mics_matmul_choice *choices);

/* The oldest line that was not taken yet, and how often -v must be given to see it (0: a warning).
 * False: there is none. */
bool mics_cuda_products_next_note(struct mics_cuda_products *products, int *level,
                                  char text[MICS_CUDA_NOTE_BYTES]);

cudaError_t mics_cuda_cast(const struct mics_cuda_at *at, const struct mics_op_cast *args);
cudaError_t mics_cuda_accumulate(const struct mics_cuda_at *at,
                                 const struct mics_op_accumulate *args);
cudaError_t mics_cuda_matmul(const struct mics_cuda_at *at, const struct mics_op_matmul *args);
cudaError_t mics_cuda_bias_grad(const struct mics_cuda_at *at,
                                const struct mics_op_bias_grad *args);
cudaError_t mics_cuda_layernorm(const struct mics_cuda_at *at,
                                const struct mics_op_layernorm *args);
cudaError_t mics_cuda_layernorm_grad(const struct mics_cuda_at *at,
                                     const struct mics_op_layernorm_grad *args);
cudaError_t mics_cuda_rmsnorm(const struct mics_cuda_at *at, const struct mics_op_rmsnorm *args);
cudaError_t mics_cuda_rmsnorm_grad(const struct mics_cuda_at *at,
                                   const struct mics_op_rmsnorm_grad *args);
cudaError_t mics_cuda_add(const struct mics_cuda_at *at, const struct mics_op_add *args);
cudaError_t mics_cuda_gelu(const struct mics_cuda_at *at, const struct mics_op_gelu *args);
cudaError_t mics_cuda_gelu_grad(const struct mics_cuda_at *at,
                                const struct mics_op_gelu_grad *args);
cudaError_t mics_cuda_swiglu(const struct mics_cuda_at *at, const struct mics_op_swiglu *args);
cudaError_t mics_cuda_swiglu_grad(const struct mics_cuda_at *at,
                                  const struct mics_op_swiglu_grad *args);
cudaError_t mics_cuda_qk_norm(const struct mics_cuda_at *at, const struct mics_op_qk_norm *args);
cudaError_t mics_cuda_qk_norm_grad(const struct mics_cuda_at *at,
                                   const struct mics_op_qk_norm_grad *args);
cudaError_t mics_cuda_rope(const struct mics_cuda_at *at, const struct mics_op_rope *args);
cudaError_t mics_cuda_attention(const struct mics_cuda_at *at,
                                const struct mics_op_attention *args);
cudaError_t mics_cuda_attention_grad(const struct mics_cuda_at *at,
                                     const struct mics_op_attention_grad *args);
/* The kernels for a GPU of a compute capability (90: 9.0): the one that is named, or the table's
 * where `name` is NULL or empty. MICS_ERR_ARG: there is no such name. MICS_ERR_UNSUPPORTED: it is
 * not for this GPU, or not in this build. */
enum mics_status mics_cuda_attention_choose(const char *name, int capability,
                                            struct mics_attention_choice *out,
                                            struct mics_err *err);
/* MICS_ERR_UNSUPPORTED: the kernel that is named does not take this operation, which then returns
 * cudaErrorNotSupported. */
enum mics_status mics_cuda_attention_check(const struct mics_cuda_at *at,
                                           const struct mics_op_attention *args,
                                           struct mics_err *err);
enum mics_status mics_cuda_attention_grad_check(const struct mics_cuda_at *at,
                                                const struct mics_op_attention_grad *args,
                                                struct mics_err *err);
cudaError_t mics_cuda_embedding(const struct mics_cuda_at *at,
                                const struct mics_op_embedding *args);
cudaError_t mics_cuda_embedding_grad(const struct mics_cuda_at *at,
                                     const struct mics_op_embedding_grad *args);
cudaError_t mics_cuda_cross_entropy(const struct mics_cuda_at *at,
                                    const struct mics_op_cross_entropy *args);
cudaError_t mics_cuda_squared_norm(const struct mics_cuda_at *at,
                                   const struct mics_op_squared_norm *args);
cudaError_t mics_cuda_adamw(const struct mics_cuda_at *at, const struct mics_op_adamw *args);
cudaError_t mics_cuda_sgd(const struct mics_cuda_at *at, const struct mics_op_sgd *args);

#ifdef __cplusplus
}
#endif

#endif
