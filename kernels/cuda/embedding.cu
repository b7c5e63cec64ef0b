/* SPDX-License-Identifier: Apache-2.0 */
/*
 * embedding.cu - embeddings of tokens and positions: the lookup, its gradient, and rotary
 * positions.
 */
#include "cuda/gpu.h"
#include "cuda/kernels.h"
#include "cuda/reduce.cuh"
#include "cuda/sort.cuh"
#include "cuda/vector.cuh"
#include "rope.h"

/*
 * Look up rows of the table of tokens, and of the table of positions, and add one to each.
 *
 * A block takes 8 tokens, one for each warp, whose lanes stride over the row in pieces of 16 bytes,
 * two of each table in flight in each thread. 12 bytes (fp32) or 6 (16 bits) and 1 flop per
 * element: bound by memory. The same bits as the host.
 */

#define LOOKUP_LANES 32
#define LOOKUP_WARPS 8
#define LOOKUP_DEPTH 2

/* out = token (+ position) (+ each) for LOOKUP_DEPTH pieces from column c on, as far as the row
 * goes. */
template <typename T, int W>
__device__ __forceinline__ void add_pieces(T *out, const T *token, const T *position, const T *each,
                                           uint32_t c, uint32_t C)
{
    mics_packed<T, W> in[LOOKUP_DEPTH], at[LOOKUP_DEPTH];
    float x[W], y[W];

#pragma unroll
    for (int d = 0; d < LOOKUP_DEPTH; d++)
        if (c + d * LOOKUP_LANES * W < C)
            in[d] = mics_read<T, W>(token + c + d * LOOKUP_LANES * W);
#pragma unroll
    for (int d = 0; d < LOOKUP_DEPTH; d++)
        if (position && c + d * LOOKUP_LANES * W < C)
            at[d] = mics_read<T, W>(position + c + d * LOOKUP_LANES * W);
#pragma unroll
    for (int d = 0; d < LOOKUP_DEPTH; d++) {
        if (c + d * LOOKUP_LANES * W >= C)
            break;
        mics_widen<T, W>(in[d], x);
        if (position) {
            mics_widen<T, W>(at[d], y);
#pragma unroll
            for (int i = 0; i < W; i++)
                x[i] += y[i];
        }
        if (each) {
            mics_widen<T, W>(mics_read<T, W>(each + c + d * LOOKUP_LANES * W), y);
#pragma unroll
            for (int i = 0; i < W; i++)
                x[i] += y[i];
        }
        mics_store<T, W>(out + c + d * LOOKUP_LANES * W, x);
    }
}

template <typename T, int W>
__global__ void __launch_bounds__(LOOKUP_LANES *LOOKUP_WARPS)
    embedding_kernel(struct mics_args_embedding args, uint32_t rows)
{
    const uint32_t row = blockIdx.x * LOOKUP_WARPS + threadIdx.y;
    T *out = (T *)args.out + (size_t)row * args.C;

    if (row >= rows)
        return;
    const T *token = (const T *)args.wte + (size_t)args.tokens[row] * args.C;
    const T *wpe = args.wpe ? (const T *)args.wpe + (size_t)(row % args.T) * args.C : NULL;
    for (uint32_t c = threadIdx.x * W; c < args.C; c += LOOKUP_DEPTH * LOOKUP_LANES * W)
        add_pieces<T, W>(out, token, wpe, (const T *)args.each, c, args.C);
}

template <typename T>
static cudaError_t embedding_launch(const struct mics_cuda_at *at,
                                    const struct mics_args_embedding *args)
{
    constexpr int W = mics_width<T>::value;
    const uint64_t rows = (uint64_t)args->B * args->T,
                   blocks = (rows + LOOKUP_WARPS - 1) / LOOKUP_WARPS;
    const dim3 block(LOOKUP_LANES, LOOKUP_WARPS);

    if (rows == 0 || args->C == 0)
        return cudaSuccess;
    if (rows > 0x7fffffff)
        return cudaErrorInvalidValue;
    if (args->C % W == 0 && mics_aligned(16, args->out, args->wte, args->wpe, args->each))
        return MICS_LAUNCH((embedding_kernel<T, W>), (unsigned)blocks, block, 0, at->stream, *args,
                           (uint32_t)rows);
    return MICS_LAUNCH((embedding_kernel<T, 1>), (unsigned)blocks, block, 0, at->stream, *args,
                       (uint32_t)rows);
}

cudaError_t mics_cuda_embedding(const struct mics_cuda_at *at,
                                const struct mics_args_embedding *args)
{
    return mics_launch_typed(args->dtype,
                             [&](auto t) { return embedding_launch<decltype(t)>(at, args); });
}

/*
 * Sums of the rows of a gradient by token and by position.
 *
 * By token: the rows are sorted by their tokens (mics_sort_launch()) and the sorted rows cut into
 * windows. A block takes a window and adds up, piece by piece of 16 bytes, each run of equal tokens
 * in it, four rows in flight in each thread. What begins and ends in the window is added to the
 * token's row of grad_wte; the sum of a run that begins in the previous window or continues in the
 * next one is kept in the workspace, until a second kernel adds those of one token up in order. So
 * the rows of a frequent token are summed by many blocks, and the order of every sum depends on
 * shapes and tokens only.
 *
 * By position: a thread adds up one piece of the rows of its position.
 *
 * 4 bytes (fp32) or 2 (16 bits) and 1 flop per element of grad_out for each of the two sums, and
 * one read and one write of the rows of grad_wte that occur: bound by memory. Within 1e-6 of the
 * host, relative to the sum of magnitudes; 16 bits round each result once for every 524,288 rows.
 * Equal runs give equal bits.
 */

#define ROWS_MAX    (512 * 1024) /* sorted at a time */
#define WINDOW_MIN  32
#define SUM_DEPTH   4
#define SUM_THREADS 256

/* A sorted run of rows. partials: [windows, 2, C]: of the run that continues from the previous
 * window, and of the one that continues in the next. */
struct sorted {
    const uint32_t *keys, *order;
    uint32_t rows, window, C;
    float *partials;
    const void *grad_out;
    void *grad_wte;
};

/* to[0 .. W) += sum */
template <typename G, int W>
__device__ __forceinline__ void add_to(void *to, size_t at, const float (&sum)[W])
{
    float old[W];

    mics_load<G, W>((const G *)to + at, old);
#pragma unroll
    for (int i = 0; i < W; i++)
        old[i] += sum[i];
    mics_store<G, W>((G *)to + at, old);
}

__device__ __forceinline__ float *partial_at(const struct sorted &args, uint32_t window, int which,
                                             uint32_t c)
{
    return args.partials + ((size_t)window * 2 + which) * args.C + c;
}

/* One piece of the columns of one window. */
template <typename T, typename G, int W>
__device__ __forceinline__ void sum_window(const struct sorted &args, uint32_t begin, uint32_t stop,
                                           uint32_t c)
{
    bool from_before = begin > 0 && args.keys[begin - 1] == args.keys[begin];
    float sum[W] = {}, x[W];

    for (uint32_t i = begin; i < stop; i += SUM_DEPTH) {
        mics_packed<T, W> in[SUM_DEPTH];

#pragma unroll
        for (int d = 0; d < SUM_DEPTH; d++)
            if (i + d < stop)
                in[d] = mics_read<T, W>((const T *)args.grad_out +
                                        (size_t)args.order[i + d] * args.C + c);
#pragma unroll
        for (int d = 0; d < SUM_DEPTH; d++) {
            if (i + d >= stop)
                break;
            mics_widen<T, W>(in[d], x);
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] += x[j];
            const uint32_t key = args.keys[i + d];
            const bool ends = i + d + 1 == args.rows || args.keys[i + d + 1] != key;

            if (!ends && i + d + 1 < stop)
                continue;
            if (from_before || !ends)
                mics_store<float, W>(partial_at(args, blockIdx.x, !from_before, c), sum);
            else
                add_to<G, W>(args.grad_wte, (size_t)key * args.C + c, sum);
            from_before = false;
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] = 0;
        }
    }
}

/* One block: one window. */
template <typename T, typename G, int W>
__global__ void __launch_bounds__(SUM_THREADS) sum_windows_kernel(struct sorted args)
{
    const uint32_t begin = blockIdx.x * args.window, left = args.rows - begin;
    const uint32_t stop = begin + (left < args.window ? left : args.window);

    for (uint32_t c = threadIdx.x * W; c < args.C; c += blockDim.x * W)
        sum_window<T, G, W>(args, begin, stop, c);
}

/* The first place after `from` whose key is greater than that at `from`. */
__device__ __forceinline__ uint32_t end_of_run(const struct sorted &args, uint32_t from)
{
    const uint32_t key = args.keys[from];
    uint32_t low = from + 1, high = args.rows;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (args.keys[middle] > key)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* One block: the run that begins in a window and continues in the next. */
template <typename G, int W>
__global__ void __launch_bounds__(SUM_THREADS) join_windows_kernel(struct sorted args)
{
    const uint32_t begin = blockIdx.x * args.window, stop = begin + args.window;

    if (stop >= args.rows || args.keys[stop] != args.keys[stop - 1] ||
        (begin > 0 && args.keys[begin - 1] == args.keys[stop - 1]))
        return;
    const uint32_t last = (end_of_run(args, stop) - 1) / args.window;
    for (uint32_t c = threadIdx.x * W; c < args.C; c += blockDim.x * W) {
        float sum[W], x[W];

        mics_load<float, W>(partial_at(args, blockIdx.x, 1, c), sum);
#pragma unroll 4
        for (uint32_t window = blockIdx.x + 1; window <= last; window++) {
            mics_load<float, W>(partial_at(args, window, 0, c), x);
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] += x[j];
        }
        add_to<G, W>(args.grad_wte, (size_t)args.keys[stop] * args.C + c, sum);
    }
}

/* One block: blockDim.x pieces of the columns of one position. */
template <typename T, typename G, int W>
__global__ void __launch_bounds__(SUM_THREADS)
    sum_positions_kernel(struct mics_args_embedding_grad args)
{
    const uint32_t t = blockIdx.x, c = (blockIdx.y * blockDim.x + threadIdx.x) * W;
    const T *from = (const T *)args.grad_out + (size_t)t * args.C + c;
    float sum[W] = {}, x[W];

    if (c >= args.C)
        return;
#pragma unroll 4
    for (uint32_t b = 0; b < args.B; b++) {
        mics_load<T, W>(from + (size_t)b * args.T * args.C, x);
#pragma unroll
        for (int j = 0; j < W; j++)
            sum[j] += x[j];
    }
    add_to<G, W>(args.grad_wpe, (size_t)t * args.C + c, sum);
}

/* Threads for the pieces of a row, no more than it has but for whole warps. */
static unsigned threads_for(uint32_t C, uint32_t width)
{
    const uint32_t pieces = (C + width - 1) / width;

    return pieces < SUM_THREADS ? (pieces + MICS_WARP - 1) / MICS_WARP * MICS_WARP : SUM_THREADS;
}

/* The shortest windows whose partial sums fit `bytes`. */
static uint32_t window_size(uint32_t rows, uint32_t C, size_t bytes)
{
    uint32_t window = WINDOW_MIN;

    while ((size_t)((rows - 1) / window + 1) * 2 * C * sizeof(float) > bytes && window < rows)
        window *= 2;
    return window;
}

/* Divide the workspace into `sort` and, in the rest, partial sums, aligned to 16 bytes. */
static void divide_workspace(const struct mics_cuda_at *at, struct mics_sort *sort,
                             struct sorted *sums)
{
    const size_t rows = (sort->rows + 3) / 4 * 4,
                 places = (size_t)mics_sort_tiles(sort->rows) * MICS_SORT_DIGITS;
    uint32_t *free = (uint32_t *)at->workspace;

    for (int i = 0; i < 2; i++) {
        sort->keys[i] = free + (2 * i) * rows;
        sort->order[i] = free + (2 * i + 1) * rows;
    }
    sort->places = free + 4 * rows;
    sums->partials = (float *)(sort->places + places);
    sums->window = window_size(sort->rows, sums->C,
                               MICS_CUDA_WORKSPACE_BYTES - (4 * rows + places) * sizeof(uint32_t));
}

template <typename T, typename G, int W>
static cudaError_t add_tokens(const struct mics_cuda_at *at,
                              const struct mics_args_embedding_grad *args, uint64_t first,
                              uint32_t rows)
{
    struct mics_sort sort = {args->tokens + first, rows, args->V, {}, {}, NULL};
    struct sorted sums = {
        NULL,          NULL, rows, 0, args->C, NULL, (const T *)args->grad_out + first * args->C,
        args->grad_wte};
    const int result = mics_sort_result(args->V);
    cudaError_t error;

    divide_workspace(at, &sort, &sums);
    const uint32_t windows = (rows - 1) / sums.window + 1;
    const unsigned threads = threads_for(args->C, W);
    error = mics_sort_launch(at->stream, &sort);
    sums.keys = sort.keys[result];
    sums.order = sort.order[result];
    if (error == cudaSuccess)
        error = MICS_LAUNCH((sum_windows_kernel<T, G, W>), windows, threads, 0, at->stream, sums);
    if (error == cudaSuccess && windows > 1)
        error = MICS_LAUNCH((join_windows_kernel<G, W>), windows, threads, 0, at->stream, sums);
    return error;
}

template <typename T, typename G, int W>
static cudaError_t embedding_grad_launch(const struct mics_cuda_at *at,
                                         const struct mics_args_embedding_grad *args)
{
    const uint64_t rows = (uint64_t)args->B * args->T;
    const uint32_t tiles = (args->C + SUM_THREADS * W - 1) / (SUM_THREADS * W);
    const unsigned threads = threads_for(args->C, W);
    cudaError_t error = cudaSuccess;

    for (uint64_t first = 0; first < rows && error == cudaSuccess; first += ROWS_MAX)
        error = add_tokens<T, G, W>(at, args, first,
                                    rows - first < ROWS_MAX ? (uint32_t)(rows - first)
                                                            : (uint32_t)ROWS_MAX);
    if (error == cudaSuccess && args->grad_wpe)
        error = MICS_LAUNCH((sum_positions_kernel<T, G, W>), dim3(args->T, tiles), threads, 0,
                            at->stream, *args);
    return error;
}

template <typename T, typename G>
static cudaError_t embedding_grad_launch_width(const struct mics_cuda_at *at,
                                               const struct mics_args_embedding_grad *args)
{
    constexpr int W = sizeof(T) == 2 && sizeof(G) == 2 ? 8 : 4;

    if (args->B == 0 || args->T == 0 || args->C == 0)
        return cudaSuccess;
    if (args->C > 1u << 20)
        return cudaErrorInvalidValue;
    if (args->C % W == 0 && mics_aligned(16, args->grad_wte, args->grad_wpe, args->grad_out))
        return embedding_grad_launch<T, G, W>(at, args);
    return embedding_grad_launch<T, G, 1>(at, args);
}

cudaError_t mics_cuda_embedding_grad(const struct mics_cuda_at *at,
                                     const struct mics_args_embedding_grad *args)
{
    return mics_launch_typed(args->dtype, args->grad_dtype, [&](auto t, auto g) {
        return embedding_grad_launch_width<decltype(t), decltype(g)>(at, args);
    });
}

/*
 * Rotary positions (Su et al. 2021) in place, in the rotate-half form.
 *
 * A block rotates the heads of one row: D / 2 of its threads compute the sines and cosines of the
 * row's position, all heads share them, and each thread rotates a piece of up to 16 bytes of a
 * first half with the piece of the second half that belongs to it. 8 bytes (fp32) or 4 (16 bits)
 * and 3 flops per element, a sine and a cosine for every `heads` pairs: bound by memory. The
 * frequencies come from the host's double precision. Within 2e-6 (fp32; the angle's own rounding,
 * up to T * 6e-8, is the host's, too) or one unit of the last place of the host.
 */

#define HALF_MAX     (MICS_HEAD_MAX / 2)
#define ROPE_THREADS 128

struct frequencies {
    float of[HALF_MAX];
    float amplitude; /* of cosines and sines */
};

template <typename T, int W>
__global__ void __launch_bounds__(ROPE_THREADS)
    rope_kernel(const __grid_constant__ struct mics_args_rope args,
                const __grid_constant__ frequencies freq)
{
    MICS_SHARED(float, cosine, [HALF_MAX]);
    MICS_SHARED(float, sine, [HALF_MAX]);
    const uint32_t half = args.D / 2, pieces = half / W;
    T *row = (T *)args.data + (size_t)blockIdx.x * args.stride;

    if (threadIdx.x < half) {
        const float angle = (float)(blockIdx.x % args.T) * freq.of[threadIdx.x];

        sincosf(angle, &sine[threadIdx.x], &cosine[threadIdx.x]);
        sine[threadIdx.x] *= freq.amplitude;
        cosine[threadIdx.x] *= freq.amplitude;
    }
    __syncthreads();
    for (uint32_t piece = threadIdx.x; piece < args.heads * pieces; piece += ROPE_THREADS) {
        const uint32_t i = piece % pieces * W;
        T *first = row + piece / pieces * args.D + i;
        float a[W], b[W];

        mics_load<T, W>(first, a);
        mics_load<T, W>(first + half, b);
#pragma unroll
        for (int j = 0; j < W; j++) {
            const float c = cosine[i + j], s = args.inverse ? -sine[i + j] : sine[i + j], x = a[j];

            a[j] = x * c - b[j] * s;
            b[j] = b[j] * c + x * s;
        }
        mics_store<T, W>(first, a);
        mics_store<T, W>(first + half, b);
    }
}

template <typename T, int W>
static cudaError_t rope_launch(const struct mics_cuda_at *at, const struct mics_args_rope *args)
{
    frequencies freq = {.of = {}, .amplitude = mics_rope_amplitude(args)};

    for (uint32_t i = 0; i < args->D / 2; i++)
        freq.of[i] = mics_rope_frequency(args, i);
    return MICS_LAUNCH((rope_kernel<T, W>), args->B * args->T, ROPE_THREADS, 0, at->stream, *args,
                       freq);
}

template <typename T>
static cudaError_t rope_launch_width(const struct mics_cuda_at *at,
                                     const struct mics_args_rope *args)
{
    constexpr int W = mics_width<T>::value;

    if (args->B == 0 || args->T == 0 || args->heads == 0 || args->D == 0)
        return cudaSuccess;
    if (args->D % 2 != 0 || args->D > MICS_HEAD_MAX || (uint64_t)args->B * args->T > 0x7fffffff)
        return cudaErrorInvalidValue;
    if (args->D / 2 % W == 0 && args->stride % W == 0 && mics_aligned(16, args->data))
        return rope_launch<T, W>(at, args);
    return rope_launch<T, 1>(at, args);
}

cudaError_t mics_cuda_rope(const struct mics_cuda_at *at, const struct mics_args_rope *args)
{
    return mics_launch_typed(args->dtype,
                             [&](auto t) { return rope_launch_width<decltype(t)>(at, args); });
}
