/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of families. family.h says which files a further one touches.
 *
 * GPT-2: Radford et al. 2019. Llama: Touvron et al. 2023. Mistral: Jiang et al. 2023; a Llama but
 * for defaults and a sliding window. Qwen2: Yang et al. 2024; queries, keys and values have biases.
 * Qwen3: Yang et al. 2025; the heads of queries and keys are normalised instead. Mixtral: Jiang et
 * al. 2024; a Mistral with experts. OLMoE: Muennighoff et al. 2024; all queries, and all keys, of a
 * token are normalised together. Qwen2-MoE and Qwen3-MoE: a Qwen2 and a Qwen3 with experts; all
 * tokens share one more in layers of the former. BERT: Devlin et al. 2019. RoBERTa: Liu et al.
 * 2019; a BERT whose positions begin behind that of the padding.
 */
#include "model/config.h"
#include "model/family.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define SIZE(key, field, max, absent)                                                              \
    {                                                                                              \
        key, offsetof(struct mics_model_config, field), max, absent                                \
    }

#define END_OF_SIZES                                                                               \
    {                                                                                              \
        NULL, 0, 0, 0                                                                              \
    }

static const struct mics_hf_size gpt2_sizes[] = {
    SIZE("n_layer", n_layer, MICS_MAX_LAYERS, MICS_HF_REQUIRED),
    SIZE("n_embd", n_embd, MICS_MAX_EMBD, MICS_HF_REQUIRED),
    SIZE("n_head", n_head, MICS_MAX_EMBD, MICS_HF_REQUIRED),
    SIZE("n_positions", n_positions, MICS_MAX_POSITIONS, MICS_HF_REQUIRED),
    SIZE("vocab_size", vocab_size, MICS_MAX_VOCAB, MICS_HF_REQUIRED),
    SIZE("n_inner", n_inner, MICS_MAX_INNER, 0),
    END_OF_SIZES,
};

/* Llama's keys with the defaults of the family's own class: kv_heads, head_dim, positions. */
#define LLAMA_SIZES(kv_heads, head, positions)                                                     \
    {                                                                                              \
        SIZE("num_hidden_layers", n_layer, MICS_MAX_LAYERS, MICS_HF_REQUIRED),                     \
            SIZE("hidden_size", n_embd, MICS_MAX_EMBD, MICS_HF_REQUIRED),                          \
            SIZE("num_attention_heads", n_head, MICS_MAX_EMBD, MICS_HF_REQUIRED),                  \
            SIZE("num_key_value_heads", n_kv_head, MICS_MAX_EMBD, kv_heads),                       \
            SIZE("head_dim", head_dim, MICS_MAX_EMBD, head),                                       \
            SIZE("intermediate_size", n_inner, MICS_MAX_INNER, MICS_HF_REQUIRED),                  \
            SIZE("max_position_embeddings", n_positions, MICS_MAX_POSITIONS, positions),           \
            SIZE("vocab_size", vocab_size, MICS_MAX_VOCAB, MICS_HF_REQUIRED), END_OF_SIZES         \
    }

static const struct mics_hf_size llama_sizes[] = LLAMA_SIZES(0, 0, 2048);
static const struct mics_hf_size mistral_sizes[] = LLAMA_SIZES(8, 0, 131072);
static const struct mics_hf_size qwen2_sizes[] = LLAMA_SIZES(32, 0, 32768);
static const struct mics_hf_size qwen3_sizes[] = LLAMA_SIZES(32, 128, 32768);

/* The expert's intermediate_size. */
static const struct mics_hf_size mixtral_sizes[] = LLAMA_SIZES(8, 0, 131072);
static const struct mics_hf_size olmoe_sizes[] = LLAMA_SIZES(0, 0, 4096);
static const struct mics_hf_size qwen2_moe_sizes[] = LLAMA_SIZES(16, 0, 32768);
static const struct mics_hf_size qwen3_moe_sizes[] = LLAMA_SIZES(4, 0, 32768);

/* The keys of a BERT. */
static const struct mics_hf_size bert_sizes[] = {
    SIZE("num_hidden_layers", n_layer, MICS_MAX_LAYERS, 12),
    SIZE("hidden_size", n_embd, MICS_MAX_EMBD, 768),
    SIZE("num_attention_heads", n_head, MICS_MAX_EMBD, 12),
    SIZE("intermediate_size", n_inner, MICS_MAX_INNER, 3072),
    SIZE("max_position_embeddings", n_positions, MICS_MAX_POSITIONS, 512),
    SIZE("type_vocab_size", type_vocab_size, MICS_MAX_TYPES, 2),
    SIZE("vocab_size", vocab_size, MICS_MAX_VOCAB, MICS_HF_REQUIRED),
    END_OF_SIZES,
};

static const struct mics_hf_experts mixtral_experts = {
    .count = 8,
    .used = 2,
    .coefficient = 0.001,
    .always_normalised = true,
    .block = "block_sparse_moe.experts",
    .names = {"w1.weight", "w3.weight", "w2.weight"},
};
static const struct mics_hf_experts olmoe_experts = {
    .count = 64,
    .used = 8,
    .coefficient = 0.01,
    .block = "mlp.experts",
    .names = {"gate_proj.weight", "up_proj.weight", "down_proj.weight"},
};
static const struct mics_hf_experts qwen2_moe_experts = {
    .count = 60,
    .used = 4,
    .inner_key = "moe_intermediate_size",
    .inner = 1408,
    .coefficient = 0.001,
    .shared_key = "shared_expert_intermediate_size",
    .shared = 5632,
    .dense_layers = true,
    .block = "mlp.experts",
    .names = {"gate_proj.weight", "up_proj.weight", "down_proj.weight"},
};
static const struct mics_hf_experts qwen3_moe_experts = {
    .count = 128,
    .used = 8,
    .inner_key = "moe_intermediate_size",
    .inner = 768,
    .coefficient = 0.001,
    .dense_layers = true,
    .block = "mlp.experts",
    .names = {"gate_proj.weight", "up_proj.weight", "down_proj.weight"},
};
static const char *const mixtral_nulls[] = {"router_jitter_noise", NULL};
static const char *const olmoe_nulls[] = {"clip_qkv", NULL};

static const struct mics_hf_switch gpt2_switches[] = {
    {"tie_word_embeddings", true, true},
    {"scale_attn_weights", true, false},
    {"scale_attn_by_inverse_layer_idx", false, false},
    {"add_cross_attention", false, false},
    {NULL, false, false},
};
static const struct mics_hf_switch bert_switches[] = {
    {"tie_word_embeddings", true, true},
    {"is_decoder", false, false},
    {"add_cross_attention", false, false},
    {NULL, false, false},
};
static const struct mics_hf_switch no_switches[] = {{NULL, false, false}};

static const char *const gelu[] = {"gelu_new", "gelu_pytorch_tanh", NULL};
static const char *const gelu_exact[] = {"gelu", "gelu_python", NULL};
static const char *const silu[] = {"silu", "swish", NULL};
static const char *const gpt2_dropouts[] = {"attn_pdrop", "embd_pdrop", "resid_pdrop", NULL};
static const char *const llama_dropouts[] = {"attention_dropout", NULL};
static const char *const bert_dropouts[] = {"hidden_dropout_prob", "attention_probs_dropout_prob",
                                            NULL};

/* Causal masks, in old files. */
static const char *const gpt2_buffers[] = {"h.#.attn.bias", "h.#.crossattention.bias", NULL};
static const char *const llama_buffers[] = {NULL};

/* A copy of the bias of the logits, in old files, and what follows a sentence instead of masked
 * tokens: it is not trained, and not written. */
static const char *const bert_buffers[] = {
    "cls.predictions.decoder.bias", "cls.seq_relationship.weight", "cls.seq_relationship.bias",
    "pooler.dense.weight",          "pooler.dense.bias",           NULL};
static const char *const roberta_buffers[] = {"lm_head.decoder.bias", "pooler.dense.weight",
                                              "pooler.dense.bias", NULL};

/* The last part of names of buffers: the frequencies that rope_theta gives and their tables, masks,
 * and positions. No family has a parameter with one of these. */
static const char *const common_buffers[] = {
    "inv_freq",    "original_inv_freq", "cos_cached",  "sin_cached",
    "masked_bias", "position_ids",      "causal_mask", NULL};

/* Parts of names that wrappers of a module add, in front or in between: DataParallel and DDP,
 * torch.compile, FSDP, activation checkpointing, Fabric, and PEFT. */
static const char *const wrappers[] = {"module",
                                       "_orig_mod",
                                       "_fsdp_wrapped_module",
                                       "_checkpoint_wrapped_module",
                                       "_forward_module",
                                       "base_layer",
                                       NULL};

/* What the families after Llama have in common with it. */
#define LLAMA_DECODER                                                                              \
    .norm = MICS_NORM_RMS, .positions = MICS_POSITIONS_ROTARY, .mlp = MICS_MLP_SWIGLU,             \
    .prefix = "model.", .layer = "layers", .buffers = llama_buffers,                               \
    .embed_head = {                                                                                \
        [MICS_HEAD_EMBEDDING] = "embed_tokens.weight",                                             \
        [MICS_HEAD_WEIGHT] = "lm_head.weight",                                                     \
        [MICS_HEAD_NORM] = "norm.weight",                                                          \
    }

#define LLAMA_ATTENTION                                                                            \
    [MICS_BLOCK_Q] = "self_attn.q_proj.weight", [MICS_BLOCK_K] = "self_attn.k_proj.weight",        \
    [MICS_BLOCK_V] = "self_attn.v_proj.weight", [MICS_BLOCK_OUT] = "self_attn.o_proj.weight",      \
    [MICS_BLOCK_NORM_1] = "input_layernorm.weight",                                                \
    [MICS_BLOCK_NORM_2] = "post_attention_layernorm.weight"

#define LLAMA_MLP                                                                                  \
    [MICS_BLOCK_GATE] = "mlp.gate_proj.weight", [MICS_BLOCK_UP] = "mlp.up_proj.weight",            \
    [MICS_BLOCK_DOWN] = "mlp.down_proj.weight"

#define LLAMA_BLOCK LLAMA_ATTENTION, LLAMA_MLP

#define QK_NORMS                                                                                   \
    [MICS_BLOCK_Q_NORM] = "self_attn.q_norm.weight", [MICS_BLOCK_K_NORM] = "self_attn.k_norm."     \
                                                                           "weight"

#define QKV_BIASES                                                                                 \
    [MICS_BLOCK_Q_BIAS] = "self_attn.q_proj.bias", [MICS_BLOCK_K_BIAS] = "self_attn.k_proj.bias",  \
    [MICS_BLOCK_V_BIAS] = "self_attn.v_proj.bias"

#define LLAMA_KEYS_WITH(eps)                                                                       \
    .activation_key = "hidden_act", .activations = silu, .epsilon_key = "rms_norm_eps",            \
    .epsilon = (eps), .dropouts = llama_dropouts
#define LLAMA_KEYS LLAMA_KEYS_WITH(1e-6)

/* What BERT and RoBERTa have in common. */
#define BERT_ENCODER                                                                               \
    .norm = MICS_NORM_LAYER, .norm_place = MICS_NORM_AFTER, .positions = MICS_POSITIONS_LEARNED,   \
    .mlp = MICS_MLP_GELU_EXACT, .bidirectional = true, .always_tied = true,                        \
    .layer = "encoder.layer",                                                                      \
    .block = {                                                                                     \
        [MICS_BLOCK_Q] = "attention.self.query.weight",                                            \
        [MICS_BLOCK_K] = "attention.self.key.weight",                                              \
        [MICS_BLOCK_V] = "attention.self.value.weight",                                            \
        [MICS_BLOCK_OUT] = "attention.output.dense.weight",                                        \
        [MICS_BLOCK_FC] = "intermediate.dense.weight",                                             \
        [MICS_BLOCK_DOWN] = "output.dense.weight",                                                 \
        [MICS_BLOCK_NORM_1] = "attention.output.LayerNorm.weight",                                 \
        [MICS_BLOCK_NORM_1_BIAS] = "attention.output.LayerNorm.bias",                              \
        [MICS_BLOCK_Q_BIAS] = "attention.self.query.bias",                                         \
        [MICS_BLOCK_K_BIAS] = "attention.self.key.bias",                                           \
        [MICS_BLOCK_V_BIAS] = "attention.self.value.bias",                                         \
        [MICS_BLOCK_OUT_BIAS] = "attention.output.dense.bias",                                     \
        [MICS_BLOCK_NORM_2] = "output.LayerNorm.weight",                                           \
        [MICS_BLOCK_NORM_2_BIAS] = "output.LayerNorm.bias",                                        \
        [MICS_BLOCK_FC_BIAS] = "intermediate.dense.bias",                                          \
        [MICS_BLOCK_DOWN_BIAS] = "output.dense.bias",                                              \
    }

#define BERT_EMBEDDINGS                                                                            \
    [MICS_HEAD_EMBEDDING] = "embeddings.word_embeddings.weight",                                   \
    [MICS_HEAD_POSITIONS] = "embeddings.position_embeddings.weight",                               \
    [MICS_HEAD_TYPES] = "embeddings.token_type_embeddings.weight",                                 \
    [MICS_HEAD_EMBED_NORM] = "embeddings.LayerNorm.weight",                                        \
    [MICS_HEAD_EMBED_NORM_BIAS] = "embeddings.LayerNorm.bias"

#define BERT_KEYS                                                                                  \
    .activation_key = "hidden_act", .activations = gelu_exact, .sizes = bert_sizes,                \
    .epsilon_key = "layer_norm_eps", .epsilon = 1e-12, .switches = bert_switches,                  \
    .position_kind = true, .dropouts = bert_dropouts

static const struct mics_family families[] = {
    {
        .name = "gpt2",
        .architecture = "GPT2LMHeadModel",
        .norm = MICS_NORM_LAYER,
        .positions = MICS_POSITIONS_LEARNED,
        .mlp = MICS_MLP_GELU,
        .weights_in_out = true,
        .always_tied = true,
        .scaled_init = true,
        .prefix = "transformer.",
        .layer = "h",
        .embed_head =
            {
                [MICS_HEAD_EMBEDDING] = "wte.weight",
                [MICS_HEAD_POSITIONS] = "wpe.weight",
                [MICS_HEAD_WEIGHT] = "lm_head.weight",
                [MICS_HEAD_NORM] = "ln_f.weight",
                [MICS_HEAD_NORM_BIAS] = "ln_f.bias",
            },
        .block =
            {
                [MICS_BLOCK_QKV] = "attn.c_attn.weight",
                [MICS_BLOCK_OUT] = "attn.c_proj.weight",
                [MICS_BLOCK_FC] = "mlp.c_fc.weight",
                [MICS_BLOCK_DOWN] = "mlp.c_proj.weight",
                [MICS_BLOCK_NORM_1] = "ln_1.weight",
                [MICS_BLOCK_NORM_1_BIAS] = "ln_1.bias",
                [MICS_BLOCK_QKV_BIAS] = "attn.c_attn.bias",
                [MICS_BLOCK_OUT_BIAS] = "attn.c_proj.bias",
                [MICS_BLOCK_NORM_2] = "ln_2.weight",
                [MICS_BLOCK_NORM_2_BIAS] = "ln_2.bias",
                [MICS_BLOCK_FC_BIAS] = "mlp.c_fc.bias",
                [MICS_BLOCK_DOWN_BIAS] = "mlp.c_proj.bias",
            },
        .buffers = gpt2_buffers,
        .hf = {.activation_key = "activation_function",
               .activations = gelu,
               .sizes = gpt2_sizes,
               .epsilon_key = "layer_norm_epsilon",
               .epsilon = 1e-5,
               .switches = gpt2_switches,
               .dropouts = gpt2_dropouts},
    },
    {
        .name = "llama",
        .architecture = "LlamaForCausalLM",
        LLAMA_DECODER,
        .optional_attention_bias = true,
        .optional_mlp_bias = true,
        .block = {LLAMA_BLOCK, QKV_BIASES, [MICS_BLOCK_OUT_BIAS] = "self_attn.o_proj.bias",
                  [MICS_BLOCK_GATE_BIAS] = "mlp.gate_proj.bias",
                  [MICS_BLOCK_UP_BIAS] = "mlp.up_proj.bias",
                  [MICS_BLOCK_DOWN_BIAS] = "mlp.down_proj.bias"},
        .hf = {LLAMA_KEYS, .sizes = llama_sizes, .switches = no_switches},
    },
    {
        .name = "mistral",
        .architecture = "MistralForCausalLM",
        LLAMA_DECODER,
        .block = {LLAMA_BLOCK},
        .hf = {LLAMA_KEYS, .sizes = mistral_sizes, .switches = no_switches,
               .window = MICS_HF_WINDOW_ALWAYS},
    },
    {
        .name = "qwen2",
        .architecture = "Qwen2ForCausalLM",
        LLAMA_DECODER,
        .block = {LLAMA_BLOCK, QKV_BIASES},
        .hf = {LLAMA_KEYS, .sizes = qwen2_sizes, .switches = no_switches,
               .window = MICS_HF_WINDOW_LAYERS},
    },
    {
        .name = "qwen3",
        .architecture = "Qwen3ForCausalLM",
        LLAMA_DECODER,
        .optional_attention_bias = true,
        .block = {LLAMA_BLOCK, QKV_BIASES, [MICS_BLOCK_OUT_BIAS] = "self_attn.o_proj.bias",
                  QK_NORMS},
        .hf = {LLAMA_KEYS, .sizes = qwen3_sizes, .switches = no_switches,
               .window = MICS_HF_WINDOW_LAYERS},
    },
    {
        .name = "mixtral",
        .architecture = "MixtralForCausalLM",
        LLAMA_DECODER,
        .block = {LLAMA_ATTENTION, [MICS_BLOCK_ROUTER] = "block_sparse_moe.gate.weight"},
        .experts = &mixtral_experts,
        .hf = {LLAMA_KEYS_WITH(1e-5), .sizes = mixtral_sizes, .switches = no_switches,
               .window = MICS_HF_WINDOW_GIVEN, .rope_theta = 1e6, .nulls = mixtral_nulls},
    },
    {
        .name = "olmoe",
        .architecture = "OlmoeForCausalLM",
        LLAMA_DECODER,
        .optional_attention_bias = true,
        .qk_norm_whole = true,
        .block = {LLAMA_ATTENTION, QKV_BIASES, [MICS_BLOCK_OUT_BIAS] = "self_attn.o_proj.bias",
                  QK_NORMS, [MICS_BLOCK_ROUTER] = "mlp.gate.weight"},
        .experts = &olmoe_experts,
        .hf = {LLAMA_KEYS_WITH(1e-5), .sizes = olmoe_sizes, .switches = no_switches,
               .nulls = olmoe_nulls},
    },
    {
        .name = "qwen2_moe",
        .architecture = "Qwen2MoeForCausalLM",
        LLAMA_DECODER,
        .optional_attention_bias = true,
        .block = {LLAMA_BLOCK, QKV_BIASES, [MICS_BLOCK_ROUTER] = "mlp.gate.weight",
                  [MICS_BLOCK_SHARED_GATE] = "mlp.shared_expert.gate_proj.weight",
                  [MICS_BLOCK_SHARED_UP] = "mlp.shared_expert.up_proj.weight",
                  [MICS_BLOCK_SHARED_DOWN] = "mlp.shared_expert.down_proj.weight",
                  [MICS_BLOCK_SHARED_ROUTER] = "mlp.shared_expert_gate.weight"},
        .experts = &qwen2_moe_experts,
        .hf = {LLAMA_KEYS, .sizes = qwen2_moe_sizes, .switches = no_switches,
               .window = MICS_HF_WINDOW_LISTED, .bias_key = "qkv_bias", .bias = true},
    },
    {
        .name = "qwen3_moe",
        .architecture = "Qwen3MoeForCausalLM",
        LLAMA_DECODER,
        .optional_attention_bias = true,
        .block = {LLAMA_BLOCK, QKV_BIASES, [MICS_BLOCK_OUT_BIAS] = "self_attn.o_proj.bias",
                  QK_NORMS, [MICS_BLOCK_ROUTER] = "mlp.gate.weight"},
        .experts = &qwen3_moe_experts,
        .hf = {LLAMA_KEYS, .sizes = qwen3_moe_sizes, .switches = no_switches,
               .window = MICS_HF_WINDOW_USED},
    },
    {
        .name = "bert",
        .architecture = "BertForMaskedLM",
        BERT_ENCODER,
        .prefix = "bert.",
        .head = "cls.",
        .embed_head = {BERT_EMBEDDINGS, [MICS_HEAD_WEIGHT] = "cls.predictions.decoder.weight",
                       [MICS_HEAD_TRANSFORM] = "cls.predictions.transform.dense.weight",
                       [MICS_HEAD_TRANSFORM_BIAS] = "cls.predictions.transform.dense.bias",
                       [MICS_HEAD_NORM] = "cls.predictions.transform.LayerNorm.weight",
                       [MICS_HEAD_NORM_BIAS] = "cls.predictions.transform.LayerNorm.bias",
                       [MICS_HEAD_BIAS] = "cls.predictions.bias"},
        .buffers = bert_buffers,
        .hf = {BERT_KEYS},
    },
    {
        .name = "roberta",
        .architecture = "RobertaForMaskedLM",
        BERT_ENCODER,
        .position_offset = 2,
        .prefix = "roberta.",
        .head = "lm_head.",
        .embed_head =
            {BERT_EMBEDDINGS, [MICS_HEAD_WEIGHT] = "lm_head.decoder.weight",
             [MICS_HEAD_TRANSFORM] = "lm_head.dense.weight",
             [MICS_HEAD_TRANSFORM_BIAS] = "lm_head.dense.bias",
             [MICS_HEAD_NORM] = "lm_head.layer_norm.weight",
             [MICS_HEAD_NORM_BIAS] = "lm_head.layer_norm.bias", [MICS_HEAD_BIAS] = "lm_head.bias"},
        .buffers = roberta_buffers,
        .hf = {BERT_KEYS},
    },
};

#define FAMILY_COUNT (sizeof families / sizeof *families)

const struct mics_family *mics_family_find(const char *name)
{
    for (size_t i = 0; i < FAMILY_COUNT; i++)
        if (strcmp(families[i].name, name) == 0)
            return &families[i];
    return NULL;
}

char *mics_family_names(char *buf, size_t size)
{
    size_t used = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < FAMILY_COUNT && used < size; i++)
        used +=
            (size_t)snprintf(buf + used, size - used, "%s'%s'", i ? ", " : "", families[i].name);
    return buf;
}

/* Is the part name[length] of a dotted name one of a list? */
static bool is_part(const char *const *list, const char *name, size_t length)
{
    for (; *list; list++)
        if (strlen(*list) == length && memcmp(*list, name, length) == 0)
            return true;
    return false;
}

/* The length of a prefix that a name in a file may have several times. */
static size_t prefix_length(const struct mics_family *family, const char *name)
{
    const char *const prefixes[] = {family->prefix, "model.", "base_model."};

    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return strlen(prefixes[i]);
    return 0;
}

/* The names that norms of the first BERT have in files, as transformers renames them. */
static void rename_norm(char *name, size_t size)
{
    static const char *const names[][2] = {{"LayerNorm.gamma", "LayerNorm.weight"},
                                           {"LayerNorm.beta", "LayerNorm.bias"}};
    const size_t length = strlen(name);

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t old = strlen(names[i][0]);

        if (length >= old && strcmp(name + length - old, names[i][0]) == 0)
            snprintf(name + length - old, size - (length - old), "%s", names[i][1]);
    }
}

void mics_family_model_name(const struct mics_family *family, const char *file_name, char *buf,
                            size_t size)
{
    size_t used = 0, skip;

    buf[0] = '\0';
    for (const char *part = file_name, *next; part; part = next) {
        const size_t length = strcspn(part, ".");

        next = part[length] ? part + length + 1 : NULL;
        if (!is_part(wrappers, part, length) && used + length + 2 <= size)
            used += (size_t)snprintf(buf + used, size - used, "%.*s%s", (int)length, part,
                                     next ? "." : "");
    }
    while ((skip = prefix_length(family, buf)) > 0)
        memmove(buf, buf + skip, strlen(buf + skip) + 1);
    rename_norm(buf, size);
}

void mics_family_file_name(const struct mics_family *family, const char *model_name, char *buf,
                           size_t size)
{
    const bool bare =
        strcmp(model_name, family->embed_head[MICS_HEAD_WEIGHT]) == 0 ||
        (family->head && strncmp(model_name, family->head, strlen(family->head)) == 0);

    snprintf(buf, size, "%s%s", bare ? "" : family->prefix, model_name);
}

static bool matches(const char *pattern, const char *name)
{
    for (; *pattern; pattern++) {
        if (*pattern != '#') {
            if (*name++ != *pattern)
                return false;
            continue;
        }
        if (!isdigit((unsigned char)*name))
            return false;
        name += strspn(name, "0123456789");
    }
    return *name == '\0';
}

bool mics_family_is_buffer(const struct mics_family *family, const char *model_name)
{
    const char *const dot = strrchr(model_name, '.'), *const last = dot ? dot + 1 : model_name;

    if (is_part(common_buffers, last, strlen(last)))
        return true;
    for (size_t i = 0; !family && i < FAMILY_COUNT; i++) {
        char name[256];

        mics_family_model_name(&families[i], model_name, name, sizeof name);
        if (mics_family_is_buffer(&families[i], name))
            return true;
    }
    if (!family)
        return false;
    for (const char *const *pattern = family->buffers; *pattern; pattern++)
        if (matches(*pattern, model_name))
            return true;
    return false;
}
