/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops.h - the operations that every device has, and their arguments.
 *
 * An operation is enqueued on a stream with a small argument structure, copied at the call. All
 * pointers are device memory. Tensors are contiguous and row-major. Shapes: B batch, T sequence,
 * C channels, H heads, D = C / H, V vocabulary. Gradients of parameters are always accumulated (+=);
 * gradients of activations are written or accumulated as each structure says.
 *
 * Each device has one file per operation, of the same name: kernels/host/layernorm.c,
 * kernels/cuda/layernorm.cu. The host's are the reference for the tests.
 */
#ifndef MICS_KERNELS_OPS_H
#define MICS_KERNELS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mics_kernel {
    MICS_K_ZERO,
    MICS_K_COPY,
    MICS_K_CALL,
    MICS_K_MATMUL,
    MICS_K_BIAS_GRAD,
    MICS_K_LAYERNORM,
    MICS_K_LAYERNORM_GRAD,
    MICS_K_ADD,
    MICS_K_GELU,
    MICS_K_GELU_GRAD,
    MICS_K_ATTENTION,
    MICS_K_ATTENTION_GRAD,
    MICS_K_EMBEDDING,
    MICS_K_EMBEDDING_GRAD,
    MICS_K_CROSS_ENTROPY,
    MICS_K_SQUARED_NORM,
    MICS_K_ADAMW,
    MICS_K_SGD,
    MICS_KERNEL_COUNT
};

/* No argument structure is larger. */
#define MICS_OP_ARGS_MAX 192

struct mics_op_zero {
    void *dst;
    uint64_t bytes;
};

/* Ranges must not overlap, unless src == dst (then nothing is done). Host or device memory. */
struct mics_op_copy {
    void *dst;
    const void *src;
    uint64_t bytes;
};

/* Run fn on the host when the stream gets here. It may block; it must not call the device. fn gets
 * `context`, or where that is NULL the address of the operation's own copy of `payload`: what a call
 * needs to know then lives as long as the call, however far ahead it is enqueued. */
struct mics_op_call {
    void (*fn)(void *context);
    void *context;
    uint64_t payload[20];
};

/* out[m, n] = a' b' + beta out (+ bias[n] on every row), a' = a or its transpose.
 * a is [m, k] ([k, m] when trans_a), b is [k, n] ([n, k] when trans_b); lda, ldb, ldout are the
 * lengths of their rows in elements. beta is 0 or 1; with 0 `out` may hold anything, NaN too.
 * bias may be NULL. */
struct mics_op_matmul {
    float *out;
    const float *a, *b, *bias;
    uint32_t m, n, k;
    uint32_t lda, ldb, ldout;
    bool trans_a, trans_b;
    float beta;
};

/* grad_bias[n] += sum over rows of grad_out[rows, n]. */
struct mics_op_bias_grad {
    float *grad_bias;
    const float *grad_out;
    uint32_t rows, n;
};

/* out = (in - mean) * rstd * weight + bias for each of `rows` rows of C; mean, rstd: [rows], saved
 * for the backward pass. */
struct mics_op_layernorm {
    float *out, *mean, *rstd;
    const float *in, *weight, *bias;
    uint32_t rows, C;
    float eps;
};

/* grad_in += ..., grad_weight[C] += ..., grad_bias[C] += ... */
struct mics_op_layernorm_grad {
    float *grad_in, *grad_weight, *grad_bias;
    const float *grad_out, *in, *weight, *mean, *rstd;
    uint32_t rows, C;
};

/* out[i] = a[i] + b[i]; out may be a or b. */
struct mics_op_add {
    float *out;
    const float *a, *b;
    uint64_t count;
};

/* out = gelu(in), tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). Hendrycks and Gimpel 2016. */
struct mics_op_gelu {
    float *out;
    const float *in;
    uint64_t count;
};

/* grad_in = grad_out * gelu'(in); grad_in may be grad_out. */
struct mics_op_gelu_grad {
    float *grad_in;
    const float *in, *grad_out;
    uint64_t count;
};

/* The widest head (D) that every device takes. */
#define MICS_HEAD_MAX 256

/* out[B, T, C] from qkv[B, T, 3C] (query, key, value of all heads side by side), scaled by
 * 1/sqrt(D), causal; lse[B, H, T] is the log of each row's sum of exponentials, saved for the
 * backward pass. Blocked: no T x T matrix is stored (Dao et al., FlashAttention, 2022). */
struct mics_op_attention {
    float *out, *lse;
    const float *qkv;
    uint32_t B, T, H, D;
    bool causal;
};

/* grad_qkv[B, T, 3C] is written. `delta` is scratch of [B, H, T]. */
struct mics_op_attention_grad {
    float *grad_qkv, *delta;
    const float *grad_out, *out, *qkv, *lse;
    uint32_t B, T, H, D;
    bool causal;
};

/* out[B, T, C] = wte[tokens] + wpe[t]. Tokens were checked: all in [0, V). */
struct mics_op_embedding {
    float *out;
    const int32_t *tokens;
    const float *wte, *wpe;
    uint32_t B, T, C;
};

/* grad_wte[V, C] += ..., grad_wpe[T, C] += ... , in a fixed order of summation. */
struct mics_op_embedding_grad {
    float *grad_wte, *grad_wpe;
    const int32_t *tokens;
    const float *grad_out;
    uint32_t B, T, C, V;
};

/* For each row with 0 <= target < V: *loss_sum += lse(logits) - logits[target], and, where `grad` is
 * set, logits become softmax(logits) - onehot(target): the gradient of the *sum* of the losses. A
 * row with another target (-1: masked) adds nothing and its gradient is 0. logits: [rows, V]. */
struct mics_op_cross_entropy {
    float *logits;
    const int32_t *targets;
    double *loss_sum;
    uint32_t rows, V;
    bool grad;
};

/* *sum += sum of in[i]^2, in double, in a fixed order. */
struct mics_op_squared_norm {
    double *sum;
    const float *in;
    uint64_t count;
};

/* What an update reads on the device when it runs. The order lets one small all-reduce add up the last
 * two while `targets` was added up at the step's beginning. */
struct mics_op_scalars {
    double targets;      /* counted targets of the whole step, over all ranks */
    double loss_sum;     /* of the whole step; over all ranks after the reduction */
    double squared_norm; /* of the summed, unscaled gradients of all parameters, likewise */
    double spare;
};

/* AdamW (Loshchilov and Hutter 2019) on a slice of `count` elements. The gradient is
 * g = grad / targets * min(1, clip / (norm + 1e-6)), norm = sqrt(squared_norm) / targets; clip 0 means none.
 * The first `decay_count` elements decay: param -= lr * weight_decay * param.
 * Nothing is changed when `clip` > 0 and the norm is not finite, or targets is 0.
 * `step` counts from 1. grad is left as it is. */
struct mics_op_adamw {
    float *param, *m, *v;
    const float *grad;
    const struct mics_op_scalars *scalars;
    uint64_t count, decay_count;
    float lr, beta1, beta2, eps, weight_decay, clip;
    uint32_t step;
};

/* momentum = mu * momentum + g; param -= lr * momentum; g (with coupled weight decay) and the
 * conditions as above. As PyTorch's SGD with dampening 0, with momentum starting from 0. */
struct mics_op_sgd {
    float *param, *momentum;
    const float *grad;
    const struct mics_op_scalars *scalars;
    uint64_t count, decay_count;
    float lr, mu, weight_decay, clip;
};

#endif
