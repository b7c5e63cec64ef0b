/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h - what lies where in the arena: the planner adds it up, the engine carves it.
 *
 * mics_memory_compute() (plan.h) gives the regions; the functions here give the places inside a region. All
 * are pure functions of the model and the choice, which must have passed mics_choice_check().
 * Offsets are bytes from the region's beginning.
 */
#ifndef MICS_PLAN_MEMORY_H
#define MICS_PLAN_MEMORY_H

#include "plan/slots.h"

/* Every region begins at a multiple of this and is rounded up to it. */
#define MICS_REGION_ALIGN 4096
/* Activations, batches and scalars, inside their regions. */
#define MICS_BUFFER_ALIGN 256
/* Outside the arena: staging of communicators and libraries' workspaces, a fixed budget. */
#define MICS_WORKSPACE_BYTES ((uint64_t)16 << 20)

/* State of fp32 values for each element of an optimizer shard: m and v of AdamW, or SGD's momentum. The
 * parameters themselves are fp32 and are updated in place: there is no second copy. */
uint32_t mics_optimizer_states(enum mics_optimizer optimizer);

/* A unit's shard in MICS_REGION_PARAM or MICS_REGION_GRAD (state 0), or its state 0 or 1 in
 * MICS_REGION_OPTIM, where the states of a unit follow each other. */
uint64_t mics_memory_shard_offset(const struct mics_model *model,
                                  const struct mics_plan_choice *choice,
                                  enum mics_region_kind region, uint32_t unit, uint32_t state);

/* The batch as a stage sees it in training (`train`) or evaluation. */
struct mics_batch mics_choice_batch(const struct mics_plan_choice *choice, bool train);

/* What a stage saves, in MICS_REGION_SAVED: large enough for training and for evaluation. */
uint64_t mics_memory_saved_offset(const struct mics_model *model,
                                  const struct mics_plan_choice *choice, uint32_t stage);

/* MICS_REGION_SCRATCH is the stages' common scratch, then the gradient of the residual stream
 * ("flow") [B, T, C]. */
uint64_t mics_memory_flow_offset(const struct mics_model *model,
                                 const struct mics_plan_choice *choice);

/* MICS_REGION_BATCH, for steps of even and odd `parity` in turn: the tokens [s, B, T] of all
 * micro-steps, their targets, and the scalars. */
uint64_t mics_memory_tokens_offset(const struct mics_plan_choice *choice, uint32_t parity);
uint64_t mics_memory_targets_offset(const struct mics_plan_choice *choice, uint32_t parity);
uint64_t mics_memory_scalars_offset(const struct mics_plan_choice *choice, uint32_t parity);

#endif
