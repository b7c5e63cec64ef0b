/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows.cuh - how the threads of a block share the rows of a tensor.
 *
 * A row is held in the registers of a team: threadIdx.x takes every blockDim.x-th piece of `width`
 * elements, up to `pieces` of them. Short rows have several teams to a block, side by side in
 * threadIdx.y.
 */
#ifndef MICS_KERNELS_CUDA_ROWS_CUH
#define MICS_KERNELS_CUDA_ROWS_CUH

#include "cuda/reduce.cuh"

struct mics_row_teams {
    unsigned team, teams; /* threads of a team, a multiple of 32; teams of a block */
};

/* Teams for rows of `C` elements, in blocks of about `threads`; team 0: it would have more than
 * `most` threads. */
static inline struct mics_row_teams mics_rows_share(uint32_t C, unsigned width, unsigned pieces,
                                                    unsigned threads, unsigned most)
{
    const uint64_t each = (uint64_t)width * pieces * MICS_WARP;
    const uint64_t team = C == 0 ? MICS_WARP : (C + each - 1) / each * MICS_WARP;
    struct mics_row_teams rows = {0, 0};

    if (team > most)
        return rows;
    rows.team = (unsigned)team;
    rows.teams = team < threads ? threads / (unsigned)team : 1;
    return rows;
}

/* Threads of a block that has a row of `C` elements to itself and takes them one by one: about 8
 * each, as far as 1,024 threads go. */
static inline unsigned mics_rows_threads(uint32_t C)
{
    const uint32_t warps = C / (8 * MICS_WARP) + 1;

    return (warps < MICS_WARPS_MAX ? warps : MICS_WARPS_MAX) * MICS_WARP;
}

#endif
