/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_grad.cuh - the gradients of layer normalisation, and of root-mean-square normalisation as
 * the same without mean and bias.
 *
 * Blocks stride over the rows. A team takes the means over a row of w g and of w g x', where x' is
 * the normalised input, and adds rstd (w g - mean(w g) - x' mean(w g x')) to grad_in. Each thread
 * keeps the sums of g x' and of g of its 16 bytes of columns in registers; at the end those of a
 * block's teams are added in order and written to the workspace, and columns.cuh adds up the blocks'.
 *
 * Rows arrive in shared memory by copies that go on by themselves, two rows ahead; a thread reads
 * only what it has copied itself, so that nobody waits for anybody else's. Rows that have no 16
 * bytes for each of up to 1,024 threads, or are not aligned to that, go through norm_grad_plain.cuh.
 */
#ifndef MICS_KERNELS_CUDA_NORM_GRAD_CUH
#define MICS_KERNELS_CUDA_NORM_GRAD_CUH

#include "cuda/norm_grad_plain.cuh"
#include "cuda/tensor.cuh"

#define MICS_NORM_GRAD_BLOCK   256  /* threads of a block of several teams, about */
#define MICS_NORM_GRAD_THREADS 1024 /* of a multiprocessor, and the widest team */
#define MICS_NORM_GRAD_DEPTH   3    /* rows in shared memory */
#define MICS_NORM_GRAD_ALWAYS                                                                      \
    (47u << 10) /* bytes of shared memory that every device has for them */

/* What a thread has of a row in shared memory; the next thread's stands behind it, so that the threads
 * of a quarter warp reach all banks. */
struct mics_norm_grad_slot {
    uint4 in, grad_out, grad_in;
};

/* Begin to copy this thread's piece of a row, at element `at` of the tensors. */
template <typename T>
__device__ __forceinline__ void mics_norm_grad_fetch(const struct mics_norm_grad &args, size_t at,
                                                     bool valid, struct mics_norm_grad_slot *slot)
{
    if (valid) {
        mics_copy_async(mics_shared(&slot->in), (const T *)args.in + at);
        mics_copy_async(mics_shared(&slot->grad_out), (const T *)args.grad_out + at);
        mics_copy_async(mics_shared(&slot->grad_in), (const T *)args.grad_in + at);
    }
    mics_copy_commit();
}

/* A thread's piece of a row: x' and w g. */
template <int W> struct mics_norm_grad_piece {
    float normed[W], scaled[W];
};

/* Sums of g x' and of g. */
template <int W> struct mics_norm_grad_sums {
    float weight[W], bias[W];
};

/* means[0]: the sum of w g x'; means[1]: of w g. */
template <typename T, int W>
__device__ __forceinline__ void
mics_norm_grad_take(const struct mics_norm_grad_slot &slot, const mics_packed<T, W> &weight,
                    const struct mics_norm_row &row, mics_norm_grad_piece<W> &piece,
                    mics_norm_grad_sums<W> &sums, float (&means)[2])
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
__device__ __forceinline__ void mics_norm_grad_team(float (&means)[2], float *shared)
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
mics_norm_grad_write(const struct mics_norm_grad &args, size_t at,
                     const struct mics_norm_grad_slot &slot, float rstd,
                     const mics_norm_grad_piece<W> &piece, const float (&means)[2])
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
__device__ __forceinline__ void mics_norm_grad_combine(mics_norm_grad_sums<W> &sums, float *shared)
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
__device__ __forceinline__ void mics_norm_grad_partials(const struct mics_norm_grad &args,
                                                        const mics_norm_grad_sums<W> &sums)
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
__global__ void __launch_bounds__(MICS_NORM_GRAD_THREADS)
    mics_norm_grad_kernel(struct mics_norm_grad args)
{
    MICS_DYNAMIC_SHARED(struct mics_norm_grad_slot, slots);
    MICS_SHARED(float, shared, [2][2 * MICS_WARPS_MAX]);
    constexpr int W = mics_width<T>::value;
    const uint32_t c = threadIdx.x * W, stride = gridDim.x * blockDim.y;
    const uint32_t rows = c < args.C ? args.rows : 0; /* that this thread has columns of */
    const unsigned threads = blockDim.x * blockDim.y;
    struct mics_norm_grad_slot *const mine = slots + threadIdx.y * blockDim.x + threadIdx.x;
    uint32_t first = blockIdx.x * blockDim.y, row = first + threadIdx.y;
    struct mics_norm_row now = mics_norm_row_of<CENTRED>(args, row);
    mics_packed<T, W> weight = {};
    mics_norm_grad_sums<W> sums = {};
    unsigned slot = 0, before = MICS_NORM_GRAD_DEPTH - 1, turn = 0;

    if (rows > 0)
        weight = mics_read<T, W>((const T *)args.weight + c);
#pragma unroll
    for (unsigned d = 0; d < MICS_NORM_GRAD_DEPTH - 1; d++)
        mics_norm_grad_fetch<T>(args, (size_t)(row + d * stride) * args.C + c,
                                row + d * stride < rows, mine + d * threads);
    for (; first < args.rows; first += stride, row += stride) {
        const uint32_t ahead = row + (MICS_NORM_GRAD_DEPTH - 1) * stride;
        mics_norm_grad_piece<W> piece;
        float means[2] = {0, 0};

        mics_norm_grad_fetch<T>(args, (size_t)ahead * args.C + c, ahead < rows,
                                mine + before * threads);
        const struct mics_norm_row next = mics_norm_row_of<CENTRED>(args, row + stride);
        mics_copy_wait<MICS_NORM_GRAD_DEPTH - 1>();
        if (row < rows)
            mics_norm_grad_take<T, W>(mine[slot * threads], weight, now, piece, sums, means);
        mics_norm_grad_team<CENTRED>(means, shared[turn]);
        if (row < rows)
            mics_norm_grad_write<T, W, CENTRED>(args, (size_t)row * args.C + c,
                                                mine[slot * threads], now.rstd, piece, means);
        now = next;
        turn ^= 1;
        before = slot;
        slot = slot == MICS_NORM_GRAD_DEPTH - 1 ? 0 : slot + 1;
    }
    mics_norm_grad_combine<W>(sums, (float *)slots);
    mics_norm_grad_partials<W, CENTRED>(args, sums);
}

/* Bytes of dynamic shared memory: of the rows, of which there is always more than of the sums of a
 * team. */
static inline size_t mics_norm_grad_bytes(const struct mics_rows &rows)
{
    return (size_t)rows.team * rows.teams * MICS_NORM_GRAD_DEPTH *
           sizeof(struct mics_norm_grad_slot);
}

/* Whether the device has that much for a block. What is asked of the device is the same for all rows, since
 * another thread may ask at the same time. */
template <typename T, bool CENTRED> static bool mics_norm_grad_fits(size_t bytes)
{
    const int most =
        MICS_NORM_GRAD_THREADS * MICS_NORM_GRAD_DEPTH * (int)sizeof(struct mics_norm_grad_slot);

    if (cudaFuncSetAttribute(mics_norm_grad_kernel<T, CENTRED>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, most) == cudaSuccess &&
        cudaFuncSetAttribute(mics_norm_grad_kernel<T, CENTRED>,
                             cudaFuncAttributePreferredSharedMemoryCarveout, 100) == cudaSuccess)
        return true;
    (void)cudaGetLastError();
    return bytes <= MICS_NORM_GRAD_ALWAYS;
}

/* T is the type of the tensors. cudaErrorInvalidValue: there are 2^31 rows or more, or the workspace has
 * no room for the sums of a row. */
template <typename T, bool CENTRED>
static cudaError_t mics_norm_grad_launch(const struct mics_cuda_at *at,
                                         const struct mics_norm_grad &args)
{
    constexpr int W = mics_width<T>::value;
    const struct mics_rows rows =
        mics_rows_share(args.C, W, 1, MICS_NORM_GRAD_BLOCK, MICS_NORM_GRAD_THREADS);
    const size_t bytes = mics_norm_grad_bytes(rows);
    cudaError_t error;

    if (args.rows == 0 || args.C == 0)
        return cudaSuccess;
    if (args.rows > 0x7fffffff)
        return cudaErrorInvalidValue;
    if (rows.team == 0 || args.C % W != 0 ||
        !mics_aligned(16, args.grad_in, args.grad_out, args.in, args.weight) ||
        !mics_norm_grad_fits<T, CENTRED>(bytes))
        return mics_norm_grad_plain_launch<T, CENTRED>(at, args);
    const unsigned blocks = mics_norm_grad_blocks(
        at, args, rows.teams, MICS_NORM_GRAD_THREADS / (rows.team * rows.teams));
    if (blocks == 0)
        return cudaErrorInvalidValue;
    error = MICS_LAUNCH((mics_norm_grad_kernel<T, CENTRED>), blocks, dim3(rows.team, rows.teams),
                        bytes, at->stream, args);
    return error != cudaSuccess ? error : mics_norm_grad_finish<CENTRED>(at, args, blocks);
}

#endif
