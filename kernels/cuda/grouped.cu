/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grouped.cu - products of experts with their rows, each in one launch: how many rows an expert has
 * is read from device memory only.
 *
 * A block computes a tile of the result. Where experts have rows of the result, the grid has as
 * many blocks as any distribution of the rows needs: a block finds its expert by adding up the
 * tiles of those before it, and blocks that are left return. Tiles of an expert are taken eight
 * rows of them deep, so that blocks that run at a time share rows of both operands in the
 * second-level cache. Gradients have the same tiles for every expert, and a sum over its rows.
 *
 * bf16 or fp16 whose rows are whole chunks of 16 bytes is multiplied on tensor cores, other
 * operands one element at a time. 2 rows m n flops; the matrices of all experts that have rows, and
 * the rows, are read at least once. Sums are fp32 in an order that depends on sizes only; within
 * k * 2^-24 of the host, relative to the sum of magnitudes, and rounded once.
 */
#include "cuda/gpu.h"
#include "cuda/kernels.h"
#include "cuda/reduce.cuh"
#include "cuda/tile.cuh"
#include "cuda/vector.cuh"

#define THREADS  256
#define PANEL    8 /* rows of tiles */
#define MMA_SIDE 128
#define MMA_K    64
#define MMA_M    2 /* blocks of 16 rows of a warp: warps are 4 x 2 */
#define MMA_N    8 /* of 8 columns */

#define OPERAND_BYTES (MMA_SIDE * MMA_K * 2)
#define STAGE_BYTES   (2 * OPERAND_BYTES)
#define SHARED_BYTES  (2 * STAGE_BYTES)

#define PLAIN_SIDE 64
#define PLAIN_K    16
#define PLAIN_PART 4 /* rows and columns of a thread */

namespace
{

/* Tile (row, column) of an expert whose rows are [begin, end). */
struct tile {
    uint32_t expert, begin, end, row, column;
};

/* The tile of this block: of `side` rows, `columns` of them side by side. False: there is none.
 * Whole warps call it. */
__device__ __forceinline__ bool find_tile(const uint32_t *offsets, uint32_t E, uint32_t side,
                                          uint32_t columns, tile &out)
{
    const unsigned lane = threadIdx.x % MICS_WARP;
    uint32_t before = 0;

    for (uint32_t first = 0; first < E; first += MICS_WARP) {
        const uint32_t e = first + lane < E ? first + lane : E - 1;
        const uint32_t begin = offsets[e], end = first + lane < E ? offsets[e + 1] : begin;
        const uint32_t tiles = (end - begin + side - 1) / side * columns;
        uint32_t sum = tiles;

#pragma unroll
        for (unsigned lanes = 1; lanes < MICS_WARP; lanes *= 2) {
            const uint32_t other = __shfl_up_sync(MICS_WHOLE_WARP, sum, lanes);

            if (lane >= lanes)
                sum += other;
        }
        const unsigned found = __ballot_sync(MICS_WHOLE_WARP, blockIdx.x < before + sum);
        if (found == 0) {
            before += __shfl_sync(MICS_WHOLE_WARP, sum, MICS_WARP - 1);
            continue;
        }
        const int from = __ffs((int)found) - 1;
        const uint32_t here = blockIdx.x - before - __shfl_sync(MICS_WHOLE_WARP, sum - tiles, from);
        const uint32_t panel = here / (PANEL * columns), in_panel = here % (PANEL * columns);
        out.expert = first + (uint32_t)from;
        out.begin = __shfl_sync(MICS_WHOLE_WARP, begin, from);
        out.end = __shfl_sync(MICS_WHOLE_WARP, end, from);
        const uint32_t deep = (out.end - out.begin + side - 1) / side - panel * PANEL;
        const uint32_t rows = deep < PANEL ? deep : PANEL;
        out.row = panel * PANEL + in_panel % rows;
        out.column = in_panel / rows;
        return true;
    }
    return false;
}

/* The tile of this block of a gradient, of down x across for each expert. */
__device__ __forceinline__ tile grad_tile(const uint32_t *offsets, uint32_t down, uint32_t across)
{
    const uint32_t e = blockIdx.x / (down * across), in = blockIdx.x % (down * across);

    return {e, offsets[e], offsets[e + 1], in / across, in % across};
}

/* An operand of a block's product: MMA_SIDE rows along k, or with `by_k` rows of MMA_SIDE numbers
 * for each k; `count` of the MMA_SIDE exist. */
struct operand {
    const mics_half *at;
    size_t stride;
    uint32_t count;
};

__device__ __forceinline__ operand operand_of(const void *from, size_t element, size_t stride,
                                              uint32_t count)
{
    return {(const mics_half *)from + element, stride, count < MMA_SIDE ? count : MMA_SIDE};
}

/* Begin to copy the part of an operand for k in [first, first + MMA_K). */
template <bool by_k>
__device__ __forceinline__ void fetch(mics_shared_at to, const operand &from, uint32_t first,
                                      uint32_t depth)
{
    const uint32_t left = depth - first < MMA_K ? depth - first : MMA_K;

    if (by_k)
        mics_tile_load<MMA_SIDE, MMA_K, THREADS>(to, {from.at, from.stride, depth, from.count / 8},
                                                 first);
    else
        mics_tile_load<MMA_K, MMA_SIDE, THREADS>(
            to, {from.at + first, from.stride, from.count, left / 8}, 0);
}

/* The products of 16 numbers of k, k being their block in the tiles. `row` and `column`: of the
 * warp, in tiles of MMA_SIDE. */
template <typename T, bool a_by_k, bool b_by_k>
__device__ __forceinline__ void multiply_step(float (&sum)[MMA_M][MMA_N][4], mics_shared_at a_tile,
                                              mics_shared_at b_tile, unsigned k, unsigned row,
                                              unsigned column)
{
    constexpr unsigned k_row = MMA_K * 2, side_row = MMA_SIDE * 2; /* bytes */
    const struct mics_lane along = mics_lane_in_tile<MMA_K>();
    const struct mics_lane across = mics_lane_in_tile<MMA_SIDE>();
    uint32_t a[MMA_M][4];

#pragma unroll
    for (unsigned m = 0; m < MMA_M; m++)
        if (a_by_k)
            mics_ldmatrix_trans(a[m], ((a_tile + across.deep) ^ ((row / 16 + m) << 5)) +
                                          k * 16 * side_row);
        else
            mics_ldmatrix(a[m], ((a_tile + along.wide) ^ (k << 5)) + (row + m * 16) * k_row);
#pragma unroll
    for (unsigned n = 0; n < MMA_N / 2; n++) {
        uint32_t b[4];

        if (b_by_k)
            mics_ldmatrix_trans(b, ((b_tile + across.wide) ^ ((column / 16 + n) << 5)) +
                                       k * 16 * side_row);
        else
            mics_ldmatrix(b, ((b_tile + along.deep) ^ (k << 5)) + (column + n * 16) * k_row);
#pragma unroll
        for (unsigned m = 0; m < MMA_M; m++) {
            mics_mma<T>(sum[m][2 * n], a[m], b[0], b[1]);
            mics_mma<T>(sum[m][2 * n + 1], a[m], b[2], b[3]);
        }
    }
}

/* sum = a b over k < depth; while a part is multiplied the next one is copied. */
template <typename T, bool a_by_k, bool b_by_k>
__device__ __forceinline__ void multiply(float (&sum)[MMA_M][MMA_N][4], mics_shared_at memory,
                                         const operand &a, const operand &b, uint32_t depth,
                                         unsigned row, unsigned column)
{
#pragma unroll
    for (int m = 0; m < MMA_M; m++)
#pragma unroll
        for (int n = 0; n < MMA_N; n++)
            sum[m][n][0] = sum[m][n][1] = sum[m][n][2] = sum[m][n][3] = 0;
    for (uint32_t first = 0, j = 0; first < depth + MMA_K; first += MMA_K, j++) {
        const mics_shared_at next = memory + j % 2 * STAGE_BYTES;
        const mics_shared_at now = memory + (j + 1) % 2 * STAGE_BYTES;

        mics_copy_wait<0>();
        __syncthreads();
        if (first < depth) {
            fetch<a_by_k>(next, a, first, depth);
            fetch<b_by_k>(next + OPERAND_BYTES, b, first, depth);
            mics_copy_commit();
        }
#pragma unroll
        for (unsigned k = 0; k < MMA_K / 16; k++)
            if (j > 0)
                multiply_step<T, a_by_k, b_by_k>(sum, now, now + OPERAND_BYTES, k, row, column);
    }
}

/* Two neighbouring numbers of the result, which are added to what is there, or not. */
template <typename G>
__device__ __forceinline__ void store_pair(G *to, float low, float high, bool add)
{
    float x[2] = {low, high}, old[2];

    if (add) {
        mics_load<G, 2>(to, old);
        x[0] += old[0];
        x[1] += old[1];
    }
    mics_store<G, 2>(to, x);
}

/* Store a warp's part of a tile at `to`, of which rows x columns exist. */
template <typename G>
__device__ __forceinline__ void store_tile(G *to, size_t stride, uint32_t rows, uint32_t columns,
                                           const float (&sum)[MMA_M][MMA_N][4], unsigned row,
                                           unsigned column, bool add)
{
#pragma unroll
    for (int m = 0; m < MMA_M; m++)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const unsigned r = row + mics_row_of(m, i);

#pragma unroll
            for (int n = 0; n < MMA_N; n++) {
                const unsigned c = column + (unsigned)n * 8 + mics_lane_column();

                if (r < rows && c < columns)
                    store_pair(to + r * stride + c, sum[m][n][i], sum[m][n][i + 1], add);
            }
        }
}

/* The part of a tile that belongs to this warp. */
__device__ __forceinline__ unsigned warp_row(void)
{
    return threadIdx.x / MICS_WARP / 2 * (MMA_M * 16);
}

__device__ __forceinline__ unsigned warp_column(void)
{
    return threadIdx.x / MICS_WARP % 2 * (MMA_N * 8);
}

template <bool trans_b, typename T>
__global__ void __launch_bounds__(THREADS, 2)
    grouped_mma_kernel(struct mics_args_grouped_matmul args, uint32_t columns)
{
    MICS_DYNAMIC_SHARED(unsigned char, memory);
    const unsigned row = warp_row(), column = warp_column();
    float sum[MMA_M][MMA_N][4];
    tile it;

    if (!find_tile(args.offsets, args.E, MMA_SIDE, columns, it))
        return;
    const uint32_t first = it.begin + it.row * MMA_SIDE, n = it.column * MMA_SIDE;
    const operand a = operand_of(args.a, (size_t)first * args.k, args.k, it.end - first);
    const operand b =
        operand_of(args.b, it.expert * args.stride + (trans_b ? (size_t)n * args.k : n),
                   trans_b ? args.k : args.n, args.n - n);
    multiply<T, false, !trans_b>(sum, mics_shared(memory), a, b, args.k, row, column);
    store_tile((T *)args.out + (size_t)first * args.n + n, args.n, a.count, b.count, sum, row,
               column, false);
}

template <typename T, typename G>
__global__ void __launch_bounds__(THREADS, 2)
    grouped_grad_mma_kernel(struct mics_args_grouped_matmul_grad args, uint32_t down,
                            uint32_t across)
{
    MICS_DYNAMIC_SHARED(unsigned char, memory);
    const unsigned row = warp_row(), column = warp_column();
    const tile it = grad_tile(args.offsets, down, across);
    const uint32_t m = it.row * MMA_SIDE, n = it.column * MMA_SIDE;
    const operand a = operand_of(args.a, (size_t)it.begin * args.m + m, args.m, args.m - m);
    const operand b = operand_of(args.b, (size_t)it.begin * args.n + n, args.n, args.n - n);
    float sum[MMA_M][MMA_N][4];

    if (args.add && it.begin == it.end)
        return;
    multiply<T, true, true>(sum, mics_shared(memory), a, b, it.end - it.begin, row, column);
    store_tile((G *)args.out + it.expert * args.stride + (size_t)m * args.n + n, args.n, a.count,
               b.count, sum, row, column, args.add);
}

/*
 * One element at a time: any size and type.
 */

/* Element (i, k) of an operand is at i * step + k * step_k, of which `count` i exist. */
template <typename T> struct plain_operand {
    const T *at;
    size_t step, step_k;
    uint32_t count;
};

/* to[k][i] for k in [first, first + PLAIN_K); `by_k`: neighbours are those with another i. */
template <bool by_k, typename T>
__device__ __forceinline__ void plain_load(float (&to)[PLAIN_K][PLAIN_SIDE + 1],
                                           const plain_operand<T> &from, uint32_t first,
                                           uint32_t depth)
{
#pragma unroll
    for (unsigned j = threadIdx.x; j < PLAIN_K * PLAIN_SIDE; j += THREADS) {
        const unsigned i = by_k ? j % PLAIN_SIDE : j / PLAIN_K;
        const unsigned k = by_k ? j / PLAIN_SIDE : j % PLAIN_K;
        float x[1] = {0};

        if (i < from.count && first + k < depth)
            mics_load<T, 1>(from.at + i * from.step + (first + k) * from.step_k, x);
        to[k][i] = x[0];
    }
}

template <bool a_by_k, bool b_by_k, typename T, typename G>
__device__ __forceinline__ void plain_product(G *to, size_t stride, const plain_operand<T> &a,
                                              const plain_operand<T> &b, uint32_t depth, bool add)
{
    MICS_SHARED(float, of_a, [PLAIN_K][PLAIN_SIDE + 1]);
    MICS_SHARED(float, of_b, [PLAIN_K][PLAIN_SIDE + 1]);
    const unsigned row = threadIdx.x / (PLAIN_SIDE / PLAIN_PART);
    const unsigned column = threadIdx.x % (PLAIN_SIDE / PLAIN_PART);
    float sum[PLAIN_PART][PLAIN_PART] = {}, old[1];

    for (uint32_t first = 0; first < depth; first += PLAIN_K) {
        __syncthreads();
        plain_load<a_by_k, T>(of_a, a, first, depth);
        plain_load<b_by_k, T>(of_b, b, first, depth);
        __syncthreads();
#pragma unroll
        for (unsigned k = 0; k < PLAIN_K; k++)
#pragma unroll
            for (unsigned i = 0; i < PLAIN_PART; i++)
#pragma unroll
                for (unsigned j = 0; j < PLAIN_PART; j++)
                    sum[i][j] += of_a[k][i * (PLAIN_SIDE / PLAIN_PART) + row] *
                                 of_b[k][j * (PLAIN_SIDE / PLAIN_PART) + column];
    }
#pragma unroll
    for (unsigned i = 0; i < PLAIN_PART; i++)
#pragma unroll
        for (unsigned j = 0; j < PLAIN_PART; j++) {
            const unsigned r = i * (PLAIN_SIDE / PLAIN_PART) + row;
            const unsigned c = j * (PLAIN_SIDE / PLAIN_PART) + column;
            float x[1] = {sum[i][j]};

            if (r >= a.count || c >= b.count)
                continue;
            if (add) {
                mics_load<G, 1>(to + r * stride + c, old);
                x[0] += old[0];
            }
            mics_store<G, 1>(to + r * stride + c, x);
        }
}

template <bool trans_b, typename T>
__global__ void __launch_bounds__(THREADS)
    grouped_plain_kernel(struct mics_args_grouped_matmul args, uint32_t columns)
{
    tile it;

    if (!find_tile(args.offsets, args.E, PLAIN_SIDE, columns, it))
        return;
    const uint32_t first = it.begin + it.row * PLAIN_SIDE, n = it.column * PLAIN_SIDE;
    const T *b = (const T *)args.b + it.expert * args.stride;
    const plain_operand<T> of_a = {(const T *)args.a + (size_t)first * args.k, args.k, 1,
                                   it.end - first};
    const plain_operand<T> of_b = {trans_b ? b + (size_t)n * args.k : b + n, trans_b ? args.k : 1,
                                   trans_b ? 1 : args.n, args.n - n};
    plain_product<false, !trans_b>((T *)args.out + (size_t)first * args.n + n, args.n, of_a, of_b,
                                   args.k, false);
}

template <typename T, typename G>
__global__ void __launch_bounds__(THREADS)
    grouped_grad_plain_kernel(struct mics_args_grouped_matmul_grad args, uint32_t down,
                              uint32_t across)
{
    const tile it = grad_tile(args.offsets, down, across);
    const uint32_t m = it.row * PLAIN_SIDE, n = it.column * PLAIN_SIDE;
    const plain_operand<T> a = {(const T *)args.a + (size_t)it.begin * args.m + m, 1, args.m,
                                args.m - m};
    const plain_operand<T> b = {(const T *)args.b + (size_t)it.begin * args.n + n, 1, args.n,
                                args.n - n};

    if (args.add && it.begin == it.end)
        return;
    plain_product<true, true>((G *)args.out + it.expert * args.stride + (size_t)m * args.n + n,
                              args.n, a, b, it.end - it.begin, args.add);
}

uint32_t tiles_of(uint32_t count, uint32_t side)
{
    return (count + side - 1) / side;
}

/* Launch with a block for each of `blocks` tiles. */
template <typename Kernel, typename... Args>
cudaError_t launch(const struct mics_cuda_at *at, Kernel *kernel, uint64_t blocks, unsigned shared,
                   const Args &...args)
{
    cudaError_t error = cudaSuccess;

    if (blocks > 0x7fffffff)
        return cudaErrorInvalidValue;
    if (shared > 0)
        error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (error != cudaSuccess)
        return error;
    return MICS_LAUNCH(kernel, (unsigned)blocks, THREADS, shared, at->stream, args...);
}

template <typename T>
cudaError_t launch_rows(const struct mics_cuda_at *at, const struct mics_args_grouped_matmul *args)
{
    const bool tensor = sizeof(T) == 2 && args->n % 8 == 0 && args->k % 8 == 0 &&
                        mics_aligned(16, args->a, args->b) && args->k > 0;
    const uint32_t side = tensor ? MMA_SIDE : PLAIN_SIDE;
    const uint32_t columns = tiles_of(args->n, side);
    const uint64_t blocks = ((uint64_t)args->rows / side + args->E) * columns;

    if constexpr (sizeof(T) == 2)
        if (tensor)
            return args->trans_b ? launch(at, grouped_mma_kernel<true, T>, blocks, SHARED_BYTES,
                                          *args, columns)
                                 : launch(at, grouped_mma_kernel<false, T>, blocks, SHARED_BYTES,
                                          *args, columns);
    return args->trans_b ? launch(at, grouped_plain_kernel<true, T>, blocks, 0, *args, columns)
                         : launch(at, grouped_plain_kernel<false, T>, blocks, 0, *args, columns);
}

template <typename T, typename G>
cudaError_t launch_grad(const struct mics_cuda_at *at,
                        const struct mics_args_grouped_matmul_grad *args)
{
    const bool tensor = sizeof(T) == 2 && args->m % 8 == 0 && args->n % 8 == 0 &&
                        mics_aligned(16, args->a, args->b);
    const uint32_t side = tensor ? MMA_SIDE : PLAIN_SIDE;
    const uint32_t down = tiles_of(args->m, side), across = tiles_of(args->n, side);
    const uint64_t blocks = (uint64_t)args->E * down * across;

    if (blocks == 0)
        return cudaSuccess;
    if constexpr (sizeof(T) == 2)
        if (tensor)
            return launch(at, grouped_grad_mma_kernel<T, G>, blocks, SHARED_BYTES, *args, down,
                          across);
    return launch(at, grouped_grad_plain_kernel<T, G>, blocks, 0, *args, down, across);
}

} // namespace

cudaError_t mics_cuda_grouped_matmul(const struct mics_cuda_at *at,
                                     const struct mics_args_grouped_matmul *args)
{
    if (args->rows == 0 || args->n == 0)
        return cudaSuccess;
    return mics_launch_typed(args->dtype,
                             [&](auto t) { return launch_rows<decltype(t)>(at, args); });
}

cudaError_t mics_cuda_grouped_matmul_grad(const struct mics_cuda_at *at,
                                          const struct mics_args_grouped_matmul_grad *args)
{
    return mics_launch_typed(args->dtype, args->grad_dtype, [&](auto t, auto g) {
        return launch_grad<decltype(t), decltype(g)>(at, args);
    });
}
