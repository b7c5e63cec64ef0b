/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention.cuh - what both directions of attention on tensor cores share: the products of a warp.
 *
 * Tiles have D of 64 or 128; a narrower head is filled up with zeros, which change no product.
 *
 * A warp owns M blocks of 16 rows. It multiplies them with the rows of a tile, which gives scores,
 * and the scores, as they lie in its registers, with a tile again: no score is ever stored.
 */
#ifndef MICS_KERNELS_CUDA_ATTENTION_CUH
#define MICS_KERNELS_CUDA_ATTENTION_CUH

#include "cuda/attention.h"
#include "cuda/tile.cuh"

#define MICS_LOG2E 1.44269504088896340736f

/* The score of a key of an earlier document, or before the window. Not an infinity: a query may see
 * nothing of the first tiles, whose sums vanish when the first score follows that is one. A power
 * of two: its product with the scale is exact, so that subtracting the largest of such products
 * gives 0 also where the multiplication and the subtraction are fused. */
#define MICS_HIDDEN_SCORE (-0x1p100f)

/* The largest `value` of a warp. */
static __device__ __forceinline__ unsigned mics_warp_max(unsigned value)
{
    for (int step = 16; step > 0; step /= 2)
        value = max(value, __shfl_xor_sync(~0u, value, step));
    return value;
}

/* The first token of the document of token t; a whole warp calls it with one t. */
static __device__ __forceinline__ unsigned mics_document_begin(const int32_t *targets, unsigned t)
{
    unsigned begin = 0;

    for (unsigned i = threadIdx.x % 32; i < t; i += 32)
        if (targets[i] == MICS_TARGET_LAST)
            begin = i + 1;
    return mics_warp_max(begin);
}

/* The last token of the document of token t < T, likewise. */
static __device__ __forceinline__ unsigned mics_document_end(const int32_t *targets, unsigned t,
                                                             unsigned T)
{
    unsigned after = 0; /* T minus the first end that the lane finds */

    for (unsigned i = t + threadIdx.x % 32; i < T && after == 0; i += 32)
        if (targets[i] == MICS_TARGET_LAST)
            after = T - i;
    after = mics_warp_max(after);
    return after ? T - after : T - 1;
}

/* With a window (0: none) token t sees no earlier token than this, nor than `begin` ... */
static __device__ __forceinline__ unsigned mics_window_begin(unsigned window, unsigned t,
                                                             unsigned begin)
{
    return window && t >= window ? max(begin, t - window + 1) : begin;
}

/* ... and is seen by no later one than this, nor than `end`. */
static __device__ __forceinline__ unsigned mics_window_end(unsigned window, unsigned t,
                                                           unsigned end)
{
    return window ? min(end, t + window - 1) : end;
}

/* What a row sees of the other side: a query keys, a key queries. */
struct mics_seen {
    unsigned first, last;
};

/* The same of rows `row` + mics_row_of(m, 2 half), which are keys or queries; a whole warp calls
 * it. Without documents `targets` is nullptr, without a window that is 0. */
template <int M, bool keys>
static __device__ __forceinline__ void mics_find_seen(struct mics_seen (&seen)[M][2], unsigned row,
                                                      const int32_t *targets, unsigned T,
                                                      bool causal, unsigned window)
{
    const unsigned end = min(row + M * 16, T);
    const bool starts = targets && row < T && !(causal && keys);
    const bool stops = targets && row < T && !(causal && !keys);
    const unsigned begin = starts ? mics_document_begin(targets, row) : 0;
    const unsigned last = stops ? mics_document_end(targets, end - 1, T) : T - 1;

#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const unsigned r = row + mics_row_of(m, 2 * half);

            seen[m][half] = {causal && keys ? r : begin, causal && !keys ? min(r, T - 1) : last};
        }
    for (unsigned i = 0; (starts || stops) && i < end - row; i++) {
        const unsigned from = row + i, to = end - 1 - i;
        const bool starts_next = starts && targets[from] == MICS_TARGET_LAST;
        const bool stops_here = stops && targets[to] == MICS_TARGET_LAST;

#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const unsigned r = row + mics_row_of(m, 2 * half);

                if (starts_next && from < r)
                    seen[m][half].first = from + 1;
                if (stops_here && to >= r)
                    seen[m][half].last = to;
            }
    }
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        struct mics_seen &one = seen[i / 2][i % 2];
        const unsigned r = row + mics_row_of(i / 2, i % 2 * 2);

        if (keys)
            one.last = mics_window_end(window, r, one.last);
        else
            one.first = mics_window_begin(window, r, one.first);
    }
}

/* Rows [row, row + 16 M) of a tile as left factors, loaded each time they are needed ... */
template <int D, int M> struct mics_left_shared {
    mics_shared_at at;

    __device__ __forceinline__ void begin(mics_shared_at tile, unsigned row,
                                          const struct mics_lane &lane)
    {
        at = tile + row * (D * 2) + lane.wide;
    }

    __device__ __forceinline__ void get(uint32_t (&a)[M][4], int k)
    {
#pragma unroll
        for (int m = 0; m < M; m++)
            mics_ldmatrix(a[m], (at ^ ((unsigned)k << 5)) + m * 16 * (D * 2));
    }
};

/* ... or held in registers. */
template <int D, int M> struct mics_left_held {
    uint32_t held[D / 16][M][4];

    __device__ __forceinline__ void begin(mics_shared_at tile, unsigned row,
                                          const struct mics_lane &lane)
    {
        struct mics_left_shared<D, M> from;

        from.begin(tile, row, lane);
#pragma unroll
        for (int k = 0; k < D / 16; k++)
            from.get(held[k], k);
    }

    __device__ __forceinline__ void get(uint32_t (&a)[M][4], int k)
    {
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[m][i] = held[k][m][i];
    }
};

/* s[16 M, N] = left[16 M, D] rows', rows being N rows of a tile of T. */
template <typename T, int D, int M, int N, typename Left>
static __device__ __forceinline__ void
mics_scores(float (&s)[M][N / 8][4], Left &left, mics_shared_at rows, const struct mics_lane &lane)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N / 8; n++)
            s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t a[M][4];

        left.get(a, k);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            uint32_t b[4];

            mics_ldmatrix(b, ((rows + lane.deep) ^ ((unsigned)k << 5)) + n * 16 * (D * 2));
#pragma unroll
            for (int m = 0; m < M; m++) {
                mics_mma<T>(s[m][2 * n], a[m], b[0], b[1]);
                mics_mma<T>(s[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* sum[16 M, D] += s[16 M, N] rows, rows being N rows of a tile; s is rounded to T. */
template <typename T, int D, int M, int N>
static __device__ __forceinline__ void
mics_add_rows(float (&sum)[M][D / 8][4], const float (&s)[M][N / 8][4], mics_shared_at rows,
              const struct mics_lane &lane)
{
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        uint32_t a[M][4];

#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[m][i] = mics_pack<T>(s[m][2 * k + i / 2][i % 2 * 2],
                                       s[m][2 * k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
            uint32_t b[4];

            mics_ldmatrix_trans(b, ((rows + lane.wide) ^ ((unsigned)d << 5)) + k * 16 * (D * 2));
#pragma unroll
            for (int m = 0; m < M; m++) {
                mics_mma<T>(sum[m][2 * d], a[m], b[0], b[1]);
                mics_mma<T>(sum[m][2 * d + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* Store 16 M rows, each times factor[m][i / 2], rounded to T: row `first` and on, as many as lie
 * under `count`. */
template <typename T, int D, int M>
static __device__ __forceinline__ void
mics_rows_store(mics_half *to, size_t stride, unsigned first, unsigned count, unsigned chunks,
                const float (&sum)[M][D / 8][4], const float (&factor)[M][2])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            unsigned row = first + mics_row_of(m, i);
            mics_half *at = to + row * stride + mics_lane_column();
            float f = factor[m][i / 2];

            if (row >= count)
                continue;
#pragma unroll
            for (int d = 0; d < D / 8; d++)
                if ((unsigned)d < chunks)
                    *reinterpret_cast<uint32_t *>(at + d * 8) =
                        mics_pack<T>(sum[m][d][i] * f, sum[m][d][i + 1] * f);
        }
}

#endif
