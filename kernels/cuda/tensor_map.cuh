/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_map.cuh - what a bulk copy must know of the tensor it reads, made on the host.
 *
 * Heads of activations: [B, T, heads, D] bf16, where rows of T are `stride` elements apart and the heads of a row
 * stand side by side. A box is 64 columns of one head by `rows` rows of one sequence.
 */
#ifndef MICS_KERNELS_CUDA_TENSOR_MAP_CUH
#define MICS_KERNELS_CUDA_TENSOR_MAP_CUH

#include <cuda.h>
#include <cuda_runtime.h>
#include <stddef.h>

struct mics_heads {
    const void *at;          /* aligned to 16 bytes */
    unsigned B, T, heads, D; /* 1 or more; D a multiple of 8 */
    size_t stride;           /* a multiple of 8, heads D or more */
};

/* Fill in a map for boxes of `rows` (1 to 256) rows. cudaErrorNotSupported: the driver has no such maps;
 * cudaErrorInvalidValue: it does not take these. */
cudaError_t mics_tensor_map_make(CUtensorMap *map, const struct mics_heads &of, unsigned rows);

#endif
