/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_grad_hopper.cu - the gradient of attention by the matrix products of compute
 * capability 9.0: delta, then the gradients of keys and values, then those of queries, by the
 * formulas of attention_grad_mma.cuh.
 *
 * A block owns 64 keys, or queries, of a head for each of its two warpgroups that multiply. A warp
 * of a third warpgroup issues bulk copies: first of the block's own tiles, then of the streamed
 * tiles of 64 rows, into a ring of P::stages slots. For streamed queries it also copies their lse
 * and delta. All tiles have 64 rows and D columns (hopper.cuh); the copy fills narrower heads, and
 * rows from T on, with zeros.
 *
 * A warpgroup does for each tile, with a barrier of the ring before and after:
 *     S = own one * streamed one',  dP = own two * streamed two'      from shared memory
 *     P = exp(scale S - lse),  sum two += P * streamed two           P in registers; keys only
 *     dS = P (dP - delta),  sum one += dS * streamed one             dS in registers
 * The warpgroup waits for dP only after computing P, and for sum two together with sum one, so that
 * the tensor cores work for one warpgroup while another computes exponentials. (Waiting for the
 * sums only in the next step would need more than 240 registers per thread, the limit, at D = 128.)
 *
 * Every number of a result is added by one warpgroup in one order: the bits are the same each time.
 * 14 T T D flops a head, half of that when causal; 4 T T D / P::rows bytes of tiles, mostly from
 * the second-level cache. Tolerance against the host: P and dS are rounded to bf16 before they are
 * multiplied, 2^-8 of their largest.
 */
#include "cuda/attention_grad_mma.cuh"
#include "cuda/hopper/hopper.cuh"

namespace
{

/* A tensor map is 64-byte aligned, so it comes first. */
struct hopper_backward {
    CUtensorMap qkv, grad_out; /* boxes of 64 rows */
    struct backward f;
};

template <int D_, bool keys_, int stages_> struct hopper_grad_policy {
    static constexpr int D = D_, groups = 2, stages = stages_;
    static constexpr bool keys = keys_;
    static constexpr int step = 64, rows = groups * step; /* of a tile, of a block */
    /* Registers of a multiplying thread, of a copying one. */
    static constexpr int registers = 240, rest = 24;
    static constexpr int threads = (groups + 1) * MICS_WARPGROUP;
    static constexpr unsigned tile_bytes = step * D * 2;
    static constexpr unsigned ring_at = groups * 2 * tile_bytes; /* after the own tiles */
    static constexpr unsigned stats_at = ring_at + stages * 2 * tile_bytes;
    static constexpr unsigned stats_bytes = keys ? 2 * step * sizeof(float) : 0; /* of a stage */
    static constexpr unsigned barriers_at = stats_at + stages * stats_bytes;
    static constexpr unsigned shared_bytes = barriers_at + (2 * stages + 1) * 8;
};

/* Numbers of a warpgroup's rows and the streamed rows. */
template <typename P> struct hopper_scores {
    float of[P::step / 8][4];
};

/* What a block does. */
struct hopper_task {
    unsigned b, head, first; /* own head, of keys or of queries; own rows */
    struct grad_walk walk;
    unsigned steps;
};

template <typename P>
static __device__ __forceinline__ struct hopper_task task_of(const struct backward &f)
{
    unsigned of_head = blockIdx.x % f.blocks, heads = P::keys ? f.H_kv : f.H, group = f.H / f.H_kv;
    unsigned head = blockIdx.x / f.blocks % heads, b = blockIdx.x / f.blocks / heads;
    unsigned first = (P::keys ? of_head : f.blocks - 1 - of_head) * P::rows, end = f.T;
    struct grad_walk walk = {b, P::keys ? head * group : head / group, P::keys ? group : 1, 0, 0};

    if (f.causal && P::keys)
        walk.first = first / P::step;
    if (f.causal && !P::keys)
        end = min(first + P::rows, f.T);
    walk.tiles = (end + P::step - 1) / P::step - walk.first;
    return {b, head, first, walk, walk.tiles * walk.heads};
}

/* The layout of shared memory. */
template <typename P> struct hopper_places {
    mics_shared_at base;
    unsigned char *memory; /* the same */

    /* Own tiles of a warpgroup, and tiles of a stage: `two` behind `one`. */
    __device__ __forceinline__ mics_shared_at own(unsigned group) const
    {
        return base + group * (2 * P::tile_bytes);
    }

    __device__ __forceinline__ mics_shared_at streamed(unsigned stage) const
    {
        return base + P::ring_at + stage * (2 * P::tile_bytes);
    }

    /* lse in base 2 of the stage's queries, then their delta. */
    __device__ __forceinline__ float *stats(unsigned stage) const
    {
        return reinterpret_cast<float *>(memory + P::stats_at + stage * P::stats_bytes);
    }

    /* Barriers: own tiles are there, a stage is full, a stage is empty. */
    __device__ __forceinline__ mics_shared_at begun(void) const
    {
        return base + P::barriers_at;
    }

    __device__ __forceinline__ mics_shared_at full(unsigned stage) const
    {
        return base + P::barriers_at + 8 + stage * 8;
    }

    __device__ __forceinline__ mics_shared_at empty(unsigned stage) const
    {
        return full(P::stages) + stage * 8;
    }
};

/* A slot of the ring, and the parity of its phase. */
template <int stages> struct hopper_ring_slot {
    unsigned stage, parity;

    __device__ __forceinline__ void next(void)
    {
        stage = stage + 1 == stages ? 0 : stage + 1;
        parity ^= stage == 0;
    }
};

/* --- the copying warp */

/* Begin to copy a pair of tiles: queries with their gradients of the output, or keys with values.
 */
template <typename P>
static __device__ __forceinline__ void copy_pair(const struct hopper_backward &g, bool queries,
                                                 mics_shared_at to, mics_shared_at barrier,
                                                 unsigned b, unsigned head, unsigned row)
{
#pragma unroll
    for (unsigned column = 0; column < P::D; column += 64) {
        mics_shared_at one = to + column / 64 * (P::step * 128), two = one + P::tile_bytes;

        if (queries) {
            mics_bulk_load(one, &g.qkv, barrier, column, head, row, b);
            mics_bulk_load(two, &g.grad_out, barrier, column, head, row, b);
        } else {
            mics_bulk_load(one, &g.qkv, barrier, column, g.f.H + head, row, b);
            mics_bulk_load(two, &g.qkv, barrier, column, g.f.H + g.f.H_kv + head, row, b);
        }
    }
}

/* lse and delta of the queries from `row` on. Those of queries from T on are zero, as their rows of
 * q and grad_out are, and add nothing. */
template <typename P>
static __device__ __forceinline__ void copy_stats(const struct backward &f, float *to, unsigned b,
                                                  unsigned head, unsigned row)
{
    size_t at = ((size_t)b * f.H + head) * f.T;

#pragma unroll
    for (unsigned i = threadIdx.x % 32; i < P::step; i += 32) {
        to[i] = row + i < f.T ? f.lse[at + row + i] * MICS_LOG2E : 0;
        to[P::step + i] = row + i < f.T ? f.delta[at + row + i] : 0;
    }
}

template <typename P>
static __device__ __forceinline__ void copy_all(const struct hopper_backward &g,
                                                const struct hopper_task &task,
                                                const struct hopper_places<P> &at)
{
    bool leads = threadIdx.x % 32 == 0;
    unsigned head = task.walk.head, tile = task.walk.first;
    struct hopper_ring_slot<P::stages> slot = {
        0, 1
    };

    if (leads) {
        mics_mbarrier_expect(at.begun(), P::ring_at);
        for (unsigned group = 0; group < P::groups; group++)
            copy_pair<P>(g, !P::keys, at.own(group), at.begun(), task.b, task.head,
                         task.first + group * P::step);
    }
#pragma unroll 1
    for (unsigned i = 0; i < task.steps; i++, slot.next()) {
        mics_mbarrier_wait(at.empty(slot.stage), slot.parity);
        __syncwarp(); /* no lane may still wait when the slot is refilled and released again */
        if (leads) {
            mics_mbarrier_expect(at.full(slot.stage), 2 * P::tile_bytes);
            copy_pair<P>(g, P::keys, at.streamed(slot.stage), at.full(slot.stage), task.b, head,
                         tile * P::step);
        }
        if (P::keys) {
            copy_stats<P>(g.f, at.stats(slot.stage), task.b, head, tile * P::step);
            mics_mbarrier_arrive(at.full(slot.stage));
        }
        if (++tile == task.walk.first + task.walk.tiles) {
            tile = task.walk.first;
            head++;
        }
    }
}

/* --- the multiplying warpgroups */

/* A warpgroup's part; rows are those of the thread's fragments. */
template <typename P> struct hopper_group {
    unsigned first, row; /* the first of the group, of the warp */
    float2 stats[2];     /* of own queries */
    uint32_t p[P::step / 16][4], ds[P::step / 16][4];
    float sum_one[1][P::D / 8][4], sum_two[1][P::D / 8][4]; /* the second for keys only */
};

template <typename P>
static __device__ __forceinline__ void
group_begin(struct hopper_group<P> &group, const struct backward &f, const struct hopper_task &task)
{
    size_t stats = ((size_t)task.b * f.H + task.head) * f.T;

    group.first = task.first + threadIdx.x / MICS_WARPGROUP * P::step;
    group.row = group.first + threadIdx.x % MICS_WARPGROUP / 32 * 16;
#pragma unroll
    for (int i = 0; i < 2 && !P::keys; i++) {
        unsigned r = group.row + mics_row_of(0, 2 * i);

        group.stats[i] = r < f.T ? make_float2(f.lse[stats + r] * MICS_LOG2E, f.delta[stats + r])
                                 : make_float2(0, 0);
    }
#pragma unroll
    for (int d = 0; d < P::D / 8; d++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            group.sum_one[0][d][i] = group.sum_two[0][d][i] = 0;
}

/* d = own streamed', of 64 rows each. */
template <typename P>
static __device__ __forceinline__ void begin_scores(float (&d)[P::step / 8][4], mics_shared_at own,
                                                    mics_shared_at streamed)
{
#pragma unroll
    for (unsigned k = 0; k < P::D / 16; k++)
        mics_wgmma<MICS_K_MAJOR, MICS_K_MAJOR>(d, mics_matrix_k<P::step>(own, 0, k),
                                               mics_matrix_k<P::step>(streamed, 0, k), k > 0);
    mics_wgmma_commit();
}

/* sum += a streamed. */
template <typename P>
static __device__ __forceinline__ void
begin_sum(float (&sum)[1][P::D / 8][4], uint32_t (&a)[P::step / 16][4], mics_shared_at streamed)
{
    mics_wgmma_settle(a);
    mics_wgmma_settle(sum[0]);
    mics_wgmma_fence();
#pragma unroll
    for (unsigned k = 0; k < P::step / 16; k++)
        mics_wgmma<MICS_MN_MAJOR>(sum[0], a[k], mics_matrix_mn<P::step>(streamed, 0, k), true);
    mics_wgmma_commit();
}

/* From S to P, and P to bf16. `column` is the first streamed row. */
template <typename P, bool masked>
static __device__ __forceinline__ void make_p(struct hopper_group<P> &group,
                                              struct hopper_scores<P> &s, const float *stats,
                                              unsigned column, const struct backward &f)
{
    float scale = f.scale * MICS_LOG2E;

#pragma unroll
    for (int n = 0; n < P::step / 8; n++) {
        unsigned at = (unsigned)n * 8 + mics_lane_column();
        float2 lse = P::keys ? *reinterpret_cast<const float2 *>(stats + at)
                             : make_float2(group.stats[0].x, group.stats[1].x);

#pragma unroll
        for (int i = 0; i < 4; i++) {
            unsigned r = group.row + mics_row_of(0, i), c = column + at + (unsigned)(i % 2);
            bool second = P::keys ? i % 2 : i / 2;
            float p = mics_exp2(s.of[n][i] * scale - (second ? lse.y : lse.x));

            if (masked && ((!P::keys && c >= f.T) || (f.causal && (P::keys ? c < r : c > r))))
                p = 0;
            s.of[n][i] = p;
        }
    }
    if (P::keys)
#pragma unroll
        for (int k = 0; k < P::step / 16; k++)
            mics_wgmma_left(group.p[k], s.of, k);
}

/* From dP to dS, rounded. */
template <typename P>
static __device__ __forceinline__ void make_ds(struct hopper_group<P> &group,
                                               const struct hopper_scores<P> &p,
                                               struct hopper_scores<P> &dp, const float *stats)
{
#pragma unroll
    for (int n = 0; n < P::step / 8; n++) {
        unsigned at = (unsigned)n * 8 + mics_lane_column();
        float2 delta = P::keys ? *reinterpret_cast<const float2 *>(stats + P::step + at)
                               : make_float2(group.stats[0].y, group.stats[1].y);

#pragma unroll
        for (int i = 0; i < 4; i++)
            dp.of[n][i] =
                p.of[n][i] * (dp.of[n][i] - ((P::keys ? i % 2 : i / 2) ? delta.y : delta.x));
    }
#pragma unroll
    for (int k = 0; k < P::step / 16; k++)
        mics_wgmma_left(group.ds[k], dp.of, k);
}

/* All products of one pair of tiles. */
template <typename P>
static __device__ __forceinline__ void
group_step(struct hopper_group<P> &group, const struct hopper_places<P> &at, mics_shared_at own,
           unsigned stage, unsigned column, const struct backward &f)
{
    mics_shared_at one = at.streamed(stage), two = one + P::tile_bytes;
    unsigned end = column + P::step - 1, last = group.first + P::step - 1;

    struct hopper_scores<P> s, dp;

    mics_wgmma_fence();
    begin_scores<P>(s.of, own, one);
    begin_scores<P>(dp.of, own + P::tile_bytes, two);
    mics_wgmma_wait<1>();
    mics_wgmma_settle(s.of);
    if ((!P::keys && end >= f.T) || (f.causal && (P::keys ? column < last : end > group.first)))
        make_p<P, true>(group, s, at.stats(stage), column, f);
    else
        make_p<P, false>(group, s, at.stats(stage), column, f);
    if (P::keys)
        begin_sum<P>(group.sum_two, group.p, two);
    mics_wgmma_wait<P::keys ? 1 : 0>();
    mics_wgmma_settle(dp.of);
    make_ds<P>(group, s, dp, at.stats(stage));
    begin_sum<P>(group.sum_one, group.ds, one);
    mics_wgmma_wait<0>();
    mics_wgmma_settle(group.sum_one[0]);
    if (P::keys)
        mics_wgmma_settle(group.sum_two[0]);
}

/* Whether any row of the group attends to any of the streamed rows. */
template <typename P>
static __device__ __forceinline__ bool sees(const struct hopper_group<P> &group, unsigned column,
                                            const struct backward &f)
{
    return group.first < f.T && (!f.causal || (P::keys ? column + P::step > group.first
                                                       : column < group.first + P::step));
}

template <typename P>
static __device__ __forceinline__ void
group_walk(struct hopper_group<P> &group, const struct hopper_places<P> &at,
           const struct hopper_task &task, const struct backward &f)
{
    unsigned column = task.walk.first * P::step;
    unsigned end = column + task.walk.tiles * P::step;
    /* A shuffle, so that the compiler treats it as uniform in the warp. */
    mics_shared_at own = at.own(__shfl_sync(~0u, threadIdx.x / MICS_WARPGROUP, 0));
    struct hopper_ring_slot<P::stages> slot = {
        0, 0
    };

    mics_mbarrier_wait(at.begun(), 0);
#pragma unroll 1
    for (unsigned left = task.steps; left > 0; left--, slot.next()) {
        mics_mbarrier_wait(at.full(slot.stage), slot.parity);
        if (sees(group, column, f))
            group_step<P>(group, at, own, slot.stage, column, f);
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            mics_mbarrier_arrive(at.empty(slot.stage));
        column = column + P::step == end ? task.walk.first * P::step : column + P::step;
    }
}

/* grad_q, or grad_k and grad_v, of the group's rows. */
template <typename P>
static __device__ __forceinline__ void group_finish(const struct hopper_group<P> &group,
                                                    const struct backward &f,
                                                    const struct hopper_task &task)
{
    mics_half *to =
        f.grad + (size_t)task.b * f.T * f.stride + (P::keys ? f.H + task.head : task.head) * f.D;
    const float scale[1][2] = {{f.scale, f.scale}}, unit[1][2] = {{1, 1}};

    mics_rows_store<mics_bf16, P::D, 1>(to, f.stride, group.row, f.T, f.D / 8, group.sum_one,
                                        scale);
    if (P::keys)
        mics_rows_store<mics_bf16, P::D, 1>(to + f.H_kv * f.D, f.stride, group.row, f.T, f.D / 8,
                                            group.sum_two, unit);
}

/* Initialise the barriers, in one thread, before anything else. A stage is full after its announced
 * bytes and, with stats, the copying warp's lanes have arrived. It is empty after each multiplying
 * warp has released it. */
template <typename P>
static __device__ __forceinline__ void make_barriers(const struct hopper_places<P> &at)
{
    mics_mbarrier_init(at.begun(), 1);
    for (unsigned stage = 0; stage < P::stages; stage++) {
        mics_mbarrier_init(at.full(stage), P::keys ? 33 : 1);
        mics_mbarrier_init(at.empty(stage), P::groups * (MICS_WARPGROUP / 32));
    }
    mics_mbarrier_publish();
}

template <typename P>
__global__ void __launch_bounds__(P::threads, 1)
    grad_rows_hopper(const __grid_constant__ struct hopper_backward g)
{
    MICS_DYNAMIC_SHARED(unsigned char, memory);
    struct hopper_places<P> at = {
        mics_shared(memory), memory
    };
    struct hopper_task task = task_of<P>(g.f);

    if (threadIdx.x == 0)
        make_barriers<P>(at);
    __syncthreads();
    if (threadIdx.x >= P::groups * MICS_WARPGROUP) {
        mics_registers_fewer<P::rest>();
        if (threadIdx.x < P::groups * MICS_WARPGROUP + 32)
            copy_all<P>(g, task, at);
    } else {
        struct hopper_group<P> group;

        mics_registers_more<P::registers>();
        group_begin<P>(group, g.f, task);
        group_walk<P>(group, at, task, g.f);
        group_finish<P>(group, g.f, task);
    }
}

/* Launch for `heads` = B H_kv of keys or B H of queries. */
template <typename P>
static cudaError_t grad_launch_hopper(struct hopper_backward *g, unsigned heads,
                                      cudaStream_t stream)
{
    cudaError_t error = cudaFuncSetAttribute(
        grad_rows_hopper<P>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)P::shared_bytes);

    if (error != cudaSuccess)
        return error;
    g->f.blocks = (g->f.T + P::rows - 1) / P::rows;
    return MICS_LAUNCH(grad_rows_hopper<P>, g->f.blocks * heads, P::threads, P::shared_bytes,
                       stream, *g);
}

template <bool keys>
static cudaError_t launch(struct hopper_backward *g, cudaStream_t stream, unsigned heads)
{
    if (g->f.D <= 64)
        return grad_launch_hopper<hopper_grad_policy<64, keys, 4>>(g, heads, stream);
    return grad_launch_hopper<hopper_grad_policy<128, keys, 3>>(g, heads, stream);
}

/* The maps' boxes. */
static cudaError_t prepare(struct hopper_backward *g, const struct mics_args_attention_grad *args)
{
    const unsigned heads = args->H + 2 * args->H_kv;
    const struct mics_heads qkv = {args->qkv, args->B, args->T,
                                   heads,     args->D, (size_t)heads * args->D};
    const struct mics_heads grad_out = {args->grad_out, args->B, args->T,
                                        args->H,        args->D, (size_t)args->H * args->D};
    const cudaError_t error = mics_tensor_map_make(&g->qkv, qkv, 64);

    g->f = backward_of(args);
    return error == cudaSuccess ? mics_tensor_map_make(&g->grad_out, grad_out, 64) : error;
}

} // namespace

cudaError_t mics_cuda_attention_grad_hopper(const struct mics_cuda_at *at,
                                            const struct mics_args_attention_grad *args)
{
    const unsigned keys = args->B * args->H_kv, queries = args->B * args->H;
    struct hopper_backward g;
    cudaError_t error = prepare(&g, args);

    if (error == cudaSuccess)
        error = mics_attention_delta(args, at->stream);
    if (error == cudaSuccess)
        error = launch<true>(&g, at->stream, keys);
    if (error == cudaSuccess)
        error = launch<false>(&g, at->stream, queries);
    return error;
}
