/* SPDX-License-Identifier: Apache-2.0 */
/* hf_own_config.c - the config.json of a model, as versions 4 and 5 of Hugging Face's library read it. */
#include "ckpt/hf/hf.h"

#include "model/rope_scaling.h"

#include <string.h>

static json_t *gpt2_config(const struct mics_model_config *c)
{
    return json_pack("{s:[s],s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:b,s:f,s:f,s:f}", "architectures",
                     "GPT2LMHeadModel", "model_type", "gpt2", "activation_function", "gelu_new",
                     "n_layer", (json_int_t)c->n_layer, "n_embd", (json_int_t)c->n_embd, "n_head",
                     (json_int_t)c->n_head, "n_positions", (json_int_t)c->n_positions, "vocab_size",
                     (json_int_t)c->vocab_size, "n_inner", (json_int_t)c->n_inner,
                     "layer_norm_epsilon", c->layer_norm_epsilon, "tie_word_embeddings", 1,
                     "attn_pdrop", 0.0, "embd_pdrop", 0.0, "resid_pdrop", 0.0);
}

static json_t *llama_config(const struct mics_model_config *c)
{
    return json_pack(
        "{s:[s],s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:b,s:b,s:b,s:f}", "architectures",
        "LlamaForCausalLM", "model_type", "llama", "hidden_act", "silu", "num_hidden_layers",
        (json_int_t)c->n_layer, "hidden_size", (json_int_t)c->n_embd, "num_attention_heads",
        (json_int_t)c->n_head, "num_key_value_heads", (json_int_t)c->n_kv_head, "head_dim",
        (json_int_t)c->head_dim, "intermediate_size", (json_int_t)c->n_inner,
        "max_position_embeddings", (json_int_t)c->n_positions, "vocab_size",
        (json_int_t)c->vocab_size, "rms_norm_eps", c->layer_norm_epsilon, "tie_word_embeddings",
        !c->untied, "attention_bias", 0, "mlp_bias", 0, "attention_dropout", 0.0);
}

/* Version 4 reads base and scaling of the rotary positions in two places, version 5 in one. A scaling that is there
 * already stays as it was written. */
static int add_rope(json_t *config, const struct mics_model_config *c)
{
    json_t *parameters = mics_rope_scaling_to_json(&c->rope_scaling);
    int failed = json_object_set_new(parameters, "rope_theta", json_real(c->rope_theta));

    failed |= json_object_set_new(config, "rope_theta", json_real(c->rope_theta));
    failed |= json_object_set_new(config, "rope_parameters", parameters);
    if (c->rope_scaling.kind != MICS_ROPE_PLAIN &&
        !json_is_object(json_object_get(config, "rope_scaling")))
        failed |= json_object_set_new(config, "rope_scaling",
                                      mics_rope_scaling_to_json(&c->rope_scaling));
    return failed;
}

/* The library's defaults would be outside a small vocabulary. The last token is the end. */
static int add_ends(json_t *config, const struct mics_model_config *c)
{
    const json_int_t last = (json_int_t)c->vocab_size - 1;

    return json_object_set_new(config, "bos_token_id", json_integer(last)) |
           json_object_set_new(config, "eos_token_id", json_integer(last));
}

json_t *mics_hf_config_of_model(const struct mics_model *model)
{
    const struct mics_model_config *c = &model->config;
    const bool llama = strcmp(c->family, "llama") == 0;
    json_t *config = model->source ? json_deep_copy(model->source)
                     : llama       ? llama_config(c)
                                   : gpt2_config(c);
    int failed = config == NULL;

    if (!failed && !model->source)
        failed |= add_ends(config, c);
    if (!failed && llama)
        failed |= add_rope(config, c);
    if (!failed)
        return config;
    json_decref(config);
    return NULL;
}
