/* SPDX-License-Identifier: Apache-2.0 */
/*
 * family.h - a family of decoders or encoders as data: what its block computes, the names of its
 * tensors in Hugging Face's files, and the keys of its config.json.
 *
 * A further family whose block has these pieces touches these files (docs/development.md has more
 * tests):
 *     lib/model/families.c             its row in the table
 *     lib/model/presets.c              its models by name
 *     tests/reference/make_decoders.py and tests/unit/model/test_reference.c
 *                                      a row each: a small model against PyTorch
 */
#ifndef MICS_MODEL_FAMILY_H
#define MICS_MODEL_FAMILY_H

#include "model/model.h"

#include <stddef.h>

/* MICS_NORM_LAYER has a bias, MICS_NORM_RMS has none. */
enum mics_norm_kind { MICS_NORM_LAYER, MICS_NORM_RMS };
/* Where a sublayer has its norm: in front of its function, inside the residual, or behind the sum
 * (as in the first transformers, and BERT). */
enum mics_norm_place { MICS_NORM_BEFORE, MICS_NORM_AFTER };
enum mics_positions_kind { MICS_POSITIONS_LEARNED, MICS_POSITIONS_ROTARY };
/* down(gelu(fc(x))), in tanh form or exact, or down(silu(gate(x)) * up(x)). */
enum mics_mlp_kind { MICS_MLP_GELU, MICS_MLP_SWIGLU, MICS_MLP_GELU_EXACT };

/* The tensors of a block in the order in which its unit stores them: matrices, which decay, then
 * vectors. A family has those that it names, of biases those that its model has; a layer with
 * experts has a ROUTER [E, C] instead of the matrices of an MLP, and those of an expert that all
 * tokens share, times the logistic function of its ROUTER's [1, C] result. Matrices that share
 * their input are one product: either one tensor, QKV, or Q, K and V end to end, and GATE and UP.
 * The biases follow the matrices. */
enum mics_block_tensor {
    MICS_BLOCK_QKV,
    MICS_BLOCK_Q,
    MICS_BLOCK_K,
    MICS_BLOCK_V,
    MICS_BLOCK_OUT,
    MICS_BLOCK_FC,
    MICS_BLOCK_GATE,
    MICS_BLOCK_UP,
    MICS_BLOCK_DOWN,
    MICS_BLOCK_ROUTER,
    MICS_BLOCK_SHARED_GATE,
    MICS_BLOCK_SHARED_UP,
    MICS_BLOCK_SHARED_DOWN,
    MICS_BLOCK_SHARED_ROUTER,
    MICS_BLOCK_NORM_1,
    MICS_BLOCK_NORM_1_BIAS,
    MICS_BLOCK_QKV_BIAS,
    MICS_BLOCK_Q_BIAS,
    MICS_BLOCK_K_BIAS,
    MICS_BLOCK_V_BIAS,
    MICS_BLOCK_Q_NORM, /* RMS norms of each head of queries and keys, before rotary positions */
    MICS_BLOCK_K_NORM,
    MICS_BLOCK_OUT_BIAS,
    MICS_BLOCK_NORM_2,
    MICS_BLOCK_NORM_2_BIAS,
    MICS_BLOCK_FC_BIAS,
    MICS_BLOCK_GATE_BIAS,
    MICS_BLOCK_UP_BIAS,
    MICS_BLOCK_DOWN_BIAS,
    MICS_BLOCK_TENSORS
};

/* The matrices of an expert in the order in which the unit of a layer's experts stores them, one
 * expert after another. */
enum mics_expert_tensor { MICS_EXPERT_GATE, MICS_EXPERT_UP, MICS_EXPERT_DOWN, MICS_EXPERT_TENSORS };

/* The tensors outside of blocks. A tied model has no WEIGHT and stores all in one unit; in an
 * untied one those of the head are a unit of their own. The embedding of an encoder adds the first
 * row of TYPES to each token, and has a norm behind the sum. */
enum mics_embed_head_tensor {
    MICS_HEAD_EMBEDDING,
    MICS_HEAD_POSITIONS,
    MICS_HEAD_TYPES,
    MICS_HEAD_WEIGHT,
    MICS_HEAD_TRANSFORM, /* norm(gelu(transform(x))) takes the place of norm(x) */
    MICS_HEAD_EMBED_NORM,
    MICS_HEAD_EMBED_NORM_BIAS,
    MICS_HEAD_TRANSFORM_BIAS,
    MICS_HEAD_NORM,
    MICS_HEAD_NORM_BIAS,
    MICS_HEAD_BIAS, /* of the logits */
    MICS_HEAD_TENSORS
};

/* A size in config.json. */
struct mics_hf_size {
    const char *key;
    size_t offset; /* of a uint32_t in struct mics_model_config */
    uint32_t max;
    /* The value of the library's own class if the key is absent; 0: it follows from other sizes;
     * MICS_HF_REQUIRED: the key must be present. */
    uint32_t absent;
};
#define MICS_HF_REQUIRED UINT32_MAX

/* A switch in config.json that changes what is computed. */
struct mics_hf_switch {
    const char *key;
    bool value;   /* the only one supported, and the library's default */
    bool written; /* part of a config.json of our own */
};

/* How config.json limits attention to a window. */
enum mics_hf_window {
    MICS_HF_WINDOW_NONE,
    MICS_HF_WINDOW_ALWAYS, /* by sliding_window: null is none, an absent key is 4096 */
    MICS_HF_WINDOW_GIVEN,  /* the same, but an absent key is none */
    MICS_HF_WINDOW_USED,   /* as ALWAYS if use_sliding_window is true */
    /* The same in the layers that layer_types lists, without it in
     * those from max_window_layers on. */
    MICS_HF_WINDOW_LAYERS,
    MICS_HF_WINDOW_LISTED, /* likewise, but layer_types must list them */
};

/* config.json. Arrays end with a row without key, lists with NULL. */
struct mics_hf_keys {
    const char *activation_key;
    const char *const *activations; /* that are accepted; the first is written */
    const struct mics_hf_size *sizes;
    const char *epsilon_key;
    double epsilon; /* where the key is absent */
    const struct mics_hf_switch *switches;
    enum mics_hf_window window;
    double rope_theta;           /* where the key is absent; 0: 10,000 */
    const char *bias_key;        /* of an optional_attention_bias; NULL: "attention_bias" */
    bool bias;                   /* where that is absent */
    const char *const *nulls;    /* keys that must be absent, null or 0; NULL: none */
    bool position_kind;          /* position_embedding_type must be absent or "absolute" */
    const char *const *dropouts; /* written as 0, and ignored when read */
};

/* Experts in config.json and in files. */
struct mics_hf_experts {
    uint32_t count, used;   /* where the keys are absent */
    const char *inner_key;  /* of an expert's n_inner; NULL: the one of n_inner */
    uint32_t inner;         /* where it is absent */
    double coefficient;     /* of the auxiliary loss, likewise */
    const char *shared_key; /* of the shared expert's n_inner; NULL: there is none */
    uint32_t shared;        /* where it is absent */
    bool always_normalised; /* else norm_topk_prob says so */
    bool dense_layers;      /* decoder_sparse_step and mlp_only_layers name some */
    const char *block;      /* of names: "mlp.experts" for "mlp.experts.3.up_proj.weight" */
    const char *names[MICS_EXPERT_TENSORS];
};

struct mics_family {
    const char *name;         /* in plans, and the model_type of config.json */
    const char *architecture; /* of config.json */

    enum mics_norm_kind norm;
    enum mics_norm_place norm_place;
    /* With rotary positions come the sizes that config.json may choose. */
    enum mics_positions_kind positions;
    enum mics_mlp_kind mlp;
    bool bidirectional;       /* attention is full, not causal: masked tokens are predicted */
    uint32_t position_offset; /* of learned positions: the row of a sequence's first token */
    bool parallel_residual;   /* out = in + attention(norm_1(in)) + mlp(norm_2(in)) */
    bool weights_in_out;      /* matrices are stored [in, out], not [out, in] */
    bool always_tied;         /* the head is the embedding's matrix; files may hold a copy of it */
    bool scaled_init;         /* OUT and DOWN start from a deviation smaller by sqrt(2 L) */
    /* A model has its biases of attention, or of the MLP, only if its configuration says so. */
    bool optional_attention_bias, optional_mlp_bias;
    bool qk_norm_whole; /* norms of all queries, and of all keys, of a token; not of each head */

    const char *prefix; /* of all names but the head's in a file of a language model */
    const char *head;   /* what further names without the prefix begin with; NULL: none */
    const char *layer;  /* of the names in a block: "layers" for "layers.7.mlp.up_proj.weight" */
    const char *embed_head[MICS_HEAD_TENSORS];
    const char *block[MICS_BLOCK_TENSORS];
    const struct mics_hf_experts *experts; /* NULL: no layer has any */
    const char *const *buffers; /* names in files that are no parameters; '#' is a number */
    struct mics_hf_keys hf;
};

/* NULL: there is no such family. */
const struct mics_family *mics_family_find(const char *name);
/* All names between quotes, with commas between; cut to `size`. Returns buf. */
char *mics_family_names(char *buf, size_t size);

/* The name in the model of a tensor in a file, into buf[size]: without the family's prefix, however
 * often, and without what wrappers (compile, FSDP, DDP, PEFT) put in front and in between. */
void mics_family_model_name(const struct mics_family *family, const char *file_name, char *buf,
                            size_t size);
/* The name in files of a tensor of the model, into buf[size]. */
void mics_family_file_name(const struct mics_family *family, const char *model_name, char *buf,
                           size_t size);
/* Without a family (NULL): of any. */
bool mics_family_is_buffer(const struct mics_family *family, const char *model_name);

static inline bool mics_family_is_rotary(const struct mics_family *family)
{
    return family->positions == MICS_POSITIONS_ROTARY;
}

#endif
