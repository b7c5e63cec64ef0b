/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_mma.cuh - softmax(q k' / sqrt(D)) v for each head on tensor cores, in blocks (Dao,
 * FlashAttention-2, 2023).
 *
 * A thread block has P::queries of one head, 16 P::M for each of its warps, and loops over the
 * tiles of P::keys keys and values that they may see; the next tile is copied while one is
 * computed. Each warp keeps of its queries the largest score, the sum of the exponentials and the
 * output so far. The longest blocks of queries come first.
 *
 * 4 T T D flops a head, half of that when causal; q, k, v and out are moved once (8 D bytes a
 * query) but for the keys and values, which each block of queries reads again, mostly from the
 * second-level cache. Tolerance: probabilities are rounded before they are multiplied with the
 * values: 2^-8 of the largest value in bf16, 2^-11 in fp16.
 */
#ifndef MICS_KERNELS_CUDA_ATTENTION_MMA_CUH
#define MICS_KERNELS_CUDA_ATTENTION_MMA_CUH

#include "attention.cuh"

#include <type_traits>

namespace
{

struct forward {
    mics_half *out;
    float *lse;
    const mics_half *qkv;
    size_t stride; /* of qkv */
    unsigned T, H, group, D;
    unsigned keys_at, values_at; /* in a row of qkv */
    unsigned blocks;             /* of queries of a head */
    float scale;                 /* of scores, in base 2 */
    bool causal;
    const int32_t *targets; /* nullptr: no documents */
    unsigned window;        /* 0: none */
};

/* T: of tensors. D: of tiles. m_: blocks of 16 queries of each warp. keys_: of a tile. held_:
 * queries stay in registers. residents_: blocks that a multiprocessor is to take. */
template <typename T, int D_, int m_, int warps_, int keys_, bool held_, int residents_>
struct forward_policy {
    typedef T type;
    static constexpr int D = D_, M = m_, threads = warps_ * 32, keys = keys_;
    static constexpr int queries = warps_ * m_ * 16, residents = residents_;
    static constexpr unsigned tile_bytes = keys * D * 2, ring_at = queries * D * 2;
    static constexpr unsigned shared_bytes = ring_at + 4 * tile_bytes;
    typedef std::conditional_t<held_, mics_left_held<D, M>, mics_left_shared<D, M>> left;
};

/* A warp's queries, and their partial results. */
template <typename P> struct forward_warp {
    unsigned row; /* the first */
    typename P::left queries;
    float out[P::M][P::D / 8][4];
    float max[P::M][2],
        sum[P::M][2]; /* the maximum in base 2; the sum is the lane's own part of it */
    struct mics_seen seen[P::M][2]; /* by the queries */
};

/* Scores of one tile of keys. */
template <typename P> struct forward_scores {
    float s[P::M][P::keys / 8][4];
};

/* Keys after the last one that a query sees get -inf: those from T on, if causal those after it,
 * else those of later documents. */
template <typename P>
static __device__ __forceinline__ void mask(struct forward_scores<P> &to,
                                            const struct forward_warp<P> &warp, unsigned key)
{
#pragma unroll
    for (int m = 0; m < P::M; m++)
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int n = 0; n < P::keys / 8; n++)
                if (key + (unsigned)n * 8 + mics_lane_column() + (unsigned)(i % 2) >
                    warp.seen[m][i / 2].last)
                    to.s[m][n][i] = -INFINITY;
}

/* Keys before a query's document, or its window, get MICS_HIDDEN_SCORE. */
template <typename P>
static __device__ __forceinline__ void hide(struct forward_scores<P> &to,
                                            const struct forward_warp<P> &warp, unsigned key)
{
#pragma unroll
    for (int m = 0; m < P::M; m++)
#pragma unroll
        for (int n = 0; n < P::keys / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (key + (unsigned)n * 8 + mics_lane_column() + (unsigned)(i % 2) <
                    warp.seen[m][i / 2].first)
                    to.s[m][n][i] = MICS_HIDDEN_SCORE;
}

/* The largest score of a row over the four lanes that share it. */
template <int N> static __device__ __forceinline__ float row_max(const float (&s)[N][4], int half)
{
    float max = s[0][2 * half];

#pragma unroll
    for (int n = 0; n < N; n++)
        max = fmaxf(max, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));
    return fmaxf(max, __shfl_xor_sync(~0u, max, 2));
}

/* Bring the largest scores up to date; sums and outputs, which are relative to them, follow.
 * Nothing changes if no row of the warp has a new maximum. */
template <typename P>
static __device__ __forceinline__ void raise(struct forward_warp<P> &warp,
                                             const struct forward_scores<P> &of, float scale)
{
    float factor[P::M][2];
    bool grown = false;

#pragma unroll
    for (int m = 0; m < P::M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float old = warp.max[m][half], max = fmaxf(old, row_max(of.s[m], half) * scale);

            warp.max[m][half] = max;
            grown |= max > old;
            factor[m][half] = mics_exp2(old - max);
        }
    if (!__any_sync(~0u, grown))
        return;
#pragma unroll
    for (int m = 0; m < P::M; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i % 2 == 0)
                warp.sum[m][i / 2] *= factor[m][i / 2];
#pragma unroll
            for (int d = 0; d < P::D / 8; d++)
                warp.out[m][d][i] *= factor[m][i / 2];
        }
}

/* From scores to exponentials relative to the largest. */
template <typename P>
static __device__ __forceinline__ void soften(struct forward_warp<P> &warp,
                                              struct forward_scores<P> &of, float scale)
{
#pragma unroll
    for (int n = 0; n < P::keys / 8; n++)
#pragma unroll
        for (int m = 0; m < P::M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                of.s[m][n][i] = mics_exp2(of.s[m][n][i] * scale - warp.max[m][i / 2]);
                warp.sum[m][i / 2] += of.s[m][n][i];
            }
}

/* One tile of keys and values, `key` being the first. */
template <typename P, bool masked>
static __device__ __forceinline__ void
attend_tile(struct forward_warp<P> &warp, mics_shared_at keys, mics_shared_at values, unsigned key,
            const struct forward &f, const struct mics_lane &lane)
{
    struct forward_scores<P> of;

    mics_scores<typename P::type, P::D, P::M, P::keys>(of.s, warp.queries, keys, lane);
    if (masked)
        mask<P>(of, warp, key);
    if (masked && (f.targets || f.window))
        hide<P>(of, warp, key);
    raise<P>(warp, of, f.scale);
    soften<P>(warp, of, f.scale);
    mics_add_rows<typename P::type, P::D, P::M, P::keys>(warp.out, of.s, values, lane);
}

/* Divide by the sums, store outputs and lse. */
template <typename P>
static __device__ __forceinline__ void finish(const struct forward_warp<P> &warp, unsigned b,
                                              unsigned h, const struct forward &f)
{
    size_t ld = (size_t)f.H * f.D;
    float factor[P::M][2];

#pragma unroll
    for (int m = 0; m < P::M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = warp.sum[m][half];
            unsigned r = warp.row + mics_row_of(m, 2 * half);

            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            factor[m][half] = 1 / sum;
            if (mics_lane_column() == 0 && r < f.T)
                f.lse[((size_t)b * f.H + h) * f.T + r] =
                    (warp.max[m][half] + log2f(sum)) / MICS_LOG2E;
        }
    mics_rows_store<typename P::type, P::D, P::M>(f.out + (size_t)b * f.T * ld + (size_t)h * f.D,
                                                  ld, warp.row, f.T, f.D / 8, warp.out, factor);
}

/* The queries, keys and values of head h of sequence b. */
struct head {
    struct mics_rows queries, keys, values;
};

static __device__ __forceinline__ struct head head_of(const struct forward &f, unsigned b,
                                                      unsigned h)
{
    const mics_half *row = f.qkv + (size_t)b * f.T * f.stride, *keys = row + h / f.group * f.D;

    return {{row + h * f.D, f.stride, f.T, f.D / 8},
            {keys + f.keys_at, f.stride, f.T, f.D / 8},
            {keys + f.values_at, f.stride, f.T, f.D / 8}};
}

/* Begin to copy the j-th tiles of keys and values. */
template <typename P>
static __device__ __forceinline__ void fetch(const struct head &head, unsigned j,
                                             mics_shared_at ring)
{
    mics_shared_at at = ring + j % 2 * (2 * P::tile_bytes);

    mics_tile_load<P::D, P::keys, P::threads>(at, head.keys, j * P::keys);
    mics_tile_load<P::D, P::keys, P::threads>(at + P::tile_bytes, head.values, j * P::keys);
    mics_copy_commit();
}

template <typename P>
static __device__ __forceinline__ void begin(struct forward_warp<P> &warp, unsigned row)
{
    warp.row = row;
#pragma unroll
    for (int m = 0; m < P::M; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            warp.max[m][i / 2] = -INFINITY;
            warp.sum[m][i / 2] = 0;
#pragma unroll
            for (int d = 0; d < P::D / 8; d++)
                warp.out[m][d][i] = 0;
        }
}

template <typename P>
__global__ void __launch_bounds__(P::threads, P::residents) attend(const struct forward f)
{
    MICS_DYNAMIC_SHARED(unsigned char, memory);
    unsigned first = (f.blocks - 1 - blockIdx.x % f.blocks) * P::queries;
    unsigned h = blockIdx.x / f.blocks % f.H, b = blockIdx.x / f.blocks / f.H;
    unsigned after = min(first + P::queries, f.T);
    unsigned in_tile = threadIdx.x / 32 * (P::M * 16), last = first + in_tile + P::M * 16 - 1;
    mics_shared_at at = mics_shared(memory), ring = at + P::ring_at;
    struct mics_lane lane = mics_lane_in_tile<P::D>();
    struct head head = head_of(f, b, h);
    const int32_t *targets = f.targets ? f.targets + (size_t)b * f.T : nullptr;
    unsigned start =
        mics_window_begin(f.window, first, targets ? mics_document_begin(targets, first) : 0) /
        P::keys;
    unsigned seen = f.causal  ? after
                    : targets ? mics_document_end(targets, after - 1, f.T) + 1
                              : f.T;
    struct forward_warp<P> warp;

    begin<P>(warp, first + in_tile);
    mics_find_seen<P::M, false>(warp.seen, warp.row, targets, f.T, f.causal, f.window);
    mics_tile_load<P::D, P::queries, P::threads>(at, head.queries, first);
    fetch<P>(head, start, ring);
    for (unsigned key = start * P::keys, j = start; key < seen; key += P::keys, j++) {
        mics_shared_at keys = ring + j % 2 * (2 * P::tile_bytes), values = keys + P::tile_bytes;
        unsigned end = key + P::keys;

        mics_copy_wait<0>();
        __syncthreads();
        if (j == start)
            warp.queries.begin(at, in_tile, lane);
        if (end < seen)
            fetch<P>(head, j + 1, ring);
        if ((f.causal && key > last) || (f.window && end + f.window <= warp.row + 1))
            continue;
        if (targets || end > f.T || (f.causal && end - 1 > warp.row) ||
            (f.window && key + f.window <= last))
            attend_tile<P, true>(warp, keys, values, key, f, lane);
        else
            attend_tile<P, false>(warp, keys, values, key, f, lane);
    }
    finish<P>(warp, b, h, f);
}

/* Launch for `heads` = B H; the scalars of `f` but its blocks are set. */
template <typename P>
static cudaError_t attend_launch(struct forward *f, unsigned heads, cudaStream_t stream)
{
    cudaError_t error = cudaFuncSetAttribute(attend<P>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             (int)P::shared_bytes);

    if (error != cudaSuccess)
        return error;
    f->blocks = (f->T + P::queries - 1) / P::queries;
    return MICS_LAUNCH(attend<P>, f->blocks * heads, P::threads, P::shared_bytes, stream, *f);
}

static inline struct forward forward_of(const struct mics_args_attention *args)
{
    return {
        .out = static_cast<mics_half *>(args->out),
        .lse = args->lse,
        .qkv = static_cast<const mics_half *>(args->qkv),
        .stride = (size_t)(args->H + 2 * args->H_kv) * args->D,
        .T = args->T,
        .H = args->H,
        .group = args->H / args->H_kv,
        .D = args->D,
        .keys_at = args->H * args->D,
        .values_at = (args->H + args->H_kv) * args->D,
        .blocks = 0,
        .scale = MICS_LOG2E / sqrtf((float)args->D),
        .causal = args->causal,
        .targets = args->targets,
        .window = mics_attention_window(args->window, args->T),
    };
}

} // namespace

#endif
