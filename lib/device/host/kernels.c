/* SPDX-License-Identifier: Apache-2.0 */
/* The host's operations by number. */
#include "device/host/host.h"

#include "host/kernels.h"

#define ADAPT(name)                                                                                \
    static void run_##name(struct mics_pool *pool, const void *args)                               \
    {                                                                                              \
        mics_host_##name(pool, args);                                                              \
    }

ADAPT(zero)
ADAPT(copy)
ADAPT(call)
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

#define ENTRY(name)                                                                                \
    {                                                                                              \
        run_##name, sizeof(struct mics_op_##name)                                                  \
    }

static const struct {
    void (*run)(struct mics_pool *pool, const void *args);
    size_t args_size;
} kernels[MICS_KERNEL_COUNT] = {
    [MICS_K_ZERO] = ENTRY(zero),
    [MICS_K_COPY] = ENTRY(copy),
    [MICS_K_CALL] = ENTRY(call),
    [MICS_K_CAST] = ENTRY(cast),
    [MICS_K_ACCUMULATE] = ENTRY(accumulate),
    [MICS_K_MATMUL] = ENTRY(matmul),
    [MICS_K_BIAS_GRAD] = ENTRY(bias_grad),
    [MICS_K_LAYERNORM] = ENTRY(layernorm),
    [MICS_K_LAYERNORM_GRAD] = ENTRY(layernorm_grad),
    [MICS_K_RMSNORM] = ENTRY(rmsnorm),
    [MICS_K_RMSNORM_GRAD] = ENTRY(rmsnorm_grad),
    [MICS_K_ADD] = ENTRY(add),
    [MICS_K_GELU] = ENTRY(gelu),
    [MICS_K_GELU_GRAD] = ENTRY(gelu_grad),
    [MICS_K_SWIGLU] = ENTRY(swiglu),
    [MICS_K_SWIGLU_GRAD] = ENTRY(swiglu_grad),
    [MICS_K_QK_NORM] = ENTRY(qk_norm),
    [MICS_K_QK_NORM_GRAD] = ENTRY(qk_norm_grad),
    [MICS_K_ROPE] = ENTRY(rope),
    [MICS_K_ATTENTION] = ENTRY(attention),
    [MICS_K_ATTENTION_GRAD] = ENTRY(attention_grad),
    [MICS_K_EMBEDDING] = ENTRY(embedding),
    [MICS_K_EMBEDDING_GRAD] = ENTRY(embedding_grad),
    [MICS_K_CROSS_ENTROPY] = ENTRY(cross_entropy),
    [MICS_K_SQUARED_NORM] = ENTRY(squared_norm),
    [MICS_K_ADAMW] = ENTRY(adamw),
    [MICS_K_SGD] = ENTRY(sgd),
};

void mics_host_kernel_run(enum mics_kernel kernel, struct mics_pool *pool, const void *args)
{
    kernels[kernel].run(pool, args);
}

size_t mics_host_kernel_args_size(enum mics_kernel kernel)
{
    return kernels[kernel].args_size;
}
