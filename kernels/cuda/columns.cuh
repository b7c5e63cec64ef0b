/* SPDX-License-Identifier: Apache-2.0 */
/*
 * columns.cuh - the second stage of sums over the rows of a tensor.
 *
 * The first stage has a kernel of its own in each file: its blocks write their sums to the
 * workspace. Both stages add in a fixed order, so equal runs give equal bits.
 */
#ifndef MICS_KERNELS_CUDA_COLUMNS_CUH
#define MICS_KERNELS_CUDA_COLUMNS_CUH

#include "cuda/gpu.h"
#include "cuda/kernels.h"

#include <stdint.h>

/* `partials` is [groups, n] in fp32; column c < split of its sum is added to first[c], another to
 * second[c - split]. */
struct mics_columns {
    const float *partials;
    void *first, *second;
    uint32_t groups, n, split;
};

/* Add up what the blocks of the first stage wrote. `dtype` is that of first and second. */
cudaError_t mics_columns_launch(cudaStream_t stream, const struct mics_columns *columns,
                                enum mics_dtype dtype);

#endif
