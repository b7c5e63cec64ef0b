/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h - a model as units of parameters and stages of computation.
 *
 * A unit is what is gathered together: the embedding, each transformer block, the head. A stage is
 * a piece of computation that uses one unit or none: embed, block 0 .. block L-1, head; a block may
 * also be several stages with units of their own. In a tied model embedding and head are one unit,
 * which the first and the last stage use. It is *resident*: gathered once, kept for the step, and
 * reduced after its last gradient.
 *
 * Boundary tensors pass from stage to stage. They have numbers, and sizes that depend on the batch;
 * number 0 is the residual stream [B, T, C] in all families. A stage that receives a number gets
 * what the last stage before it that hands on that number has written; stages in between do not
 * touch it. It stays in memory until the backward pass of that micro-step, so that a backward pass
 * may compute results of its own stage again, at any level of recomputation, but no other stage
 * runs twice. Each number has one buffer for gradients; see struct mics_pass.
 *
 * Counts are elements unless the name says bytes. Statistics are fp32, whatever the types of a
 * batch.
 */
#ifndef MICS_MODEL_MODEL_H
#define MICS_MODEL_MODEL_H

#include "base/err.h"
#include "device/device.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Tensors begin at multiples of this many elements in their unit's flat vector. */
#define MICS_TENSOR_ALIGN 64

enum mics_init { MICS_INIT_ZERO, MICS_INIT_ONE, MICS_INIT_NORMAL };

struct mics_tensor {
    char name[64]; /* Hugging Face name, without the library's prefix: "h.0.attn.c_attn.weight" */
    uint32_t rank; /* 1 or 2 */
    uint64_t shape[2];
    uint64_t count;
    uint64_t offset; /* of its first element in the unit */
    enum mics_init init;
    double std;  /* of MICS_INIT_NORMAL */
    bool decay;  /* weight decay applies: matrices yes, biases and norms no */
    uint32_t id; /* place in the whole model: the stream of its random numbers */
};

/* A choice of a plan cuts the units of one kind over groups of the same sizes (plan/plan.h). */
enum mics_unit_kind { MICS_UNIT_DENSE, MICS_UNIT_EXPERT, MICS_UNIT_KIND_COUNT };

struct mics_unit {
    char name[32]; /* "ends", "h.0" */
    enum mics_unit_kind kind;
    struct mics_tensor *tensors; /* those that decay first */
    uint32_t tensor_count;
    uint64_t count; /* elements, with alignment and spare rows, before any padding to shards */
    uint64_t decay_count; /* leading elements that decay */
    /* Leading elements of the gradient that the first backward pass writes, where others add. */
    uint64_t written_count;
    uint64_t param_count; /* true parameters */
    bool resident;
};

enum mics_stage_kind { MICS_STAGE_EMBED, MICS_STAGE_BLOCK, MICS_STAGE_HEAD };

/* Masked language modelling (data/masking.h): the share of tokens that are masked in validation,
 * and in training unless it is said otherwise. */
#define MICS_MASK_RATE 0.15

/* What a stage without parameters uses; the first and the last have some. */
#define MICS_NO_UNIT UINT32_MAX
/* The numbers of boundary tensors are below this. */
#define MICS_BOUNDARIES_MAX 8

struct mics_stage {
    enum mics_stage_kind kind;
    uint32_t unit;
    uint32_t layer;              /* of a block */
    uint32_t part;               /* of the stages of its block, from 0 */
    uint32_t receives, hands_on; /* boundary tensors: bit i is number i */
    /* false: its backward reads no parameters, which are gathered for the forward only */
    bool backward_needs_params;
};

/* Does its forward, or its backward, read parameters? */
static inline bool mics_stage_needs_params(const struct mics_stage *stage, bool backward)
{
    return stage->unit != MICS_NO_UNIT && (!backward || stage->backward_needs_params);
}

/* The most layers of a model. */
#define MICS_MAX_LAYERS 4096

/* What the auxiliary loss of a router is computed over: all layers and tokens of a micro-batch, as
 * transformers does, or each sequence in each layer, which does not depend on how a batch is cut.
 * The latter is the mean over layers, so that one coefficient fits both. */
enum mics_balance_kind {
    MICS_BALANCE_NONE,
    MICS_BALANCE_MICRO_BATCH,
    MICS_BALANCE_SEQUENCE,
    MICS_BALANCE_KINDS
};

#define MICS_CAPACITY_MIN 0.01 /* of mics_model_config.expert_capacity */

/* Losses that keep the load of experts even; of the mean over targets, as the loss itself. */
struct mics_balance {
    enum mics_balance_kind kind;
    double coefficient;   /* of the auxiliary loss; 0 if the kind is NONE */
    double z_coefficient; /* of the router's z-loss; 0: none */
};

struct mics_model_config {
    char family[16]; /* a row of the table in families.c: "gpt2", "llama", "mistral", ... */
    char name[32];   /* "gpt2-nano" or the configuration's file name */
    uint32_t n_layer, n_embd, n_head, n_positions, vocab_size, n_inner;
    double layer_norm_epsilon; /* of every normalisation */
    uint32_t type_vocab_size;  /* types of tokens, of families that have any; all tokens have 0 */
    /* Families with rotary positions choose the following; 0 is the default. */
    uint32_t n_kv_head;      /* heads of keys and values: n_head */
    uint32_t head_dim;       /* channels of a head: n_embd / n_head */
    uint32_t sliding_window; /* tokens that attention sees, the token itself included: all */
    /* Bit i % 64 of word i / 64: layer i sees all tokens in spite of the window. */
    uint64_t full_attention[MICS_MAX_LAYERS / 64];
    double rope_theta; /* base of the rotary positions, 1 or more */
    struct mics_rope_scaling rope_scaling;
    bool untied;                   /* the head has a matrix of its own, not the embedding's */
    bool attention_bias, mlp_bias; /* of linear layers, where the family leaves it to the model */
    /* Of a model that predicts masked tokens: the largest share of a sequence's tokens that are
     * targets, see mics_model_targets_max(). 0: any share, as in all other models. */
    double mask_rate;
    /* Mixtures of experts; 0: the family has none. */
    uint32_t n_expert, n_expert_used; /* of a layer, of a token */
    uint32_t expert_inner;            /* n_inner of an expert */
    uint32_t shared_inner;            /* of the one that all tokens share; 0: there is none */
    bool norm_topk_prob;              /* the weights of a token's experts add up to 1 */
    /* Bit i % 64 of word i / 64: layer i has no experts, but an MLP of n_inner. */
    uint64_t dense_layers[MICS_MAX_LAYERS / 64];
    struct mics_balance balance;
    /* Of the rows of a rank's micro-batch an expert takes so many times what even loads would give
     * it, rounded up, and the rest are dropped (mics_model_expert_rows()); 0: all. */
    double expert_capacity;
};

struct mics_family;
struct mics_model_ops;

/* Immutable once made. */
struct mics_model {
    struct mics_model_config config;
    const struct mics_family *family; /* NULL: mics_model_new_custom() was called without one */
    const struct mics_model_ops *ops;
    struct mics_unit *units;
    uint32_t unit_count;
    struct mics_stage *stages; /* in forward order; the last is the head */
    uint32_t stage_count;
    uint32_t boundary_count; /* numbers of boundary tensors */
    uint32_t stat_count;     /* of struct mics_pass.stats; 0: no layer has experts */
    uint64_t param_count;
    json_t *source; /* the configuration's own document (config.json), or NULL */
};

/* The kind of a unit; MICS_NO_UNIT: as a dense one. */
static inline enum mics_unit_kind mics_unit_kind_of(const struct mics_model *model, uint32_t unit)
{
    return unit == MICS_NO_UNIT ? MICS_UNIT_DENSE : model->units[unit].kind;
}

/* What a block's backward pass computes again instead of keeping it from the forward pass. What a
 * stage receives is always kept. The result is the same at every level: on hosts bit for bit, on
 * GPUs within the rounding of an activation that cuBLASLt fuses into a product. */
enum mics_recompute {
    MICS_RECOMPUTE_NONE,      /* nothing */
    MICS_RECOMPUTE_SELECTIVE, /* the outputs of norms and of the activation function */
    MICS_RECOMPUTE_FULL,      /* everything: the forward pass of each stage of a block runs again */
    MICS_RECOMPUTE_LEVELS
};

/* "none", "selective", "full" */
const char *mics_recompute_name(enum mics_recompute level);
/* false: no such level; *out is unchanged. */
bool mics_recompute_parse(const char *name, enum mics_recompute *out);

/* One micro-batch's shape and how it is run. */
struct mics_batch {
    uint32_t B, T;
    enum mics_recompute recompute;
    bool train;     /* false: forward only */
    bool documents; /* attention stays within documents, which the targets end (kernels/ops.h) */
    enum mics_dtype dtype;      /* of parameters and activations */
    enum mics_dtype grad_dtype; /* of the gradients of parameters that a backward pass adds to */
    /* More than 0: each of so many ranks has an equal part of a layer's experts, whose unit is not
     * gathered: tokens are sent to the ranks of their experts (struct mics_dispatch). */
    uint32_t expert_ranks;
    /* For predictions: the rows of the busiest of these ranks over their mean, 1 or more, from
     * which the sizes of the pass follow. 0: they are those of the buffers. */
    float expert_load;
};

/* How tokens travel to the experts of other ranks. A rank sends the rows of its assignments, up to
 * `slots` of them to each rank in a round, so that buffers have equal sizes whatever a router
 * chooses. In all `rounds` together every row is sent, even if all go to one rank; with even loads
 * the first round has them all, and those that no rank needs do nothing. Slots are a multiple of k,
 * which gathers of assignments need. */
struct mics_dispatch {
    uint32_t slots, rounds;
    uint32_t rows; /* with batch.expert_load: what each rank sends to the busiest one */
};

/* The parts of such a stage's forward, or backward: COUNT (forward only) once, then in each round
 * SEND, EXPERTS and RECEIVE, and at last SUM. After COUNT, SEND and EXPERTS ranks exchange what
 * mics_model_ops.exchanges() lists. A stage that is not cut is run as MICS_PHASE_ALL. */
enum mics_phase {
    MICS_PHASE_ALL,
    MICS_PHASE_COUNT,   /* how many rows this rank has for each expert */
    MICS_PHASE_SEND,    /* put the rows together that this rank sends in the round */
    MICS_PHASE_EXPERTS, /* compute the rows that it has received, with its parameters */
    MICS_PHASE_RECEIVE, /* put the results of its rows, which have come back, in their places */
    MICS_PHASE_SUM,     /* add up the results of each token */
};

/* What the ranks of a group exchange after a phase: `bytes` with each of them. */
struct mics_pass_exchange {
    bool gathers; /* an all-gather, in place; else an all-to-all */
    const void *from;
    void *to;
    uint64_t bytes;
    const uint32_t *active; /* device memory: 0, on all ranks: nothing to send; NULL: always */
};
enum { MICS_PASS_EXCHANGES_MAX = 3 };

/* Bytes that a stage needs; all multiples of 256. Evaluation needs no more than training. The
 * embedding saves nothing: its input are the tokens. */
struct mics_stage_bytes {
    uint64_t saved;   /* from its forward to its backward, without what it receives */
    uint64_t scratch; /* during its forward or its backward */
};

/* Bytes of a boundary tensor, and of its gradient (0: it has none). */
struct mics_boundary_bytes {
    uint64_t value, grad;
    /* No backward pass reads it: all stages that hand it on write to the same memory. */
    bool forward_only;
};

/* What one call of a stage works on: device memory. */
struct mics_pass {
    const struct mics_model *model;
    struct mics_stream *stream;
    struct mics_batch batch;
    const int32_t *tokens, *targets; /* [B, T]; a negative target is not counted */
    const void
        *params; /* the unit's flat vector, of batch.dtype; NULL in a backward without them */
    void *grads; /* the same layout, accumulated into; NULL in forward */
    void *saved, *scratch; /* of this stage */
    /* [boundary_count] Boundary tensors that it receives and hands on; NULL: it does not. */
    void *const *in, *const *out;
    /* [boundary_count] Their gradients: on entry to backward those of what the stage hands on, on
     * return those of what it receives, in the same memory. A stage that receives a number without
     * handing it on adds to what later receivers have left there; the last receiver writes. The
     * head's forward, when training, leaves the gradients of what it receives. */
    void *const *grad;
    double *loss_sum; /* the head adds to it */
    /* [stat_count] Routers add to it in forward passes (enum mics_stat); NULL: not wanted. */
    double *stats;
    double *hits; /* an encoder's head too: masked tokens that are the likeliest; NULL: no */
    const double *grad_scale; /* the gradients are those of the loss times this; NULL: 1 */
    uint32_t micro_step, step;
    bool first; /* into `grads`, which is 0 from the unit's written_count on, anything before */
    /* With batch.expert_ranks: the part of the stage, and which of these ranks this is. */
    enum mics_phase phase;
    uint32_t round, rank;
};

/* Sums over a step: of the losses of balance that are part of the loss, and then for each layer
 * with experts, in order, the entropy of its router over all rows, in nats, and the number of
 * assignments of each expert. */
enum mics_stat { MICS_STAT_AUX_LOSS, MICS_STAT_Z_LOSS, MICS_STAT_LAYERS };

/* How a model is built and computed. The stage functions enqueue launches and return at once; they
 * follow no pointer to device memory, so that the planner can record what they launch. */
struct mics_model_ops {
    enum mics_status (*build)(struct mics_model *model, struct mics_err *err); /* units, stages */
    void (*stage_bytes)(const struct mics_model *model, const struct mics_batch *batch,
                        uint32_t stage, struct mics_stage_bytes *out);
    void (*boundary_bytes)(const struct mics_model *model, const struct mics_batch *batch,
                           uint32_t boundary, struct mics_boundary_bytes *out);
    void (*forward)(const struct mics_pass *pass, uint32_t stage);
    /* When the batch trains, the head's forward writes gradients, too; its backward is not
     * called. */
    void (*backward)(const struct mics_pass *pass, uint32_t stage);
    /* With batch.expert_ranks: what ranks exchange after pass->phase, into
     * out[MICS_PASS_EXCHANGES_MAX]; returns how many. NULL: tokens never travel. */
    uint32_t (*exchanges)(const struct mics_pass *pass, uint32_t stage, bool backward,
                          struct mics_pass_exchange *out);
};

/* Open a model by name ("gpt2-nano", "llama2-7b", ...), by the path of a Hugging Face config.json,
 * or by that of a folder that holds one. MICS_ERR_ARG: it is none of these; the message lists the
 * names. MICS_ERR_FORMAT: a size is missing or out of range, or a switch of config.json changes the
 * arithmetic in a way that is not supported. Dropout is accepted and ignored. */
enum mics_status mics_model_open(const char *text, struct mics_model **out, struct mics_err *err);
/* Is `text` a built-in name? It takes precedence over a file or folder of that name. */
bool mics_model_is_name(const char *text);
enum mics_status mics_model_new(const struct mics_model_config *config, struct mics_model **out,
                                struct mics_err *err);
/* A model with operations of the caller's own, or of a family that is not in the table (both
 * outlive the model). family NULL: the sizes are taken as they are. */
enum mics_status mics_model_new_custom(const struct mics_model_ops *ops,
                                       const struct mics_family *family,
                                       const struct mics_model_config *config,
                                       struct mics_model **out, struct mics_err *err);
/* Replace a model by one with other losses of balance. MICS_ERR_ARG: it has no experts. After an
 * error *model is as it was. */
enum mics_status mics_model_set_balance(struct mics_model **model,
                                        const struct mics_balance *balance, struct mics_err *err);
/* Replace a model by one with another expert_capacity in the same way. */
enum mics_status mics_model_set_expert_capacity(struct mics_model **model, double capacity,
                                                struct mics_err *err);
/* Replace a model by one with another mask_rate, up to 1, in the same way. MICS_ERR_ARG: it does
 * not predict masked tokens. */
enum mics_status mics_model_set_mask_rate(struct mics_model **model, double rate,
                                          struct mics_err *err);
/* As stored in a plan. */
enum mics_status mics_model_from_json(const json_t *value, struct mics_model **out,
                                      struct mics_err *err);
json_t *mics_model_to_json(const struct mics_model *model);
void mics_model_free(struct mics_model *model); /* NULL is fine */

/* The document config.json of a model, as versions 4 and 5 of Hugging Face's library read it: the
 * model's own source, or one made from its sizes. A new reference; NULL: out of memory. */
json_t *mics_model_to_hf_config(const struct mics_model *model);

/* The most rows that an expert takes of a micro-batch: with an expert_capacity F the first ceil(F
 * tokens k / E) in the order of tokens, and else all. What is dropped thus depends on the
 * micro-batch, but neither on how experts are cut, nor on where they are computed. */
uint32_t mics_model_expert_rows(const struct mics_model *model, const struct mics_batch *batch);
/* The rounds of a layer with experts for a batch with expert_ranks. */
struct mics_dispatch mics_model_dispatch(const struct mics_model *model,
                                         const struct mics_batch *batch);
/* In how many of these rounds is there a row, on any rank, or 1 if there is none? From
 * offsets[expert_ranks, n_expert + 1], where the sorted rows of each expert begin on each rank. */
uint32_t mics_model_dispatch_rounds(const struct mics_model *model, const struct mics_batch *batch,
                                    const uint32_t *offsets);
/* Does that layer have experts? */
bool mics_model_is_sparse(const struct mics_model *model, uint32_t layer);
/* Parameters that a token is multiplied with: of the experts only its own. */
uint64_t mics_model_active_params(const struct mics_model *model);
/* Tokens that attention sees in that layer, the token itself included; 0: all. */
uint32_t mics_model_window(const struct mics_model *model, uint32_t layer);
/* The longest sequence: the model's positions, without those before the first token. */
uint32_t mics_model_seq_max(const struct mics_model *model);
/* MICS_ERR_ARG: `seq` is 0 or more than that; the message names the limit. */
enum mics_status mics_model_check_seq(const struct mics_model *model, uint32_t seq,
                                      struct mics_err *err);

/* The most targets that a sequence of T tokens has. With a mask_rate it is ceil(rate T), of
 * MICS_MASK_RATE if that is more, so that validation fits: head and loss are computed of so many
 * tokens of each sequence, on average over a micro-batch, and not of all T. */
uint32_t mics_model_targets_max(const struct mics_model *model, uint32_t T);

/* What stats[stat_count] of a step of `rows` tokens with so many targets say, where each of `ranks`
 * has an equal part of the experts. Loads are of rows that experts take. */
struct mics_router_summary {
    double aux_loss, z_loss; /* per target */
    double entropy;          /* of a row in a layer, in nats */
    double load;             /* of the layer where mics_model_layer_load() is largest */
    double mean_load;        /* mean of that over layers */
    /* Rows of the busiest rank over the mean of `ranks`, mean over layers; 0: not for these. */
    double rank_load;
    double dropped;        /* by experts with a capacity: part of all assignments */
    uint32_t layers;       /* with experts */
    uint32_t idle_experts; /* of all layers, without a row */
};
void mics_model_router_summary(const struct mics_model *model, const double *stats, double targets,
                               double rows, uint32_t ranks, struct mics_router_summary *out);
/* The rows of the expert that has most over those of an expert on average, in the layer with that
 * number of those with experts; 0 without any row. */
double mics_model_layer_load(const struct mics_model *model, const double *stats, uint32_t layer);

/* Initial values of elements [first, first + count) of a unit's flat vector (padding is 0), on the
 * host, by Philox keyed by (seed, tensor, element). */
void mics_model_init_range(const struct mics_model *model, uint32_t unit, uint64_t first,
                           uint64_t count, uint64_t seed, float *out);
/* The same numbers, made by all threads of the pool. */
struct mics_pool;
void mics_model_init_range_parallel(struct mics_pool *pool, const struct mics_model *model,
                                    uint32_t unit, uint64_t first, uint64_t count, uint64_t seed,
                                    float *out);

/* Model FLOPs of a step per token: 6 N + 6 L C T (causal attention counted once, full attention
 * twice that; in layers with a window only the pairs that it leaves). C are the channels of all
 * heads; N are the active parameters without an untied embedding, which is looked up and multiplies
 * nothing. With a mask_rate the matrices of the head count for its tokens only. */
double mics_model_flops_per_token(const struct mics_model *model, uint32_t T);

#endif
