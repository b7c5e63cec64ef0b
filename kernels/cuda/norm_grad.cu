/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_grad.cu - gradients of norms.
 *
 * The gradients of weights and biases are sums over rows, in two stages (columns.cuh).
 */
#include "cuda/columns.cuh"
#include "cuda/gpu.h"
#include "cuda/kernels.h"
#include "cuda/rows.cuh"
#include "cuda/tensor.cuh"
#include "cuda/vector.cuh"

/*
 * The gradients of norms for rows of any length and alignment; and what both implementations share.
 *
 * A block takes every so many-th row, element by element, and reads it twice: for the means and
 * for grad_in. It accumulates the sums of columns in the workspace. 24 bytes (fp32) or 20
 * (16 bits) per element, some of it out of caches.
 */

/* Arguments of both norms; mean and grad_bias are NULL for the root mean square. */
struct norm_grad {
    void *grad_in, *grad_weight, *grad_bias;
    const void *grad_out, *in, *weight;
    const float *mean, *rstd;
    uint32_t rows, C;
    enum mics_dtype dtype, grad_dtype;
    float *partials; /* [blocks, CENTRED ? 2 : 1, C] */
    float share;     /* 1 / C */
};

struct norm_row {
    float mean, rstd;
};

/* The statistics of a row; undefined for a row beyond the last. */
template <bool CENTRED>
__device__ __forceinline__ struct norm_row norm_row_of(const struct norm_grad &args, uint32_t row)
{
    struct norm_row of = {0, 0};

    if (row >= args.rows)
        return of;
    if (CENTRED)
        of.mean = args.mean[row];
    of.rstd = args.rstd[row];
    return of;
}

/* One element. */
template <typename T> __device__ __forceinline__ float norm_element(const void *p, size_t at)
{
    float x[1];

    mics_load<T, 1>((const T *)p + at, x);
    return x[0];
}

/* grad_in of a row, which begins at element `begin`, and its part of the sums. */
template <typename T, bool CENTRED>
__device__ __forceinline__ void norm_grad_plain_write(const struct norm_grad &args, size_t begin,
                                                      const struct norm_row &row,
                                                      const float (&means)[2], float *sums)
{
    for (uint32_t c = threadIdx.x; c < args.C; c += blockDim.x) {
        const float g = norm_element<T>(args.grad_out, begin + c);
        const float normed = (norm_element<T>(args.in, begin + c) - row.mean) * row.rstd;
        const float scaled = g * norm_element<T>(args.weight, c);
        float to[1] = {norm_element<T>(args.grad_in, begin + c)};

        to[0] += row.rstd * (scaled - (CENTRED ? means[1] : 0.0f) - normed * means[0]);
        mics_store<T, 1>((T *)args.grad_in + begin + c, to);
        sums[c] += g * normed;
        if (CENTRED)
            sums[args.C + c] += g;
    }
}

/* One block: every gridDim.x-th row. */
template <typename T, bool CENTRED>
__global__ void __launch_bounds__(1024) norm_grad_plain_kernel(struct norm_grad args)
{
    MICS_SHARED(float, shared, [2][2 * MICS_WARPS_MAX]);
    const size_t count = (size_t)args.C * (CENTRED ? 2 : 1);
    float *sums = args.partials + blockIdx.x * count;
    unsigned parity = 0;

    for (uint32_t c = threadIdx.x; c < args.C; c += blockDim.x) {
        sums[c] = 0;
        if (CENTRED)
            sums[args.C + c] = 0;
    }
    for (uint32_t row = blockIdx.x; row < args.rows; row += gridDim.x, parity ^= 1) {
        const struct norm_row of = norm_row_of<CENTRED>(args, row);
        const size_t begin = (size_t)row * args.C;
        float means[2] = {0, 0};

        for (uint32_t c = threadIdx.x; c < args.C; c += blockDim.x) {
            const float normed = (norm_element<T>(args.in, begin + c) - of.mean) * of.rstd;
            const float scaled =
                norm_element<T>(args.grad_out, begin + c) * norm_element<T>(args.weight, c);

            means[0] += scaled * normed;
            means[1] += scaled;
        }
        mics_team_sum<2>(means, shared[parity]);
        means[0] *= args.share;
        means[1] *= args.share;
        norm_grad_plain_write<T, CENTRED>(args, begin, of, means, sums);
    }
}

/* Blocks of the first stage: so many for each multiprocessor, as far as rows (`teams` in a block)
 * and workspace go; 0: not even one. */
static inline unsigned norm_grad_blocks(const struct mics_cuda_at *at, const struct norm_grad &args,
                                        unsigned teams, unsigned for_each)
{
    const size_t bytes = (size_t)args.C * (args.grad_bias ? 2 : 1) * sizeof(float);
    const size_t most = ((size_t)args.rows + teams - 1) / teams;
    size_t blocks = (size_t)at->multiprocessors * for_each;

    blocks = blocks < most ? blocks : most;
    return (unsigned)(blocks * bytes <= MICS_CUDA_WORKSPACE_BYTES
                          ? blocks
                          : MICS_CUDA_WORKSPACE_BYTES / bytes);
}

/* The second stage. */
template <bool CENTRED>
static inline cudaError_t norm_grad_finish(const struct mics_cuda_at *at,
                                           const struct norm_grad &args, unsigned blocks)
{
    const struct mics_columns columns = {
        args.partials, args.grad_weight, args.grad_bias, blocks, CENTRED ? 2 * args.C : args.C,
        args.C};

    return mics_columns_launch(at->stream, &columns, args.grad_dtype);
}

/* The fallback of norm_grad_launch(), which documents when it is used. */
template <typename T, bool CENTRED>
static cudaError_t norm_grad_plain_launch(const struct mics_cuda_at *at,
                                          const struct norm_grad &args)
{
    const unsigned threads = mics_rows_threads(args.C);
    const unsigned blocks = norm_grad_blocks(at, args, 1, 1024 / threads);
    cudaError_t error;

    if (blocks == 0)
        return cudaErrorInvalidValue;
    error = MICS_LAUNCH((norm_grad_plain_kernel<T, CENTRED>), blocks, threads, 0, at->stream, args);
    return error != cudaSuccess ? error : norm_grad_finish<CENTRED>(at, args, blocks);
}

/*
 * The gradients of layer normalisation, and of root-mean-square normalisation as the same without
 * mean and bias.
 *
 * Blocks stride over the rows. A team takes the means over a row of w g and of w g x', where x' is
 * the normalised input, and adds rstd (w g - mean(w g) - x' mean(w g x')) to grad_in. Each thread
 * keeps the sums of g x' and of g of its 16 bytes of columns in registers; at the end those of a
 * block's teams are added in order and written to the workspace, and mics_columns_launch() adds up
 * the blocks'.
 *
 * Rows arrive in shared memory by asynchronous copies, two rows ahead; a thread reads
 * only what it copied itself, so no barrier is needed. Rows that do not have 16
 * bytes for each of up to 1,024 threads, or are not aligned to that, go through
 * norm_grad_plain_kernel().
 */

#define NORM_GRAD_BLOCK   256         /* threads of a block of several teams, about */
#define NORM_GRAD_THREADS 1024        /* of a multiprocessor, and the widest team */
#define NORM_GRAD_DEPTH   3           /* rows in shared memory */
#define NORM_GRAD_ALWAYS  (47u << 10) /* bytes of shared memory that every device has for them */

/* What a thread has of a row in shared memory; the next thread's follows it, so that the
 * threads of a quarter warp reach all banks. */
struct norm_grad_slot {
    uint4 in, grad_out, grad_in;
};

/* Begin to copy this thread's piece of a row, at element `at` of the tensors. */
template <typename T>
__device__ __forceinline__ void norm_grad_fetch(const struct norm_grad &args, size_t at, bool valid,
                                                struct norm_grad_slot *slot)
{
    if (valid) {
        mics_copy_async(mics_shared(&slot->in), (const T *)args.in + at);
        mics_copy_async(mics_shared(&slot->grad_out), (const T *)args.grad_out + at);
        mics_copy_async(mics_shared(&slot->grad_in), (const T *)args.grad_in + at);
    }
    mics_copy_commit();
}

/* A thread's piece of a row: x' and w g. */
template <int W> struct norm_grad_piece {
    float normed[W], scaled[W];
};

/* Sums of g x' and of g. */
template <int W> struct norm_grad_sums {
    float weight[W], bias[W];
};

/* means[0]: the sum of w g x'; means[1]: of w g. */
template <typename T, int W>
__device__ __forceinline__ void
norm_grad_take(const struct norm_grad_slot &slot, const mics_packed<T, W> &weight,
               const struct norm_row &row, norm_grad_piece<W> &piece, norm_grad_sums<W> &sums,
               float (&means)[2])
{
    const float shift = -row.mean * row.rstd;
    mics_packed<T, W> in;
    float g[W];

    in.all = slot.in;
    mics_widen<T, W>(in, piece.normed);
    in.all = slot.grad_out;
    mics_widen<T, W>(in, g);
    mics_widen<T, W>(weight, piece.scaled);
#pragma unroll
    for (int i = 0; i < W; i++) {
        piece.normed[i] = fmaf(piece.normed[i], row.rstd, shift);
        piece.scaled[i] *= g[i];
        sums.weight[i] = fmaf(g[i], piece.normed[i], sums.weight[i]);
        sums.bias[i] += g[i];
        means[0] = fmaf(piece.scaled[i], piece.normed[i], means[0]);
        means[1] += piece.scaled[i];
    }
}

/* The team's sums of both, or of the first, which is all that the root mean square needs. */
template <bool CENTRED>
__device__ __forceinline__ void norm_grad_team(float (&means)[2], float *shared)
{
    float first[1] = {means[0]};

    if (CENTRED) {
        mics_team_sum_pair(means, shared);
        return;
    }
    mics_team_sum<1>(first, shared);
    means[0] = first[0];
}

/* grad_in of one piece, at element `at`. */
template <typename T, int W, bool CENTRED>
__device__ __forceinline__ void
norm_grad_write(const struct norm_grad &args, size_t at, const struct norm_grad_slot &slot,
                float rstd, const norm_grad_piece<W> &piece, const float (&means)[2])
{
    const float slope = rstd * (means[0] * args.share);
    const float shift = CENTRED ? rstd * (means[1] * args.share) : 0.0f;
    mics_packed<T, W> in;
    float to[W];

    in.all = slot.grad_in;
    mics_widen<T, W>(in, to);
#pragma unroll
    for (int i = 0; i < W; i++)
        to[i] += fmaf(rstd, piece.scaled[i], -fmaf(slope, piece.normed[i], shift));
    mics_store<T, W>((T *)args.grad_in + at, to);
}

/* Add the sums of the block's teams in order; the first team has them then. `shared` has 2 W floats
 * for each thread of a team. */
template <int W>
__device__ __forceinline__ void norm_grad_combine(norm_grad_sums<W> &sums, float *shared)
{
    for (unsigned team = 1; team < blockDim.y; team++) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < W; i++)
            if (threadIdx.y == team) {
                shared[i * blockDim.x + threadIdx.x] = sums.weight[i];
                shared[(W + i) * blockDim.x + threadIdx.x] = sums.bias[i];
            }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < W; i++)
            if (threadIdx.y == 0) {
                sums.weight[i] += shared[i * blockDim.x + threadIdx.x];
                sums.bias[i] += shared[(W + i) * blockDim.x + threadIdx.x];
            }
    }
}

/* The first team writes the block's sums. */
template <int W, bool CENTRED>
__device__ __forceinline__ void norm_grad_partials(const struct norm_grad &args,
                                                   const norm_grad_sums<W> &sums)
{
    float *to = args.partials + (size_t)blockIdx.x * args.C * (CENTRED ? 2 : 1) + threadIdx.x * W;

    if (threadIdx.y > 0 || threadIdx.x * W >= args.C)
        return;
    mics_store<float, W>(to, sums.weight);
    if (CENTRED)
        mics_store<float, W>(to + args.C, sums.bias);
}

/* One block: every gridDim.x-th run of blockDim.y rows. */
template <typename T, bool CENTRED>
__global__ void __launch_bounds__(NORM_GRAD_THREADS) norm_grad_kernel(struct norm_grad args)
{
    MICS_DYNAMIC_SHARED(struct norm_grad_slot, slots);
    MICS_SHARED(float, shared, [2][2 * MICS_WARPS_MAX]);
    constexpr int W = mics_width<T>::value;
    const uint32_t c = threadIdx.x * W, stride = gridDim.x * blockDim.y;
    const uint32_t rows = c < args.C ? args.rows : 0; /* that this thread has columns of */
    const unsigned threads = blockDim.x * blockDim.y;
    struct norm_grad_slot *const mine = slots + threadIdx.y * blockDim.x + threadIdx.x;
    uint32_t first = blockIdx.x * blockDim.y, row = first + threadIdx.y;
    struct norm_row now = norm_row_of<CENTRED>(args, row);
    mics_packed<T, W> weight = {};
    norm_grad_sums<W> sums = {};
    unsigned slot = 0, before = NORM_GRAD_DEPTH - 1, parity = 0;

    if (rows > 0)
        weight = mics_read<T, W>((const T *)args.weight + c);
#pragma unroll
    for (unsigned d = 0; d < NORM_GRAD_DEPTH - 1; d++)
        norm_grad_fetch<T>(args, (size_t)(row + d * stride) * args.C + c, row + d * stride < rows,
                           mine + d * threads);
    for (; first < args.rows; first += stride, row += stride) {
        const uint32_t ahead = row + (NORM_GRAD_DEPTH - 1) * stride;
        norm_grad_piece<W> piece;
        float means[2] = {0, 0};

        norm_grad_fetch<T>(args, (size_t)ahead * args.C + c, ahead < rows, mine + before * threads);
        const struct norm_row next = norm_row_of<CENTRED>(args, row + stride);
        mics_copy_wait<NORM_GRAD_DEPTH - 1>();
        if (row < rows)
            norm_grad_take<T, W>(mine[slot * threads], weight, now, piece, sums, means);
        norm_grad_team<CENTRED>(means, shared[parity]);
        if (row < rows)
            norm_grad_write<T, W, CENTRED>(args, (size_t)row * args.C + c, mine[slot * threads],
                                           now.rstd, piece, means);
        now = next;
        parity ^= 1;
        before = slot;
        slot = slot == NORM_GRAD_DEPTH - 1 ? 0 : slot + 1;
    }
    norm_grad_combine<W>(sums, (float *)slots);
    norm_grad_partials<W, CENTRED>(args, sums);
}

/* Bytes of dynamic shared memory: of the rows, of which there is always more than of the sums of a
 * team. */
static inline size_t norm_grad_bytes(const struct mics_row_teams &rows)
{
    return (size_t)rows.team * rows.teams * NORM_GRAD_DEPTH * sizeof(struct norm_grad_slot);
}

/* Whether the device supports that much per block. The requested limit is the same for all row
 * lengths, because another thread may request it at the same time. */
template <typename T, bool CENTRED> static bool norm_grad_fits(size_t bytes)
{
    const int most = NORM_GRAD_THREADS * NORM_GRAD_DEPTH * (int)sizeof(struct norm_grad_slot);

    if (cudaFuncSetAttribute(norm_grad_kernel<T, CENTRED>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, most) == cudaSuccess &&
        cudaFuncSetAttribute(norm_grad_kernel<T, CENTRED>,
                             cudaFuncAttributePreferredSharedMemoryCarveout, 100) == cudaSuccess)
        return true;
    (void)cudaGetLastError();
    return bytes <= NORM_GRAD_ALWAYS;
}

/* T is the type of the tensors. cudaErrorInvalidValue: there are 2^31 rows or more, or the
 * workspace is too small for the sums of a row. */
template <typename T, bool CENTRED>
static cudaError_t norm_grad_launch(const struct mics_cuda_at *at, const struct norm_grad &args)
{
    constexpr int W = mics_width<T>::value;
    const struct mics_row_teams rows =
        mics_rows_share(args.C, W, 1, NORM_GRAD_BLOCK, NORM_GRAD_THREADS);
    const size_t bytes = norm_grad_bytes(rows);
    cudaError_t error;

    if (args.rows == 0 || args.C == 0)
        return cudaSuccess;
    if (args.rows > 0x7fffffff)
        return cudaErrorInvalidValue;
    if (rows.team == 0 || args.C % W != 0 ||
        !mics_aligned(16, args.grad_in, args.grad_out, args.in, args.weight) ||
        !norm_grad_fits<T, CENTRED>(bytes))
        return norm_grad_plain_launch<T, CENTRED>(at, args);
    const unsigned blocks =
        norm_grad_blocks(at, args, rows.teams, NORM_GRAD_THREADS / (rows.team * rows.teams));
    if (blocks == 0)
        return cudaErrorInvalidValue;
    error = MICS_LAUNCH((norm_grad_kernel<T, CENTRED>), blocks, dim3(rows.team, rows.teams), bytes,
                        at->stream, args);
    return error != cudaSuccess ? error : norm_grad_finish<CENTRED>(at, args, blocks);
}

/*
 * The gradients of layer normalisation.
 *
 * Blocks stride over the rows. 16 bytes (fp32) or 8 (16 bits) and about
 * 20 flops per element: bound by memory. Within 1e-5 of the host, of sums relative to their terms'
 * magnitudes; 16 bits round each result once. Equal runs give equal bits.
 */

cudaError_t mics_cuda_layernorm_grad(const struct mics_cuda_at *at,
                                     const struct mics_args_layernorm_grad *args)
{
    const struct norm_grad grad = {args->grad_in,
                                   args->grad_weight,
                                   args->grad_bias,
                                   args->grad_out,
                                   args->in,
                                   args->weight,
                                   args->mean,
                                   args->rstd,
                                   args->rows,
                                   args->C,
                                   args->dtype,
                                   args->grad_dtype,
                                   (float *)at->workspace,
                                   1.0f / (float)args->C};

    return mics_launch_typed(args->dtype,
                             [&](auto t) { return norm_grad_launch<decltype(t), true>(at, grad); });
}

/*
 * The gradients of root-mean-square normalisation.
 *
 * Blocks stride over the rows. 16 bytes (fp32) or 8 (16 bits) and about
 * 15 flops per element: bound by memory. Within 1e-5 of the host, of sums relative to their terms'
 * magnitudes; 16 bits round each result once. Equal runs give equal bits.
 */

cudaError_t mics_cuda_rmsnorm_grad(const struct mics_cuda_at *at,
                                   const struct mics_args_rmsnorm_grad *args)
{
    const struct norm_grad grad = {args->grad_in,
                                   args->grad_weight,
                                   NULL,
                                   args->grad_out,
                                   args->in,
                                   args->weight,
                                   NULL,
                                   args->rstd,
                                   args->rows,
                                   args->C,
                                   args->dtype,
                                   args->grad_dtype,
                                   (float *)at->workspace,
                                   1.0f / (float)args->C};

    return mics_launch_typed(
        args->dtype, [&](auto t) { return norm_grad_launch<decltype(t), false>(at, grad); });
}

/*
 * The gradients of root-mean-square norms of the heads of queries and keys.
 *
 * A warp has a head at a time, of which each lane holds every 32nd element. Warps stride over the
 * heads of queries, then over those of keys, and replace the gradient of each head's output by that
 * of its input; meanwhile each lane keeps the sums of its channels for the weight, which the warps
 * of a block add in order and mics_columns_launch() over blocks. 12 bytes (fp32) or 6 (16 bits) and
 * about 12 flops per element: bound by memory. Within 2e-5 of the host, of sums relative to their
 * terms' magnitudes; 16 bits round each result once. Equal runs give equal bits.
 */

#define QK_GRAD_WARPS  8 /* of a block */
#define QK_GRAD_PIECES (MICS_HEAD_MAX / MICS_WARP)
#define QK_GRAD_BLOCKS 4 /* for each multiprocessor */

struct qk_grad {
    struct mics_args_qk_norm_grad op;
    float *partials; /* [blocks, 2 D]: queries, then keys */
};

/* One head, from element `begin` of the tensors on; its terms are added to `sums`. */
template <typename T>
__device__ __forceinline__ void qk_grad_head(const struct mics_args_qk_norm_grad &op, size_t begin,
                                             const T *weight, float rstd,
                                             float (&sums)[QK_GRAD_PIECES])
{
    T *grad = (T *)op.grad + begin;
    float normed[QK_GRAD_PIECES], scaled[QK_GRAD_PIECES], x[1], g[1], w[1], mean = 0;

#pragma unroll
    for (int i = 0; i < QK_GRAD_PIECES; i++) {
        const uint32_t c = i * MICS_WARP + threadIdx.x;

        normed[i] = scaled[i] = 0;
        if (c >= op.D)
            continue;
        mics_load<T, 1>((const T *)op.in + begin + c, x);
        mics_load<T, 1>(grad + c, g);
        mics_load<T, 1>(weight + c, w);
        normed[i] = x[0] * rstd;
        scaled[i] = g[0] * w[0];
        sums[i] = fmaf(g[0], normed[i], sums[i]);
        mean = fmaf(scaled[i], normed[i], mean);
    }
    mean = mics_warp_sum(mean) / (float)op.D;
#pragma unroll
    for (int i = 0; i < QK_GRAD_PIECES; i++) {
        const uint32_t c = i * MICS_WARP + threadIdx.x;

        x[0] = rstd * (scaled[i] - normed[i] * mean);
        if (c < op.D)
            mics_store<T, 1>(grad + c, x);
    }
}

/* `heads` heads of each row from head `first` on; their sums go to to[D]. All threads of the block
 * call it. */
template <typename T>
__device__ __forceinline__ void qk_grad_heads(const struct mics_args_qk_norm_grad &op,
                                              uint32_t first, uint32_t heads, const T *weight,
                                              float *to, float (*shared)[MICS_HEAD_MAX])
{
    const uint32_t normed = op.H + op.H_kv;
    const size_t total = (size_t)op.rows * heads, stride = (size_t)gridDim.x * blockDim.y;
    float sums[QK_GRAD_PIECES] = {};

    for (size_t item = (size_t)blockIdx.x * blockDim.y + threadIdx.y; item < total;
         item += stride) {
        const size_t row = item / heads, head = first + item % heads;

        qk_grad_head<T>(op, (row * (normed + op.H_kv) + head) * op.D, weight,
                        op.rstd[row * normed + head], sums);
    }
    __syncthreads(); /* the sums before may still be read */
#pragma unroll
    for (int i = 0; i < QK_GRAD_PIECES; i++)
        shared[threadIdx.y][i * MICS_WARP + threadIdx.x] = sums[i];
    __syncthreads();
    for (uint32_t c = threadIdx.y * MICS_WARP + threadIdx.x; c < op.D;
         c += QK_GRAD_WARPS * MICS_WARP) {
        float sum = 0;

        for (int warp = 0; warp < QK_GRAD_WARPS; warp++)
            sum += shared[warp][c];
        to[c] = sum;
    }
}

template <typename T>
__global__ void __launch_bounds__(QK_GRAD_WARPS *MICS_WARP) qk_grad_kernel(struct qk_grad args)
{
    MICS_SHARED(float, shared, [QK_GRAD_WARPS][MICS_HEAD_MAX]);
    const struct mics_args_qk_norm_grad &op = args.op;
    float *to = args.partials + (size_t)blockIdx.x * 2 * op.D;

    qk_grad_heads<T>(op, 0, op.H, (const T *)op.q_weight, to, shared);
    qk_grad_heads<T>(op, op.H, op.H_kv, (const T *)op.k_weight, to + op.D, shared);
}

/*
 * The same of wide heads: a block has a row at a time, and the heads of a row in order. A thread
 * has every 256th channel, also of the block's sums for the weights, which are in the workspace.
 * 32 bytes (fp32) or 20 (16 bits) per element, most of them from the caches.
 */

#define QK_WIDE_THREADS 256

/* One head, whose terms are added to `to`. */
template <typename T>
__device__ __forceinline__ void qk_wide_head(T *grad, const T *in, const T *weight, uint32_t D,
                                             float rstd, float *to, float *shared)
{
    float x[1], g[1], w[1], mean[1] = {0};

    for (uint32_t c = threadIdx.x; c < D; c += QK_WIDE_THREADS) {
        mics_load<T, 1>(in + c, x);
        mics_load<T, 1>(grad + c, g);
        mics_load<T, 1>(weight + c, w);
        to[c] = fmaf(g[0], x[0] * rstd, to[c]);
        mean[0] = fmaf(g[0] * w[0], x[0] * rstd, mean[0]);
    }
    mics_team_sum<1>(mean, shared);
    mean[0] /= (float)D;
    for (uint32_t c = threadIdx.x; c < D; c += QK_WIDE_THREADS) {
        mics_load<T, 1>(in + c, x);
        mics_load<T, 1>(grad + c, g);
        mics_load<T, 1>(weight + c, w);
        x[0] = rstd * (g[0] * w[0] - x[0] * rstd * mean[0]);
        mics_store<T, 1>(grad + c, x);
    }
}

template <typename T>
__global__ void __launch_bounds__(QK_WIDE_THREADS) qk_grad_wide_kernel(struct qk_grad args)
{
    MICS_SHARED(float, shared, [2][MICS_WARPS_MAX]);
    const struct mics_args_qk_norm_grad &op = args.op;
    const uint32_t normed = op.H + op.H_kv, n = op.D + op.D_kv;
    const size_t width = (size_t)op.H * op.D + 2 * (size_t)op.H_kv * op.D_kv;
    float *to = args.partials + (size_t)blockIdx.x * n;
    unsigned turn = 0;

    for (uint32_t c = threadIdx.x; c < op.D; c += QK_WIDE_THREADS)
        to[c] = 0;
    for (uint32_t c = threadIdx.x; c < op.D_kv; c += QK_WIDE_THREADS)
        to[op.D + c] = 0;
    for (uint32_t row = blockIdx.x; row < op.rows; row += gridDim.x)
        for (uint32_t head = 0; head < normed; head++) {
            const bool query = head < op.H;
            const uint32_t D = query ? op.D : op.D_kv;
            const size_t begin =
                row * width +
                (query ? (size_t)head * D : (size_t)op.H * op.D + (size_t)(head - op.H) * D);

            qk_wide_head<T>((T *)op.grad + begin, (const T *)op.in + begin,
                            (const T *)(query ? op.q_weight : op.k_weight), D,
                            op.rstd[(size_t)row * normed + head], query ? to : to + op.D,
                            shared[turn++ % 2]);
        }
}

static cudaError_t qk_norm_grad_wide(const struct mics_cuda_at *at,
                                     const struct mics_args_qk_norm_grad *args)
{
    const struct qk_grad grad = {*args, (float *)at->workspace};
    const uint64_t n = (uint64_t)args->D + args->D_kv;
    const uint64_t most = n > 0 ? MICS_CUDA_WORKSPACE_BYTES / (n * sizeof(float)) : 0;
    const uint64_t wanted = (uint64_t)at->multiprocessors * QK_GRAD_BLOCKS;
    const unsigned blocks = (unsigned)min((uint64_t)args->rows, min(most, wanted));
    const struct mics_columns columns = {grad.partials, args->grad_q_weight, args->grad_k_weight,
                                         blocks,        (uint32_t)n,         args->D};
    cudaError_t error;

    if (args->rows == 0 || n == 0)
        return cudaSuccess;
    if (blocks == 0)
        return cudaErrorInvalidValue;
    error = mics_launch_typed(args->dtype, [&](auto t) {
        return MICS_LAUNCH(qk_grad_wide_kernel<decltype(t)>, blocks, QK_WIDE_THREADS, 0, at->stream,
                           grad);
    });
    return error != cudaSuccess ? error
                                : mics_columns_launch(at->stream, &columns, args->grad_dtype);
}

cudaError_t mics_cuda_qk_norm_grad(const struct mics_cuda_at *at,
                                   const struct mics_args_qk_norm_grad *args)
{
    const struct qk_grad grad = {*args, (float *)at->workspace};
    const size_t most = ((size_t)args->rows * args->H + QK_GRAD_WARPS - 1) / QK_GRAD_WARPS;
    const size_t wanted = (size_t)at->multiprocessors * QK_GRAD_BLOCKS;
    const unsigned blocks = (unsigned)(most < wanted ? most : wanted);
    const dim3 block(MICS_WARP, QK_GRAD_WARPS);
    const struct mics_columns columns = {grad.partials, args->grad_q_weight, args->grad_k_weight,
                                         blocks,        2 * args->D,         args->D};
    cudaError_t error;

    if (args->D > MICS_HEAD_MAX || args->D_kv != args->D)
        return qk_norm_grad_wide(at, args);
    if (blocks == 0 || args->D == 0)
        return cudaSuccess;
    error = mics_launch_typed(args->dtype, [&](auto t) {
        return MICS_LAUNCH(qk_grad_kernel<decltype(t)>, blocks, block, 0, at->stream, grad);
    });
    return error != cudaSuccess ? error
                                : mics_columns_launch(at->stream, &columns, args->grad_dtype);
}
