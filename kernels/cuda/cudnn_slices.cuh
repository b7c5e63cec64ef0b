/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudnn_slices.cuh - plans of cuDNN for attention of one shape, slice by slice.
 *
 * The gradient wants fp32 sums of the queries' gradient in the workspace, 4 B T H D bytes, and as much again for
 * grouped queries. What does not fit is done in slices: of so many sequences, or of so many key heads of all sequences
 * with their query heads, whichever makes fewer; where neither fits, of so many key heads of one sequence. All slices
 * are of one size, but for the last of the batch or of a sequence, which has a plan of its own where it is smaller.
 */
#ifndef MICS_KERNELS_CUDA_CUDNN_SLICES_CUH
#define MICS_KERNELS_CUDA_CUDNN_SLICES_CUH

#include "cuda/cudnn_attention.cuh"
#include "cuda/cudnn_plan.cuh"

/* The plan of slices of one size. */
struct mics_cudnn_slice {
    struct mics_cudnn_shape shape;
    struct mics_cudnn_plan plan;
    size_t sums_bytes; /* at the workspace's beginning, before the plan's own part */
};

struct mics_cudnn_slices {
    struct mics_cudnn_slice most, last; /* last.plan.plan: NULL where all are of one size */
};

/* Make the plans for `whole`, which is not sliced, so that slices need no more than `limit` bytes. Statuses as of
 * mics_cudnn_plan_make(). In any case the caller calls mics_cudnn_slices_fini(). */
cudnnStatus_t mics_cudnn_slices_make(struct mics_cudnn_slices *slices,
                                     const struct mics_cudnn_library *library,
                                     const struct mics_cudnn_place *place,
                                     const struct mics_cudnn_shape *whole, size_t limit);
void mics_cudnn_slices_fini(struct mics_cudnn_slices *slices); /* zeros are fine */

#endif
