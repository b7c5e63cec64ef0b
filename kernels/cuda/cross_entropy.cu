/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cross_entropy.cu - the loss of a chunk of logits, and its gradient in their place.
 *
 * A block takes one row. Its threads stride over the row in pieces of 16 bytes, two under way in
 * each, and keep the maximum and the sum of exponentials of what they saw (the sum is scaled
 * whenever the maximum grows); the threads' are combined in order, and the row is gone over once
 * more for the gradient. A row that fits half of a multiprocessor's shared memory waits there for
 * its second pass, so that device memory sees it once each way and two blocks can work on two rows;
 * a longer one is read again, most of it from the L2 cache. Rows begin and end anywhere: what
 * stands before the first and after the last aligned piece goes element by element. The rows'
 * losses lie in the workspace until one block adds them up in order, in double.
 *
 * 8 bytes (fp32) or 4 (bf16) and two exponentials per element: bound by memory. Loss within 1e-6
 * (fp32 and bf16: the inputs are the same) relatively, gradients within 1e-6 (fp32) or one unit of
 * bf16's last place of the host. Equal runs give equal bits.
 */
#include "cuda/activation.cuh"
#include "cuda/kernels.h"
#include "cuda/reduce.cuh"
#include "cuda/vector.cuh"

#define THREADS    1024
#define KEPT_BYTES (111 * 1024) /* of a row in shared memory: two fit a multiprocessor of sm_90 */
#define SUM        512          /* threads that add up the losses */

/* The exponentials of numbers up to now: their sum is `sum` times e^max. */
struct running {
    float max, sum;
};

/* How a row of V elements at any address is gone over: [0, head) and [tail, V) one by one. */
struct extent {
    uint32_t head, pieces, tail;
};

template <typename T> __device__ __forceinline__ extent extent_of(const T *row, uint32_t V)
{
    constexpr uint32_t W = mics_width<T>::value;
    const uint32_t before = (uint32_t)((16 - (size_t)row % 16) % 16 / sizeof(T));
    extent it;

    it.head = before < V ? before : V;
    it.pieces = (V - it.head) / W;
    it.tail = it.head + it.pieces * W;
    return it;
}

template <typename T, int W> __device__ __forceinline__ void take(running &now, const float (&x)[W])
{
    float max = now.max, sum = 0;

#pragma unroll
    for (int i = 0; i < W; i++)
        max = fmaxf(max, x[i]);
    const float base = max == -INFINITY ? 0.0f : max; /* nothing but minus infinity */
#pragma unroll
    for (int i = 0; i < W; i++)
        sum += mics_exp<T>(x[i] - base);
    if (max > now.max)
        now.sum *= mics_exp<T>(now.max - base);
    now.max = max;
    now.sum += sum;
}

__device__ __forceinline__ running merge(running a, running b)
{
    running both;

    both.max = fmaxf(a.max, b.max);
    const float base = both.max == -INFINITY ? 0.0f : both.max;
    both.sum = a.sum * expf(a.max - base) + b.sum * expf(b.max - base);
    return both;
}

/* Every thread gets the block's. `shared` has an element for each warp. */
__device__ __forceinline__ running merge_block(running now, running *shared)
{
#pragma unroll
    for (int lanes = MICS_WARP / 2; lanes > 0; lanes /= 2) {
        running other;

        other.max = __shfl_xor_sync(MICS_WHOLE_WARP, now.max, lanes);
        other.sum = __shfl_xor_sync(MICS_WHOLE_WARP, now.sum, lanes);
        now = merge(now, other);
    }
    if (threadIdx.x % MICS_WARP == 0)
        shared[threadIdx.x / MICS_WARP] = now;
    __syncthreads();
    now = shared[threadIdx.x % MICS_WARP]; /* as many warps as lanes */
#pragma unroll
    for (int lanes = MICS_WARP / 2; lanes > 0; lanes /= 2) {
        running other;

        other.max = __shfl_xor_sync(MICS_WHOLE_WARP, now.max, lanes);
        other.sum = __shfl_xor_sync(MICS_WHOLE_WARP, now.sum, lanes);
        now = merge(now, other);
    }
    return now;
}

/* The first pass over a row; with KEEP its pieces go into `kept`. */
template <typename T, bool KEEP>
__device__ __forceinline__ running read_row(const T *row, uint32_t V, const extent &it, uint4 *kept)
{
    constexpr int W = mics_width<T>::value;
    running now = {-INFINITY, 0};
    float x[W], one[1];

#pragma unroll 2
    for (uint32_t piece = threadIdx.x; piece < it.pieces; piece += THREADS) {
        const mics_packed<T, W> in = mics_read<T, W>(row + it.head + (size_t)piece * W);

        if (KEEP)
            kept[piece] = in.all;
        mics_widen<T, W>(in, x);
        take<T, W>(now, x);
    }
    for (uint32_t v = threadIdx.x; v < it.head + (V - it.tail); v += THREADS) {
        mics_load<T, 1>(row + (v < it.head ? v : it.tail + (v - it.head)), one);
        take<T, 1>(now, one);
    }
    return now;
}

/* One element's gradient. */
template <typename T>
__device__ __forceinline__ float slope(float x, uint32_t v, uint32_t target, float max, float scale)
{
    return mics_exp<T>(x - max) * scale - (v == target ? 1.0f : 0.0f);
}

/* The second pass. */
template <typename T, bool KEEP>
__device__ __forceinline__ void write_row(T *row, uint32_t V, const extent &it, const uint4 *kept,
                                          const running &all, uint32_t target)
{
    constexpr int W = mics_width<T>::value;
    const float scale = 1.0f / all.sum;
    float x[W], one[1];

#pragma unroll(KEEP ? 1 : 2)
    for (uint32_t piece = threadIdx.x; piece < it.pieces; piece += THREADS) {
        const uint32_t v = it.head + piece * W;
        mics_packed<T, W> in;

        if (KEEP)
            in.all = kept[piece];
        else
            in = mics_read<T, W>(row + v);
        mics_widen<T, W>(in, x);
#pragma unroll
        for (int i = 0; i < W; i++)
            x[i] = slope<T>(x[i], v + i, target, all.max, scale);
        mics_store<T, W>(row + v, x);
    }
    for (uint32_t i = threadIdx.x; i < it.head + (V - it.tail); i += THREADS) {
        const uint32_t v = i < it.head ? i : it.tail + (i - it.head);

        mics_load<T, 1>(row + v, one);
        one[0] = slope<T>(one[0], v, target, all.max, scale);
        mics_store<T, 1>(row + v, one);
    }
}

/* A masked row's gradient. */
template <typename T>
__device__ __forceinline__ void clear_row(T *row, uint32_t V, const extent &it)
{
    constexpr int W = mics_width<T>::value;
    const float zeros[W] = {}, zero[1] = {};

    for (uint32_t piece = threadIdx.x; piece < it.pieces; piece += THREADS)
        mics_store<T, W>(row + it.head + (size_t)piece * W, zeros);
    for (uint32_t v = threadIdx.x; v < it.head + (V - it.tail); v += THREADS)
        mics_store<T, 1>(row + (v < it.head ? v : it.tail + (v - it.head)), zero);
}

/* One block: one row. */
template <typename T, bool KEEP>
__global__ void __launch_bounds__(THREADS, 2)
    cross_entropy_kernel(struct mics_op_cross_entropy args, double *losses)
{
    MICS_DYNAMIC_SHARED(uint4, kept);
    MICS_SHARED(running, shared, [MICS_WARPS_MAX]);
    T *row = (T *)args.logits + (size_t)blockIdx.x * (args.ld ? args.ld : args.V);
    const int32_t target = args.targets[blockIdx.x];
    const extent it = extent_of(row, args.V);
    float at_target[1];

    if (target < 0 || (uint32_t)target >= args.V) {
        if (threadIdx.x == 0)
            losses[blockIdx.x] = 0;
        if (args.grad)
            clear_row(row, args.V, it);
        return;
    }
    mics_load<T, 1>(row + target, at_target);
    const running all = merge_block(read_row<T, KEEP>(row, args.V, it, kept), shared);
    if (threadIdx.x == 0)
        losses[blockIdx.x] = log((double)all.sum) + (double)all.max - (double)at_target[0];
    if (args.grad)
        write_row<T, KEEP>(row, args.V, it, kept, all, (uint32_t)target);
}

/* One block: *loss_sum += the sum of the losses. */
__global__ void __launch_bounds__(SUM)
    sum_losses_kernel(const double *losses, uint32_t rows, double *loss_sum)
{
    MICS_SHARED(double, shared, [MICS_WARPS_MAX]);
    double sum[1] = {0};

#pragma unroll 4
    for (uint32_t row = threadIdx.x; row < rows; row += SUM)
        sum[0] += losses[row];
    mics_team_sum<1>(sum, shared);
    if (threadIdx.x == 0)
        *loss_sum += sum[0];
}

/* Let rows wait in shared memory: as much of it as two blocks need, on any device that has it. */
template <typename T> static bool can_keep(void)
{
    if (cudaFuncSetAttribute(cross_entropy_kernel<T, true>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             KEPT_BYTES) == cudaSuccess &&
        cudaFuncSetAttribute(cross_entropy_kernel<T, true>,
                             cudaFuncAttributePreferredSharedMemoryCarveout, 100) == cudaSuccess)
        return true;
    (void)cudaGetLastError();
    return false;
}

template <typename T>
static cudaError_t launch(const struct mics_cuda_at *at, const struct mics_op_cross_entropy *args)
{
    const size_t bytes = (size_t)args->V * sizeof(T) / 16 * 16;
    double *losses = (double *)at->workspace;
    cudaError_t error = cudaSuccess;
    const bool keep = args->grad && bytes <= KEPT_BYTES && can_keep<T>();

    if (args->rows == 0)
        return cudaSuccess;
    if (args->rows > MICS_CUDA_WORKSPACE_BYTES / sizeof(double))
        return cudaErrorInvalidValue;
    error = keep ? MICS_LAUNCH((cross_entropy_kernel<T, true>), args->rows, THREADS, bytes,
                               at->stream, *args, losses)
                 : MICS_LAUNCH((cross_entropy_kernel<T, false>), args->rows, THREADS, 0, at->stream,
                               *args, losses);
    if (error != cudaSuccess)
        return error;
    return MICS_LAUNCH(sum_losses_kernel, 1, SUM, 0, at->stream, losses, args->rows,
                       args->loss_sum);
}

cudaError_t mics_cuda_cross_entropy(const struct mics_cuda_at *at,
                                    const struct mics_op_cross_entropy *args)
{
    return args->dtype == MICS_BF16 ? launch<__nv_bfloat16>(at, args) : launch<float>(at, args);
}
