/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's operations by number. Zero, copy and call are the stream's own. */
#include "device/cuda/cuda.h"

#define ADAPT(name)                                                                                \
    static cudaError_t run_##name(const struct mics_cuda_at *at, const void *args)                 \
    {                                                                                              \
        return mics_cuda_##name(at, args);                                                         \
    }

ADAPT(cast)
ADAPT(accumulate)
ADAPT(matmul)
ADAPT(bias_grad)
ADAPT(layernorm)
ADAPT(layernorm_grad)
ADAPT(rmsnorm)
ADAPT(rmsnorm_grad)
ADAPT(add)
ADAPT(gelu)
ADAPT(gelu_grad)
ADAPT(swiglu)
ADAPT(swiglu_grad)
ADAPT(qk_norm)
ADAPT(qk_norm_grad)
ADAPT(rope)
ADAPT(attention)
ADAPT(attention_grad)
ADAPT(embedding)
ADAPT(embedding_grad)
ADAPT(cross_entropy)
ADAPT(squared_norm)
ADAPT(adamw)
ADAPT(sgd)

#define ADAPT_CHECK(name)                                                                          \
    static enum mics_status check_##name(const struct mics_cuda_at *at, const void *args,          \
                                         struct mics_err *err)                                     \
    {                                                                                              \
        return mics_cuda_##name##_check(at, args, err);                                            \
    }

ADAPT_CHECK(attention)
ADAPT_CHECK(attention_grad)

#define ENTRY(name, workspace)                                                                     \
    {                                                                                              \
        run_##name, NULL, sizeof(struct mics_op_##name), #name, workspace                          \
    }
#define CHECKED_ENTRY(name, workspace)                                                             \
    {                                                                                              \
        run_##name, check_##name, sizeof(struct mics_op_##name), #name, workspace                  \
    }

const struct cuda_operation *mics_cuda_operation(enum mics_kernel kernel)
{
    static const struct cuda_operation operations[MICS_KERNEL_COUNT] = {
        [MICS_K_CAST] = ENTRY(cast, false),
        [MICS_K_ACCUMULATE] = ENTRY(accumulate, false),
        [MICS_K_MATMUL] = ENTRY(matmul, true),
        [MICS_K_BIAS_GRAD] = ENTRY(bias_grad, true),
        [MICS_K_LAYERNORM] = ENTRY(layernorm, true),
        [MICS_K_LAYERNORM_GRAD] = ENTRY(layernorm_grad, true),
        [MICS_K_RMSNORM] = ENTRY(rmsnorm, true),
        [MICS_K_RMSNORM_GRAD] = ENTRY(rmsnorm_grad, true),
        [MICS_K_ADD] = ENTRY(add, false),
        [MICS_K_GELU] = ENTRY(gelu, false),
        [MICS_K_GELU_GRAD] = ENTRY(gelu_grad, false),
        [MICS_K_SWIGLU] = ENTRY(swiglu, false),
        [MICS_K_SWIGLU_GRAD] = ENTRY(swiglu_grad, false),
        [MICS_K_QK_NORM] = ENTRY(qk_norm, false),
        [MICS_K_QK_NORM_GRAD] = ENTRY(qk_norm_grad, true),
        [MICS_K_ROPE] = ENTRY(rope, false),
        [MICS_K_ATTENTION] = CHECKED_ENTRY(attention, false),
        [MICS_K_ATTENTION_GRAD] = CHECKED_ENTRY(attention_grad, false),
        [MICS_K_EMBEDDING] = ENTRY(embedding, false),
        [MICS_K_EMBEDDING_GRAD] = ENTRY(embedding_grad, true),
        [MICS_K_CROSS_ENTROPY] = ENTRY(cross_entropy, true),
        [MICS_K_SQUARED_NORM] = ENTRY(squared_norm, true),
        [MICS_K_ADAMW] = ENTRY(adamw, false),
        [MICS_K_SGD] = ENTRY(sgd, false),
    };

    return &operations[kernel];
}
