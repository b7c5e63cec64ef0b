/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudnn_plan.cuh - how a graph is run: the first of the engines that cuDNN proposes which can be made and is content
 * with the workspace. Making one takes up to some tenths of a second, as kernels are compiled for it.
 */
#ifndef MICS_KERNELS_CUDA_CUDNN_PLAN_CUH
#define MICS_KERNELS_CUDA_CUDNN_PLAN_CUH

#include "cuda/cudnn_graph.cuh"

#define MICS_CUDNN_ENGINES_MAX 8

/* What plans are for: the GPU of a handle; without one, a device that is only described. */
struct mics_cudnn_place {
    cudnnHandle_t handle;
    mics_cudnn_descriptor device;
};

struct mics_cudnn_plan {
    struct mics_cudnn_graph graph; /* all that the plan was made of lives as long */
    mics_cudnn_descriptor plan;    /* NULL: there is none */
    size_t workspace_bytes;
};

/* The engines that cuDNN proposes, best first. None, and it has no reason: CUDNN_STATUS_NOT_SUPPORTED. */
cudnnStatus_t mics_cudnn_engines(struct mics_cudnn_graph *graph,
                                 const struct mics_cudnn_place *place,
                                 mics_cudnn_descriptor engines[MICS_CUDNN_ENGINES_MAX], int *count);

/* Make the plan of plan->graph, whose operations are all there. CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT: an engine
 * would take it with more than `limit` bytes of workspace; another status: none does. In any case the caller calls
 * mics_cudnn_plan_fini(). */
cudnnStatus_t mics_cudnn_plan_make(struct mics_cudnn_plan *plan,
                                   const struct mics_cudnn_place *place, size_t limit);
void mics_cudnn_plan_fini(struct mics_cudnn_plan *plan); /* zeros are fine */

#define MICS_CUDNN_TENSORS_MAX 16

/* Tensors by their numbers: device memory, or the host's for numbers. */
struct mics_cudnn_operands {
    int64_t uids[MICS_CUDNN_TENSORS_MAX];
    void *pointers[MICS_CUDNN_TENSORS_MAX];
    int count;
};

/* Enqueue the plan on the handle's stream. `workspace`: plan->workspace_bytes. */
cudnnStatus_t mics_cudnn_plan_run(const struct mics_cudnn_plan *plan, cudnnHandle_t handle,
                                  const struct mics_cudnn_operands *operands, void *workspace);

#endif
