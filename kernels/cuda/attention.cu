/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention.cu - softmax(q k' / sqrt(D)) v for each head on tensor cores, in blocks (Dao, FlashAttention-2,
 * 2023).
 *
 * A thread block has 128 queries of one head, 32 for each of its 4 warps, and walks the tiles of 64 keys and
 * values that they may see; the next tile is copied while one is computed. Each warp keeps of its queries the
 * largest score, the sum of the exponentials and the output so far. The longest blocks of queries come first.
 *
 * 4 T T D flops a head, half of that when causal; q, k, v and out are moved once (8 D bytes a query) but for the
 * keys and values, which each block of queries reads again, mostly from the second-level cache.
 * Tolerance: probabilities are rounded to bf16 before they meet the values: 2^-8 of the largest value.
 */
#include "attention.cuh"

namespace
{

struct forward {
    mics_bf16 *out;
    float *lse;
    const mics_bf16 *qkv;
    size_t stride; /* of qkv */
    unsigned T, H, group, D;
    unsigned keys_at, values_at; /* in a row of qkv */
    unsigned blocks;             /* of queries */
    float scale;                 /* of scores, in base 2 */
};

enum { WARPS = 4, M = 2, QUERIES = WARPS * M * 16, KEYS = 64, THREADS = WARPS * 32 };

/* Running statistics of a lane's rows. */
struct softmax {
    float max[M][2], sum[M][2]; /* the maximum in base 2; the sum is the lane's own part of it */
};

template <int D> static constexpr size_t forward_shared_bytes(void)
{
    return (size_t)(QUERIES + 4 * KEYS) * D * 2;
}

/* Keys that a query may not see get -inf: those from T on, and those after it. */
template <bool causal>
static __device__ __forceinline__ void mask(float (&s)[M][KEYS / 8][4], unsigned row, unsigned key,
                                            unsigned T)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                unsigned c = key + (unsigned)n * 8 + mics_lane_column() + (unsigned)(i % 2);

                if (c >= T || (causal && c > row + mics_row_of(m, i)))
                    s[m][n][i] = -INFINITY;
            }
}

/* The largest score of a row over the four lanes that share it. */
static __device__ __forceinline__ float row_max(const float (&s)[KEYS / 8][4], int half)
{
    float max = s[0][2 * half];

#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
        max = fmaxf(max, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));
    return fmaxf(max, __shfl_xor_sync(~0u, max, 2));
}

/* Bring the largest scores up to date; sums and outputs, which are relative to them, follow. Nothing needs to
 * where no row of the warp has a new largest. */
template <int D>
static __device__ __forceinline__ void raise(const float (&s)[M][KEYS / 8][4],
                                             float (&out)[M][D / 8][4], struct softmax &stats,
                                             float scale)
{
    float factor[M][2];
    bool grown = false;

#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float old = stats.max[m][half], max = fmaxf(old, row_max(s[m], half) * scale);

            stats.max[m][half] = max;
            grown |= max > old;
            factor[m][half] = mics_exp2(old - max);
        }
    if (!__any_sync(~0u, grown))
        return;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i % 2 == 0)
                stats.sum[m][i / 2] *= factor[m][i / 2];
#pragma unroll
            for (int d = 0; d < D / 8; d++)
                out[m][d][i] *= factor[m][i / 2];
        }
}

/* From scores to exponentials relative to the largest. */
static __device__ __forceinline__ void soften(float (&s)[M][KEYS / 8][4], struct softmax &stats,
                                              float scale)
{
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[m][n][i] = mics_exp2(s[m][n][i] * scale - stats.max[m][i / 2]);
                stats.sum[m][i / 2] += s[m][n][i];
            }
}

/* One tile of keys and values, `key` being the first, for the warp's queries from `row` on. */
template <int D, bool causal, bool masked, typename Left>
static __device__ __forceinline__ void
attend_tile(float (&out)[M][D / 8][4], struct softmax &stats, Left &queries, mics_shared_at keys,
            mics_shared_at values, unsigned row, unsigned key, const struct forward &f,
            const struct mics_lane &lane)
{
    float s[M][KEYS / 8][4];

    mics_scores<D, M, KEYS>(s, queries, keys, lane);
    if (masked)
        mask<causal>(s, row, key, f.T);
    raise<D>(s, out, stats, f.scale);
    soften(s, stats, f.scale);
    mics_add_rows<D, M, KEYS>(out, s, values, lane);
}

/* Divide by the sums, store outputs and lse. */
template <int D>
static __device__ __forceinline__ void finish(const float (&out)[M][D / 8][4],
                                              struct softmax &stats, unsigned b, unsigned h,
                                              unsigned row, const struct forward &f)
{
    size_t ld = (size_t)f.H * f.D;
    float factor[M][2];

#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = stats.sum[m][half];
            unsigned r = row + mics_row_of(m, 2 * half);

            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            factor[m][half] = 1 / sum;
            if (mics_lane_column() == 0 && r < f.T)
                f.lse[((size_t)b * f.H + h) * f.T + r] =
                    (stats.max[m][half] + log2f(sum)) / MICS_LOG2E;
        }
    mics_rows_store<D, M>(f.out + (size_t)b * f.T * ld + (size_t)h * f.D, ld, row, f.T, f.D / 8,
                          out, factor);
}

/* The queries, keys and values of head h of sequence b. */
struct head {
    struct mics_rows queries, keys, values;
};

static __device__ __forceinline__ struct head head_of(const struct forward &f, unsigned b,
                                                      unsigned h)
{
    const mics_bf16 *row = f.qkv + (size_t)b * f.T * f.stride, *keys = row + h / f.group * f.D;

    return {{row + h * f.D, f.stride, f.T, f.D / 8},
            {keys + f.keys_at, f.stride, f.T, f.D / 8},
            {keys + f.values_at, f.stride, f.T, f.D / 8}};
}

/* Begin to copy the j-th tiles of keys and values. */
template <int D>
static __device__ __forceinline__ void fetch(const struct head &head, unsigned j,
                                             mics_shared_at ring)
{
    mics_shared_at keys = ring + j % 2 * (4 * KEYS * D), values = keys + 2 * KEYS * D;

    mics_tile_load<D, KEYS, THREADS>(keys, head.keys, j * KEYS);
    mics_tile_load<D, KEYS, THREADS>(values, head.values, j * KEYS);
    mics_copy_commit();
}

template <int D, bool causal, typename Left>
__global__ void __launch_bounds__(THREADS, 2) attend(const struct forward f)
{
    MICS_DYNAMIC_SHARED(unsigned char, memory);
    unsigned first = (f.blocks - 1 - blockIdx.x % f.blocks) * QUERIES;
    unsigned h = blockIdx.x / f.blocks % f.H, b = blockIdx.x / f.blocks / f.H;
    unsigned row = first + threadIdx.x / 32 * (M * 16);
    unsigned seen = causal ? min(first + QUERIES, f.T) : f.T, tiles = (seen + KEYS - 1) / KEYS;
    mics_shared_at at = mics_shared(memory), ring = at + QUERIES * D * 2;
    struct mics_lane lane = mics_lane_in_tile<D>();
    struct head head = head_of(f, b, h);
    float out[M][D / 8][4] = {};
    struct softmax stats;
    Left left;

#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        stats.max[i / 2][i % 2] = -INFINITY;
        stats.sum[i / 2][i % 2] = 0;
    }
    mics_tile_load<D, QUERIES, THREADS>(at, head.queries, first);
    fetch<D>(head, 0, ring);
    for (unsigned j = 0; j < tiles; j++) {
        mics_shared_at keys = ring + j % 2 * (4 * KEYS * D), values = keys + 2 * KEYS * D;

        mics_copy_wait<0>();
        __syncthreads();
        if (j == 0)
            left.begin(at, row - first, lane);
        if (j + 1 < tiles)
            fetch<D>(head, j + 1, ring);
        if (causal && j * KEYS > row + M * 16 - 1)
            continue;
        if ((j + 1) * KEYS > f.T || (causal && (j + 1) * KEYS - 1 > row))
            attend_tile<D, causal, true>(out, stats, left, keys, values, row, j * KEYS, f, lane);
        else
            attend_tile<D, causal, false>(out, stats, left, keys, values, row, j * KEYS, f, lane);
    }
    finish<D>(out, stats, b, h, row, f);
}

template <int D, bool causal, typename Left>
static cudaError_t launch(const struct forward *f, unsigned grid, cudaStream_t stream)
{
    cudaError_t error =
        cudaFuncSetAttribute(attend<D, causal, Left>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)forward_shared_bytes<D>());

    if (error != cudaSuccess)
        return error;
    return MICS_LAUNCH((attend<D, causal, Left>), grid, THREADS, forward_shared_bytes<D>(), stream,
                       *f);
}

} // namespace

cudaError_t mics_cuda_attention(const struct mics_cuda_at *at, const struct mics_op_attention *args)
{
    unsigned blocks = (args->T + QUERIES - 1) / QUERIES, grid = blocks * args->B * args->H;
    struct forward f = {
        .out = static_cast<mics_bf16 *>(args->out),
        .lse = args->lse,
        .qkv = static_cast<const mics_bf16 *>(args->qkv),
        .stride = (size_t)(args->H + 2 * args->H_kv) * args->D,
        .T = args->T,
        .H = args->H,
        .group = args->H / args->H_kv,
        .D = args->D,
        .keys_at = args->H * args->D,
        .values_at = (args->H + args->H_kv) * args->D,
        .blocks = blocks,
        .scale = MICS_LOG2E / sqrtf((float)args->D),
    };

    if (grid == 0)
        return cudaSuccess;
    if (!mics_attention_is_fast(args->dtype, args->D))
        return mics_cuda_attention_plain(at, args);
    if (args->D <= 64)
        return args->causal ? launch<64, true, mics_left_held<64, M>>(&f, grid, at->stream)
                            : launch<64, false, mics_left_held<64, M>>(&f, grid, at->stream);
    return args->causal ? launch<128, true, mics_left_shared<128, M>>(&f, grid, at->stream)
                        : launch<128, false, mics_left_shared<128, M>>(&f, grid, at->stream);
}
