/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Llama's tensors: names and [out, in] layout as in the released checkpoints, without "model.". Every matrix
 * starts from N(0, 0.02), every norm from 1.
 */
#include "model/build.h"
#include "model/activation_layout.h"
#include "model/decoder/llama.h"

#include <stdio.h>

#define STD 0.02

static const char embedding_name[] = "embed_tokens.weight";

static struct mics_tensor_spec matrix(const char *name, uint64_t out, uint64_t in)
{
    return (struct mics_tensor_spec){name, out, in, MICS_INIT_NORMAL, STD, .decay = true};
}

/* A matrix that goes on where the one before ended. */
static struct mics_tensor_spec more(const char *name, uint64_t out, uint64_t in)
{
    struct mics_tensor_spec spec = matrix(name, out, in);

    spec.joined = true;
    return spec;
}

static struct mics_tensor_spec norm(const char *name, uint64_t width)
{
    return (struct mics_tensor_spec){name, width, 0, MICS_INIT_ONE, 0, .decay = false};
}

/* The unit of the head, with the embedding in a tied model. */
static enum mics_status build_head(struct mics_model *model, uint32_t unit, struct mics_err *err)
{
    const struct mics_model_config *c = &model->config;
    struct mics_tensor_spec specs[MICS_LLAMA_END_TENSORS] = {
        [MICS_LLAMA_VOCABULARY] =
            matrix(c->untied ? "lm_head.weight" : embedding_name, c->vocab_size, c->n_embd),
        [MICS_LLAMA_NORM] = norm("norm.weight", c->n_embd),
    };

    specs[MICS_LLAMA_VOCABULARY].spare_rows = mics_carve_spare_rows(c->vocab_size);

    return mics_build_unit(model, unit, c->untied ? "head" : "ends", !c->untied, specs,
                           MICS_LLAMA_END_TENSORS, err);
}

static enum mics_status build_embedding(struct mics_model *model, struct mics_err *err)
{
    const struct mics_tensor_spec spec =
        matrix(embedding_name, model->config.vocab_size, model->config.n_embd);

    return mics_build_unit(model, 0, "embed", false, &spec, 1, err);
}

static enum mics_status build_block(struct mics_model *model, uint32_t layer, struct mics_err *err)
{
    const struct mics_model_config *c = &model->config;
    const uint64_t C = c->n_embd, F = c->n_inner, queries = (uint64_t)c->n_head * c->head_dim,
                   keys = (uint64_t)c->n_kv_head * c->head_dim;
    const struct mics_tensor_spec specs[MICS_LLAMA_BLOCK_TENSORS] = {
        [MICS_LLAMA_Q] = matrix("self_attn.q_proj.weight", queries, C),
        [MICS_LLAMA_K] = more("self_attn.k_proj.weight", keys, C),
        [MICS_LLAMA_V] = more("self_attn.v_proj.weight", keys, C),
        [MICS_LLAMA_O] = matrix("self_attn.o_proj.weight", C, queries),
        [MICS_LLAMA_GATE] = matrix("mlp.gate_proj.weight", F, C),
        [MICS_LLAMA_UP] = more("mlp.up_proj.weight", F, C),
        [MICS_LLAMA_DOWN] = matrix("mlp.down_proj.weight", C, F),
        [MICS_LLAMA_NORM_1] = norm("input_layernorm.weight", C),
        [MICS_LLAMA_NORM_2] = norm("post_attention_layernorm.weight", C),
    };
    char name[32];

    snprintf(name, sizeof name, "layers.%u", layer);
    return mics_build_unit(model, 1 + layer, name, false, specs, MICS_LLAMA_BLOCK_TENSORS, err);
}

enum mics_status mics_llama_build(struct mics_model *model, struct mics_err *err)
{
    const bool untied = model->config.untied;
    enum mics_status status = mics_build_stages(model, err);

    if (status == MICS_OK)
        status = untied ? build_embedding(model, err) : build_head(model, 0, err);
    for (uint32_t i = 0; status == MICS_OK && i < model->config.n_layer; i++)
        status = build_block(model, i, err);
    if (status == MICS_OK && untied)
        status = build_head(model, model->unit_count - 1, err);
    return status;
}
