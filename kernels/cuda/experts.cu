/* SPDX-License-Identifier: Apache-2.0 */
/*
 * experts.cu - mixtures of experts between the router (router.cu) and their products (grouped.cu):
 * the sort by expert, rows in the order of experts and back, rounds of rows that travel to other
 * ranks, and the activation.
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
