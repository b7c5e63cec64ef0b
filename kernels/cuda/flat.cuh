/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flat.cuh - operations on long arrays, element by element.
 *
 * An operation is a structure that has
 *     struct inputs;                                       registers of WIDTH elements
 *     void load(uint64_t i, inputs &in) const;             of elements [i, i + WIDTH)
 *     void finish(uint64_t i, const inputs &in) const;     compute and store them
 * for a WIDTH that is a template parameter of its own. A thread loads all of its DEPTH pieces
 * before it finishes the first, so that many loads are in flight; the pieces of a warp are
 * contiguous. The remaining elements are processed with a width of 1.
 */
#ifndef MICS_KERNELS_CUDA_FLAT_CUH
#define MICS_KERNELS_CUDA_FLAT_CUH

#include "cuda/gpu.h"
#include "cuda/vector.cuh"

#define MICS_FLAT_THREADS 256

/* One block: blockDim.x * DEPTH pieces of WIDTH elements; the first block also the rest of the
 * array. */
template <template <int> class Op, int WIDTH, int DEPTH>
__global__ void __launch_bounds__(MICS_FLAT_THREADS)
    mics_flat_kernel(Op<WIDTH> op, Op<1> rest, uint64_t count)
{
    const uint64_t pieces = count / WIDTH;
    const uint64_t first = (uint64_t)blockIdx.x * (MICS_FLAT_THREADS * DEPTH) + threadIdx.x;
    typename Op<WIDTH>::inputs in[DEPTH];

#pragma unroll
    for (int d = 0; d < DEPTH; d++)
        if (first + d * MICS_FLAT_THREADS < pieces)
            op.load((first + d * MICS_FLAT_THREADS) * WIDTH, in[d]);
#pragma unroll
    for (int d = 0; d < DEPTH; d++)
        if (first + d * MICS_FLAT_THREADS < pieces)
            op.finish((first + d * MICS_FLAT_THREADS) * WIDTH, in[d]);
    if (WIDTH > 1 && first < count % WIDTH) {
        typename Op<1>::inputs one;

        rest.load(pieces * WIDTH + first, one);
        rest.finish(pieces * WIDTH + first, one);
    }
}

/* Run an operation over `count` elements: in pieces of WIDTH where `vectors` (all pointers are
 * aligned), else one by one. */
template <template <int> class Op, int WIDTH, int DEPTH, typename Args>
static cudaError_t mics_flat_launch(cudaStream_t stream, const Args &args, uint64_t count,
                                    bool vectors)
{
    const uint64_t each = (uint64_t)MICS_FLAT_THREADS * DEPTH * (vectors ? WIDTH : 1);
    const uint64_t blocks = (count + each - 1) / each;
    const Op<1> single = {args};

    if (count == 0)
        return cudaSuccess;
    if (blocks > 0x7fffffff)
        return cudaErrorInvalidValue;
    if (vectors) {
        const Op<WIDTH> wide = {args};

        return MICS_LAUNCH((mics_flat_kernel<Op, WIDTH, DEPTH>), (unsigned)blocks,
                           MICS_FLAT_THREADS, 0, stream, wide, single, count);
    }
    return MICS_LAUNCH((mics_flat_kernel<Op, 1, DEPTH>), (unsigned)blocks, MICS_FLAT_THREADS, 0,
                       stream, single, single, count);
}

#endif
