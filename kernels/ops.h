/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops.h - the operations that every device has, and their arguments.
 *
 * An operation is enqueued on a stream with an argument structure, which is copied at the call. Its
 * pointers are to device memory, which belongs to the caller and must stay valid until the
 * operation has run. Tensors are contiguous and row-major. Shapes: B batch, T sequence, C channels,
 * H heads of D channels, V vocabulary. Gradients of parameters are always accumulated (+=);
 * gradients of activations are written or accumulated as each structure says.
 *
 * A `void *` is to elements of `dtype` (activations, their gradients, parameters) or of
 * `grad_dtype` (gradients of parameters, where the comment says G): MICS_F32, MICS_BF16, MICS_F16.
 * Sums and statistics are computed in fp32, whatever the types; a result of two bytes is rounded
 * once, when it is stored. Pointers are aligned to 16 bytes, except those that are offset by whole
 * rows or by tensors of 64 elements.
 *
 * The host's operations (kernels/host) are the reference in tests of the GPU's (kernels/cuda). To
 * add an operation: its row and its structure here, mics_host_NAME() and mics_cuda_NAME(), and
 * their tests.
 */
#ifndef MICS_KERNELS_OPS_H
#define MICS_KERNELS_OPS_H

#include "dtype.h"
#include "optimizer.h"

#include <stdbool.h>

/*
 * One row for each operation: ROW(KEY, name, gpu). From it come MICS_K_KEY, mics_launch_name(),
 * mics_host_name(), mics_cuda_name() and the tables of the devices; its arguments are struct
 * mics_args_name. `gpu` is what the GPU's function needs:
 *     STREAM     the CUDA stream does it, without a kernel of ours
 *     PLAIN      nothing
 *     WORKSPACE  the stream's workspace
 *     CHECKED    nothing, but mics_cuda_name_check() says why it would be refused
 */
#define MICS_OPERATIONS(ROW)                                                                       \
    ROW(ZERO, zero, STREAM)                                                                        \
    ROW(COPY, copy, STREAM)                                                                        \
    ROW(CALL, call, STREAM)                                                                        \
    ROW(CAST, cast, PLAIN)                                                                         \
    ROW(ACCUMULATE, accumulate, PLAIN)                                                             \
    ROW(SUM_BLOCKS, sum_blocks, PLAIN)                                                             \
    ROW(MATMUL, matmul, WORKSPACE)                                                                 \
    ROW(BIAS_GRAD, bias_grad, WORKSPACE)                                                           \
    ROW(LAYERNORM, layernorm, WORKSPACE)                                                           \
    ROW(LAYERNORM_GRAD, layernorm_grad, WORKSPACE)                                                 \
    ROW(RMSNORM, rmsnorm, WORKSPACE)                                                               \
    ROW(RMSNORM_GRAD, rmsnorm_grad, WORKSPACE)                                                     \
    ROW(GELU, gelu, PLAIN)                                                                         \
    ROW(GELU_GRAD, gelu_grad, PLAIN)                                                               \
    ROW(SWIGLU, swiglu, PLAIN)                                                                     \
    ROW(SWIGLU_GRAD, swiglu_grad, PLAIN)                                                           \
    ROW(QK_NORM, qk_norm, PLAIN)                                                                   \
    ROW(QK_NORM_GRAD, qk_norm_grad, WORKSPACE)                                                     \
    ROW(ROPE, rope, PLAIN)                                                                         \
    ROW(ATTENTION, attention, CHECKED)                                                             \
    ROW(ATTENTION_GRAD, attention_grad, CHECKED)                                                   \
    ROW(EMBEDDING, embedding, PLAIN)                                                               \
    ROW(EMBEDDING_GRAD, embedding_grad, WORKSPACE)                                                 \
    ROW(CROSS_ENTROPY, cross_entropy, WORKSPACE)                                                   \
    ROW(SELECT_ROWS, select_rows, PLAIN)                                                           \
    ROW(SQUARED_NORM, squared_norm, WORKSPACE)                                                     \
    ROW(LOSS_SCALE, loss_scale, PLAIN)                                                             \
    ROW(UPDATE, update, PLAIN)                                                                     \
    ROW(DIFFERENCE, difference, PLAIN)                                                             \
    ROW(OUTER_UPDATE, outer_update, PLAIN)                                                         \
    ROW(ROUTE, route, PLAIN)                                                                       \
    ROW(ROUTE_GRAD, route_grad, PLAIN)                                                             \
    ROW(ROUTER_LOAD, router_load, WORKSPACE)                                                       \
    ROW(BALANCE_LOSS, balance_loss, PLAIN)                                                         \
    ROW(ROUTER_STATS, router_stats, WORKSPACE)                                                     \
    ROW(SORT_EXPERTS, sort_experts, WORKSPACE)                                                     \
    ROW(GATHER_ROWS, gather_rows, PLAIN)                                                           \
    ROW(COMBINE_ROWS, combine_rows, PLAIN)                                                         \
    ROW(SCATTER_ROWS, scatter_rows, PLAIN)                                                         \
    ROW(DISPATCH_ROUND, dispatch_round, PLAIN)                                                     \
    ROW(GROUPED_MATMUL, grouped_matmul, PLAIN)                                                     \
    ROW(GROUPED_MATMUL_GRAD, grouped_matmul_grad, PLAIN)                                           \
    ROW(EXPERT_SWIGLU, expert_swiglu, PLAIN)                                                       \
    ROW(EXPERT_SWIGLU_GRAD, expert_swiglu_grad, PLAIN)

enum mics_kernel {
#define MICS_KERNEL(KEY, name, gpu) MICS_K_##KEY,
    MICS_OPERATIONS(MICS_KERNEL)
#undef MICS_KERNEL
        MICS_KERNEL_COUNT
};

/* The bytes of all argument structures together. */
#define MICS_ADD_ARGUMENT_BYTES(KEY, name, gpu) +sizeof(struct mics_args_##name)
#define MICS_KERNEL_ARGUMENT_BYTES              (0 MICS_OPERATIONS(MICS_ADD_ARGUMENT_BYTES))

/* No argument structure is larger. */
#define MICS_ARGS_MAX 192

struct mics_args_zero {
    void *dst;
    uint64_t bytes;
};

/* The ranges must not overlap, unless src == dst (then nothing is done). Host or device memory. */
struct mics_args_copy {
    void *dst;
    const void *src;
    uint64_t bytes;
};

/* Call fn on the host when the stream reaches the operation. fn may block; it must not call the
 * device. It gets `context`, or where that is NULL the address of the operation's own copy of
 * `payload`, which lives as long as the call. */
struct mics_args_call {
    void (*fn)(void *context);
    void *context;
    uint64_t payload[22];
};

/* dst[i] = src[i], converted from MICS_F32 to MICS_BF16 or MICS_F16 or back, or of the same type.
 * The ranges must not overlap, unless dst == src and the types are equal. */
struct mics_args_cast {
    void *dst;
    const void *src;
    uint64_t count;
    enum mics_dtype dst_dtype, src_dtype;
};

/* sum[i] += in[i], in fp32. `in` is of type dtype. */
struct mics_args_accumulate {
    float *sum;
    const void *in;
    uint64_t count;
    enum mics_dtype dtype;
};

/* dst[i] = src_0[i] + ... + src_(parts - 1)[i], added in fp32 in this order, where array src_p
 * begins p * stride bytes behind src. Each of the types is MICS_F32, MICS_BF16, MICS_F16,
 * MICS_INT8 or MICS_INT4; of the latter two whole blocks are read and written. parts >= 1; pointers
 * and stride are multiples of 4 bytes (2 with types of two). dst overlaps no src. One part: a cast.
 *
 * A number of steps is rounded to nearest, ties to even; if stochastic, to one of its neighbours at
 * random, with the probabilities that make the mean exact. These random numbers are a function of
 * seed, step, replica and the element's number, which is `first` (a multiple of MICS_BLOCK) for
 * dst[0]; replica < 2^31. The quotient that is rounded may be off by 2^-16 of a step. Equal bits on
 * all devices, but for the bits of a NaN in fp32 or bf16. */
struct mics_args_sum_blocks {
    void *dst;
    const void *src;
    uint64_t count;
    uint64_t stride;
    uint32_t parts;
    enum mics_dtype dst_dtype, src_dtype;
    bool stochastic; /* the rest is ignored otherwise */
    uint32_t replica;
    uint64_t seed;
    uint32_t step;
    uint64_t first;
};

/* x[m, n] = a' b' (+ add[m, n]) (+ bias[n] on every row), a' = a or its transpose; out = x, or one
 * of
 *     pre_gelu set:   pre_gelu = x, out = gelu(pre_gelu)     (both [m, n] with rows of ldout)
 *     gelu_of set:    out = x * gelu'(gelu_of)               (gelu_of [m, n] with rows of ldout)
 * a is [m, k] ([k, m] when trans_a), b is [k, n] ([n, k] when trans_b); lda, ldb, ldout are the
 * lengths of their rows in elements; add has rows of ldout, too, and may be out. a, b, bias,
 * pre_gelu and gelu_of are of type dtype; out and add of out_dtype (G for gradients of parameters:
 * add = out accumulates). bias, add, pre_gelu and gelu_of may be NULL; pre_gelu and gelu_of are not
 * set together. Without add, `out` is not read: it may hold NaN. gelu(pre_gelu) is of the stored
 * value, rounded to dtype, so that mics_args_gelu of it gives the same bits; only where cuBLASLt
 * fuses the GELU into the product may it be of x. */
struct mics_args_matmul {
    void *out;
    const void *a, *b, *bias, *add;
    void *pre_gelu;
    const void *gelu_of;
    uint32_t m, n, k;
    uint32_t lda, ldb, ldout;
    bool trans_a, trans_b;
    enum mics_dtype dtype, out_dtype;
};

/* How a device computes products of one shape, once chosen. Devices of equal `tuning` that are
 * given the same choice compute the same bits. */
struct mics_matmul_choice {
    uint64_t product;      /* the shape */
    uint8_t algorithm[64]; /* the library's */
    uint8_t bias, gelu;    /* 1: the library fuses it */
};

/* grad_bias[n] (G) += sum over rows of grad_out[rows, n], in a fixed order. */
struct mics_args_bias_grad {
    void *grad_bias;
    const void *grad_out;
    uint32_t rows, n;
    enum mics_dtype dtype, grad_dtype;
};

/* out = (in - mean) * rstd * weight + bias for each of `rows` rows of C; mean, rstd: [rows], saved
 * for the backward pass. Ba, Kiros and Hinton 2016. */
struct mics_args_layernorm {
    void *out;
    float *mean, *rstd;
    const void *in, *weight, *bias;
    uint32_t rows, C;
    float eps;
    enum mics_dtype dtype;
};

/* grad_in += ..., grad_weight[C] (G) += ..., grad_bias[C] (G) += ..., in a fixed order. */
struct mics_args_layernorm_grad {
    void *grad_in, *grad_weight, *grad_bias;
    const void *grad_out, *in, *weight;
    const float *mean, *rstd;
    uint32_t rows, C;
    enum mics_dtype dtype, grad_dtype;
};

/* out = in * rstd * weight, rstd = 1 / sqrt(mean(in^2) + eps): Zhang and Sennrich 2019. */
struct mics_args_rmsnorm {
    void *out;
    float *rstd;
    const void *in, *weight;
    uint32_t rows, C;
    float eps;
    enum mics_dtype dtype;
};

/* grad_in += ..., grad_weight[C] (G) += ... */
struct mics_args_rmsnorm_grad {
    void *grad_in, *grad_weight;
    const void *grad_out, *in, *weight;
    const float *rstd;
    uint32_t rows, C;
    enum mics_dtype dtype, grad_dtype;
};

/* out = gelu(in), tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). If exact, x times the
 * normal distribution function instead: 0.5 x (1 + erf(x / sqrt(2))). Hendrycks and Gimpel 2016. */
struct mics_args_gelu {
    void *out;
    const void *in;
    uint64_t count;
    enum mics_dtype dtype;
    bool exact;
};

/* grad_in = grad_out * gelu'(in), of the same form; grad_in may be grad_out. */
struct mics_args_gelu_grad {
    void *grad_in;
    const void *in, *grad_out;
    uint64_t count;
    enum mics_dtype dtype;
    bool exact;
};

/* out[rows, F] = silu(gate) * up, silu(x) = x / (1 + exp(-x)); in[rows, 2F] is gate, up side by
 * side in each row. Shazeer 2020. */
struct mics_args_swiglu {
    void *out;
    const void *in;
    uint32_t rows, F;
    enum mics_dtype dtype;
};

/* grad_in[rows, 2F] is written; it may be in. */
struct mics_args_swiglu_grad {
    void *grad_in;
    const void *in, *grad_out;
    uint32_t rows, F;
    enum mics_dtype dtype;
};

/* Root mean square norms of each of H heads of queries, of D elements, and H_kv heads of keys, of
 * D_kv: in[rows, H D + 2 H_kv D_kv] holds queries, keys and values side by side, as attention takes
 * them. out = in * rstd * weight, with q_weight[D] and k_weight[D_kv]; values are copied. out may
 * not be in. rstd[rows, H + H_kv] is saved for the backward pass. Norms of all queries of a row,
 * and of all keys, are those of one head each. */
struct mics_args_qk_norm {
    void *out;
    float *rstd;
    const void *in, *q_weight, *k_weight;
    uint32_t rows, H, H_kv, D, D_kv;
    float eps;
    enum mics_dtype dtype;
};

/* grad[rows, H D + 2 H_kv D_kv]: the gradient of out becomes that of in, in place; that of values
 * stays. grad_q_weight[D] (G) += ..., grad_k_weight[D_kv] (G) += ..., in a fixed order. */
struct mics_args_qk_norm_grad {
    void *grad, *grad_q_weight, *grad_k_weight;
    const void *in, *q_weight, *k_weight;
    const float *rstd;
    uint32_t rows, H, H_kv, D, D_kv;
    enum mics_dtype dtype, grad_dtype;
};

/* How the frequencies f of rotary positions are scaled, for sequences longer than a model was first
 * trained on: PLAIN, not at all; LINEAR, by 1 / factor; LLAMA3, of Llama 3.1, by 1 / factor where
 * the wavelength exceeds original_positions / low_freq_factor, not at all where it is below
 * original_positions / high_freq_factor, and in between in proportion to original_positions f / 2
 * pi; DYNAMIC, not at all up to the positions of the model; YARN (Peng et al. 2023), by 1 / factor
 * from the pair of channels on that turns beta_slow times in original_positions, not at all up to
 * that which turns beta_fast times, and in between in proportion to the pair's number; cosines and
 * sines are multiplied by attention_factor. factor >= 1, 0 < low_freq_factor < high_freq_factor. */
enum mics_rope_kind {
    MICS_ROPE_PLAIN,
    MICS_ROPE_LINEAR,
    MICS_ROPE_LLAMA3,
    MICS_ROPE_DYNAMIC,
    MICS_ROPE_YARN
};
struct mics_rope_scaling {
    enum mics_rope_kind kind;
    uint32_t original_positions; /* LLAMA3's and YARN's */
    double factor;
    double low_freq_factor, high_freq_factor; /* LLAMA3's */
    double beta_fast, beta_slow;              /* YARN's, as the two below */
    double attention_factor;
    bool truncate; /* the first and the last pair of the range in between are whole numbers */
};

/* Rotary positions (Su et al. 2021) in place, in the rotate-half form: for each of the first
 * `heads` heads of D elements of every row of data[B * T, stride], at position t = row mod T and
 * for i < D/2,
 *     (x[i], x[i + D/2]) is rotated by the angle t * base^(-2 i / D),
 * or by its negative when `inverse` (the gradient); with YARN both are also multiplied by
 * attention_factor. The angle is computed in fp32 from exactly rounded frequencies, scaled as in
 * rope.h. D is even. */
struct mics_args_rope {
    void *data;
    uint32_t B, T, heads, D, stride;
    float base;
    bool inverse;
    enum mics_dtype dtype;
    struct mics_rope_scaling scaling; /* all 0: plain */
};

/* Targets that no loss is computed of. LAST also ends a document: attention of operations that are
 * given the targets does not cross it. */
#define MICS_TARGET_NONE (-1)
#define MICS_TARGET_LAST (-2)

/* The widest head (D) that every device takes. */
#define MICS_HEAD_MAX 256

/* out[B, T, H D] from qkv[B, T, (H + 2 H_kv) D]: queries of all heads, then keys, then values, side
 * by side in each row; scaled by 1/sqrt(D), causal or full. H_kv divides H: query head h uses key
 * head h / (H / H_kv) (grouped queries, Ainslie et al. 2023; without grouping H_kv = H). lse[B, H,
 * T] is the log of each row's sum of exponentials, saved for the backward pass. Computed in blocks:
 * no T x T matrix is stored (Dao, FlashAttention-2, 2023).
 *
 * With targets[B, T] sequences are made of documents: a token with MICS_TARGET_LAST is the last of
 * its document, and no token sees one of another document. NULL: whole sequences. With a window,
 * which is causal only, a token sees the last `window` tokens, itself included; 0: all. */
struct mics_args_attention {
    void *out;
    float *lse;
    const void *qkv;
    uint32_t B, T, H, H_kv, D;
    bool causal;
    enum mics_dtype dtype;
    const int32_t *targets;
    uint32_t window;
};

/* grad_qkv[B, T, (H + 2 H_kv) D] is written. `delta` is scratch of [B, H, T]; targets and window as
 * above. */
struct mics_args_attention_grad {
    void *grad_qkv;
    float *delta;
    const void *grad_out, *out, *qkv;
    const float *lse;
    uint32_t B, T, H, H_kv, D;
    bool causal;
    enum mics_dtype dtype;
    const int32_t *targets;
    uint32_t window;
};

/* The window of a sequence of T; 0: all tokens are seen. */
static inline uint32_t mics_attention_window(uint32_t window, uint32_t T)
{
    return window < T ? window : 0;
}

/* out[B, T, C] = wte[tokens] (+ wpe[t]) (+ each[C]), added in this order. The caller has checked
 * that all tokens are in [0, V). wpe and `each` may be NULL. */
struct mics_args_embedding {
    void *out;
    const int32_t *tokens;
    const void *wte, *wpe;
    uint32_t B, T, C;
    enum mics_dtype dtype;
    const void *each;
};

/* grad_wte[V, C] (G) += ..., grad_wpe[T, C] (G) += ... unless NULL, in a fixed order of
 * summation. */
struct mics_args_embedding_grad {
    void *grad_wte, *grad_wpe;
    const int32_t *tokens;
    const void *grad_out;
    uint32_t B, T, C, V;
    enum mics_dtype dtype, grad_dtype;
};

/* For each row with 0 <= target < V: *loss_sum += lse(logits) - logits[target], and, where `grad`
 * is set, logits become softmax(logits) - onehot(target): the gradient of the *sum* of the losses,
 * times *grad_scale unless that is NULL.
 * A row with another target (MICS_TARGET_NONE or LAST) adds nothing and its gradient is 0. *hits,
 * unless NULL, grows by the number of rows whose target has the largest logit, alone or not.
 * logits: [rows, V] with rows of ld elements, 0: V; the elements between rows are neither read nor
 * written. */
struct mics_args_cross_entropy {
    void *logits;
    const int32_t *targets;
    double *loss_sum;
    uint32_t rows, V, ld;
    bool grad;
    enum mics_dtype dtype;
    double *hits;
    const double *grad_scale;
};

/* order[most]: the rows with 0 <= targets[row], in ascending order, then the first of all other
 * rows. selected[i] = targets[order[i]]. If more than `most` rows have such a target, *loss_sum
 * becomes NaN, so that none is left out silently. most <= rows. */
struct mics_args_select_rows {
    uint32_t *order;
    int32_t *selected;
    double *loss_sum;
    const int32_t *targets;
    uint32_t rows, most;
};

/* *sum += sum of in[i]^2, in double, in a fixed order; with check_only it stays as it is if that is
 * finite, and becomes NaN if not. */
struct mics_args_squared_norm {
    double *sum;
    const float *in;
    uint64_t count;
    bool check_only;
};

/* What an update reads from device memory when it runs. The order lets one small all-reduce add up
 * loss_sum and squared_norm, while `targets` was added up when the step began. */
struct mics_args_scalars {
    /* Counted targets of the gradients, over all ranks: of the whole step, or of all steps since
     * the units' last update. */
    double targets;
    double loss_sum; /* of the whole step; over all ranks after the reduction */
    union {
        double squared_norm; /* of the summed gradients of all parameters, likewise */
        double hits;         /* of an evaluation: see struct mics_args_cross_entropy */
    };
    union {
        double step_targets; /* of the whole step, where that differs from `targets` */
        double skipped;      /* see struct mics_args_loss_scale */
    };
};

/* The scale of fp16's gradients, in device memory: those of a step are multiplied by `factor`, so
 * that few are too small for fp16 and none is too large. */
struct mics_loss_scale {
    double factor;      /* of the step to come; a power of two */
    double used;        /* of the last step */
    uint64_t overflows; /* steps in which a gradient or the loss was not finite */
    uint32_t clean;     /* steps without since the factor has changed, or since the last one with */
    uint32_t patience;  /* until the factor falls, in such steps */
    uint32_t overflow;  /* 1: the last step was one */
    uint32_t at_minimum; /* 1: it was, and the factor should have fallen below the least */
};

/* End a step, whose gradients were multiplied by `factor`: `used` takes it, squared_norm is divided
 * by its square, and `overflow` says whether squared_norm or loss_sum is not finite. In such a step
 * the patience falls by one, and where it is 1 already, the factor by `step`, but not below `min`.
 * After `window` steps without in a row the factor rises by `step`, up to `max`, and the patience
 * is `hysteresis` again; window 0: never. With `drains`, an update without a step, one without
 * counts for nothing.
 * With `counts`, scalars->skipped is written: whether there was an overflow, or infinity if the
 * factor should have fallen below the least. */
struct mics_args_loss_scale {
    struct mics_loss_scale *state;
    struct mics_args_scalars *scalars;
    double step, min, max;
    uint32_t window, hysteresis;
    bool drains, counts;
};

/* One step of an optimizer on a slice of `count` elements, all fp32. `copy`, unless NULL, takes the
 * updated parameters in bf16, or in fp16 if copy_f16. The gradient is
 *     g = grad / scale / targets * min(1, clip / (norm + 1e-6))
 * with norm = sqrt(squared_norm) / targets, and scale 1, or loss_scale->used; clip 0 means no
 * clipping. Nothing changes, and the copy takes the old parameters, when targets is 0, or clip >
 * 0 and the norm or loss_sum is not finite, or loss_scale->overflow is set.
 * Only the first `decay_count` elements decay. grad is not written. With wd = weight_decay:
 *
 *     AdamW (Loshchilov and Hutter 2019), state m, v:
 *         m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2
 *         param -= lr (m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps) + wd param)
 *     SGD as PyTorch's with dampening 0, state m, which begins at 0; the decay is coupled:
 *         m = momentum m + g + wd param
 *         param -= lr m
 *     Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms"), state m:
 *         u = beta1 m + (1 - beta1) g
 *         param -= lr (sign(u) + wd param), sign(0) = 0
 *         m = beta2 m + (1 - beta2) g */
struct mics_args_update {
    enum mics_optimizer optimizer;
    double step; /* from 1; a fraction where beta1 and beta2 are those of several steps */
    float *param;
    float *state[MICS_OPTIMIZER_STATES_MAX]; /* as many as the optimizer has, the others NULL */
    uint16_t *copy;
    const float *grad;
    const struct mics_args_scalars *scalars;
    uint64_t count, decay_count;
    float lr;
    struct mics_optimizer_settings settings;
    bool copy_f16;
    const struct mics_loss_scale *loss_scale; /* NULL: none */
};

/* dst = scale * (a - b), or scale * a where b is NULL. dst may be a. */
struct mics_args_difference {
    float *dst;
    const float *a, *b;
    uint64_t count;
    float scale;
};

/* An outer step of DiLoCo (Douillard et al. 2023), SGD with Nesterov momentum, on `count` elements:
 *
 *     d = scale * delta, momentum = mu momentum + d, anchor -= lr (d + mu momentum)
 *
 * param takes the new anchor, and so does `copy`, unless NULL, in bf16, or in fp16 if copy_f16.
 * delta is the sum over replicas of what the parameters have moved away from the anchor since the
 * last outer step, with the sign of a gradient: anchor - param. It is not written. */
struct mics_args_outer_update {
    float *param, *anchor, *momentum;
    uint16_t *copy;
    const float *delta;
    uint64_t count;
    float scale, lr, mu;
    bool copy_f16;
};

/*
 * Mixture of experts. Each of `rows` tokens is computed by k of E experts: it has k slots, in the
 * order in which the router chose them. Slot j of token r is assignment r k + j, of rows k in all.
 * Assignments are sorted by expert, so that each expert has a range of rows; all sizes but those
 * ranges are known beforehand. 1 <= k <= E <= MICS_EXPERTS_MAX. No result depends on the number of
 * threads or blocks.
 */

#define MICS_EXPERTS_MAX 1024
#define MICS_NO_ROW      UINT32_MAX

/* The choice of a router. experts[rows, k]: the indices of the k largest of a row's logits[rows, E]
 * (fp32), largest first; of equal logits the lower index comes first. weights[rows, k] of these: p
 * = softmax over all E logits, or with `renormalise` over the k chosen. A NaN counts as less than
 * every number, and of several the lower index comes first: the experts of a row are always
 * distinct and in [0, E). */
struct mics_args_route {
    int32_t *experts;
    float *weights;
    const float *logits;
    uint32_t rows, E, k;
    bool renormalise;
};

/* grad_logits[rows, E] (of type dtype) is written: through the softmax of the weights, from
 * grad_weights[rows, k], and from two losses of balance. With p the softmax over all E logits of a
 * row:
 *     g[e]           = grad_weights of the slot that has expert e, else 0
 *     renormalise:     dl[e] = w[e] (g[e] - sum over chosen w g), w the saved weights; else 0
 *     otherwise:       dl[e] = p[e] (g[e] - sum over chosen p g), for all e
 *     balance set:     dl[e] += p[e] (b[e] - sum over all p b), b = balance[r / group_rows]
 *     z_coefficient:   dl[e] += 2 z_coefficient logsumexp(logits) p[e] where targets[r] >= 0
 * What the two losses add is multiplied by *grad_scale unless that is NULL, as grad_weights are.
 * balance[ceil(rows / group_rows), E] or NULL, of mics_args_balance_loss. targets[rows] may be NULL
 * where z_coefficient is 0. */
struct mics_args_route_grad {
    void *grad_logits;
    const float *logits;
    const int32_t *experts;
    const float *weights, *grad_weights;
    const float *balance;
    const int32_t *targets;
    uint32_t rows, E, k, group_rows;
    float z_coefficient;
    bool renormalise;
    enum mics_dtype dtype;
    const double *grad_scale;
};

/* What losses of balance need of the choice of a router. rows are cut into groups of group_rows
 * (the last may be smaller). load[groups, 2 E] is written: for each group the number of assignments
 * of each expert, then the sum over its rows of the softmax of the logits, each plus `add` (of the
 * same shape) unless NULL, which may be load. And, if z_coefficient > 0, *loss_sum += z_coefficient
 * times the sum of logsumexp(logits)^2 over rows with targets[r] >= 0, and so is *own_sum, unless
 * NULL. Fixed order of summation. */
struct mics_args_router_load {
    float *load;
    double *loss_sum;
    const float *logits, *add;
    const int32_t *experts;
    const int32_t *targets;
    uint32_t rows, E, k, group_rows;
    float z_coefficient;
    double *own_sum;
};

/* The auxiliary loss of Fedus et al. 2021 as transformers computes it, for each group: with counts
 * n[e] and sums P[e] of load[groups, 2 E], each over `divisor` rows,
 *     aux = E sum over e of (n[e] / divisor) (P[e] / divisor)
 * which is at least k. It is added with the weight of the group's targets, t = the number of
 * targets[groups, group_rows] that are not negative:
 *     *loss_sum += coefficient t aux
 *     balance[groups, E] = coefficient t E n[e] / divisor^2, its gradient by a row's softmax
 * balance may be NULL. What is added to *loss_sum is added to *own_sum, too, unless it is NULL. */
struct mics_args_balance_loss {
    float *balance;
    double *loss_sum;
    const float *load;
    const int32_t *targets;
    uint32_t groups, group_rows, E;
    double coefficient, divisor;
    double *own_sum;
};

/* What is reported of a router: stats[0] += the sum over rows of the entropy of the softmax of
 * their logits[rows, E], in nats; stats[1 + e] += the rows that offsets[E + 1] give expert e. Fixed
 * order of summation. */
struct mics_args_router_stats {
    double *stats;
    const float *logits;
    const uint32_t *offsets;
    uint32_t rows, E;
};

/* Sort assignments by expert, stably. offsets[E + 1]: expert e has sorted rows [offsets[e],
 * offsets[e + 1]). order[rows k]: the assignment of each sorted row; position[rows k], its inverse:
 * the sorted row of each assignment. With a `capacity` an expert has at most so many rows, those of
 * its first assignments; the position of others is MICS_NO_ROW, and so is order[] behind the last
 * row. */
struct mics_args_sort_experts {
    uint32_t *offsets, *order, *position;
    const int32_t *experts;
    uint32_t rows, E, k;
    uint32_t capacity; /* 0: no limit */
};

/* out[i] = in[order[i] / k], rows of C, i < rows k. Where order[i] is MICS_NO_ROW, out[i] stays as
 * it is. */
struct mics_args_gather_rows {
    void *out;
    const void *in;
    const uint32_t *order;
    uint32_t rows, k, C;
    enum mics_dtype dtype;
};

/* out[r] = add[r] + in[position[r k]] + ... + in[position[r k + k - 1]], rows of C, r < rows; added
 * in fp32 in this order and rounded once. add may be NULL, or out. A position that is MICS_NO_ROW
 * adds nothing. */
struct mics_args_combine_rows {
    void *out;
    const void *in, *add;
    const uint32_t *position;
    uint32_t rows, k, C;
    enum mics_dtype dtype;
};

/* out[order[i]] = in[i], rows of C, i < rows; where order[i] is MICS_NO_ROW, in[i] goes nowhere. No
 * two rows go to the same place. */
struct mics_args_scatter_rows {
    void *out;
    const void *in;
    const uint32_t *order;
    uint32_t rows, C;
    enum mics_dtype dtype;
};

/* Rows that travel to the experts of other ranks. Expert e is on rank e / (E / ranks). In round t
 * each rank sends up to `slots` of its sorted rows to each rank: slot d slots + i, for rank d, has
 * row offsets[d E / ranks] + t slots + i of its own, if that is a row of d's experts; else it is
 * empty. From offsets[ranks, E + 1], those of mics_args_sort_experts of all ranks, and `order`, of
 * this one, are written for round t:
 *     row[ranks slots], assignment[ranks slots]   what this rank sends: sorted row and assignment
 *                                                 of each slot; MICS_NO_ROW: empty
 *     received_offsets[E / ranks + 1]             what it receives, slot s slots + i from rank s:
 *     received[ranks slots]                       the rows of each of its experts, and the slot of
 *                                                 each of these rows; MICS_NO_ROW behind the last.
 *                                                 Rows of an expert are in the order of slots
 *     *active                                     is there a row in this round, on any rank? */
struct mics_args_dispatch_round {
    uint32_t *row, *assignment;
    uint32_t *received_offsets, *received;
    uint32_t *active;
    const uint32_t *offsets, *order;
    uint32_t ranks, rank, E, slots, round;
};

/* For each expert e, with the rows of a and out that offsets[E + 1] (device memory) gives it:
 *     out[, n] = a[, k] b_e,   b_e = [k, n], or [n, k] when trans_b, at b + e * stride elements
 * Rows of a, b and out are contiguous. offsets[E], the sum over experts, is at most `rows`: launch
 * sizes follow from that, whatever the offsets are. stride is a multiple of MICS_TENSOR_ALIGN (64).
 */
struct mics_args_grouped_matmul {
    void *out;
    const void *a, *b;
    const uint32_t *offsets;
    uint64_t stride;
    uint32_t rows, E, n, k;
    bool trans_b;
    enum mics_dtype dtype;
};

/* The gradients of the experts' matrices: for each expert e, over its rows i of a and b,
 *     out_e[m, n] = sum over i of a[i, m] b[i, n] (+ out_e if `add`), out_e at out + e * stride
 * out is of G. An expert without rows writes zeros, or with `add` nothing. What is between m n and
 * stride is not touched. */
struct mics_args_grouped_matmul_grad {
    void *out;
    const void *a, *b;
    const uint32_t *offsets;
    uint64_t stride;
    uint32_t rows, E, m, n;
    bool add;
    enum mics_dtype dtype, grad_dtype;
};

/* out[i, F] = weights[order[i]] silu(gate) * up for each sorted row i < rows (tokens times k);
 * in[rows, 2F] is gate, up side by side in each row. The router's weight is applied here, so that
 * the second product of an expert gives what is added to its token. Rows whose order is MICS_NO_ROW
 * are left as they are, here and in the gradient. order NULL: order[i] is i. With `logistic` the
 * weight is the logistic function of weights[order[i]]. */
struct mics_args_expert_swiglu {
    void *out;
    const void *in;
    const float *weights;
    const uint32_t *order;
    uint32_t rows, F;
    enum mics_dtype dtype;
    bool logistic;
};

/* From grad_out[rows, F], the gradient of out above: grad_weights[order[i]] = sum over F of
 * grad_out silu(gate) * up (written, one for each assignment), with `logistic` times w (1 - w) of
 * the weight w, and grad_in[rows, 2F] is written; it may be in. */
struct mics_args_expert_swiglu_grad {
    void *grad_in;
    float *grad_weights;
    const void *in, *grad_out;
    const float *weights;
    const uint32_t *order;
    uint32_t rows, F;
    enum mics_dtype dtype;
    bool logistic;
};

#endif
