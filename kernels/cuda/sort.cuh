/* SPDX-License-Identifier: Apache-2.0 */
/* sort.cuh - small numbers in order, equal ones in the order in which they were. */
#ifndef MICS_KERNELS_CUDA_SORT_CUH
#define MICS_KERNELS_CUDA_SORT_CUH

#include "cuda/gpu.h"

#include <stdint.h>

#define MICS_SORT_DIGITS 256
#define MICS_SORT_TILE   256 /* rows, and threads, of a block */

/* `rows` numbers below `bound` and their original positions; in device memory. The last four are
 * scratch: each `rows` long, `places` MICS_SORT_DIGITS times the number of tiles. */
struct mics_sort {
    const int32_t *tokens;
    uint32_t rows, bound;
    uint32_t *keys[2], *order[2];
    uint32_t *places;
};

static inline uint32_t mics_sort_tiles(uint32_t rows)
{
    return (rows + MICS_SORT_TILE - 1) / MICS_SORT_TILE;
}

/* The index of keys and order in which the result is. */
static inline int mics_sort_result(uint32_t bound)
{
    return bound > 1u << 24 || (bound > 1u << 8 && bound <= 1u << 16);
}

/* Sort. rows is 1 or more. */
cudaError_t mics_sort_launch(cudaStream_t stream, const struct mics_sort *sort);

#endif
