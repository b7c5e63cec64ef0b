/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_hopper.cuh - attention's forward by the products of warpgroups, for compute
 * capability 9.0 (Shah et al., FlashAttention-3, 2024).
 *
 * A thread block has 64 queries of one head for each of its working warpgroups, and one more
 * warpgroup of which one thread has tiles of keys and values copied into a ring. While a tile's
 * scores are multiplied, the tensor cores also multiply the tile before with its values; while a
 * group turns scores into exponentials, another one multiplies: they take turns by named barriers.
 * The longest blocks of queries come first.
 *
 * Shared memory has the queries and a ring of tiles of keys and values, each with barriers that
 * signal that it is full and that all warps have read it.
 *
 * 4 T T D flops a head, half of that when causal; tolerance and results as attention_mma.cuh, whose
 * tiles differ.
 */
#ifndef MICS_KERNELS_CUDA_ATTENTION_HOPPER_CUH
#define MICS_KERNELS_CUDA_ATTENTION_HOPPER_CUH

#include "cuda/attention.cuh"
#include "cuda/hopper/hopper.cuh"

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

/* D: of tiles. groups_: warpgroups that work. stages_: of the ring. registers_: of a thread that
 * works. turns_: groups take turns at the tensor cores. */
template <int D_, bool causal_, int groups_, int keys_, int stages_, int registers_,
          bool turns_ = true>
struct hopper_policy {
    static constexpr int D = D_, groups = groups_, keys = keys_, stages = stages_;
    static constexpr int queries = groups * 64, threads = (groups + 1) * MICS_WARPGROUP;
    static constexpr bool causal = causal_, turns = turns_;
    static constexpr int registers = registers_;
    /* Registers of a thread of the group that copies. */
    static constexpr int registers_left = groups == 2 ? 24 : 32;
    static constexpr unsigned queries_bytes = queries * D * 2, tile_bytes = keys * D * 2;
    static constexpr unsigned ring_at = queries_bytes, stage_bytes = 2 * tile_bytes;
    static constexpr unsigned barriers_at = ring_at + stages * stage_bytes;
    static constexpr unsigned shared_bytes =
        barriers_at + (4 * stages + 2) * 8; /* and a spare word */

    /* A thread begins with its part of the 64 Ki in eights; a group that gets none of what others
     * left waits for ever. */
    static_assert(registers * groups + registers_left <= 65536 / threads / 8 * 8 * (groups + 1),
                  "as many registers as the block has");
};

/* The rows of a box, see hopper.cuh. */
static constexpr unsigned hopper_box = 64;

/* The layout of shared memory, and its barriers. */
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

/* A warpgroup's queries, and what a thread has of them so far: of rows g and g + 8 of its warp. */
template <typename P> struct hopper_group {
    hopper_shared<P> shared;
    unsigned group, row; /* the warp's first */
    float out[P::D / 8][4];
    float scores[P::keys / 8][4];
    uint32_t left[P::keys / 16][4]; /* exponentials, as left factors */
    float max[2], sum[2];           /* scores, unscaled; the sum is the thread's own part of it */
    float factor[2];                /* that brings outputs up to the new maximum */
};

/* This warp has read the tile. All its lanes have also waited for it: one that still did could miss
 * a whole phase. */
static __device__ __forceinline__ void hopper_release(mics_shared_at empty)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        mics_mbarrier_arrive(empty);
}

/* Begin scores = queries keys'. */
template <typename P>
static __device__ __forceinline__ void hopper_scores(hopper_group<P> &group, unsigned j)
{
    unsigned stage = j % P::stages;

    mics_mbarrier_wait(group.shared.full(0, stage), j / P::stages % 2);
    mics_wgmma_settle(group.scores);
    mics_wgmma_fence();
#pragma unroll
    for (unsigned k = 0; k < P::D / 16; k++)
        mics_wgmma<MICS_K_MAJOR, MICS_K_MAJOR>(
            group.scores, mics_matrix_k<P::queries>(group.shared.at, group.group * 64, k),
            mics_matrix_k<P::keys>(group.shared.keys(stage), 0, k), k > 0);
    mics_wgmma_commit();
}

/* Begin out += exponentials values. */
template <typename P>
static __device__ __forceinline__ void hopper_add_values(hopper_group<P> &group, unsigned j)
{
    unsigned stage = j % P::stages;

    mics_mbarrier_wait(group.shared.full(1, stage), j / P::stages % 2);
    mics_wgmma_settle(group.out);
    mics_wgmma_settle(group.left);
    mics_wgmma_fence();
#pragma unroll
    for (unsigned k = 0; k < P::keys / 16; k++)
        mics_wgmma<MICS_MN_MAJOR>(group.out, group.left[k],
                                  mics_matrix_mn<P::keys>(group.shared.values(stage), 0, k), true);
    mics_wgmma_commit();
}

/* Keys that a query may not see get -inf: those from T on, and those after it. */
template <typename P>
static __device__ __forceinline__ void hopper_mask(hopper_group<P> &group, unsigned key, unsigned T)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        unsigned row = group.row + mics_row_of(0, 2 * half);
        int seen = (int)(P::causal ? min(row + 1, T) : T) - (int)(key + mics_lane_column());

#pragma unroll
        for (int n = 0; n < P::keys / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (n * 8 + i >= seen)
                    group.scores[n][2 * half + i] = -INFINITY;
    }
}

/* From scores to exponentials relative to the largest so far. Key 0 is seen by all queries, so it
 * is finite. */
template <typename P>
static __device__ __forceinline__ void hopper_soften(hopper_group<P> &group, float scale,
                                                     bool first)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float max = first ? -INFINITY : group.max[half], offset, sum = 0;

#pragma unroll
        for (int n = 0; n < P::keys / 8; n++)
            max = fmaxf(max, fmaxf(group.scores[n][2 * half], group.scores[n][2 * half + 1]));
        max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));
        max = fmaxf(max, __shfl_xor_sync(~0u, max, 2));
        group.factor[half] = first ? 0 : mics_exp2((group.max[half] - max) * scale);
        group.max[half] = max;
        offset = max * scale;
#pragma unroll
        for (int n = 0; n < P::keys / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float p = mics_exp2(group.scores[n][2 * half + i] * scale - offset);

                group.scores[n][2 * half + i] = p;
                sum += p;
            }
        group.sum[half] = first ? sum : group.sum[half] * group.factor[half] + sum;
    }
}

/* Outputs follow the maximum, exponentials become left factors; no product may be under way. */
template <typename P> static __device__ __forceinline__ void hopper_turn(hopper_group<P> &group)
{
#pragma unroll
    for (int d = 0; d < P::D / 8; d++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            group.out[d][i] *= group.factor[i / 2];
#pragma unroll
    for (int k = 0; k < P::keys / 16; k++)
        mics_wgmma_left(group.left[k], group.scores, k);
}

/* Whether some query of the group may not see some key of the tile. */
template <typename P>
static __device__ __forceinline__ bool hopper_is_masked(const struct hopper_block &block,
                                                        unsigned group, unsigned j, unsigned T)
{
    unsigned end = (j + 1) * P::keys;

    return end > T || (P::causal && end > block.first + group * 64 + 1);
}

/* The turns of groups at the tensor cores: barrier 1 + g is group g's, the one before it in the
 * circle arrives there. */
template <typename P> static __device__ __forceinline__ void hopper_take_turn(unsigned group)
{
    if (P::turns)
        mics_barrier_sync(1 + group, 2 * MICS_WARPGROUP);
}

template <typename P>
static __device__ __forceinline__ void hopper_pass_turn(unsigned group, bool last)
{
    if (P::turns && (!last || group + 1 < P::groups))
        mics_barrier_arrive(group + 1 < P::groups ? 2 + group : 1, 2 * MICS_WARPGROUP);
}

/* The first tile. */
template <typename P>
static __device__ __forceinline__ void hopper_first(hopper_group<P> &group,
                                                    const struct hopper_forward &f, bool masked)
{
    mics_mbarrier_wait(group.shared.queries_full(), 0);
    hopper_scores(group, 0);
    mics_wgmma_wait<0>();
    mics_wgmma_settle(group.scores);
    hopper_release(group.shared.empty(0, 0));
    if (masked)
        hopper_mask(group, 0, f.T);
    hopper_soften(group, f.scale, true);
#pragma unroll
    for (int d = 0; d < P::D / 8; d++)
        group.out[d][0] = group.out[d][1] = group.out[d][2] = group.out[d][3] = 0;
    hopper_turn(group);
}

/* Scores of tile j while the values of tile j - 1 are added. */
template <typename P>
static __device__ __forceinline__ void hopper_step(hopper_group<P> &group,
                                                   const struct hopper_forward &f, unsigned j,
                                                   bool masked, bool last)
{
    hopper_take_turn<P>(group.group);
    hopper_scores(group, j);
    hopper_add_values(group, j - 1);
    hopper_pass_turn<P>(group.group, last);
    mics_wgmma_wait<1>();
    mics_wgmma_settle(group.scores);
    hopper_release(group.shared.empty(0, j % P::stages));
    if (masked)
        hopper_mask(group, j * P::keys, f.T);
    hopper_soften(group, f.scale, false);
    mics_wgmma_hold(group.sum[0] + group.sum[1], group.shared.barrier(4 * P::stages + 1));
    mics_wgmma_wait<0>();
    mics_wgmma_settle(group.out);
    hopper_release(group.shared.empty(1, (j - 1) % P::stages));
    hopper_turn(group);
}

/* The values of the last tile that the group sees. */
template <typename P>
static __device__ __forceinline__ void hopper_last(hopper_group<P> &group, unsigned j)
{
    hopper_add_values(group, j);
    mics_wgmma_wait<0>();
    mics_wgmma_settle(group.out);
    hopper_release(group.shared.empty(1, j % P::stages));
}

/* Tile j is only for groups of later queries: keep the order of groups, and release the tile. */
template <typename P>
static __device__ __forceinline__ void hopper_skip(const hopper_group<P> &group, unsigned j,
                                                   bool last)
{
    unsigned stage = j % P::stages, parity = j / P::stages % 2;

    hopper_take_turn<P>(group.group);
    hopper_pass_turn<P>(group.group, last);
    mics_mbarrier_wait(group.shared.full(0, stage), parity);
    hopper_release(group.shared.empty(0, stage));
    mics_mbarrier_wait(group.shared.full(1, stage), parity);
    hopper_release(group.shared.empty(1, stage));
}

/* Word j of lane t of a row's four lanes becomes word t of lane j. */
static __device__ __forceinline__ void hopper_transpose(uint32_t (&word)[4])
{
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;

#pragma unroll
    for (int j = 0; j < 4; j += 2) {
        uint32_t got = __shfl_xor_sync(~0u, odd ? word[j] : word[j + 1], 1);

        word[j] = odd ? got : word[j];
        word[j + 1] = odd ? word[j + 1] : got;
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
        uint32_t got = __shfl_xor_sync(~0u, high ? word[j] : word[j + 2], 2);

        word[j] = high ? got : word[j];
        word[j + 2] = high ? word[j + 2] : got;
    }
}

/* Store the outputs of one of the thread's two rows, times `factor`, 16 bytes at a time. */
template <typename P>
static __device__ __forceinline__ void hopper_store(mics_bf16 *to, const hopper_group<P> &group,
                                                    int half, float factor, unsigned chunks,
                                                    bool valid)
{
#pragma unroll
    for (int d = 0; d < P::D / 8; d += 4) {
        unsigned chunk = (unsigned)d + threadIdx.x % 4;
        uint32_t word[4];

#pragma unroll
        for (int j = 0; j < 4; j++)
            word[j] = mics_pack<mics_bf16>(group.out[d + j][2 * half] * factor,
                                           group.out[d + j][2 * half + 1] * factor);
        hopper_transpose(word);
        if (valid && chunk < chunks)
            *reinterpret_cast<uint4 *>(to + chunk * 8) =
                make_uint4(word[0], word[1], word[2], word[3]);
    }
}

/* Divide by the sums, store outputs and lse. */
template <typename P>
static __device__ __forceinline__ void hopper_finish(const hopper_group<P> &group,
                                                     const struct hopper_forward &f,
                                                     const struct hopper_block &block)
{
    size_t ld = (size_t)f.H * f.D;
    mics_bf16 *out = f.out + (size_t)block.b * f.T * ld + (size_t)block.h * f.D;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = group.sum[half];
        unsigned row = group.row + mics_row_of(0, 2 * half);

        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (mics_lane_column() == 0 && row < f.T)
            f.lse[((size_t)block.b * f.H + block.h) * f.T + row] =
                (group.max[half] * f.scale + log2f(sum)) / MICS_LOG2E;
        hopper_store(out + row * ld, group, half, 1 / sum, f.D / 8, row < f.T);
    }
}

/* A warpgroup that works: number `number` of the block. */
template <typename P>
static __device__ __forceinline__ void hopper_work(hopper_shared<P> shared, unsigned number,
                                                   const struct hopper_forward &f,
                                                   const struct hopper_block &block)
{
    unsigned end = block.first + (number + 1) * 64;
    unsigned own = P::causal ? min((end + P::keys - 1) / P::keys, block.tiles) : block.tiles;
    hopper_group<P> group;

    group.shared = shared;
    group.group = number;
    group.row = block.first + threadIdx.x / 32 * 16;
    if (number == P::groups - 1 && block.tiles > 1)
        hopper_pass_turn<P>(number, false); /* the first group's first turn */
    hopper_first(group, f, hopper_is_masked<P>(block, number, 0, f.T));
    for (unsigned j = 1; j < own; j++)
        hopper_step(group, f, j, hopper_is_masked<P>(block, number, j, f.T), j + 1 == block.tiles);
    hopper_last(group, own - 1);
    for (unsigned j = own; j < block.tiles; j++)
        hopper_skip(group, j, j + 1 == block.tiles);
    hopper_finish(group, f, block);
}

template <typename P>
__global__ void __launch_bounds__(P::threads, 1)
    hopper_attend(const __grid_constant__ CUtensorMap map, const struct hopper_forward f)
{
    MICS_DYNAMIC_SHARED(unsigned char, memory);
    hopper_shared<P> shared = {mics_shared(memory)};
    struct hopper_block block = hopper_block_of<P>(f);
    unsigned number = __shfl_sync(~0u, threadIdx.x / MICS_WARPGROUP, 0);

    hopper_begin<P>(shared);
    if (number == P::groups) {
        mics_registers_fewer<P::registers_left>();
        if (threadIdx.x == P::groups * MICS_WARPGROUP)
            hopper_copy<P>(shared, &map, f, block);
    } else {
        mics_registers_more<P::registers>();
        hopper_work<P>(shared, number, f, block);
    }
}

/* Launch for `heads` = B H; the scalars of `f` but its blocks are set. */
template <typename P>
static cudaError_t hopper_launch(const CUtensorMap &map, struct hopper_forward *f, unsigned heads,
                                 cudaStream_t stream)
{
    cudaError_t error = cudaFuncSetAttribute(
        hopper_attend<P>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)P::shared_bytes);

    if (error != cudaSuccess)
        return error;
    f->blocks = (f->T + P::queries - 1) / P::queries;
    return MICS_LAUNCH(hopper_attend<P>, f->blocks * heads, P::threads, P::shared_bytes, stream,
                       map, *f);
}

static inline struct hopper_forward hopper_forward_of(const struct mics_args_attention *args)
{
    return {
        .out = static_cast<mics_bf16 *>(args->out),
        .lse = args->lse,
        .T = args->T,
        .H = args->H,
        .group = args->H / args->H_kv,
        .D = args->D,
        .keys_at = args->H,
        .values_at = args->H + args->H_kv,
        .blocks = 0,
        .scale = MICS_LOG2E / sqrtf((float)args->D),
    };
}

static inline cudaError_t hopper_map_of(CUtensorMap *map, const struct mics_args_attention *args)
{
    unsigned heads = args->H + 2 * args->H_kv;

    return mics_tensor_map_make(
        map, {args->qkv, args->B, args->T, heads, args->D, (size_t)heads * args->D}, hopper_box);
}

} // namespace

#endif
