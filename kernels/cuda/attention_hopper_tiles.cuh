/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_hopper_tiles.cuh - shared memory of attention's forward on compute capability 9.0: queries and a ring of tiles
 * of keys and values, each with barriers that tell when it is full and when all warps have read it; and the thread
 * that has them copied.
 */
#ifndef MICS_KERNELS_CUDA_ATTENTION_HOPPER_TILES_CUH
#define MICS_KERNELS_CUDA_ATTENTION_HOPPER_TILES_CUH

#include "cuda/attention.cuh"
#include "cuda/bulk.cuh"

namespace
{

struct hopper_forward {
    mics_bf16 *out;
    float *lse;
    unsigned T, H, group, D;
    unsigned keys_at, values_at; /* among the heads of a row of qkv */
    unsigned blocks;             /* of queries of a head */
    float scale;                 /* of scores, in base 2 */
};

/* D: of tiles. groups_: warpgroups that work. stages_: of the ring. registers_: of a thread that works. turns_: groups
 * take turns at the tensor cores. */
template <int D_, bool causal_, int groups_, int keys_, int stages_, int registers_,
          bool turns_ = true>
struct hopper_policy {
    static constexpr int D = D_, groups = groups_, keys = keys_, stages = stages_;
    static constexpr int queries = groups * 64, threads = (groups + 1) * MICS_WARPGROUP;
    static constexpr bool causal = causal_, turns = turns_;
    static constexpr int registers = registers_;
    /* Of a thread of the group that copies. */
    static constexpr int registers_left = groups == 2 ? 24 : 32;
    static constexpr unsigned queries_bytes = queries * D * 2, tile_bytes = keys * D * 2;
    static constexpr unsigned ring_at = queries_bytes, stage_bytes = 2 * tile_bytes;
    static constexpr unsigned barriers_at = ring_at + stages * stage_bytes;
    static constexpr unsigned shared_bytes =
        barriers_at + (4 * stages + 2) * 8; /* and a spare word */

    /* A thread begins with its part of the 64 Ki in eights; a group that gets none of what others left waits for ever. */
    static_assert(registers * groups + registers_left <= 65536 / threads / 8 * 8 * (groups + 1),
                  "as many registers as the block has");
};

/* The rows of a box, see tensor_map.cuh. */
static constexpr unsigned hopper_box = 64;

/* Where things lie in shared memory, and when they are there. */
template <typename P> struct hopper_shared {
    mics_shared_at at;

    __device__ __forceinline__ mics_shared_at keys(unsigned stage) const
    {
        return at + P::ring_at + stage * P::stage_bytes;
    }

    __device__ __forceinline__ mics_shared_at values(unsigned stage) const
    {
        return keys(stage) + P::tile_bytes;
    }

    __device__ __forceinline__ mics_shared_at barrier(unsigned i) const
    {
        return at + P::barriers_at + i * 8;
    }

    __device__ __forceinline__ mics_shared_at queries_full() const
    {
        return barrier(4 * P::stages);
    }

    /* `what`: 0 keys, 1 values. */
    __device__ __forceinline__ mics_shared_at full(unsigned what, unsigned stage) const
    {
        return barrier(what * P::stages + stage);
    }

    __device__ __forceinline__ mics_shared_at empty(unsigned what, unsigned stage) const
    {
        return barrier((2 + what) * P::stages + stage);
    }
};

/* Which queries a block has, and how many tiles of keys they see. */
struct hopper_block {
    unsigned first, h, b, tiles;
};

template <typename P>
static __device__ __forceinline__ struct hopper_block
hopper_block_of(const struct hopper_forward &f)
{
    unsigned first = (f.blocks - 1 - blockIdx.x % f.blocks) * P::queries;
    unsigned seen = P::causal ? min(first + P::queries, f.T) : f.T;

    return {first, blockIdx.x / f.blocks % f.H, blockIdx.x / f.blocks / f.H,
            (seen + P::keys - 1) / P::keys};
}

template <typename P> static __device__ __forceinline__ void hopper_begin(hopper_shared<P> shared)
{
    if (threadIdx.x == 0) {
        mics_mbarrier_init(shared.queries_full(), 1);
        for (unsigned i = 0; i < 2 * P::stages; i++) {
            mics_mbarrier_init(shared.barrier(i), 1);
            mics_mbarrier_init(shared.barrier(2 * P::stages + i), P::groups * 4); /* warps */
        }
        mics_mbarrier_publish();
    }
    __syncthreads();
}

/* Begin to copy `rows` rows of a head from row `first` on as a tile. */
template <int D, int rows>
static __device__ __forceinline__ void hopper_load(mics_shared_at to, const CUtensorMap *map,
                                                   mics_shared_at barrier, unsigned head,
                                                   unsigned first, unsigned b)
{
    mics_mbarrier_expect(barrier, rows * D * 2);
#pragma unroll
    for (unsigned column = 0; column < D; column += 64)
#pragma unroll
        for (unsigned row = 0; row < rows; row += hopper_box)
            mics_bulk_load(to + column / 64 * (rows * 128) + row * 128, map, barrier, column, head,
                           first + row, b);
}

/* The thread that copies: queries, then tile after tile into the ring, as its stages get empty. */
template <typename P>
static __device__ __forceinline__ void hopper_copy(hopper_shared<P> shared, const CUtensorMap *map,
                                                   const struct hopper_forward &f,
                                                   const struct hopper_block &block)
{
    unsigned kv = block.h / f.group;

    hopper_load<P::D, P::queries>(shared.at, map, shared.queries_full(), block.h, block.first,
                                  block.b);
    for (unsigned j = 0; j < block.tiles; j++) {
        unsigned stage = j % P::stages, parity = j / P::stages % 2 ^ 1;

        mics_mbarrier_wait(shared.empty(0, stage), parity);
        hopper_load<P::D, P::keys>(shared.keys(stage), map, shared.full(0, stage), f.keys_at + kv,
                                   j * P::keys, block.b);
        mics_mbarrier_wait(shared.empty(1, stage), parity);
        hopper_load<P::D, P::keys>(shared.values(stage), map, shared.full(1, stage),
                                   f.values_at + kv, j * P::keys, block.b);
    }
}

} // namespace

#endif
