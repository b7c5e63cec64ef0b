/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cross_entropy.cu - the loss of a chunk of logits, and its gradient in their place.
 *
 * A block takes one row. The part of the row that fits half of a multiprocessor's shared memory is
 * first copied there by asynchronous copies, and is read twice: for the maximum and the sum of
 * exponentials (which is scaled whenever the maximum grows), and for the gradient. So a row is read
 * from and written to device memory once, all of its bytes are in flight together, and while one
 * block of a multiprocessor computes, the other's row arrives. The rest of a longer row is read
 * from device memory, and again from the L2 cache. Rows may begin and end at any element: those
 * before the first and after the last aligned piece are read one by one. The losses of rows are
 * kept in the workspace until one block adds them up in order, in double; behind them whether the
 * target has the largest logit, if that is counted.
 *
 * 8 bytes (fp32) or 4 (16 bits) and two exponentials per element: bound by memory. Loss within 1e-6
 * (in all types: the inputs are the same) relatively, gradients within 1e-6 (fp32) or one unit of
 * the last place of the host. Equal runs give equal bits.
 */
#include "cuda/activation.cuh"
#include "cuda/kernels.h"
#include "cuda/reduce.cuh"
#include "cuda/vector.cuh"

#define THREADS    1024
#define KEPT_BYTES (111 * 1024) /* of a row in shared memory: two fit a multiprocessor of sm_90 */
#define DEPTH      2            /* loads in flight in each thread, of pieces that are not kept */
#define SUM        512          /* threads that add up the losses */

/* The base of the exponentials: e in fp32. In 16 bits it is 2, of logits times log2(e): the scaling
 * and the subtraction of the maximum are one multiply-add, and the power is one instruction. */
template <typename T> struct base {
    static constexpr float unit = sizeof(T) == 4 ? 1.0f : MICS_LOG2_E;

    static __device__ __forceinline__ float power(float exponent)
    {
        return sizeof(T) == 4 ? expf(exponent) : mics_exp2(exponent);
    }

    /* base^(x unit - shift) */
    static __device__ __forceinline__ float raised(float x, float shift)
    {
        return power(sizeof(T) == 4 ? x - shift : fmaf(x, unit, -shift));
    }
};

/* The powers of logits up to now: their sum is `sum` times base^max; max is the largest times
 * unit. */
struct running {
    float max, sum;
};

/* How a row of V elements at any address is read: [0, head) and [tail, V) one by one; of the
 * pieces between them the first `kept` wait in shared memory. */
struct extent {
    uint32_t head, pieces, tail, kept;
};

template <typename T>
__device__ __forceinline__ extent extent_of(const T *row, uint32_t V, uint32_t capacity)
{
    constexpr uint32_t W = mics_width<T>::value;
    const uint32_t before = (uint32_t)((16 - (size_t)row % 16) % 16 / sizeof(T));
    extent it;

    it.head = before < V ? before : V;
    it.pieces = (V - it.head) / W;
    it.tail = it.head + it.pieces * W;
    it.kept = it.pieces < capacity ? it.pieces : capacity;
    return it;
}

/* What is subtracted from exponents: the largest, unless there is nothing but minus infinity. */
__device__ __forceinline__ float shift_of(float max)
{
    return max == -INFINITY ? 0.0f : max;
}

template <typename T, int W> __device__ __forceinline__ void take(running &now, const float (&x)[W])
{
    float max = x[0], sum = 0;

#pragma unroll
    for (int i = 1; i < W; i++)
        max = fmaxf(max, x[i]);
    max = fmaxf(now.max, max * base<T>::unit);
    const float shift = shift_of(max);
#pragma unroll
    for (int i = 0; i < W; i++)
        sum += base<T>::raised(x[i], shift);
    if (max > now.max)
        now.sum *= base<T>::power(now.max - shift);
    now.max = max;
    now.sum += sum;
}

/* Every lane gets its warp's. */
template <typename T> __device__ __forceinline__ running merge_warp(running now)
{
    running all;

    all.max = mics_warp_max(now.max);
    all.sum = mics_warp_sum(now.sum * base<T>::power(now.max - shift_of(all.max)));
    return all;
}

/* Every thread gets the block's. `shared` has an element for each warp. */
template <typename T> __device__ __forceinline__ running merge_block(running now, running *shared)
{
    now = merge_warp<T>(now);
    if (threadIdx.x % MICS_WARP == 0)
        shared[threadIdx.x / MICS_WARP] = now;
    __syncthreads();
    return merge_warp<T>(shared[threadIdx.x % MICS_WARP]); /* as many warps as lanes */
}

/* Begin to copy pieces [first, stop) into shared memory; each thread copies those that it will
 * read. */
template <typename T>
__device__ __forceinline__ void keep(const T *pieces, uint32_t first, uint32_t stop, uint4 *kept)
{
    for (uint32_t piece = first + threadIdx.x; piece < stop; piece += THREADS)
        mics_copy_async(mics_shared(kept + piece), pieces + (size_t)piece * mics_width<T>::value);
    mics_copy_commit();
}

template <typename T>
__device__ __forceinline__ void take_kept(running &now, uint32_t first, uint32_t stop,
                                          const uint4 *kept)
{
    constexpr int W = mics_width<T>::value;
    mics_packed<T, W> in;
    float x[W];

    for (uint32_t piece = first + threadIdx.x; piece < stop; piece += THREADS) {
        in.all = kept[piece];
        mics_widen<T, W>(in, x);
        take<T, W>(now, x);
    }
}

/* Pieces that are not kept: up to DEPTH of them from `first` on. */
template <typename T>
__device__ __forceinline__ void read_rest(const T *row, const extent &it, uint32_t first,
                                          mics_packed<T, mics_width<T>::value> (&in)[DEPTH])
{
    constexpr int W = mics_width<T>::value;

#pragma unroll
    for (int d = 0; d < DEPTH; d++)
        if (first + d * THREADS < it.pieces)
            in[d] = mics_read<T, W>(row + it.head + (size_t)(first + d * THREADS) * W);
}

template <typename T>
__device__ __forceinline__ void take_rest(running &now, const T *row, uint32_t V, const extent &it)
{
    constexpr int W = mics_width<T>::value;
    mics_packed<T, W> in[DEPTH];
    float x[W], one[1];

#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < it.head + (V - it.tail); i += THREADS) {
        mics_load<T, 1>(row + (i < it.head ? i : it.tail + (i - it.head)), one);
        take<T, 1>(now, one);
    }
    for (uint32_t first = it.kept + threadIdx.x; first < it.pieces; first += DEPTH * THREADS) {
        read_rest<T>(row, it, first, in);
#pragma unroll
        for (int d = 0; d < DEPTH; d++)
            if (first + d * THREADS < it.pieces) {
                mics_widen<T, W>(in[d], x);
                take<T, W>(now, x);
            }
    }
}

/* The first pass over a row. */
template <typename T>
__device__ __forceinline__ running read_row(const T *row, uint32_t V, const extent &it, uint4 *kept)
{
    const uint32_t half = it.kept / 2 / THREADS * THREADS;
    running now = {-INFINITY, 0};

    keep<T>(row + it.head, 0, half, kept);
    keep<T>(row + it.head, half, it.kept, kept);
    take_rest<T>(now, row, V, it);
    mics_copy_wait<1>();
    take_kept<T>(now, 0, half, kept);
    mics_copy_wait<0>();
    take_kept<T>(now, half, it.kept, kept);
    return now;
}

/* A row's probabilities: base^(x unit - shift) times `scale`, which in 16 bits is part of the
 * shift. */
template <typename T> struct distribution {
    float shift, scale;

    __device__ __forceinline__ explicit distribution(const running &all)
        : shift(sizeof(T) == 4 ? all.max : all.max + log2f(all.sum)), scale(1.0f / all.sum)
    {
    }

    __device__ __forceinline__ float at(float x) const
    {
        const float raised = base<T>::raised(x, shift);

        return sizeof(T) == 4 ? raised * scale : raised;
    }
};

/* The gradient of elements [v, v + W), which are aligned to their size, times `factor`. */
template <typename T, int W>
__device__ __forceinline__ void write_at(T *row, uint32_t v, const mics_packed<T, W> &in,
                                         const distribution<T> &p, uint32_t target, float factor)
{
    float x[W];

    mics_widen<T, W>(in, x);
#pragma unroll
    for (int i = 0; i < W; i++)
        x[i] = p.at(x[i]);
    if (target - v < W)
#pragma unroll
        for (int i = 0; i < W; i++)
            x[i] -= target - v == (uint32_t)i ? 1.0f : 0.0f;
#pragma unroll
    for (int i = 0; i < W; i++)
        x[i] *= factor;
    mics_store<T, W>(row + v, x);
}

/* The second pass. */
template <typename T>
__device__ __forceinline__ void write_row(T *row, uint32_t V, const extent &it, const uint4 *kept,
                                          const distribution<T> &p, uint32_t target, float factor)
{
    constexpr int W = mics_width<T>::value;
    mics_packed<T, W> in[DEPTH];

    for (uint32_t piece = threadIdx.x; piece < it.kept; piece += THREADS) {
        in[0].all = kept[piece];
        write_at<T, W>(row, it.head + piece * W, in[0], p, target, factor);
    }
    for (uint32_t first = it.kept + threadIdx.x; first < it.pieces; first += DEPTH * THREADS) {
        read_rest<T>(row, it, first, in);
#pragma unroll
        for (int d = 0; d < DEPTH; d++)
            if (first + d * THREADS < it.pieces)
                write_at<T, W>(row, it.head + (first + d * THREADS) * W, in[d], p, target, factor);
    }
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < it.head + (V - it.tail); i += THREADS) {
        const uint32_t v = i < it.head ? i : it.tail + (i - it.head);

        write_at<T, 1>(row, v, mics_read<T, 1>(row + v), p, target, factor);
    }
}

/* A masked row's gradient. */
template <typename T>
__device__ __forceinline__ void clear_row(T *row, uint32_t V, const extent &it)
{
    const float zero[1] = {};

    for (uint32_t piece = threadIdx.x; piece < it.pieces; piece += THREADS)
        *(uint4 *)(row + it.head + (size_t)piece * mics_width<T>::value) = make_uint4(0, 0, 0, 0);
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < it.head + (V - it.tail); i += THREADS)
        mics_store<T, 1>(row + (i < it.head ? i : it.tail + (i - it.head)), zero);
}

/* One block: one row, of which shared memory holds `capacity` pieces. */
template <typename T>
__global__ void __launch_bounds__(THREADS, 2)
    cross_entropy_kernel(struct mics_args_cross_entropy args, double *losses, uint32_t capacity)
{
    MICS_DYNAMIC_SHARED(uint4, kept);
    MICS_SHARED(running, shared, [MICS_WARPS_MAX]);
    T *row = (T *)args.logits + (size_t)blockIdx.x * (args.ld ? args.ld : args.V);
    const int32_t target = args.targets[blockIdx.x];
    const extent it = extent_of(row, args.V, capacity);
    float at_target[1];

    if (target < 0 || (uint32_t)target >= args.V) {
        if (threadIdx.x == 0) {
            losses[blockIdx.x] = 0;
            if (args.hits)
                losses[gridDim.x + blockIdx.x] = 0;
        }
        if (args.grad)
            clear_row(row, args.V, it);
        return;
    }
    mics_load<T, 1>(row + target, at_target);
    const running all = merge_block<T>(read_row<T>(row, args.V, it, kept), shared);
    if (threadIdx.x == 0) {
        losses[blockIdx.x] =
            log((double)all.sum) + (double)all.max / (double)base<T>::unit - (double)at_target[0];
        if (args.hits)
            losses[gridDim.x + blockIdx.x] = at_target[0] * base<T>::unit >= all.max ? 1 : 0;
    }
    if (args.grad)
        write_row<T>(row, args.V, it, kept, distribution<T>(all), (uint32_t)target,
                     args.grad_scale ? (float)*args.grad_scale : 1.0f);
}

/* One block: *total += the sum of the losses, or of the hits. */
__global__ void __launch_bounds__(SUM)
    sum_losses_kernel(const double *losses, uint32_t rows, double *total)
{
    MICS_SHARED(double, shared, [MICS_WARPS_MAX]);
    double sum[1] = {0};

#pragma unroll 4
    for (uint32_t row = threadIdx.x; row < rows; row += SUM)
        sum[0] += losses[row];
    mics_team_sum<1>(sum, shared);
    if (threadIdx.x == 0)
        *total += sum[0];
}

/* Bytes of shared memory for a row: as many as two blocks of a multiprocessor can have; 0 on a
 * device with less. */
template <typename T> static size_t room_for(uint32_t V)
{
    const size_t bytes = (size_t)V * sizeof(T) / 16 * 16;

    if (cudaFuncSetAttribute(cross_entropy_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             KEPT_BYTES) == cudaSuccess &&
        cudaFuncSetAttribute(cross_entropy_kernel<T>,
                             cudaFuncAttributePreferredSharedMemoryCarveout, 100) == cudaSuccess)
        return bytes < KEPT_BYTES ? bytes : KEPT_BYTES;
    (void)cudaGetLastError();
    return 0;
}

template <typename T>
static cudaError_t launch(const struct mics_cuda_at *at, const struct mics_args_cross_entropy *args)
{
    double *losses = (double *)at->workspace;
    cudaError_t error = cudaSuccess;

    if (args->rows == 0)
        return cudaSuccess;
    if (args->rows > MICS_CUDA_WORKSPACE_BYTES / sizeof(double) / (args->hits ? 2 : 1))
        return cudaErrorInvalidValue;
    const size_t bytes = room_for<T>(args->V);
    error = MICS_LAUNCH(cross_entropy_kernel<T>, args->rows, THREADS, bytes, at->stream, *args,
                        losses, (uint32_t)(bytes / 16));
    if (error == cudaSuccess && args->hits)
        error = MICS_LAUNCH(sum_losses_kernel, 1, SUM, 0, at->stream, losses + args->rows,
                            args->rows, args->hits);
    if (error != cudaSuccess)
        return error;
    return MICS_LAUNCH(sum_losses_kernel, 1, SUM, 0, at->stream, losses, args->rows,
                       args->loss_sum);
}

cudaError_t mics_cuda_cross_entropy(const struct mics_cuda_at *at,
                                    const struct mics_args_cross_entropy *args)
{
    return mics_launch_typed(args->dtype, [&](auto t) { return launch<decltype(t)>(at, args); });
}
