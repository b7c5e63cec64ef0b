/* SPDX-License-Identifier: Apache-2.0 */
/* launch.h - typed calls of a device's operations: mics_launch_matmul(stream, &args). */
#ifndef MICS_DEVICE_LAUNCH_H
#define MICS_DEVICE_LAUNCH_H

#include "device/device.h"

#define MICS_DEFINE_LAUNCH(name, KERNEL)                                                           \
    static inline void mics_launch_##name(struct mics_stream *stream,                              \
                                          const struct mics_op_##name *args)                       \
    {                                                                                              \
        mics_stream_device(stream)->ops->launch(stream, KERNEL, args, sizeof *args);               \
    }

MICS_DEFINE_LAUNCH(zero, MICS_K_ZERO)
MICS_DEFINE_LAUNCH(copy, MICS_K_COPY)
MICS_DEFINE_LAUNCH(call, MICS_K_CALL)
MICS_DEFINE_LAUNCH(cast, MICS_K_CAST)
MICS_DEFINE_LAUNCH(accumulate, MICS_K_ACCUMULATE)
MICS_DEFINE_LAUNCH(matmul, MICS_K_MATMUL)
MICS_DEFINE_LAUNCH(bias_grad, MICS_K_BIAS_GRAD)
MICS_DEFINE_LAUNCH(layernorm, MICS_K_LAYERNORM)
MICS_DEFINE_LAUNCH(layernorm_grad, MICS_K_LAYERNORM_GRAD)
MICS_DEFINE_LAUNCH(rmsnorm, MICS_K_RMSNORM)
MICS_DEFINE_LAUNCH(rmsnorm_grad, MICS_K_RMSNORM_GRAD)
MICS_DEFINE_LAUNCH(add, MICS_K_ADD)
MICS_DEFINE_LAUNCH(gelu, MICS_K_GELU)
MICS_DEFINE_LAUNCH(gelu_grad, MICS_K_GELU_GRAD)
MICS_DEFINE_LAUNCH(swiglu, MICS_K_SWIGLU)
MICS_DEFINE_LAUNCH(swiglu_grad, MICS_K_SWIGLU_GRAD)
MICS_DEFINE_LAUNCH(qk_norm, MICS_K_QK_NORM)
MICS_DEFINE_LAUNCH(qk_norm_grad, MICS_K_QK_NORM_GRAD)
MICS_DEFINE_LAUNCH(rope, MICS_K_ROPE)
MICS_DEFINE_LAUNCH(attention, MICS_K_ATTENTION)
MICS_DEFINE_LAUNCH(attention_grad, MICS_K_ATTENTION_GRAD)
MICS_DEFINE_LAUNCH(embedding, MICS_K_EMBEDDING)
MICS_DEFINE_LAUNCH(embedding_grad, MICS_K_EMBEDDING_GRAD)
MICS_DEFINE_LAUNCH(cross_entropy, MICS_K_CROSS_ENTROPY)
MICS_DEFINE_LAUNCH(squared_norm, MICS_K_SQUARED_NORM)
MICS_DEFINE_LAUNCH(adamw, MICS_K_ADAMW)
MICS_DEFINE_LAUNCH(sgd, MICS_K_SGD)

#undef MICS_DEFINE_LAUNCH

#endif
