/* SPDX-License-Identifier: Apache-2.0 */
/*
 * presets.c - models by name. They are in the program, not in files, so that one that is not
 * installed has them.
 *
 * The small ones take bytes: 256 values and the end of a document. gpt2-nano trains in a few
 * minutes on two cores. gpt2 .. gpt2-xl are the released ones; gpt2-20b is the MiCS paper's (its
 * sequences have 512 tokens). llama2, llama3, llama3.1 and llama3.2 are Meta's sizes (Touvron et
 * al. 2023, Grattafiori et al. 2024, and the config.json of the released 3.1 and 3.2),
 * tinyllama-1.1b those of Zhang et al. 2024. mistral-7b is version 0.3, which has no sliding
 * window. The Mistral, Mixtral, OLMoE and Qwen sizes are those of the released config.json.
 * bert-base, bert-large and those of RoBERTa are the released ones; bert-10b .. bert-50b and
 * roberta-20b are the MiCS paper's (its 50B is often quoted with 40 heads, which do not divide the
 * width: here it has 64).
 */
#include "model/config.h"

#include "base/suggest.h"
#include "doc/table.h"

#include <stdio.h>
#include <string.h>

/* A name for a row of any rotary family; `...` are further members. */
#define ROTARY(kind, title, layers, width, heads, kv_heads, inner, positions, vocab, theta,        \
               epsilon, ...)                                                                       \
    {                                                                                              \
        .family = kind, .name = title, .n_layer = layers, .n_embd = width, .n_head = heads,        \
        .n_positions = positions, .vocab_size = vocab, .n_inner = inner,                           \
        .layer_norm_epsilon = epsilon, .n_kv_head = kv_heads, .rope_theta = theta, __VA_ARGS__     \
    }

#define GPT2(title, layers, width, heads, positions, vocab)                                        \
    {                                                                                              \
        .family = "gpt2", .name = title, .n_layer = layers, .n_embd = width, .n_head = heads,      \
        .n_positions = positions, .vocab_size = vocab, .n_inner = 4 * width,                       \
        .layer_norm_epsilon = 1e-5                                                                 \
    }

#define BERT(title, layers, width, heads)                                                          \
    {                                                                                              \
        .family = "bert", .name = title, .n_layer = layers, .n_embd = width, .n_head = heads,      \
        .n_positions = 512, .vocab_size = 30522, .n_inner = 4 * (width),                           \
        .layer_norm_epsilon = 1e-12, .type_vocab_size = 2, .mask_rate = MICS_MASK_RATE             \
    }

/* The MiCS paper's sizes. */
#define BERT_PAPER(title, layers, width, heads)                                                    \
    {                                                                                              \
        .family = "bert", .name = title, .n_layer = layers, .n_embd = width, .n_head = heads,      \
        .n_positions = 512, .vocab_size = 32008, .n_inner = 4 * (width),                           \
        .layer_norm_epsilon = 1e-12, .type_vocab_size = 2, .mask_rate = MICS_MASK_RATE             \
    }

#define ROBERTA(title, layers, width, heads)                                                       \
    {                                                                                              \
        .family = "roberta", .name = title, .n_layer = layers, .n_embd = width, .n_head = heads,   \
        .n_positions = 514, .vocab_size = 50265, .n_inner = 4 * (width),                           \
        .layer_norm_epsilon = 1e-5, .type_vocab_size = 1, .mask_rate = MICS_MASK_RATE              \
    }

#define LLAMA(title, layers, width, heads, kv_heads, inner, positions, vocab, theta)               \
    ROTARY("llama", title, layers, width, heads, kv_heads, inner, positions, vocab, theta, 1e-5,   \
           .untied = true)

/* Llama 3.1 and 3.2 take longer sequences by the scaling of their rotary positions. */
#define LLAMA31(title, layers, width, heads, inner, by, tied)                                      \
    ROTARY("llama", title, layers, width, heads, 8, inner, 131072, 128256, 5e5, 1e-5,              \
           .rope_scaling = {.kind = MICS_ROPE_LLAMA3,                                              \
                            .original_positions = 8192,                                            \
                            .factor = by,                                                          \
                            .low_freq_factor = 1,                                                  \
                            .high_freq_factor = 4},                                                \
           .untied = !(tied))

#define MISTRAL(title, layers, width, heads, inner, positions, vocab, ...)                         \
    ROTARY("mistral", title, layers, width, heads, 8, inner, positions, vocab, 1e6, 1e-5,          \
           .untied = true, __VA_ARGS__)

#define QWEN25(title, layers, width, heads, kv_heads, inner, positions, vocab, tied)               \
    ROTARY("qwen2", title, layers, width, heads, kv_heads, inner, positions, vocab, 1e6, 1e-6,     \
           .untied = !(tied))

#define QWEN3(title, layers, width, heads, inner, tied)                                            \
    ROTARY("qwen3", title, layers, width, heads, 8, inner, 40960, 151936, 1e6, 1e-6,               \
           .head_dim = 128, .untied = !(tied))

#define EXPERTS(count, used, inner)                                                                \
    .n_expert = (count), .n_expert_used = (used), .expert_inner = (inner)

#define QWEN3_MOE(title, layers, width, heads, kv_heads, inner, expert)                            \
    ROTARY("qwen3_moe", title, layers, width, heads, kv_heads, inner, 40960, 151936, 1e6, 1e-6,    \
           .head_dim = 128, .untied = true, EXPERTS(128, 8, expert), .norm_topk_prob = true)

#define QWEN2_MOE(title, layers, width, heads, kv_heads, inner, positions, count, used, expert,    \
                  shared)                                                                          \
    ROTARY("qwen2_moe", title, layers, width, heads, kv_heads, inner, positions, 151936, 1e6,      \
           1e-6, .untied = true, .attention_bias = true, EXPERTS(count, used, expert),             \
           .shared_inner = shared)

static const struct mics_model_config presets[] = {
    GPT2("gpt2-nano", 4, 128, 4, 256, 257),
    GPT2("gpt2-micro", 6, 256, 8, 256, 257),
    GPT2("gpt2-mini", 6, 384, 6, 512, 257),
    GPT2("gpt2", 12, 768, 12, 1024, 50257),
    GPT2("gpt2-medium", 24, 1024, 16, 1024, 50257),
    GPT2("gpt2-large", 36, 1280, 20, 1024, 50257),
    GPT2("gpt2-xl", 48, 1600, 25, 1024, 50257),
    GPT2("gpt2-20b", 62, 5120, 40, 512, 50257),
    LLAMA("llama-nano", 4, 128, 4, 2, 352, 256, 257, 1e4),
    LLAMA("tinyllama-1.1b", 22, 2048, 32, 4, 5632, 2048, 32000, 1e4),
    LLAMA("llama2-7b", 32, 4096, 32, 32, 11008, 4096, 32000, 1e4),
    LLAMA("llama3-8b", 32, 4096, 32, 8, 14336, 8192, 128256, 5e5),
    LLAMA("llama3-70b", 80, 8192, 64, 8, 28672, 8192, 128256, 5e5),
    LLAMA31("llama3.1-8b", 32, 4096, 32, 14336, 8, false),
    LLAMA31("llama3.1-70b", 80, 8192, 64, 28672, 8, false),
    LLAMA31("llama3.2-1b", 16, 2048, 32, 8192, 32, true),
    LLAMA31("llama3.2-3b", 28, 3072, 24, 8192, 32, true),
    ROTARY("mistral", "mistral-nano", 4, 128, 4, 2, 352, 256, 257, 1e4, 1e-5, .untied = true),
    ROTARY("mistral", "mistral-7b-v0.1", 32, 4096, 32, 8, 14336, 32768, 32000, 1e4, 1e-5,
           .head_dim = 128, .sliding_window = 4096, .untied = true),
    MISTRAL("mistral-7b", 32, 4096, 32, 14336, 32768, 32768, .head_dim = 128),
    MISTRAL("mistral-nemo-12b", 40, 5120, 32, 14336, 131072, 131072, .head_dim = 128),
    ROTARY("qwen2", "qwen2-nano", 4, 128, 4, 2, 352, 256, 257, 1e4, 1e-6, .untied = false),
    QWEN25("qwen2.5-0.5b", 24, 896, 14, 2, 4864, 32768, 151936, true),
    QWEN25("qwen2.5-1.5b", 28, 1536, 12, 2, 8960, 131072, 151936, true),
    QWEN25("qwen2.5-7b", 28, 3584, 28, 4, 18944, 131072, 152064, false),
    QWEN25("qwen2.5-72b", 80, 8192, 64, 8, 29568, 131072, 152064, false),
    ROTARY("qwen3", "qwen3-nano", 4, 128, 4, 2, 352, 256, 257, 1e4, 1e-6, .head_dim = 64),
    QWEN3("qwen3-0.6b", 28, 1024, 16, 3072, true),
    QWEN3("qwen3-8b", 36, 4096, 32, 12288, false),
    QWEN3("qwen3-32b", 64, 5120, 64, 25600, false),
    ROTARY("olmoe", "moe-nano", 4, 128, 4, 4, 128, 256, 257, 1e4, 1e-5, .untied = true,
           EXPERTS(8, 2, 128)),
    ROTARY("mixtral", "mixtral-8x7b", 32, 4096, 32, 8, 14336, 32768, 32000, 1e6, 1e-5,
           .untied = true, EXPERTS(8, 2, 14336), .norm_topk_prob = true),
    ROTARY("olmoe", "olmoe-1b-7b", 16, 2048, 16, 16, 1024, 4096, 50304, 1e4, 1e-5, .untied = true,
           EXPERTS(64, 8, 1024)),
    ROTARY("qwen2_moe", "qwen2-moe-nano", 4, 128, 4, 2, 352, 256, 257, 1e4, 1e-6, .untied = true,
           .attention_bias = true, EXPERTS(8, 2, 64), .shared_inner = 128),
    QWEN2_MOE("qwen1.5-moe-a2.7b", 24, 2048, 16, 16, 5632, 8192, 60, 4, 1408, 5632),
    QWEN2_MOE("qwen2-57b-a14b", 28, 3584, 28, 4, 18944, 131072, 64, 8, 2560, 20480),
    QWEN3_MOE("qwen3-30b-a3b", 48, 2048, 32, 4, 6144, 768),
    QWEN3_MOE("qwen3-235b-a22b", 94, 4096, 64, 4, 12288, 1536),
    {.family = "bert",
     .name = "bert-nano",
     .n_layer = 4,
     .n_embd = 128,
     .n_head = 4,
     .n_positions = 256,
     .vocab_size = 258,
     .n_inner = 512,
     .layer_norm_epsilon = 1e-12,
     .type_vocab_size = 2,
     .mask_rate = MICS_MASK_RATE},
    BERT("bert-base", 12, 768, 12),
    BERT("bert-large", 24, 1024, 16),
    BERT_PAPER("bert-10b", 127, 2560, 40),
    BERT_PAPER("bert-15b", 190, 2560, 40),
    BERT_PAPER("bert-20b", 64, 5120, 40),
    BERT_PAPER("bert-50b", 62, 8192, 64),
    ROBERTA("roberta-base", 12, 768, 12),
    ROBERTA("roberta-large", 24, 1024, 16),
    ROBERTA("roberta-20b", 62, 5120, 40),
};

#define PRESET_COUNT (sizeof presets / sizeof presets[0])

const struct mics_model_config *mics_preset_find(const char *name)
{
    for (size_t i = 0; i < PRESET_COUNT; i++)
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL;
}

char *mics_preset_similar(const char *name, char *buf, size_t size)
{
    struct mics_suggestions similar;

    mics_suggest_init(&similar, name);
    for (size_t i = 0; i < PRESET_COUNT; i++)
        mics_suggest_offer(&similar, presets[i].name);
    return mics_suggest_list(&similar, buf, size);
}

static enum mics_status put_preset(struct mics_table *table, const struct mics_model_config *config,
                                   int tsv, struct mics_err *err)
{
    struct mics_model *model = NULL;
    enum mics_status status = mics_model_new(config, &model, err);

    if (status != MICS_OK)
        return status;
    mics_table_cell(table, "%s", config->name);
    mics_table_count(table, tsv, (double)model->param_count);
    mics_table_cell(table, "%u", config->n_layer);
    mics_table_cell(table, "%u", config->n_embd);
    mics_table_cell(table, "%u", config->vocab_size);
    mics_table_cell(table, "%u", config->n_positions);
    mics_model_free(model);
    return MICS_OK;
}

enum mics_status mics_presets_print(FILE *out, int tsv, struct mics_err *err)
{
    struct mics_table *table =
        mics_table_new(tsv ? "model|parameters|layers|width|vocabulary|positions"
                           : "<model|>parameters|>layers|>width|>vocabulary|>positions");

    for (size_t i = 0; i < PRESET_COUNT; i++) {
        enum mics_status status = put_preset(table, &presets[i], tsv, err);

        if (status != MICS_OK) {
            mics_table_free(table);
            return status;
        }
    }
    return mics_table_finish(table, out, tsv, err);
}
