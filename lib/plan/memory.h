/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h - sizes behind the regions of mics_memory_compute() (plan.h), for the planner and the engine.
 */
#ifndef MICS_PLAN_MEMORY_H
#define MICS_PLAN_MEMORY_H

#include "plan/slots.h"

/* Every region begins at a multiple of this and is rounded up to it. */
#define MICS_REGION_ALIGN 4096
/* Activations, batches and scalars, inside their regions. */
#define MICS_BUFFER_ALIGN 256
/* Outside the arena of a host: staging of communicators and libraries' workspaces. Of a GPU:
 * gpu_memory.h. */
#define MICS_WORKSPACE_BYTES ((uint64_t)16 << 20)

/* Files that each shard of a checkpoint is written as: one for each replica, but none smaller than 1 MiB, which
 * would cost more in files than it gains in disks. */
uint32_t mics_choice_checkpoint_parts(const struct mics_model *model,
                                      const struct mics_plan_choice *choice);

/* mics_memory_compute() with what this cluster's devices need outside the arena. */
enum mics_status mics_memory_on(const struct mics_topology *topology,
                                const struct mics_model *model,
                                const struct mics_plan_choice *choice, struct mics_memory *out,
                                struct mics_err *err);

/* All that counts against the memory of one rank of this cluster: the arena and the workspace;
 * on GPUs the context and communicators; where ranks compute in host memory, the snapshot. */
uint64_t mics_memory_total(const struct mics_memory *memory, const struct mics_topology *topology);

/* The batch as a stage sees it in training (`train`) or evaluation. */
struct mics_batch mics_choice_batch(const struct mics_plan_choice *choice, bool train);

#endif
