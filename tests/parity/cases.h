/* SPDX-License-Identifier: Apache-2.0 */
/* cases.h - the strategies and models of the parity tests. */
#ifndef MICS_TESTS_PARITY_CASES_H
#define MICS_TESTS_PARITY_CASES_H

#include "harness.h"

/* Call `visit` for every legal (nodes, per_node, p_param, p_grad, p_optim) of n ranks. */
void cases_each_shape(uint32_t n, void (*visit)(const struct mics_shape *shape, void *context),
                      void *context);

/* A choice with this shape: micro-batch 2, a short sequence, two gradient slots. */
struct mics_plan_choice cases_choice(const struct mics_shape *shape);

/* "2x4 p (4,4,8) s 3 prefetch 1 segments 2 hierarchical" into text, for messages. */
const char *cases_name(const struct mics_plan_choice *choice, char *text, size_t size);

/* Models: one whose gradients are integers; a small GPT-2 whose tensor sizes no p divides; a small
 * Llama with grouped queries. Free with mics_model_free(). */
struct mics_model *cases_integer_model(void);
struct mics_model *cases_staged_model(bool fused); /* integer_model_new_staged() */
struct mics_model *cases_gpt2(void);
/* A RoBERTa: attention to all tokens, norms behind sums, a head with a transform. */
struct mics_model *cases_encoder(void);
struct mics_model *cases_llama(bool untied);
/* A Qwen3-MoE whose first layer has no experts, with a loss of balance by sequence. If padded, a
 * Qwen2-MoE, with a shared expert, of which no matrix is a multiple of the alignment: the first
 * backward pass then adds to zeros. */
struct mics_model *cases_experts(bool padded);
/* Logits of routers are equal at first: all tokens go to the first experts, which are on one rank,
 * and no other rank receives a row. */
void cases_zero_routers(struct mics_model *model);

#endif
