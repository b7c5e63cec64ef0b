/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router.cu - the router of a mixture of experts: the choice of experts, its gradient, and its
 * losses and statistics.
 */
#include "cuda/gpu.h"
#include "cuda/kernels.h"
#include "cuda/reduce.cuh"
#include "cuda/vector.cuh"

#define WARPS   8 /* of a block, each with a row of its own */
#define THREADS (WARPS * MICS_WARP)

static unsigned blocks_for(uint64_t rows)
{
    return (unsigned)((rows + WARPS - 1) / WARPS);
}

/*
 * The router: a warp for each row of logits, which it reads again from the first cache for each
 * expert that it chooses. 4 bytes per logit and about 4 k operations. Weights within 1e-6 of the
 * host; the choice is the host's.
 */

/* The softmax of a row. A NaN makes sum NaN. */
struct softmax {
    float max, sum;
};

__device__ __forceinline__ softmax softmax_of(const float *logits, uint32_t count)
{
    softmax s = {-INFINITY, 0};

    for (uint32_t e = threadIdx.x; e < count; e += MICS_WARP)
        s.max = fmaxf(s.max, logits[e]);
    s.max = mics_warp_max(s.max);
    for (uint32_t e = threadIdx.x; e < count; e += MICS_WARP)
        s.sum += expf(logits[e] - s.max);
    s.sum = mics_warp_sum(s.sum);
    return s;
}

/* A number whose order is that of the logits; both zeros are equal, every NaN is less than all. */
__device__ __forceinline__ unsigned key_of(float logit)
{
    const unsigned bits = __float_as_uint(logit + 0.0f);

    if (logit != logit)
        return 0;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* A logit and its expert; larger ones come first, of equal ones the lower expert. */
struct ranked {
    unsigned key, expert;
};

__device__ __forceinline__ bool is_before(const ranked &a, const ranked &b)
{
    return a.key > b.key || (a.key == b.key && a.expert < b.expert);
}

/* The first of those that come after `last`, in all lanes. */
__device__ __forceinline__ ranked next_of(const float *logits, uint32_t E, const ranked &last,
                                          bool any)
{
    ranked best = {0, 0xffffffffu};

    for (uint32_t e = threadIdx.x; e < E; e += MICS_WARP) {
        const ranked it = {key_of(logits[e]), e};

        if ((any || is_before(last, it)) && is_before(it, best))
            best = it;
    }
#pragma unroll
    for (int lanes = MICS_WARP / 2; lanes > 0; lanes /= 2) {
        const ranked other = {__shfl_xor_sync(MICS_WHOLE_WARP, best.key, lanes),
                              __shfl_xor_sync(MICS_WHOLE_WARP, best.expert, lanes)};

        if (is_before(other, best))
            best = other;
    }
    return best;
}

__global__ void __launch_bounds__(THREADS) route_kernel(struct mics_args_route args)
{
    const uint32_t row = blockIdx.x * WARPS + threadIdx.y;
    const float *logits = args.logits + (size_t)row * args.E;
    int32_t *experts = args.experts + (size_t)row * args.k;
    float *weights = args.weights + (size_t)row * args.k;
    ranked last = {0, 0};
    float first, sum = 0;

    if (row >= args.rows)
        return;
    for (uint32_t j = 0; j < args.k; j++) {
        last = next_of(logits, args.E, last, j == 0);
        if (threadIdx.x == 0) {
            experts[j] = (int32_t)last.expert;
            weights[j] = logits[last.expert];
        }
    }
    __syncwarp();
    if (args.renormalise) {
        first = weights[0]; /* the largest */
        for (uint32_t j = threadIdx.x; j < args.k; j += MICS_WARP)
            sum += expf(weights[j] - first);
        sum = mics_warp_sum(sum);
    } else {
        const softmax s = softmax_of(logits, args.E);

        first = s.max;
        sum = s.sum;
    }
    __syncwarp();
    for (uint32_t j = threadIdx.x; j < args.k; j += MICS_WARP)
        weights[j] = expf(weights[j] - first) / sum;
}

cudaError_t mics_cuda_route(const struct mics_cuda_at *at, const struct mics_args_route *args)
{
    if (args->rows == 0)
        return cudaSuccess;
    return MICS_LAUNCH(route_kernel, blocks_for(args->rows), dim3(MICS_WARP, WARPS), 0, at->stream,
                       *args);
}

/*
 * The gradient of the router: a warp for each row. 4 bytes per logit and those of its gradient,
 * and about 10 + k operations. Within 4e-6 of the host.
 */

/* The sum over the experts of p times what balance has of each. */
__device__ __forceinline__ float balance_mean(const float *logits, const float *balance, uint32_t E,
                                              const softmax &s)
{
    float sum = 0;

    for (uint32_t e = threadIdx.x; e < E; e += MICS_WARP)
        sum += expf(logits[e] - s.max) / s.sum * balance[e];
    return mics_warp_sum(sum);
}

template <typename T>
__global__ void __launch_bounds__(THREADS) route_grad_kernel(struct mics_args_route_grad args)
{
    const uint32_t row = blockIdx.x * WARPS + threadIdx.y;
    const size_t slots = (size_t)row * args.k;
    const float *logits = args.logits + (size_t)row * args.E;
    const float scale = args.grad_scale ? (float)*args.grad_scale : 1;
    float mean = 0, shift = 0;

    if (row >= args.rows)
        return;
    const float *balance =
        args.balance ? args.balance + (size_t)(row / args.group_rows) * args.E : NULL;
    const bool counted = args.z_coefficient > 0 && args.targets[row] >= 0;
    const softmax s = softmax_of(logits, args.E);
    for (uint32_t j = threadIdx.x; j < args.k; j += MICS_WARP)
        mean += args.weights[slots + j] * args.grad_weights[slots + j];
    mean = mics_warp_sum(mean);
    if (balance)
        shift = -balance_mean(logits, balance, args.E, s);
    if (counted)
        shift += 2 * args.z_coefficient * (s.max + logf(s.sum));
    for (uint32_t e = threadIdx.x; e < args.E; e += MICS_WARP) {
        const float p = expf(logits[e] - s.max) / s.sum;
        float grad[1] = {args.renormalise ? 0 : -p * mean};

        for (uint32_t j = 0; j < args.k; j++)
            if (args.experts[slots + j] == (int32_t)e)
                grad[0] = args.weights[slots + j] * (args.grad_weights[slots + j] - mean);
        if (balance || counted)
            grad[0] += scale * (p * ((balance ? balance[e] : 0) + shift));
        mics_store<T, 1>((T *)args.grad_logits + (size_t)row * args.E + e, grad);
    }
}

cudaError_t mics_cuda_route_grad(const struct mics_cuda_at *at,
                                 const struct mics_args_route_grad *args)
{
    const unsigned blocks = blocks_for(args->rows);
    const dim3 block(MICS_WARP, WARPS);

    if (args->rows == 0)
        return cudaSuccess;
    return mics_launch_typed(args->dtype, [&](auto t) {
        return MICS_LAUNCH(route_grad_kernel<decltype(t)>, blocks, block, 0, at->stream, *args);
    });
}

/*
 * Counts and sums of the softmax for each group of rows: blocks of rows of one group, whose sums
 * lie in the workspace until others add them up in order. 8 bytes per logit (read twice) and about
 * 10 operations. Counts are exact, sums within 1e-6 of the host, relative.
 */

#define LOAD_ROWS 64 /* at a time */
#define LOAD_EACH ((MICS_EXPERTS_MAX + THREADS - 1) / THREADS)

/* parts[blocks][2 E] and squares[blocks], one for each `each` rows of a group. */
struct load_parts {
    float *sums;
    double *squares;
    uint32_t each, per_group;
};

__global__ void __launch_bounds__(THREADS)
    load_kernel(struct mics_args_router_load args, struct load_parts parts)
{
    MICS_SHARED(softmax, of_row, [LOAD_ROWS]);
    MICS_SHARED(unsigned, counts, [MICS_EXPERTS_MAX]);
    MICS_SHARED(double, squares, [WARPS]);
    const unsigned thread = threadIdx.y * MICS_WARP + threadIdx.x;
    const uint32_t group = blockIdx.x / parts.per_group, part = blockIdx.x % parts.per_group;
    const uint32_t end = min(args.rows, (group + 1) * args.group_rows);
    const uint32_t begin = min(end, group * args.group_rows + part * parts.each);
    const uint32_t stop = min(end, begin + parts.each);
    float *to = parts.sums + (size_t)blockIdx.x * 2 * args.E;
    float sums[LOAD_EACH] = {};
    double square = 0;

    for (uint32_t e = thread; e < args.E; e += THREADS)
        counts[e] = 0;
    for (uint32_t first = begin; first < stop; first += LOAD_ROWS) {
        const uint32_t rows = min((uint32_t)LOAD_ROWS, stop - first);

        __syncthreads();
        for (uint32_t r = threadIdx.y; r < rows; r += WARPS) {
            const softmax s = softmax_of(args.logits + (size_t)(first + r) * args.E, args.E);
            const double z = (double)s.max + log((double)s.sum);

            if (threadIdx.x == 0)
                of_row[r] = s;
            if (args.z_coefficient > 0 && args.targets[first + r] >= 0)
                square += z * z;
        }
        for (uint32_t a = thread; a < rows * args.k; a += THREADS)
            atomicAdd(&counts[args.experts[(size_t)first * args.k + a]], 1u);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < LOAD_EACH; i++) {
            const uint32_t e = thread + i * THREADS;

            for (uint32_t r = 0; e < args.E && r < rows; r++)
                sums[i] += expf(args.logits[(size_t)(first + r) * args.E + e] - of_row[r].max) /
                           of_row[r].sum;
        }
    }
    if (threadIdx.x == 0)
        squares[threadIdx.y] = square;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < LOAD_EACH; i++) {
        const uint32_t e = thread + i * THREADS;

        if (e < args.E) {
            to[e] = (float)counts[e];
            to[args.E + e] = sums[i];
        }
    }
    if (thread == 0) {
        for (int w = 1; w < WARPS; w++)
            square += squares[w];
        parts.squares[blockIdx.x] = square;
    }
}

/* A thread: one number of the load of a group. */
__global__ void __launch_bounds__(THREADS)
    load_sum_kernel(struct mics_args_router_load args, struct load_parts parts, uint32_t groups)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x, width = 2 * args.E;
    const uint32_t group = i / width, column = i % width;
    double sum = 0;

    if (group >= groups)
        return;
    for (uint32_t part = 0; part < parts.per_group; part++)
        sum += (double)parts.sums[((size_t)group * parts.per_group + part) * width + column];
    args.load[i] = (float)sum + (args.add ? args.add[i] : 0);
}

/* One block: coefficient times the sum of the squares, to one or two sums. */
__global__ void __launch_bounds__(THREADS)
    load_loss_kernel(const double *squares, uint32_t count, double coefficient, double *loss_sum,
                     double *own_sum)
{
    MICS_SHARED(double, shared, [MICS_WARPS_MAX]);
    double sum[1] = {0};

    for (uint32_t i = threadIdx.x; i < count; i += THREADS)
        sum[0] += squares[i];
    mics_team_sum<1>(sum, shared);
    if (threadIdx.x == 0) {
        *loss_sum += coefficient * sum[0];
        if (own_sum)
            *own_sum += coefficient * sum[0];
    }
}

cudaError_t mics_cuda_router_load(const struct mics_cuda_at *at,
                                  const struct mics_args_router_load *args)
{
    const size_t each = (size_t)2 * args->E * sizeof(float) + sizeof(double);
    const uint64_t most = MICS_CUDA_WORKSPACE_BYTES / each;
    struct load_parts parts = {};
    cudaError_t error;

    if (args->rows == 0)
        return cudaSuccess;
    const uint32_t groups = (args->rows - 1) / args->group_rows + 1;
    if (groups > most)
        return cudaErrorInvalidValue;
    parts.each = LOAD_ROWS;
    do {
        parts.per_group = (args->group_rows - 1) / parts.each + 1;
        parts.each += LOAD_ROWS;
    } while ((uint64_t)groups * parts.per_group > most);
    parts.each -= LOAD_ROWS;
    parts.squares = (double *)at->workspace;
    parts.sums = (float *)(parts.squares + (size_t)groups * parts.per_group);
    error = MICS_LAUNCH(load_kernel, groups * parts.per_group, dim3(MICS_WARP, WARPS), 0,
                        at->stream, *args, parts);
    if (error == cudaSuccess)
        error = MICS_LAUNCH(load_sum_kernel, (groups * 2 * args->E - 1) / THREADS + 1, THREADS, 0,
                            at->stream, *args, parts, groups);
    if (error == cudaSuccess && args->z_coefficient > 0)
        error = MICS_LAUNCH(load_loss_kernel, 1, THREADS, 0, at->stream, parts.squares,
                            groups * parts.per_group, (double)args->z_coefficient, args->loss_sum,
                            args->own_sum);
    return error;
}

/* The loss of balance, and its gradient: one block, group by group. Sums are in double. */
__global__ void __launch_bounds__(THREADS) balance_loss_kernel(struct mics_args_balance_loss args)
{
    MICS_SHARED(double, shared, [2][2 * MICS_WARPS_MAX]);
    const uint32_t E = args.E;
    double total = 0;

    for (uint32_t g = 0; g < args.groups; g++) {
        const float *counts = args.load + (size_t)g * 2 * E;
        const int32_t *targets = args.targets + (size_t)g * args.group_rows;
        double sums[2] = {0, 0};

        for (uint32_t r = threadIdx.x; r < args.group_rows; r += THREADS)
            sums[0] += targets[r] >= 0;
        for (uint32_t e = threadIdx.x; e < E; e += THREADS)
            sums[1] += (double)counts[e] * (double)counts[E + e];
        mics_team_sum<2>(sums, shared[g % 2]);
        const double scale = args.coefficient * sums[0] * (double)E / (args.divisor * args.divisor);
        for (uint32_t e = threadIdx.x; args.balance && e < E; e += THREADS)
            args.balance[(size_t)g * E + e] = (float)(scale * (double)counts[e]);
        total += scale * sums[1];
    }
    if (threadIdx.x == 0) {
        *args.loss_sum += total;
        if (args.own_sum)
            *args.own_sum += total;
    }
}

cudaError_t mics_cuda_balance_loss(const struct mics_cuda_at *at,
                                   const struct mics_args_balance_loss *args)
{
    return MICS_LAUNCH(balance_loss_kernel, 1, THREADS, 0, at->stream, *args);
}

/*
 * The entropy of rows, a warp for each, whose sums lie in the workspace, one for each block, until
 * one block adds them up in order. 4 bytes per logit, read three times, and about 8 operations.
 * Within 1e-5 of the host.
 */

#define STATS_BLOCKS 1024

__global__ void __launch_bounds__(THREADS)
    entropy_kernel(struct mics_args_router_stats args, double *parts)
{
    MICS_SHARED(double, sums, [WARPS]);
    double sum = 0;

    for (uint32_t row = blockIdx.x * WARPS + threadIdx.y; row < args.rows;
         row += gridDim.x * WARPS) {
        const float *logits = args.logits + (size_t)row * args.E;
        const softmax s = softmax_of(logits, args.E);
        float mean = 0;

        for (uint32_t e = threadIdx.x; e < args.E; e += MICS_WARP) {
            const float below = logits[e] - s.max, p = expf(below) / s.sum;

            mean += p == 0 ? 0 : p * below;
        }
        sum += (double)(logf(s.sum) - mics_warp_sum(mean));
    }
    if (threadIdx.x == 0)
        sums[threadIdx.y] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || threadIdx.x > 0)
        return;
    for (int w = 1; w < WARPS; w++)
        sum += sums[w];
    parts[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(THREADS)
    router_stats_kernel(struct mics_args_router_stats args, const double *parts, uint32_t count)
{
    MICS_SHARED(double, shared, [MICS_WARPS_MAX]);
    double sum[1] = {0};

    for (uint32_t i = threadIdx.x; i < count; i += THREADS)
        sum[0] += parts[i];
    mics_team_sum<1>(sum, shared);
    if (threadIdx.x == 0)
        args.stats[0] += sum[0];
    for (uint32_t e = threadIdx.x; e < args.E; e += THREADS)
        args.stats[1 + e] += (double)(args.offsets[e + 1] - args.offsets[e]);
}

cudaError_t mics_cuda_router_stats(const struct mics_cuda_at *at,
                                   const struct mics_args_router_stats *args)
{
    const unsigned blocks = min(blocks_for(args->rows), (unsigned)STATS_BLOCKS);
    double *parts = (double *)at->workspace;
    cudaError_t error;

    if (args->rows == 0)
        return cudaSuccess;
    error =
        MICS_LAUNCH(entropy_kernel, blocks, dim3(MICS_WARP, WARPS), 0, at->stream, *args, parts);
    if (error != cudaSuccess)
        return error;
    return MICS_LAUNCH(router_stats_kernel, 1, THREADS, 0, at->stream, *args, parts, blocks);
}
