/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_memory.h - memory that a rank takes of its GPU outside the arena: the CUDA context,
 * workspaces, NCCL's communicators.
 *
 * The numbers come from published measurements and NCCL's sources, not from measurements with mics.
 * test_gpu_memory.c prints how far they are from published measurements.
 */
#ifndef MICS_PLAN_GPU_MEMORY_H
#define MICS_PLAN_GPU_MEMORY_H

#include "plan/plan.h"
#include "topology/nccl_cost.h"

/* The context, and the code of mics and cuBLASLt that is loaded when it is first used. A
 * context of PyTorch with one kernel loaded takes 0.47 GiB of an A100 with CUDA 12.1, and 0.92 GiB
 * with CUDA_MODULE_LOADING=EAGER (stas00/ml-engineering, training/performance); 160 MiB are assumed
 * for the code of both. */
#define MICS_GPU_CONTEXT_BYTES ((uint64_t)640 << 20)

/* Each compute stream has a workspace (MICS_CUDA_WORKSPACE_BYTES of kernels.h) for cuBLASLt and for
 * partial sums; the engine has one compute stream. cuBLASLt's handle has no device
 * memory of its own. */
#define MICS_GPU_WORKSPACE_BYTES ((uint64_t)32 << 20)
#define MICS_GPU_COMPUTE_STREAMS 1

/* One communicator: the ranks that it spans, and its use. */
struct mics_nccl_comm {
    uint32_t nodes, per_node; /* per_node: its own ranks on each node */
    enum mics_collective collective;
    bool scalars; /* few bytes: never reduced by NVLink SHARP */
};

/* Device memory in bytes per rank. 0 for a communicator of one rank, which is never created. */
uint64_t mics_nccl_comm_bytes(const struct mics_nccl_node *node, const struct mics_nccl_comm *comm);

/* The same of all communicators that the engine creates for this choice. */
uint64_t mics_nccl_communicators_bytes(const struct mics_topology *topology,
                                       const struct mics_model *model,
                                       const struct mics_plan_choice *choice);

#endif
