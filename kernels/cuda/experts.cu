/* SPDX-License-Identifier: Apache-2.0 */
/*
 * experts.cu - mixtures of experts but for their products: the choice of the router with its
 * gradient and its losses, the sort by expert, rows in the order of experts and back, and the
 * activation.
 */
#include "cuda/activation.cuh"
#include "cuda/gpu.h"
#include "cuda/kernels.h"
#include "cuda/reduce.cuh"
#include "cuda/rows.cuh"
#include "cuda/sort.cuh"
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

/*
 * Assignments by expert (mics_sort_launch()), then the inverse and where experts begin. 12 bytes
 * per assignment and pass of the sort, 16 here; with a capacity another 16, and no other result
 * than the host's either: what an expert drops is the end of its sorted assignments.
 */

/* A thread: one sorted assignment; the first and the last also the experts without rows beside. */
__global__ void __launch_bounds__(THREADS)
    expert_ranges_kernel(struct mics_args_sort_experts args, const uint32_t *keys, uint32_t count)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;

    if (i >= count)
        return;
    const uint32_t key = keys[i];
    args.position[args.order[i]] = i;
    for (uint32_t e = i > 0 ? keys[i - 1] + 1 : 0; e <= key; e++)
        args.offsets[e] = i;
    for (uint32_t e = key + 1; i + 1 == count && e <= args.E; e++)
        args.offsets[e] = count;
}

/* One block: where experts begin when each has at most its capacity of the rows that `ranges`
 * gives it. */
__global__ void __launch_bounds__(THREADS)
    capacity_offsets_kernel(struct mics_args_sort_experts args, const uint32_t *ranges)
{
    MICS_SHARED(uint32_t, rows, [MICS_EXPERTS_MAX]);

    for (uint32_t e = threadIdx.x; e < args.E; e += THREADS) {
        const uint32_t count = ranges[e + 1] - ranges[e];

        rows[e] = count < args.capacity ? count : args.capacity;
    }
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    uint32_t sum = 0;

    for (uint32_t e = 0; e < args.E; e++) {
        args.offsets[e] = sum;
        sum += rows[e];
    }
    args.offsets[args.E] = sum;
}

/* A thread: the sorted assignment `i`, which moves to the rows that remain, or is dropped; and row
 * `i` of the result, if that is behind the last. */
__global__ void __launch_bounds__(THREADS)
    capacity_rows_kernel(struct mics_args_sort_experts args, const uint32_t *ranges,
                         const uint32_t *keys, const uint32_t *order, uint32_t count)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;

    if (i >= count)
        return;
    const uint32_t key = keys[i], a = order[i], place = i - ranges[key];
    const bool taken = place < args.capacity;

    args.position[a] = taken ? args.offsets[key] + place : MICS_NO_ROW;
    if (taken)
        args.order[args.offsets[key] + place] = a;
    if (i >= args.offsets[args.E])
        args.order[i] = MICS_NO_ROW;
}

/* Drop what is beyond the capacity. `all`: the arguments, with the sorted assignments of all
 * experts and where these begin. */
static cudaError_t capacity_launch(const struct mics_cuda_at *at,
                                   const struct mics_args_sort_experts *args,
                                   const struct mics_args_sort_experts *all, const uint32_t *keys,
                                   uint32_t count)
{
    const cudaError_t error =
        MICS_LAUNCH(capacity_offsets_kernel, 1, THREADS, 0, at->stream, *args, all->offsets);

    return error != cudaSuccess
               ? error
               : MICS_LAUNCH(capacity_rows_kernel, (count - 1) / THREADS + 1, THREADS, 0,
                             at->stream, *args, all->offsets, keys, all->order, count);
}

cudaError_t mics_cuda_sort_experts(const struct mics_cuda_at *at,
                                   const struct mics_args_sort_experts *args)
{
    const uint64_t count = (uint64_t)args->rows * args->k;
    const uint64_t tiles = (count + MICS_SORT_TILE - 1) / MICS_SORT_TILE;
    /* Where the lists of the sort end, and with a capacity one more. */
    const uint64_t places = (args->capacity > 0 ? 4 : 3) * count;
    const uint64_t ranges = places + tiles * MICS_SORT_DIGITS;
    const int result = mics_sort_result(args->E);
    uint32_t *space = (uint32_t *)at->workspace;
    struct mics_args_sort_experts all = *args;
    cudaError_t error;

    if (args->E > MICS_EXPERTS_MAX ||
        ranges + (args->capacity > 0 ? args->E + 1 : 0) > MICS_CUDA_WORKSPACE_BYTES / sizeof *space)
        return cudaErrorInvalidValue;
    if (count == 0)
        return cudaMemsetAsync(args->offsets, 0, (args->E + 1) * sizeof *args->offsets, at->stream);
    if (args->capacity > 0) {
        all.order = space + 3 * count;
        all.offsets = space + ranges;
    }
    struct mics_sort sort = {args->experts, (uint32_t)count, args->E, {space, space + count}, {},
                             space + places};
    sort.order[result] = all.order;
    sort.order[!result] = space + 2 * count;
    error = mics_sort_launch(at->stream, &sort);
    if (error == cudaSuccess)
        error = MICS_LAUNCH(expert_ranges_kernel, (unsigned)((count - 1) / THREADS + 1), THREADS, 0,
                            at->stream, all, sort.keys[result], (uint32_t)count);
    if (error != cudaSuccess || args->capacity == 0)
        return error;
    return capacity_launch(at, args, &all, sort.keys[result], (uint32_t)count);
}

/*
 * Rows in the order of experts, and back: a warp for each row of the result, in pieces of 16 bytes.
 * Each element is read and written once, and (back) added in the order of the slots: bound by
 * memory. The same bits as the host.
 */

template <typename T, int W>
__global__ void __launch_bounds__(THREADS)
    gather_rows_kernel(struct mics_args_gather_rows args, uint32_t count)
{
    const uint32_t row = blockIdx.x * WARPS + threadIdx.y;

    if (row >= count || args.order[row] == MICS_NO_ROW)
        return;
    const T *from = (const T *)args.in + (size_t)(args.order[row] / args.k) * args.C;
    T *to = (T *)args.out + (size_t)row * args.C;
    for (uint32_t c = threadIdx.x * W; c < args.C; c += MICS_WARP * W)
        *(typename mics_packed<T, W>::word *)(to + c) = mics_read<T, W>(from + c).all;
}

template <typename T>
static cudaError_t gather_rows_launch(const struct mics_cuda_at *at,
                                      const struct mics_args_gather_rows *args)
{
    constexpr int W = mics_width<T>::value;
    const uint64_t count = (uint64_t)args->rows * args->k;
    const dim3 block(MICS_WARP, WARPS);

    if (count == 0 || args->C == 0)
        return cudaSuccess;
    if (count > 0x7fffffff)
        return cudaErrorInvalidValue;
    if (args->C % W == 0 && mics_aligned(16, args->out, args->in))
        return MICS_LAUNCH((gather_rows_kernel<T, W>), blocks_for(count), block, 0, at->stream,
                           *args, (uint32_t)count);
    return MICS_LAUNCH((gather_rows_kernel<T, 1>), blocks_for(count), block, 0, at->stream, *args,
                       (uint32_t)count);
}

cudaError_t mics_cuda_gather_rows(const struct mics_cuda_at *at,
                                  const struct mics_args_gather_rows *args)
{
    return mics_launch_typed(args->dtype,
                             [&](auto t) { return gather_rows_launch<decltype(t)>(at, args); });
}

template <typename T, int W>
__global__ void __launch_bounds__(THREADS) scatter_rows_kernel(struct mics_args_scatter_rows args)
{
    const uint32_t row = blockIdx.x * WARPS + threadIdx.y;

    if (row >= args.rows || args.order[row] == MICS_NO_ROW)
        return;
    const T *from = (const T *)args.in + (size_t)row * args.C;
    T *to = (T *)args.out + (size_t)args.order[row] * args.C;
    for (uint32_t c = threadIdx.x * W; c < args.C; c += MICS_WARP * W)
        *(typename mics_packed<T, W>::word *)(to + c) = mics_read<T, W>(from + c).all;
}

template <typename T>
static cudaError_t scatter_rows_launch(const struct mics_cuda_at *at,
                                       const struct mics_args_scatter_rows *args)
{
    constexpr int W = mics_width<T>::value;
    const dim3 block(MICS_WARP, WARPS);

    if (args->rows == 0 || args->C == 0)
        return cudaSuccess;
    if (args->C % W == 0 && mics_aligned(16, args->out, args->in))
        return MICS_LAUNCH((scatter_rows_kernel<T, W>), blocks_for(args->rows), block, 0,
                           at->stream, *args);
    return MICS_LAUNCH((scatter_rows_kernel<T, 1>), blocks_for(args->rows), block, 0, at->stream,
                       *args);
}

cudaError_t mics_cuda_scatter_rows(const struct mics_cuda_at *at,
                                   const struct mics_args_scatter_rows *args)
{
    return mics_launch_typed(args->dtype,
                             [&](auto t) { return scatter_rows_launch<decltype(t)>(at, args); });
}

/*
 * A round of rows that travel to other ranks: one block. Pairs of an expert of this rank and the
 * rank that its rows come from are in the order of the result; their counts are added up by one
 * thread, then each thread lists the rows of some pairs. Integers: the same as the host.
 */

/* Of an expert e of this rank, the rows of rank s in this round: their first row there, and how
 * many. */
__device__ static uint32_t received_rows(const struct mics_args_dispatch_round &args, uint32_t e,
                                         uint32_t s, uint32_t *first)
{
    const uint32_t *offsets = args.offsets + s * (args.E + 1) + args.rank * (args.E / args.ranks);
    const uint64_t begin = offsets[0] + (uint64_t)args.round * args.slots;
    const uint64_t end = begin + args.slots;
    const uint64_t from = offsets[e] > begin ? offsets[e] : begin;
    const uint64_t to = offsets[e + 1] < end ? offsets[e + 1] : end;

    *first = (uint32_t)(from - begin);
    return to > from ? (uint32_t)(to - from) : 0;
}

__device__ static void list_sent(const struct mics_args_dispatch_round &args)
{
    const uint32_t experts = args.E / args.ranks;
    const uint32_t *offsets = args.offsets + args.rank * (args.E + 1);

    for (uint32_t slot = threadIdx.x; slot < args.ranks * args.slots; slot += THREADS) {
        const uint32_t d = slot / args.slots;
        const uint64_t row =
            offsets[d * experts] + (uint64_t)args.round * args.slots + slot % args.slots;
        const bool used = row < offsets[(d + 1) * experts];

        args.row[slot] = used ? (uint32_t)row : MICS_NO_ROW;
        args.assignment[slot] = used ? args.order[row] : MICS_NO_ROW;
    }
}

__global__ void __launch_bounds__(THREADS)
    dispatch_round_kernel(struct mics_args_dispatch_round args)
{
    MICS_SHARED(uint32_t, starts, [MICS_EXPERTS_MAX + 1]);
    const uint32_t experts = args.E / args.ranks;
    uint32_t first, active = 0;

    for (uint32_t pair = threadIdx.x; pair < args.E; pair += THREADS)
        starts[pair] = received_rows(args, pair / args.ranks, pair % args.ranks, &first);
    list_sent(args);
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t sum = 0;

        for (uint32_t pair = 0; pair < args.E; pair++) {
            const uint32_t count = starts[pair];

            starts[pair] = sum;
            sum += count;
        }
        starts[args.E] = sum;
        for (uint32_t pair = 0; pair < args.ranks * args.ranks; pair++) {
            const uint32_t *offsets =
                args.offsets + pair / args.ranks * (args.E + 1) + pair % args.ranks * experts;

            active |= offsets[experts] - offsets[0] > (uint64_t)args.round * args.slots;
        }
        *args.active = active;
    }
    __syncthreads();
    for (uint32_t e = threadIdx.x; e <= experts; e += THREADS)
        args.received_offsets[e] = starts[e * args.ranks];
    for (uint32_t pair = threadIdx.x; pair < args.E; pair += THREADS) {
        const uint32_t s = pair % args.ranks;
        const uint32_t count = received_rows(args, pair / args.ranks, s, &first);

        for (uint32_t i = 0; i < count; i++)
            args.received[starts[pair] + i] = s * args.slots + first + i;
    }
    for (uint32_t i = starts[args.E] + threadIdx.x; i < args.ranks * args.slots; i += THREADS)
        args.received[i] = MICS_NO_ROW;
}

cudaError_t mics_cuda_dispatch_round(const struct mics_cuda_at *at,
                                     const struct mics_args_dispatch_round *args)
{
    if (args->E > MICS_EXPERTS_MAX)
        return cudaErrorInvalidValue;
    return MICS_LAUNCH(dispatch_round_kernel, 1, THREADS, 0, at->stream, *args);
}

template <typename T, int W>
__global__ void __launch_bounds__(THREADS) combine_rows_kernel(struct mics_args_combine_rows args)
{
    const uint32_t row = blockIdx.x * WARPS + threadIdx.y;

    if (row >= args.rows)
        return;
    const uint32_t *position = args.position + (size_t)row * args.k;
    for (uint32_t c = threadIdx.x * W; c < args.C; c += MICS_WARP * W) {
        const size_t at = (size_t)row * args.C + c;
        float sum[W] = {}, x[W];

        if (args.add)
            mics_load<T, W>((const T *)args.add + at, sum);
        for (uint32_t j = 0; j < args.k; j++) {
            if (position[j] == MICS_NO_ROW)
                continue;
            mics_load<T, W>((const T *)args.in + (size_t)position[j] * args.C + c, x);
#pragma unroll
            for (int i = 0; i < W; i++)
                sum[i] += x[i];
        }
        mics_store<T, W>((T *)args.out + at, sum);
    }
}

template <typename T>
static cudaError_t combine_rows_launch(const struct mics_cuda_at *at,
                                       const struct mics_args_combine_rows *args)
{
    constexpr int W = mics_width<T>::value;
    const dim3 block(MICS_WARP, WARPS);

    if (args->rows == 0 || args->C == 0)
        return cudaSuccess;
    if (args->C % W == 0 && mics_aligned(16, args->out, args->in, args->add))
        return MICS_LAUNCH((combine_rows_kernel<T, W>), blocks_for(args->rows), block, 0,
                           at->stream, *args);
    return MICS_LAUNCH((combine_rows_kernel<T, 1>), blocks_for(args->rows), block, 0, at->stream,
                       *args);
}

cudaError_t mics_cuda_combine_rows(const struct mics_cuda_at *at,
                                   const struct mics_args_combine_rows *args)
{
    return mics_launch_typed(args->dtype,
                             [&](auto t) { return combine_rows_launch<decltype(t)>(at, args); });
}

/*
 * The activation, times the weight of the row: a team of threads for each row, several
 * rows to a block where they are short. 12 bytes (fp32) or 6 (16 bits) per element of the result
 * and about 9 flops; the gradient 20 or 10 and about 18: bound by memory. Within 4e-6 (fp32) or one
 * unit of the last place of the host.
 */

template <typename Args> __device__ __forceinline__ uint32_t slot_of(const Args &args, uint32_t row)
{
    return args.order ? args.order[row] : row;
}

template <typename Args> __device__ __forceinline__ float weight_of(const Args &args, uint32_t slot)
{
    const float weight = args.weights[slot];

    return args.logistic ? mics_logistic<float>(weight) : weight;
}

template <typename T, int W>
__global__ void __launch_bounds__(THREADS) expert_swiglu_kernel(struct mics_args_expert_swiglu args)
{
    const uint32_t row = blockIdx.x * blockDim.y + threadIdx.y;
    const uint32_t slot = row < args.rows ? slot_of(args, row) : MICS_NO_ROW;

    if (slot == MICS_NO_ROW)
        return;
    const T *in = (const T *)args.in + (size_t)row * 2 * args.F;
    T *out = (T *)args.out + (size_t)row * args.F;
    const float weight = weight_of(args, slot);
    for (uint32_t f = threadIdx.x * W; f < args.F; f += blockDim.x * W) {
        float gate[W], up[W];

        mics_load<T, W>(in + f, gate);
        mics_load<T, W>(in + args.F + f, up);
#pragma unroll
        for (int i = 0; i < W; i++)
            up[i] *= weight * mics_silu<T>(gate[i]);
        mics_store<T, W>(out + f, up);
    }
}

template <typename T, int W>
__global__ void __launch_bounds__(THREADS)
    expert_swiglu_grad_kernel(struct mics_args_expert_swiglu_grad args)
{
    MICS_SHARED(float, shared, [MICS_WARPS_MAX]);
    const uint32_t row = blockIdx.x * blockDim.y + threadIdx.y;
    const bool exists = row < args.rows && slot_of(args, row) != MICS_NO_ROW;
    const size_t at = exists ? row : 0;
    const T *in = (const T *)args.in + at * 2 * args.F;
    const T *grad_out = (const T *)args.grad_out + at * args.F;
    T *to = (T *)args.grad_in + at * 2 * args.F;
    const uint32_t slot = exists ? slot_of(args, row) : 0;
    const float weight = weight_of(args, slot);
    float slope[1] = {0};

    for (uint32_t f = threadIdx.x * W; exists && f < args.F; f += blockDim.x * W) {
        float gate[W], up[W], grad[W];

        mics_load<T, W>(in + f, gate);
        mics_load<T, W>(in + args.F + f, up);
        mics_load<T, W>(grad_out + f, grad);
#pragma unroll
        for (int i = 0; i < W; i++) {
            const float x = gate[i], s = mics_logistic<T>(x), silu = mics_silu<T>(x);

            slope[0] += grad[i] * silu * up[i];
            gate[i] = weight * grad[i] * up[i] * (s + silu * (1.0f - s));
            up[i] = weight * grad[i] * silu;
        }
        mics_store<T, W>(to + f, gate);
        mics_store<T, W>(to + args.F + f, up);
    }
    mics_team_sum<1>(slope, shared);
    if (exists && threadIdx.x == 0)
        args.grad_weights[slot] = slope[0] * (args.logistic ? weight * (1.0f - weight) : 1.0f);
}

/* Threads of a row, and rows of a block. */
static dim3 swiglu_block(uint32_t F, unsigned width)
{
    const struct mics_row_teams teams = mics_rows_share(F, width, 1, THREADS, THREADS);

    return teams.team ? dim3(teams.team, teams.teams) : dim3(THREADS, 1);
}

template <typename T, int W>
static cudaError_t swiglu_launch(const struct mics_cuda_at *at,
                                 const struct mics_args_expert_swiglu *args)
{
    const dim3 block = swiglu_block(args->F, W);

    return MICS_LAUNCH((expert_swiglu_kernel<T, W>), (args->rows - 1) / block.y + 1, block, 0,
                       at->stream, *args);
}

template <typename T, int W>
static cudaError_t swiglu_launch(const struct mics_cuda_at *at,
                                 const struct mics_args_expert_swiglu_grad *args)
{
    const dim3 block = swiglu_block(args->F, W);

    return MICS_LAUNCH((expert_swiglu_grad_kernel<T, W>), (args->rows - 1) / block.y + 1, block, 0,
                       at->stream, *args);
}

template <typename T, typename Args>
static cudaError_t swiglu_launch_width(const struct mics_cuda_at *at, const Args *args,
                                       const void *out, const void *grad_out)
{
    constexpr int W = mics_width<T>::value;

    if (args->rows == 0)
        return cudaSuccess;
    if (args->F % W == 0 && mics_aligned(16, args->in, out, grad_out))
        return swiglu_launch<T, W>(at, args);
    return swiglu_launch<T, 1>(at, args);
}

cudaError_t mics_cuda_expert_swiglu(const struct mics_cuda_at *at,
                                    const struct mics_args_expert_swiglu *args)
{
    return mics_launch_typed(args->dtype, [&](auto t) {
        return swiglu_launch_width<decltype(t)>(at, args, args->out, NULL);
    });
}

cudaError_t mics_cuda_expert_swiglu_grad(const struct mics_cuda_at *at,
                                         const struct mics_args_expert_swiglu_grad *args)
{
    return mics_launch_typed(args->dtype, [&](auto t) {
        return swiglu_launch_width<decltype(t)>(at, args, args->grad_in, args->grad_out);
    });
}
