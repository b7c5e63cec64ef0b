/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"

#include "integer_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void each_cut(uint32_t nodes, uint32_t per_node,
                     void (*visit)(const struct mics_shape *shape, void *context), void *context)
{
    const uint32_t n = nodes * per_node;

    for (uint32_t p = 1; p <= n; p++)
        for (uint32_t g = p; g <= n; g += p)
            for (uint32_t o = g; o <= n; o += g) {
                const struct mics_shape shape = {nodes, per_node, p, g, o};

                if (mics_shape_check(&shape, NULL) == MICS_OK)
                    visit(&shape, context);
            }
}

void cases_each_shape(uint32_t n, void (*visit)(const struct mics_shape *shape, void *context),
                      void *context)
{
    for (uint32_t nodes = 1; nodes <= n; nodes++)
        if (n % nodes == 0)
            each_cut(nodes, n / nodes, visit, context);
}

struct mics_plan_choice cases_choice(const struct mics_shape *shape)
{
    return (struct mics_plan_choice){
        .shapes = MICS_SAME_SHAPE(*shape),
        .strategy = "custom",
        .segments = 1,
        .coalesce = 1,
        .prefetch = 1,
        .grad_slots = 2,
        .micro_batch = 2,
        .micro_steps = 1,
        .seq = 8,
        .optimizer = MICS_OPT_SGD,
    };
}

const char *cases_name(const struct mics_plan_choice *choice, char *text, size_t size)
{
    const struct mics_shape *shape = &choice->shapes[MICS_UNIT_DENSE];

    snprintf(text, size,
             "%ux%u p (%u,%u,%u) s %u prefetch %u grad slots %u segments %u coalesce %u%s%s "
             "recompute %s%s",
             shape->nodes, shape->per_node, shape->p_param, shape->p_grad, shape->p_optim,
             choice->micro_steps, choice->prefetch, choice->grad_slots, choice->segments,
             choice->coalesce, choice->hierarchical_gather ? " hierarchical gather" : "",
             choice->hierarchical_reduce ? " hierarchical reduce" : "",
             mics_recompute_name(choice->recompute), choice->clip ? " clip" : "");
    if (mics_choice_groups(choice, MICS_UNIT_EXPERT) == MICS_UNIT_EXPERT) {
        const struct mics_shape *experts = &choice->shapes[MICS_UNIT_EXPERT];
        const size_t length = strlen(text);

        snprintf(text + length, size - length, " experts (%u,%u,%u)", experts->p_param,
                 experts->p_grad, experts->p_optim);
    }
    if (choice->dispatches) {
        const size_t length = strlen(text);

        snprintf(text + length, size - length, " resident");
    }
    return text;
}

static struct mics_model *make(const struct mics_model_config *config)
{
    struct mics_model *model = NULL;
    struct mics_err err;

    if (mics_model_new(config, &model, &err) != MICS_OK) {
        printf("Bail out! %s\n", err.text);
        exit(1);
    }
    return model;
}

static const struct mics_model_config integer_config = {.family = "integer",
                                                        .name = "integer",
                                                        .n_layer = 3,
                                                        .n_embd = 5,
                                                        .n_head = 1,
                                                        .n_positions = 8,
                                                        .vocab_size = 11,
                                                        .n_inner = 20,
                                                        .layer_norm_epsilon = 1e-5};

struct mics_model *cases_integer_model(void)
{
    return integer_model_new_of(&integer_config);
}

struct mics_model *cases_staged_model(bool fused)
{
    return integer_model_new_staged(&integer_config, fused);
}

struct mics_model *cases_gpt2(void)
{
    return make(&(struct mics_model_config){.family = "gpt2",
                                            .name = "tiny",
                                            .n_layer = 3,
                                            .n_embd = 12,
                                            .n_head = 3,
                                            .n_positions = 9,
                                            .vocab_size = 37,
                                            .n_inner = 44,
                                            .layer_norm_epsilon = 1e-5});
}

struct mics_model *cases_encoder(void)
{
    return make(&(struct mics_model_config){.family = "roberta",
                                            .name = "tiny",
                                            .n_layer = 3,
                                            .n_embd = 12,
                                            .n_head = 3,
                                            .n_positions = 11,
                                            .vocab_size = 37,
                                            .n_inner = 44,
                                            .layer_norm_epsilon = 1e-5,
                                            .type_vocab_size = 2,
                                            .mask_rate = 0.5});
}

struct mics_model *cases_llama(bool untied)
{
    return make(&(struct mics_model_config){.family = "llama",
                                            .name = "tiny",
                                            .n_layer = 3,
                                            .n_embd = 12,
                                            .n_head = 4,
                                            .n_positions = 9,
                                            .vocab_size = 37,
                                            .n_inner = 22,
                                            .layer_norm_epsilon = 1e-5,
                                            .n_kv_head = 2,
                                            .head_dim = 4,
                                            .rope_theta = 1000,
                                            .untied = untied});
}

struct mics_model *cases_experts(bool padded)
{
    struct mics_model_config config = {
        .family = "qwen3_moe",
        .name = "tiny",
        .n_layer = 3,
        .n_embd = 12,
        .n_head = 4,
        .n_positions = 9,
        .vocab_size = 37,
        .n_inner = 22,
        .layer_norm_epsilon = 1e-5,
        .n_kv_head = 2,
        .head_dim = padded ? 6 : 4,
        .rope_theta = 1000,
        .untied = true,
        .n_expert = 4,
        .n_expert_used = 2,
        .expert_inner = padded ? 7 : 16,
        .dense_layers = {1},
        .balance = {.kind = MICS_BALANCE_SEQUENCE, .coefficient = 0.05, .z_coefficient = 0.01},
    };

    if (padded) {
        snprintf(config.family, sizeof config.family, "qwen2_moe");
        config.shared_inner = 13;
        config.attention_bias = true;
    }
    return make(&config);
}

void cases_zero_routers(struct mics_model *model)
{
    for (uint32_t u = 0; u < model->unit_count; u++)
        for (uint32_t i = 0; i < model->units[u].tensor_count; i++)
            if (strstr(model->units[u].tensors[i].name, ".mlp.gate.weight"))
                model->units[u].tensors[i].init = MICS_INIT_ZERO;
}
