/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile.cuh - tiles of bf16 or fp16 in shared memory, for products on tensor cores.
 *
 * A tile is `rows` rows of D numbers. Its 16-byte chunks are permuted inside each row, chunk c of
 * row r standing at c ^ (r % 8), so that the eight rows of every 8 x 8 matrix that a warp loads lie
 * in different banks. D is 64 or 128.
 */
#ifndef MICS_KERNELS_CUDA_TILE_CUH
#define MICS_KERNELS_CUDA_TILE_CUH

#include "cuda/tensor.cuh"

/* Rows in global memory. */
struct mics_rows {
    const mics_half *at;
    size_t stride;   /* elements */
    unsigned count;  /* rows from here on are zero */
    unsigned chunks; /* of 8 elements; further ones are zero */
};

/* Begin to copy rows [first, first + rows) into a tile, by all `threads` threads of the block. */
template <int D, int rows, int threads>
static __device__ __forceinline__ void mics_tile_load(mics_shared_at tile,
                                                      const struct mics_rows &from, unsigned first)
{
    constexpr unsigned chunks = D / 8, step = threads / chunks;
    unsigned chunk = threadIdx.x % chunks, row = threadIdx.x / chunks;
    const mics_half *at = from.at + (first + row) * from.stride + chunk * 8;
    mics_shared_at to = tile + row * (D * 2) + ((chunk ^ (row & 7)) << 4);

    static_assert(threads % (chunks * 8) == 0 && rows % step == 0, "whole rows for each thread");
    if (first + rows <= from.count && chunks == from.chunks) {
#pragma unroll
        for (unsigned i = 0; i < rows / step; i++, at += step * from.stride)
            mics_copy_async(to + i * step * (D * 2), at);
        return;
    }
#pragma unroll 1
    for (unsigned i = 0; i < rows / step; i++, at += step * from.stride) {
        bool valid = first + row + i * step < from.count && chunk < from.chunks;

        mics_copy_async_or_zero(to + i * step * (D * 2), valid ? at : from.at, valid);
    }
}

/* Where a lane's row of four matrices lies in a tile, see mics_ldmatrix: `wide` for 16 x 16 numbers
 * whose matrices are counted downwards first, `deep` for those that are counted to the right first.
 * A tile is aligned to its longest row, so the 32 bytes of column block k are found by ^ (k << 5);
 * 16 rows further is + 32 D. */
struct mics_lane {
    unsigned wide, deep;
};

template <int D> static __device__ __forceinline__ struct mics_lane mics_lane_in_tile(void)
{
    unsigned lane = threadIdx.x % 32, r = lane & 7;

    return {(lane & 15) * (D * 2) + (((lane >> 4) ^ r) << 4),
            ((lane >> 4) * 8 + r) * (D * 2) + (((lane >> 3 & 1) ^ r) << 4)};
}

/* g and t of the layout of fragments. */
static __device__ __forceinline__ unsigned mics_lane_row(void)
{
    return threadIdx.x % 32 / 4;
}

static __device__ __forceinline__ unsigned mics_lane_column(void)
{
    return threadIdx.x % 4 * 2;
}

/* The row of element i of a lane's fragment C in the m-th block. */
static __device__ __forceinline__ unsigned mics_row_of(int m, int i)
{
    return (unsigned)m * 16 + mics_lane_row() + (unsigned)(i / 2) * 8;
}

#endif
