/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiles.cuh - how operations on rows of a matrix are cut into blocks: block blockIdx.x takes
 * MICS_TILE_THREADS pieces of row blockIdx.x / tiles.
 */
#ifndef MICS_KERNELS_CUDA_TILES_CUH
#define MICS_KERNELS_CUDA_TILES_CUH

#include "cuda/gpu.h"
#include "cuda/vector.cuh"

#define MICS_TILE_THREADS 256

/* Blocks for a row of `length` elements, `width` in each thread. */
static inline uint32_t mics_tiles(uint32_t length, uint32_t width)
{
    const uint64_t each = (uint64_t)MICS_TILE_THREADS * width;

    return (uint32_t)((length + each - 1) / each);
}

/* Whether a grid can have that many blocks. */
static inline bool mics_tiles_fit(uint32_t rows, uint32_t tiles)
{
    return (uint64_t)rows * tiles <= 0x7fffffff;
}

#endif
