/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_grad_mma.cuh - the kernel of both gradients of attention on tensor cores, for the rows
 * that a block owns.
 *
 * With S = scale q k', P = exp(S - lse), delta = sum of grad_out * out and dS = P * (grad_out v' -
 * delta):
 *     a block that owns keys     k, v         reads q, grad_out:
 *         grad_v = P' grad_out, grad_k = scale dS' q
 *     a block that owns queries  q, grad_out  reads k, v:
 *         grad_q = scale dS k
 * Both multiply their own two tiles with two tiles that they read, and add products of the result
 * with these: one kernel, whose P::keys selects the rows that a block owns. All sums of a row are
 * computed by one warp in one order, so that every run gives the same bits; for this P and dS are
 * computed twice: 14 T T D flops per head, where one pass with atomic additions has 10 (half of
 * that when causal).
 */
#ifndef MICS_KERNELS_CUDA_ATTENTION_GRAD_MMA_CUH
#define MICS_KERNELS_CUDA_ATTENTION_GRAD_MMA_CUH

#include "attention.cuh"

#include <type_traits>

namespace
{

struct backward {
    mics_half *grad;
    const mics_half *qkv, *grad_out;
    const float *lse, *delta;
    size_t stride, ld_out; /* of qkv and of grad_out */
    unsigned T, H, H_kv, D;
    unsigned blocks; /* of own rows of a head */
    float scale;
    bool causal;
    const int32_t *targets; /* nullptr: no documents */
    unsigned window;        /* 0: none */
};

/* T: of tensors. D: of tiles. m_: blocks of 16 rows of each warp. slice_: streamed rows of a
 * product. held_: own tiles stay in registers. residents_: blocks of a multiprocessor. */
template <typename T, int D_, bool keys_, int m_, int warps_, int step_, int slice_, bool held_,
          int residents_>
struct grad_policy {
    typedef T type;
    static constexpr int D = D_, M = m_, warps = warps_, threads = warps_ * 32;
    static constexpr int rows = warps_ * m_ * 16;      /* of a block */
    static constexpr int step = step_, slice = slice_; /* streamed rows: of a tile, of a product */
    static constexpr int residents = residents_;
    static constexpr bool keys = keys_, held = held_;
    static constexpr unsigned own_bytes = rows * D * 2, tile_bytes = step * D * 2;
    static constexpr unsigned ring_at =
        held ? 0 : 2 * own_bytes; /* held: own tiles pass through it */
    static constexpr unsigned stats_at = ring_at + 4 * tile_bytes;
    static constexpr unsigned shared_bytes = stats_at + (keys ? 4 * step * sizeof(float) : 0);
    typedef std::conditional_t<held, mics_left_held<D, M>, mics_left_shared<D, M>> left;

    static_assert(!held || 2 * own_bytes <= 4 * tile_bytes, "own tiles fit the ring");
};

/* Two matrices of one head that go together, and the statistics of their queries. */
struct grad_pair {
    struct mics_rows one, two;
    const float *lse, *delta;
};

static __device__ __forceinline__ struct grad_pair query_pair(const struct backward &f, unsigned b,
                                                              unsigned h)
{
    size_t stats = ((size_t)b * f.H + h) * f.T;

    return {{f.qkv + (size_t)b * f.T * f.stride + h * f.D, f.stride, f.T, f.D / 8},
            {f.grad_out + (size_t)b * f.T * f.ld_out + h * f.D, f.ld_out, f.T, f.D / 8},
            f.lse + stats,
            f.delta + stats};
}

static __device__ __forceinline__ struct grad_pair key_pair(const struct backward &f, unsigned b,
                                                            unsigned kv)
{
    const mics_half *keys = f.qkv + (size_t)b * f.T * f.stride + (f.H + kv) * f.D;

    return {{keys, f.stride, f.T, f.D / 8},
            {keys + f.H_kv * f.D, f.stride, f.T, f.D / 8},
            nullptr,
            nullptr};
}

/* lse and delta of a query. Those of a query from T on are zero, as its rows of q and grad_out are,
 * and add nothing. */
static __device__ __forceinline__ float2 query_stats(const struct grad_pair &of, unsigned t,
                                                     unsigned T)
{
    return t < T ? make_float2(of.lse[t], of.delta[t]) : make_float2(0, 0);
}

/* A warp's part: its rows, what it multiplies with, and its sums. */
template <typename P> struct grad_warp {
    unsigned row; /* the first */
    typename P::left one, two;
    float2 stats[P::M][2];                                        /* of own queries */
    struct mics_seen seen[P::M][2];                               /* by own rows */
    float sum_one[P::M][P::D / 8][4], sum_two[P::M][P::D / 8][4]; /* the second for keys only */
};

/* From scores s and ds = grad_out v' to P and dS. `column` is the first streamed row, `stats` are
 * those of its queries. */
template <typename P, bool masked>
static __device__ __forceinline__ void
grad_soften(float (&s)[P::M][P::slice / 8][4], float (&ds)[P::M][P::slice / 8][4],
            const struct grad_warp<P> &warp, const float *stats, unsigned column,
            const struct backward &f)
{
    float scale = f.scale * MICS_LOG2E;

#pragma unroll
    for (int n = 0; n < P::slice / 8; n++)
#pragma unroll
        for (int side = 0; side < 2; side++) {
            unsigned at = (unsigned)n * 8 + mics_lane_column() + (unsigned)side, c = column + at;
            float2 here = P::keys ? make_float2(stats[at], stats[P::step + at]) : make_float2(0, 0);

#pragma unroll
            for (int m = 0; m < P::M; m++)
#pragma unroll
                for (int i = side; i < 4; i += 2) {
                    const struct mics_seen &seen = warp.seen[m][i / 2];
                    float2 of = P::keys ? here : warp.stats[m][i / 2];
                    float p = mics_exp2(s[m][n][i] * scale - of.x * MICS_LOG2E);

                    if (masked && (c < seen.first || c > seen.last))
                        p = 0;
                    s[m][n][i] = p;
                    ds[m][n][i] = p * (ds[m][n][i] - of.y);
                }
        }
}

/* Streamed rows [column, column + slice), at the same offset in both tiles. Straight-line code, so
 * that the compiler can interleave products with exponentials. */
template <typename P, bool masked>
static __device__ __forceinline__ void
grad_products(struct grad_warp<P> &warp, mics_shared_at one, mics_shared_at two, const float *stats,
              unsigned column, const struct backward &f, const struct mics_lane &lane)
{
    float s[P::M][P::slice / 8][4], ds[P::M][P::slice / 8][4];

    mics_scores<typename P::type, P::D, P::M, P::slice>(s, warp.one, one, lane);
    mics_scores<typename P::type, P::D, P::M, P::slice>(ds, warp.two, two, lane);
    grad_soften<P, masked>(s, ds, warp, stats, column, f);
    if (P::keys)
        mics_add_rows<typename P::type, P::D, P::M, P::slice>(warp.sum_two, s, two, lane);
    mics_add_rows<typename P::type, P::D, P::M, P::slice>(warp.sum_one, ds, one, lane);
}

/* The same, but skipped if no row of the warp attends to any of them, and masked only if
 * necessary. */
template <typename P>
static __device__ __forceinline__ void
grad_slice(struct grad_warp<P> &warp, mics_shared_at one, mics_shared_at two, const float *stats,
           unsigned column, const struct backward &f, const struct mics_lane &lane)
{
    unsigned first = warp.row, last = warp.row + P::M * 16 - 1, end = column + P::slice - 1;
    bool masked = f.targets || (!P::keys && end >= f.T);

    if (column >= f.T || (f.causal && (P::keys ? end < first : column > last)))
        return;
    if (f.window && (P::keys ? column >= last + f.window : end + f.window <= first))
        return;
    masked |= f.causal && (P::keys ? column < last : end > first);
    masked |= f.window && (P::keys ? end >= first + f.window : column + f.window <= last);
    if (masked)
        grad_products<P, true>(warp, one, two, stats, column, f, lane);
    else
        grad_products<P, false>(warp, one, two, stats, column, f, lane);
}

/* The tiles that a block reads: [first, end) of each of `heads` heads from `head` on. */
struct grad_walk {
    unsigned b, head, heads, first, tiles;
};

/* Begin to copy the i-th tiles, and to `stats` lse and delta of their queries. */
template <typename P>
static __device__ __forceinline__ void grad_fetch(const struct backward &f,
                                                  const struct grad_walk &walk, unsigned i,
                                                  mics_shared_at ring, mics_shared_at stats)
{
    unsigned head = walk.head + i / walk.tiles, row = (walk.first + i % walk.tiles) * P::step;
    unsigned query = row + threadIdx.x % P::step;
    struct grad_pair pair = P::keys ? query_pair(f, walk.b, head) : key_pair(f, walk.b, head);
    mics_shared_at at = ring + i % 2 * (2 * P::tile_bytes);
    const float *from = threadIdx.x < P::step ? pair.lse : pair.delta;

    mics_tile_load<P::D, P::step, P::threads>(at, pair.one, row);
    mics_tile_load<P::D, P::step, P::threads>(at + P::tile_bytes, pair.two, row);
    if (P::keys && threadIdx.x < 2 * P::step)
        mics_copy_async_word_or_zero(stats + (i % 2 * (2 * P::step) + threadIdx.x) * 4,
                                     query < f.T ? from + query : from, query < f.T);
    mics_copy_commit();
}

/* Take the block's own tiles. */
template <typename P>
static __device__ __forceinline__ void
grad_begin(struct grad_warp<P> &warp, const struct backward &f, const struct grad_pair &own,
           unsigned first, mics_shared_at at, const struct mics_lane &lane)
{
    unsigned in_tile = threadIdx.x / 32 * (P::M * 16);

    warp.row = first + in_tile;
    mics_tile_load<P::D, P::rows, P::threads>(at, own.one, first);
    mics_tile_load<P::D, P::rows, P::threads>(at + P::own_bytes, own.two, first);
    mics_copy_commit();
    mics_copy_wait<0>();
    __syncthreads();
    warp.one.begin(at, in_tile, lane);
    warp.two.begin(at + P::own_bytes, in_tile, lane);
    if (P::held)
        __syncthreads();
#pragma unroll
    for (int m = 0; m < P::M; m++) {
#pragma unroll
        for (int i = 0; i < 4 && !P::keys; i += 2)
            warp.stats[m][i / 2] = query_stats(own, warp.row + mics_row_of(m, i), f.T);
#pragma unroll
        for (int d = 0; d < P::D / 8; d++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                warp.sum_one[m][d][i] = warp.sum_two[m][d][i] = 0;
    }
}

/* grad_q, or grad_k and grad_v, of the warp's rows. */
template <typename P>
static __device__ __forceinline__ void
grad_finish(const struct grad_warp<P> &warp, const struct backward &f, unsigned b, unsigned head)
{
    mics_half *to = f.grad + (size_t)b * f.T * f.stride + (P::keys ? f.H + head : head) * f.D;
    float scale[P::M][2], unit[P::M][2];

#pragma unroll
    for (int i = 0; i < 2 * P::M; i++) {
        scale[i / 2][i % 2] = f.scale;
        unit[i / 2][i % 2] = 1;
    }
    mics_rows_store<typename P::type, P::D, P::M>(to, f.stride, warp.row, f.T, f.D / 8,
                                                  warp.sum_one, scale);
    if (P::keys)
        mics_rows_store<typename P::type, P::D, P::M>(to + f.H_kv * f.D, f.stride, warp.row, f.T,
                                                      f.D / 8, warp.sum_two, unit);
}

/* One block: P::rows keys or queries of one head; blocks that read most tiles come first. */
template <typename P>
__global__ void __launch_bounds__(P::threads, P::residents) grad_rows(const struct backward f)
{
    MICS_DYNAMIC_SHARED(unsigned char, memory);
    unsigned of_head = blockIdx.x % f.blocks, heads = P::keys ? f.H_kv : f.H, group = f.H / f.H_kv;
    unsigned head = blockIdx.x / f.blocks % heads, b = blockIdx.x / f.blocks / heads;
    unsigned first = (P::keys ? of_head : f.blocks - 1 - of_head) * P::rows, end = f.T;
    mics_shared_at at = mics_shared(memory), ring = at + P::ring_at;
    struct mics_lane lane = mics_lane_in_tile<P::D>();
    struct grad_walk walk = {b, P::keys ? head * group : head / group, P::keys ? group : 1, 0, 0};
    const int32_t *targets = f.targets ? f.targets + (size_t)b * f.T : nullptr;
    struct grad_warp<P> warp;

    if (f.causal && P::keys)
        walk.first = first;
    if (f.causal && !P::keys)
        end = min(first + P::rows, f.T);
    if (targets && (P::keys || !f.causal))
        end = mics_document_end(targets, min(first + P::rows, f.T) - 1, f.T) + 1;
    if (targets && (!P::keys || !f.causal))
        walk.first = mics_document_begin(targets, first);
    if (P::keys)
        end = mics_window_end(f.window, min(first + P::rows, f.T) - 1, end - 1) + 1;
    else
        walk.first = mics_window_begin(f.window, first, walk.first);
    walk.first /= P::step;
    walk.tiles = (end + P::step - 1) / P::step - walk.first;
    grad_begin<P>(warp, f, P::keys ? key_pair(f, b, head) : query_pair(f, b, head), first, at,
                  lane);
    mics_find_seen<P::M, P::keys>(warp.seen, warp.row, targets, f.T, f.causal, f.window);
    grad_fetch<P>(f, walk, 0, ring, at + P::stats_at);
    for (unsigned i = 0; i < walk.tiles * walk.heads; i++) {
        mics_shared_at one = ring + i % 2 * (2 * P::tile_bytes), two = one + P::tile_bytes;
        const float *stats = reinterpret_cast<const float *>(memory + P::stats_at);
        unsigned column = (walk.first + i % walk.tiles) * P::step;

        mics_copy_wait<0>();
        __syncthreads();
        if (i + 1 < walk.tiles * walk.heads)
            grad_fetch<P>(f, walk, i + 1, ring, at + P::stats_at);
#pragma unroll 1
        for (unsigned row = 0; row < P::step; row += P::slice)
            grad_slice<P>(warp, one + row * (P::D * 2), two + row * (P::D * 2),
                          stats + i % 2 * (2 * P::step) + row, column + row, f, lane);
    }
    grad_finish<P>(warp, f, b, head);
}

/* Launch for `heads` = B H_kv of keys or B H of queries; the scalars of `f` but its blocks are set.
 */
template <typename P>
static cudaError_t grad_launch(struct backward *f, unsigned heads, cudaStream_t stream)
{
    cudaError_t error = cudaFuncSetAttribute(
        grad_rows<P>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)P::shared_bytes);

    if (error != cudaSuccess)
        return error;
    f->blocks = (f->T + P::rows - 1) / P::rows;
    return MICS_LAUNCH(grad_rows<P>, f->blocks * heads, P::threads, P::shared_bytes, stream, *f);
}

static inline struct backward backward_of(const struct mics_args_attention_grad *args)
{
    return {
        .grad = static_cast<mics_half *>(args->grad_qkv),
        .qkv = static_cast<const mics_half *>(args->qkv),
        .grad_out = static_cast<const mics_half *>(args->grad_out),
        .lse = args->lse,
        .delta = args->delta,
        .stride = (size_t)(args->H + 2 * args->H_kv) * args->D,
        .ld_out = (size_t)args->H * args->D,
        .T = args->T,
        .H = args->H,
        .H_kv = args->H_kv,
        .D = args->D,
        .blocks = 0,
        .scale = 1 / sqrtf((float)args->D),
        .causal = args->causal,
        .targets = args->targets,
        .window = mics_attention_window(args->window, args->T),
    };
}

} // namespace

#endif
