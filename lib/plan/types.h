/* SPDX-License-Identifier: Apache-2.0 */
/*
 * types.h - the number types of a plan.
 *
 * Parameters and activations are of choice->dtype. Where that is bf16 the optimizer keeps an fp32 master of what
 * it updates, beside its states. Gradients are of choice->grad_dtype in the slots through which they are reduced
 * and wherever they travel; they are added up over micro-steps in shards of fp32. Where nothing is reduced
 * (p_grad 1) they are added up in the fp32 shard at once.
 */
#ifndef MICS_PLAN_TYPES_H
#define MICS_PLAN_TYPES_H

#include "plan/plan.h"

/* "f32", "bf16" */
const char *mics_dtype_name(enum mics_dtype dtype);
/* false: neither. */
bool mics_dtype_parse(const char *text, enum mics_dtype *out);

/* Of the gradients that a backward pass writes. */
static inline enum mics_dtype mics_choice_written_grads(const struct mics_plan_choice *choice)
{
    return choice->shape.p_grad == 1 ? MICS_F32 : choice->grad_dtype;
}

/* Values of fp32 for each element of an optimizer shard: the optimizer's states, and the master. */
uint32_t mics_choice_optim_values(const struct mics_plan_choice *choice);

/* Elements of the room, for each of the two exchanges of the second hop, in which gradients travel that are
 * not fp32: the largest piece that one call takes. 0: they travel where they are, or not at all. */
struct mics_hop_room {
    uint64_t scatter, sync;
};
struct mics_hop_room mics_choice_hop_room(const struct mics_model *model,
                                          const struct mics_plan_choice *choice);

#endif
