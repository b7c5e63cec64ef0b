/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trainer_memory.h - what other trainers keep in the memory of a rank.
 *
 * Of the moments of a step at which memory may be at its peak, the one that takes most is computed,
 * with what is allocated then. Not counted: fragmentation of PyTorch's allocator, dropout's masks,
 * and what a program keeps itself.
 */
#ifndef MICS_PLAN_TRAINER_MEMORY_H
#define MICS_PLAN_TRAINER_MEMORY_H

#include "plan/plan.h"

/* Bytes and names of the regions; offsets and sums are the caller's. choice->trainer is not
 * MICS_TRAINER_MICS. */
void mics_trainer_memory(const struct mics_model *model, const struct mics_plan_choice *choice,
                         struct mics_memory *out);

/* Bytes of whole gradients that are added up over micro-steps; 0: there are none. */
uint64_t mics_trainer_whole_grads(const struct mics_model *model,
                                  const struct mics_plan_choice *choice);

/* "mics", "torchtitan", ... */
const char *mics_trainer_name(enum mics_trainer trainer);
/* Of another trainer than mics. false: there is none of this name; *out is unchanged. */
bool mics_trainer_parse(const char *name, enum mics_trainer *out);

#endif
