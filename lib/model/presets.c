/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models by name. In the program, not in files, so that a program that is not installed knows them.
 *
 * The small ones take bytes: 256 values and the end of a document. gpt2-nano is sized for a few
 * minutes on two cores. gpt2 .. gpt2-xl are the released ones; gpt2-20b is the MiCS paper's (its
 * sequences have 512 tokens). llama2, llama3, llama3.1 and llama3.2 are Meta's sizes (Touvron et al. 2023, Grattafiori
 * et al. 2024, and the config.json of the released 3.1 and 3.2), tinyllama-1.1b those of Zhang et al. 2024.
 */
#include "model/config.h"

#include <stdio.h>
#include <string.h>

#define GPT2(title, layers, width, heads, positions, vocab)                                        \
    {                                                                                              \
        .family = "gpt2", .name = title, .n_layer = layers, .n_embd = width, .n_head = heads,      \
        .n_positions = positions, .vocab_size = vocab, .n_inner = 4 * width,                       \
        .layer_norm_epsilon = 1e-5                                                                 \
    }

#define LLAMA(title, layers, width, heads, kv_heads, inner, positions, vocab, theta, epsilon)      \
    {                                                                                              \
        .family = "llama", .name = title, .n_layer = layers, .n_embd = width, .n_head = heads,     \
        .n_positions = positions, .vocab_size = vocab, .n_inner = inner,                           \
        .layer_norm_epsilon = epsilon, .n_kv_head = kv_heads, .rope_theta = theta, .untied = true  \
    }

/* Of Llama 3.1 and 3.2: longer by the scaling of their rotary positions. */
#define LLAMA31(title, layers, width, heads, inner, by, tied)                                      \
    {                                                                                              \
        .family = "llama", .name = title, .n_layer = layers, .n_embd = width, .n_head = heads,     \
        .n_positions = 131072, .vocab_size = 128256, .n_inner = inner, .layer_norm_epsilon = 1e-5, \
        .n_kv_head = 8, .rope_theta = 5e5,                                                         \
        .rope_scaling = {.kind = MICS_ROPE_LLAMA3,                                                 \
                         .original_positions = 8192,                                               \
                         .factor = by,                                                             \
                         .low_freq_factor = 1,                                                     \
                         .high_freq_factor = 4},                                                   \
        .untied = !(tied)                                                                          \
    }

static const struct mics_model_config known[] = {
    GPT2("gpt2-nano", 4, 128, 4, 256, 257),
    GPT2("gpt2-micro", 6, 256, 8, 256, 257),
    GPT2("gpt2-mini", 6, 384, 6, 512, 257),
    GPT2("gpt2", 12, 768, 12, 1024, 50257),
    GPT2("gpt2-medium", 24, 1024, 16, 1024, 50257),
    GPT2("gpt2-large", 36, 1280, 20, 1024, 50257),
    GPT2("gpt2-xl", 48, 1600, 25, 1024, 50257),
    GPT2("gpt2-20b", 62, 5120, 40, 512, 50257),
    LLAMA("llama-nano", 4, 128, 4, 2, 352, 256, 257, 1e4, 1e-5),
    LLAMA("tinyllama-1.1b", 22, 2048, 32, 4, 5632, 2048, 32000, 1e4, 1e-5),
    LLAMA("llama2-7b", 32, 4096, 32, 32, 11008, 4096, 32000, 1e4, 1e-5),
    LLAMA("llama3-8b", 32, 4096, 32, 8, 14336, 8192, 128256, 5e5, 1e-5),
    LLAMA("llama3-70b", 80, 8192, 64, 8, 28672, 8192, 128256, 5e5, 1e-5),
    LLAMA31("llama3.1-8b", 32, 4096, 32, 14336, 8, false),
    LLAMA31("llama3.1-70b", 80, 8192, 64, 28672, 8, false),
    LLAMA31("llama3.2-1b", 16, 2048, 32, 8192, 32, true),
    LLAMA31("llama3.2-3b", 28, 3072, 24, 8192, 32, true),
    {.family = "counting",
     .name = "counting",
     .n_layer = 3,
     .n_embd = 5,
     .n_head = 1,
     .n_positions = 64,
     .vocab_size = 257,
     .n_inner = 1000,
     .layer_norm_epsilon = 1e-5},
};

#define KNOWN_COUNT (sizeof known / sizeof known[0])

const struct mics_model_config *mics_model_known(const char *name)
{
    for (size_t i = 0; i < KNOWN_COUNT; i++)
        if (strcmp(known[i].name, name) == 0)
            return &known[i];
    return NULL;
}

char *mics_model_names(char *buf, size_t size)
{
    size_t used = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < KNOWN_COUNT && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%s", i ? ", " : "", known[i].name);
    return buf;
}
