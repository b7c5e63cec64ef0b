/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - the GPU's operations, one function for each structure of ops.h.
 *
 * Each enqueues work on a stream and returns at once; none allocates, none synchronises. They may
 * use the stream's workspace, which the next operation of the same stream overwrites. The result is
 * the error of the launch; cudaErrorInvalidValue: the operation does not support these arguments.
 *
 * Operations that are STREAM in ops.h have no kernel and are not declared here.
 */
#ifndef MICS_KERNELS_CUDA_KERNELS_H
#define MICS_KERNELS_CUDA_KERNELS_H

#include "base/err.h"
#include "ops.h"

#include <cuda_runtime.h>

/* Workspace of a stream: partial sums of reductions, and cuBLASLt's. */
#define MICS_CUDA_WORKSPACE_BYTES (32u << 20)

/* A cuBLASLt handle, descriptors and chosen algorithms by shape, and notes for the user about them.
 * Any thread may use it. */
struct mics_cuda_products;

/* attention.cc */
enum mics_attention_kernel { MICS_ATTENTION_MMA, MICS_ATTENTION_PLAIN, MICS_ATTENTION_HOPPER };

/* Which kernels compute attention on a GPU. All zero: `mma`, or `plain` where `mma` does not
 * support the arguments. */
struct mics_attention_choice {
    enum mics_attention_kernel forward, grad;
    bool named; /* by MICS_CUDA_ATTENTION: no other kernel is used instead */
};

/* With the terminating NUL. */
#define MICS_CUDA_NOTE_BYTES   256
#define MICS_CUDA_TUNING_BYTES 192

/* At most so many proposals are timed for a product of one shape. */
#define MICS_PRODUCT_PROPOSALS 24

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
/* Choose algorithms for `count` products and write them to choices[]; or, `given`, use choices[] as
 * written by a GPU of the same tuning (cudaErrorInvalidValue: they are of other products, or
 * cuBLASLt does not accept them). Products that the cache (products.h) does not have are timed on
 * their operands, whose contents are lost; the call waits for the stream. */
cudaError_t mics_cuda_products_prepare(const struct mics_cuda_at *at,
                                       const struct mics_args_matmul *args, size_t count,
                                       bool given, struct mics_matmul_choice *choices);

/* Take the oldest note, and the number of -v options from which it is shown (0: a warning). False:
 * there is none. */
bool mics_cuda_products_next_note(struct mics_cuda_products *products, int *level,
                                  char text[MICS_CUDA_NOTE_BYTES]);

#define MICS_CUDA_KERNEL_STREAM(name)
#define MICS_CUDA_KERNEL_PLAIN(name)                                                               \
    cudaError_t mics_cuda_##name(const struct mics_cuda_at *at,                                    \
                                 const struct mics_args_##name *args);
#define MICS_CUDA_KERNEL_WORKSPACE(name) MICS_CUDA_KERNEL_PLAIN(name)
/* MICS_ERR_UNSUPPORTED: the kernel that is named does not take this operation, which then returns
 * cudaErrorNotSupported. */
#define MICS_CUDA_KERNEL_CHECKED(name)                                                             \
    MICS_CUDA_KERNEL_PLAIN(name)                                                                   \
    enum mics_status mics_cuda_##name##_check(                                                     \
        const struct mics_cuda_at *at, const struct mics_args_##name *args, struct mics_err *err);
#define MICS_CUDA_KERNEL(KEY, name, gpu) MICS_CUDA_KERNEL_##gpu(name)
MICS_OPERATIONS(MICS_CUDA_KERNEL)
#undef MICS_CUDA_KERNEL

/* The kernels for a GPU of a compute capability (90: 9.0): the one that is named, or the table's
 * where `name` is NULL or empty. MICS_ERR_ARG: there is no such name. MICS_ERR_UNSUPPORTED: it is
 * not for this GPU, or not in this build. */
enum mics_status mics_cuda_attention_choose(const char *name, int capability,
                                            struct mics_attention_choice *out,
                                            struct mics_err *err);

#ifdef __cplusplus
}
#endif

#endif
