/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transformer.h - an embedding, L blocks and a head, computed as the family's row says
 * (family.h). Private to lib/model.
 *
 * Shapes: R = B T rows, C = n_embd, F = n_inner, H heads of D channels for queries, H_kv for keys
 * and values, A = H D channels of all queries, W = (H + 2 H_kv) D of queries, keys and values, V
 * vocabulary. In layers with experts: E experts, k of each token, N = R k assignments
 * of tokens to experts, I the experts' n_inner.
 */
#ifndef MICS_MODEL_TRANSFORMER_TRANSFORMER_H
#define MICS_MODEL_TRANSFORMER_TRANSFORMER_H

#include "model/family.h"
#include "model/model.h"

extern const struct mics_model_ops mics_transformer_ops;

struct mics_transformer_dims {
    uint32_t rows, C, F, H, H_kv, D, A, W;
    uint32_t hidden; /* of the MLP's first product: F, or 2 F of gate and up side by side */
    uint32_t E, k, N, I;
    uint32_t taken; /* of the N at most so many are not dropped; a multiple of k */
};

struct mics_transformer_dims mics_transformer_dims_of(const struct mics_model *model,
                                                      const struct mics_batch *batch);
/* The same, with F and `hidden` those of what the dense unit of a layer has: an MLP, or beside a
 * router the shared expert, or nothing (0). */
struct mics_transformer_dims mics_transformer_layer_dims_of(const struct mics_model *model,
                                                            const struct mics_batch *batch,
                                                            uint32_t layer);

/* Does the block of a layer have that tensor? */
bool mics_transformer_has(const struct mics_model *model, uint32_t layer,
                          enum mics_block_tensor tensor);

/* The index in its unit of a tensor that the block of a layer has. */
uint32_t mics_transformer_block_index(const struct mics_model *model, uint32_t layer,
                                      enum mics_block_tensor tensor);
/* The same of the embedding or of the head; MICS_NO_TENSOR: the family has no such tensor. */
uint32_t mics_transformer_embed_head_index(const struct mics_model *model,
                                           enum mics_embed_head_tensor tensor);

/*
 * layers.c: a linear layer and a norm on a device, with their gradients.
 */

/* What names no tensor: a layer without a bias. */
#define MICS_NO_TENSOR UINT32_MAX

struct mics_linear {
    struct mics_stream *stream;
    const void *weight, *bias; /* [in, out] or, transposed, [out, in]; [out] or NULL */
    void *grad_weight, *grad_bias;
    uint32_t in, out;
    bool transposed;
    bool writes_grad;                  /* grad_weight is written, not added to */
    enum mics_dtype dtype, grad_dtype; /* of all but the gradients of parameters, and of those */
};

/* A linear layer of the tensors at indices `weight` and `bias` of a unit. */
struct mics_linear mics_linear_of(const struct mics_pass *pass, uint32_t unit, uint32_t weight,
                                  uint32_t bias, uint32_t in, uint32_t out);

/* out[rows, out] = in[rows, in] weight + bias, weight as [in, out]; with a residual[rows, out]
 * added. */
void mics_linear_forward(const struct mics_linear *layer, uint32_t rows, const void *in, void *out);
void mics_linear_forward_add(const struct mics_linear *layer, uint32_t rows, const void *in,
                             const void *residual, void *out);
/* The same into fp32, without a residual. */
void mics_linear_forward_f32(const struct mics_linear *layer, uint32_t rows, const void *in,
                             float *out);
/* pre = in weight + bias, out = gelu(pre), both [rows, out]. */
void mics_linear_forward_gelu(const struct mics_linear *layer, uint32_t rows, const void *in,
                              void *pre, void *out);
/* grad_weight += in' grad_out, or = if the layer writes it, stored as the weight is; grad_bias +=
 * column sums of grad_out. */
void mics_linear_grad_params(const struct mics_linear *layer, uint32_t rows, const void *in,
                             const void *grad_out);
/* grad_in[rows, in] = grad_out weight' (+ add[rows, in], which may be grad_in); behind a GELU times
 * its derivative at pre[rows, in]. */
void mics_linear_grad_in(const struct mics_linear *layer, uint32_t rows, const void *grad_out,
                         const void *add, void *grad_in);
void mics_linear_grad_in_gelu(const struct mics_linear *layer, uint32_t rows, const void *grad_out,
                              const void *pre, void *grad_in);

/* The statistics of a norm's rows, saved for its gradient. */
struct mics_norm_stats {
    float *mean, *rstd; /* [rows]; the mean is NULL in a root mean square norm */
};

struct mics_norm {
    struct mics_stream *stream;
    enum mics_norm_kind kind;
    const void *weight, *bias; /* [C]; no bias in a root mean square norm */
    void *grad_weight, *grad_bias;
    struct mics_norm_stats stats;
    uint32_t C;
    float eps;
    enum mics_dtype dtype, grad_dtype;
};

struct mics_norm mics_norm_of(const struct mics_pass *pass, uint32_t unit, uint32_t weight,
                              uint32_t bias, const struct mics_norm_stats *stats);

/* out[rows, C] = norm of in; the statistics are written. */
void mics_norm_forward(const struct mics_norm *norm, uint32_t rows, const void *in, void *out);
/* grad_in += ..., and the gradients of the parameters. */
void mics_norm_backward(const struct mics_norm *norm, uint32_t rows, const void *in,
                        const void *grad_out, void *grad_in);

/*
 * activations.c: where a stage keeps its activations.
 */

/* The memory of one block's pass. What the forward pass leaves for the backward pass is in the
 * saved area or, where the whole block is recomputed, in the scratch area, computed again by the
 * backward pass. */
struct mics_block_activations {
    struct mics_norm_stats norm_1, norm_2;
    void *qkv; /* [R, W]: what the product puts out; with rotary positions rotated in place, unless
                        heads are normalised first */
    float *qk_rstd;  /* [R, H + H_kv], of the norms of heads */
    void *attended;  /* [R, W]: what attention takes: qkv, or qkv normalised and rotated */
    float *lse;      /* [B, H, T] */
    void *attention; /* [R, A] */
    void *middle;    /* [R, C]: the residual stream after attention */
    void *hidden; /* [R, F] before GELU, or [R, 2F] of gate and up, replaced by their gradients */
    /* Norms before: their outputs. Saved if nothing is recomputed; otherwise both use wide_b. */
    void *normed_1, *normed_2; /* [R, C] */
    void *sum_1, *sum_2;       /* [R, C]. Norms after: what they take */
    void *activated;           /* [R, F]; saved if nothing is recomputed, else wide_a */
    /* Always scratch. */
    void *wide_a;   /* [R, max(F, C, A)]; [R, max(C, A)] if nothing is recomputed */
    void *wide_b;   /* [R, max(F, C, W)]; [R, max(F, W)] if nothing is recomputed */
    float *delta;   /* [B, H, T] */
    void *grad_out; /* [R, C] with norms after or a parallel residual: the gradient of an output */
    /* For a layer with experts, whose normed_2 is a boundary tensor, and so is its middle if there
     * is no shared expert. */
    float *logits;        /* [R, E], saved at every level */
    float *balance;       /* [B, E], of an auxiliary loss by sequence, likewise */
    float *load;          /* [B, 2 E], scratch */
    void *grad_logits;    /* [R, E], scratch; before the router's those of the shared expert, [R] */
    float *shared_logits; /* [R], saved as `hidden` is */
    float *shared_grad_logits; /* [R], scratch */
};

/* What a router has chosen: a boundary tensor. */
struct mics_routing {
    int32_t *experts; /* [R, k] */
    float *weights;   /* [R, k] */
    uint32_t *offsets, *order, *position;
};

/* The layout of a boundary tensor of `value` bytes at base, or with NULL only its size. */
struct mics_routing mics_routing_of(const struct mics_model *model, const struct mics_batch *batch,
                                    void *base, uint64_t *bytes);

/* The memory of a pass of experts, whose rows are assignments in the order of experts. */
struct mics_expert_activations {
    void *taken;     /* [N, C]: saved if nothing is recomputed, else scratch */
    void *hidden;    /* [N, 2 I]: gate and up, replaced by their gradients; saved but at FULL */
    void *activated; /* [N, I], times the router's weight; saved if nothing is recomputed */
    void *rows;      /* [N, C], scratch: results, or the gradients of results, then of `taken` */
    void *grad_activated; /* [N, I], scratch */
};

/* The embedding's, with a norm behind it; its backward pass computes the sums again. */
struct mics_embed_activations {
    struct mics_norm_stats norm;
    void *sum, *normed, *grad; /* [R, C] */
};

/* What a rank sends and gets back, or receives and sends back, in a round: Q = expert_ranks slots
 * rows, in slots. */
struct mics_dispatch_buffers {
    void *x;                       /* [Q, C]: what experts take; then results, or their gradients */
    void *grad;                    /* [Q, C]: gradients of results */
    float *weights, *grad_weights; /* [Q] */
};

/* The memory of a pass of experts to which tokens travel. What a rank receives depends on the
 * choices of all, so nothing of it is saved: the backward pass receives it again. */
struct mics_dispatch_activations {
    uint32_t *offsets; /* [expert_ranks, E + 1], saved: of all ranks */
    struct mics_dispatch_buffers sent, received;
    uint32_t *row, *assignment, *received_offsets, *received_slots, *active;
    struct mics_expert_activations experts; /* of Q rows, all scratch */
    void *sorted;                           /* [N, C]: what has come back */
};

/* The head works on a chunk of `rows` rows at a time, of `total` in all. Those are all rows of the
 * batch, or with a mask_rate the rows `order`, which have all targets. */
struct mics_head_activations {
    uint32_t rows, total;
    uint32_t columns; /* of the logits, with padding */
    struct mics_norm_stats norm;
    void *normed, *grad_normed; /* [rows, C] */
    void *logits;               /* [rows, columns] */
    void *pre, *activated;      /* [rows, C]: of a transform, before and behind GELU */
    /* NULL where the head computes all rows. */
    uint32_t *order;          /* [total] */
    int32_t *targets;         /* [total], of these rows */
    void *taken, *grad_taken; /* [rows, C]: what the head takes of them, and its gradient */
};

/* Each either measures (saved and scratch NULL, *bytes is filled) or returns pointers (bytes may be
 * NULL). */
struct mics_block_activations mics_block_activations_of(const struct mics_model *model,
                                                        const struct mics_batch *batch,
                                                        uint32_t layer, void *saved, void *scratch,
                                                        struct mics_stage_bytes *bytes);
struct mics_expert_activations mics_expert_activations_of(const struct mics_model *model,
                                                          const struct mics_batch *batch,
                                                          void *saved, void *scratch,
                                                          struct mics_stage_bytes *bytes);
struct mics_embed_activations mics_embed_activations_of(const struct mics_model *model,
                                                        const struct mics_batch *batch,
                                                        void *scratch,
                                                        struct mics_stage_bytes *bytes);
struct mics_dispatch_activations mics_dispatch_activations_of(const struct mics_model *model,
                                                              const struct mics_batch *batch,
                                                              void *saved, void *scratch,
                                                              struct mics_stage_bytes *bytes);
struct mics_head_activations mics_head_activations_of(const struct mics_model *model,
                                                      const struct mics_batch *batch, void *scratch,
                                                      struct mics_stage_bytes *bytes);

/* Boundary tensors: the residual stream [B, T, C]; from a router to the experts of its layer what
 * they take, [B, T, C], and the routing, whose gradient is that of its weights, [R, k]; and from
 * router to router up to the head, where an auxiliary loss is computed over all of them, the load,
 * [2 E] (struct mics_args_router_load), whose gradient is that of the loss by probabilities, [E].
 */
enum { MICS_RESIDUAL, MICS_NORMED, MICS_ROUTING, MICS_LOAD, MICS_BOUNDARY_KINDS };

void mics_transformer_boundary_bytes(const struct mics_model *model, const struct mics_batch *batch,
                                     uint32_t boundary, struct mics_boundary_bytes *out);
void mics_transformer_stage_bytes(const struct mics_model *model, const struct mics_batch *batch,
                                  uint32_t stage, struct mics_stage_bytes *out);

/*
 * block.c: a block is two sublayers, attention and the MLP. attention.c and mlp.c: their functions.
 * In a layer with experts attention and the router are a stage, the experts another (experts.c).
 */

struct mics_sublayer;

/* What a sublayer computes. */
struct mics_sublayer_function {
    /* sum = in + f(taken) */
    void (*forward)(const struct mics_sublayer *sublayer);
    /* Compute again, from `taken`, what backward() reads and the level of recomputation has not
     * kept, but for what is one pass over memory away from what it has kept, and for the sum. */
    void (*recompute)(const struct mics_sublayer *sublayer);
    /* grad_taken = the gradient of `taken` (+ add), from that of f(taken); adds to those of the
     * parameters. add may be NULL, or grad_taken, which may be grad. */
    void (*backward)(const struct mics_sublayer *sublayer, const void *grad, const void *add,
                     void *grad_taken);
};

extern const struct mics_sublayer_function mics_attention_function, mics_mlp_function;

struct mics_kv_cache;

/*
 *     norm before:  out = in + f(norm(in))     taken = norm(in), sum = out
 *     norm after:   out = norm(in + f(in))     taken = in
 *
 * With a parallel residual the MLP's norm takes the block's input instead. Activations [R, C].
 */
struct mics_sublayer {
    const struct mics_sublayer_function *function;
    const struct mics_pass *pass;
    struct mics_kv_cache *kv_cache; /* of generation; NULL: all rows are whole sequences */
    const struct mics_stage *stage;
    struct mics_transformer_dims dims;
    const struct mics_block_activations *acts;
    enum mics_norm_place place;
    struct mics_norm norm;
    const void *norm_in, *in, *taken;
    void *norm_out, *sum;
    bool keeps_taken; /* `taken` is a boundary tensor: it is not computed again */
};

/* A linear layer of the sublayer's unit, whose weight and bias are the tensors `weight` and `bias`
 * or, where the family has several end to end instead, begin with `first` and `first_bias`. */
struct mics_linear mics_sublayer_linear(const struct mics_sublayer *sublayer,
                                        enum mics_block_tensor weight, enum mics_block_tensor first,
                                        enum mics_block_tensor bias,
                                        enum mics_block_tensor first_bias, uint32_t in,
                                        uint32_t out);
/* A norm of the sublayer's unit. bias MICS_BLOCK_TENSORS: none. */
struct mics_norm mics_sublayer_norm(const struct mics_sublayer *sublayer,
                                    enum mics_block_tensor weight, enum mics_block_tensor bias,
                                    const struct mics_norm_stats *stats);
/* The gradients of the function's first layer, from `grad`, that of its output. `taken` is computed
 * again, in wide_a, if it was not saved. */
void mics_sublayer_first_backward(const struct mics_sublayer *sublayer,
                                  const struct mics_linear *layer, const void *grad,
                                  const void *add, void *grad_taken);

void mics_block_forward(const struct mics_pass *pass, const struct mics_stage *stage,
                        struct mics_kv_cache *kv_cache);
void mics_block_backward(const struct mics_pass *pass, const struct mics_stage *stage);

/* The stages of a layer with experts. */
void mics_router_forward(const struct mics_sublayer *sublayer);
/* grad_normed = the gradient of what the router takes, with that of the experts; adds to that of
 * the router. */
void mics_router_backward(const struct mics_sublayer *sublayer, void *grad_normed);
void mics_experts_forward(const struct mics_pass *pass, const struct mics_stage *stage);
void mics_experts_backward(const struct mics_pass *pass, const struct mics_stage *stage);
uint32_t mics_experts_exchanges(const struct mics_pass *pass, uint32_t stage, bool backward,
                                struct mics_pass_exchange *out);
/* The auxiliary loss over all layers, and its gradient, in the head. */
void mics_load_loss(const struct mics_pass *pass);
/* Is an auxiliary loss computed over all layers? */
bool mics_transformer_pools_load(const struct mics_model *model);
/* Where the router of that layer adds to the pass's stats, which are not NULL. */
double *mics_transformer_layer_stats(const struct mics_pass *pass, uint32_t layer);
/* The number of layers with experts. */
uint32_t mics_transformer_sparse_layers(const struct mics_model *model);

/*
 * embed_head.c: the other stages.
 */

/* Positions from `position` on. */
void mics_embed_forward(const struct mics_pass *pass, uint32_t position);
void mics_embed_backward(const struct mics_pass *pass);
void mics_head_forward(const struct mics_pass *pass, uint32_t unit); /* and backward */
/* logits[rows, V] of rows [first, first + rows) of the head's input; at most half of the batch's
 * rows. */
void mics_head_logits(const struct mics_pass *pass, uint32_t unit, uint32_t first, uint32_t rows,
                      void *logits);

/*
 * kv_cache.c: keys and values of earlier tokens of several sequences, in fp32 on the host.
 */
struct mics_kv_cache_options {
    struct mics_pool *pool;
    uint32_t sequences, layers;
    uint32_t H, H_kv, D;
    uint32_t limit; /* tokens of a sequence */
};

enum mics_status mics_kv_cache_new(const struct mics_kv_cache_options *options, uint32_t rows_max,
                                   struct mics_kv_cache **out, struct mics_err *err);
void mics_kv_cache_free(struct mics_kv_cache *cache); /* NULL is fine */

/* Make room for `length` tokens of a sequence in each layer. */
enum mics_status mics_kv_cache_reserve(struct mics_kv_cache *cache, uint32_t sequence,
                                       uint32_t length, struct mics_err *err);
/* The rows of the passes that follow, up to rows_max: row i is token positions[i] of sequence
 * sequences[i], for which there is room. Both arrays are borrowed. */
void mics_kv_cache_set_rows(struct mics_kv_cache *cache, const uint32_t *sequences,
                            const uint32_t *positions, uint32_t rows);
/* Rotate each row to its position: of struct mics_args_rope. */
void mics_kv_cache_rotate(const struct mics_kv_cache *cache, const struct mics_args_rope *args);
/* Append keys and values of all rows of qkv to their sequences in a layer, then attend: row by row
 * to all tokens up to its own, or to the last `window`. */
void mics_kv_cache_attend(struct mics_kv_cache *cache, uint32_t layer, uint32_t window,
                          const float *qkv, float *out);

#endif
