/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_plain.cu - attention and its gradient by fused multiply-adds: for fp32, whose products
 * must not be rounded, for 16-bit heads that the tensor core kernels do not support, and as the
 * reference for the other kernels.
 *
 * A block of 256 threads has 32 rows of one head, 8 threads per row, and loops over tiles of 32
 * rows of the other side, all in shared memory as fp32. A thread has every eighth column of its
 * row. The gradient takes two passes, one in which a block owns keys and one in which it owns
 * queries; attention_grad_mma.cuh has the formulas.
 *
 * Forward 4 T T D flops a head, gradient 14 T T D, half of that when causal; loads from shared
 * memory bound both, about one for each multiply-add. Tolerance against the host in fp32: 1e-5, the
 * order of sums.
 */
#include "attention.cuh"
#include "cuda/vector.cuh"

namespace
{

enum { TILE = 32, SHARE = 8, PLAIN_THREADS = TILE * SHARE, COLUMNS = TILE / SHARE };

/* Length of a row in shared memory: odd, so that rows begin in different banks. */
static __host__ __device__ inline unsigned plain_ld(unsigned D)
{
    return D | 1;
}

static inline size_t plain_bytes(unsigned tiles, unsigned squares, unsigned D)
{
    return (tiles * TILE * plain_ld(D) + squares * TILE * (TILE + 1)) * sizeof(float);
}

template <typename T> static __device__ __forceinline__ float plain_get(const T &value)
{
    float x[1];

    mics_load<T, 1>(&value, x);
    return x[0];
}

template <typename T> static __device__ __forceinline__ void plain_set(T *to, float value)
{
    const float x[1] = {value};

    mics_store<T, 1>(to, x);
}

/* tile[i] = row first + i of `from`, zeros from row T on. */
template <typename T>
static __device__ void plain_load(float *tile, const T *from, size_t stride, unsigned first,
                                  unsigned count, unsigned D)
{
    for (unsigned i = threadIdx.x / 32; i < TILE; i += PLAIN_THREADS / 32)
        for (unsigned d = threadIdx.x % 32; d < D; d += 32)
            tile[i * plain_ld(D) + d] =
                first + i < count ? plain_get(from[(first + i) * stride + d]) : 0;
}

static __device__ __forceinline__ float plain_dot(const float *a, const float *b, unsigned D)
{
    float sum = 0;

    for (unsigned d = 0; d < D; d++)
        sum = fmaf(a[d], b[d], sum);
    return sum;
}

/* sum[j] += row[TILE] tile, for columns share + 8 j of D. */
template <int width>
static __device__ __forceinline__ void plain_add(float (&sum)[width / SHARE], const float *row,
                                                 const float *tile, unsigned D)
{
    unsigned share = threadIdx.x % SHARE;

    for (unsigned c = 0; c < TILE; c++) {
        float p = row[c];

#pragma unroll
        for (int j = 0; j < width / SHARE; j++)
            if (share + (unsigned)j * SHARE < D)
                sum[j] = fmaf(p, tile[c * plain_ld(D) + share + (unsigned)j * SHARE], sum[j]);
    }
}

template <int width, typename T>
static __device__ __forceinline__ void plain_store(T *to, const float (&sum)[width / SHARE],
                                                   float factor, unsigned D)
{
    unsigned share = threadIdx.x % SHARE;

#pragma unroll
    for (int j = 0; j < width / SHARE; j++)
        if (share + (unsigned)j * SHARE < D)
            plain_set(to + share + (unsigned)j * SHARE, sum[j] * factor);
}

/* The sum, or the largest, over the threads of a row. */
static __device__ __forceinline__ float plain_row_sum(float value)
{
    for (int step = SHARE / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(~0u, value, step);
    return value;
}

static __device__ __forceinline__ float plain_row_max(float value)
{
    for (int step = SHARE / 2; step > 0; step /= 2)
        value = fmaxf(value, __shfl_xor_sync(~0u, value, step));
    return value;
}

/* Blocks of TILE rows of all heads. */
static inline unsigned plain_blocks(unsigned T)
{
    return (T + TILE - 1) / TILE;
}

/* --- forward */

template <typename T> struct plain_forward {
    T *out;
    float *lse;
    const T *qkv;
    unsigned T_, H, H_kv, D, blocks;
    float scale;
    bool causal;
    const int32_t *targets; /* nullptr: no documents */
    unsigned window;        /* 0: none */
};

struct plain_row {
    float max, sum;
};

/* Exponentials of a row's scores into `row`; returns the factor for earlier sums. */
static __device__ float plain_soften(float *row, const float (&s)[COLUMNS], struct plain_row *stats)
{
    unsigned share = threadIdx.x % SHARE;
    float max = stats->max, sum = 0, factor;

    for (int j = 0; j < COLUMNS; j++)
        max = fmaxf(max, s[j]);
    max = plain_row_max(max);
    for (int j = 0; j < COLUMNS; j++) {
        float p = expf(s[j] - max);

        row[share + (unsigned)j * SHARE] = p;
        sum += p;
    }
    factor = expf(stats->max - max);
    *stats = {max, stats->sum * factor + plain_row_sum(sum)};
    return factor;
}

template <typename T, int width>
__global__ void __launch_bounds__(PLAIN_THREADS) attend_plain(const struct plain_forward<T> f)
{
    MICS_DYNAMIC_SHARED(float, memory);
    unsigned ld = plain_ld(f.D), r = threadIdx.x / SHARE, share = threadIdx.x % SHARE;
    float *queries = memory, *keys = queries + TILE * ld, *values = keys + TILE * ld;
    float *row = values + TILE * ld + r * (TILE + 1);
    unsigned first = (f.blocks - 1 - blockIdx.x % f.blocks) * TILE, query = first + r;
    unsigned h = blockIdx.x / f.blocks % f.H, b = blockIdx.x / f.blocks / f.H;
    unsigned kv = h / (f.H / f.H_kv), end = f.causal ? min(first + TILE, f.T_) : f.T_;
    size_t stride = (size_t)(f.H + 2 * f.H_kv) * f.D;
    const T *from = f.qkv + b * f.T_ * stride;
    const int32_t *targets = f.targets ? f.targets + (size_t)b * f.T_ : nullptr;
    unsigned document = targets ? mics_document_begin(targets, first) : 0; /* of the query */
    unsigned begin = mics_window_begin(f.window, first, document);
    unsigned last = f.causal ? query : f.T_ - 1; /* that the query sees */
    struct plain_row stats = {-INFINITY, 0};
    float out[width / SHARE] = {};

    for (unsigned t = first; targets && t < min(query, f.T_); t++)
        if (targets[t] == MICS_TARGET_LAST)
            document = t + 1;
    document = mics_window_begin(f.window, query, document);
    if (targets && !f.causal) {
        const unsigned own = min(first + TILE, f.T_) - 1;

        last = mics_document_end(targets, own, f.T_);
        end = last + 1;
        for (unsigned t = own + 1; t-- > query;)
            last = targets[t] == MICS_TARGET_LAST ? t : last;
    }

    plain_load(queries, from + h * f.D, stride, first, f.T_, f.D);
    for (unsigned key = begin / TILE * TILE; key < end; key += TILE) {
        float s[COLUMNS], factor;

        plain_load(keys, from + (f.H + kv) * f.D, stride, key, f.T_, f.D);
        plain_load(values, from + (f.H + f.H_kv + kv) * f.D, stride, key, f.T_, f.D);
        __syncthreads();
        for (int j = 0; j < COLUMNS; j++) {
            unsigned c = share + (unsigned)j * SHARE;
            bool seen = key + c < f.T_ && key + c <= last;

            s[j] = seen ? plain_dot(queries + r * ld, keys + c * ld, f.D) * f.scale : -INFINITY;
            if (key + c < document)
                s[j] = MICS_HIDDEN_SCORE;
        }
        factor = plain_soften(row, s, &stats);
        __syncwarp();
        for (int j = 0; j < width / SHARE; j++)
            out[j] *= factor;
        plain_add<width>(out, row, values, f.D);
        __syncthreads();
    }
    if (query >= f.T_)
        return;
    plain_store<width>(f.out + ((b * f.T_ + query) * (size_t)f.H + h) * f.D, out, 1 / stats.sum,
                       f.D);
    if (share == 0)
        f.lse[((size_t)b * f.H + h) * f.T_ + query] = stats.max + logf(stats.sum);
}

template <typename T, int width>
static cudaError_t launch(const struct plain_forward<T> &f, unsigned B, cudaStream_t stream)
{
    size_t bytes = plain_bytes(3, 1, f.D);
    cudaError_t error = cudaFuncSetAttribute(
        attend_plain<T, width>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);

    if (error != cudaSuccess)
        return error;
    return MICS_LAUNCH((attend_plain<T, width>), f.blocks * f.H * B, PLAIN_THREADS, bytes, stream,
                       f);
}

template <typename T>
static cudaError_t run(const struct mics_cuda_at *at, const struct mics_args_attention *args)
{
    struct plain_forward<T> f = {
        .out = static_cast<T *>(args->out), .lse = args->lse,
        .qkv = static_cast<const T *>(args->qkv), .T_ = args->T, .H = args->H, .H_kv = args->H_kv,
        .D = args->D, .blocks = plain_blocks(args->T), .scale = 1 / sqrtf((float)args->D),
        .causal = args->causal, .targets = args->targets,
        .window = mics_attention_window(args->window, args->T),
    };

    return args->D <= 64    ? launch<T, 64>(f, args->B, at->stream)
           : args->D <= 128 ? launch<T, 128>(f, args->B, at->stream)
                            : launch<T, 256>(f, args->B, at->stream);
}

/* --- gradient */

template <typename T> struct plain_backward {
    T *grad;
    float *delta;
    const T *grad_out, *out, *qkv;
    const float *lse;
    size_t stride, ld_out;
    unsigned T_, B, H, H_kv, D, blocks;
    float scale;
    bool causal;
    const int32_t *targets; /* nullptr: no documents */
    unsigned window;        /* 0: none */
};

/* delta[b, h, t] = sum over d of grad_out * out, one warp for each. 2 flops an element. */
template <typename T>
__global__ void __launch_bounds__(PLAIN_THREADS) row_products(const struct plain_backward<T> f)
{
    size_t i = ((size_t)blockIdx.x * PLAIN_THREADS + threadIdx.x) / 32, row = i / f.H, h = i % f.H;
    bool there = row < (size_t)f.B * f.T_;
    float sum = 0;

    for (unsigned d = threadIdx.x % 32; there && d < f.D; d += 32)
        sum = fmaf(plain_get(f.grad_out[i * f.D + d]), plain_get(f.out[i * f.D + d]), sum);
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync(~0u, sum, step);
    if (there && threadIdx.x % 32 == 0)
        f.delta[(row / f.T_ * f.H + h) * f.T_ + row % f.T_] = sum;
}

/* Where the two matrices of a head begin: queries and grad_out, or keys and values. */
template <typename T> struct plain_pair {
    const T *one, *two;
    size_t ld_one, ld_two;
};

template <typename T>
static __device__ struct plain_pair<T> query_pair(const struct plain_backward<T> &f, unsigned b,
                                                  unsigned h) {
    return {f.qkv + b * f.T_ * f.stride + h * f.D, f.grad_out + b *f.T_ *f.ld_out + h *f.D,
            f.stride, f.ld_out};
}

template <typename T>
static __device__ struct plain_pair<T> key_pair(const struct plain_backward<T> &f, unsigned b,
                                                unsigned kv) {
    const T *keys = f.qkv + b * f.T_ * f.stride + (f.H + kv) * f.D;

    return {keys, keys + f.H_kv *f.D, f.stride, f.stride};
}

/* A block's tiles in shared memory. */
struct plain_tiles {
    float *own_one, *own_two, *one, *two, *p, *ds; /* p, ds: the thread's own row */
};

static __device__ struct plain_tiles plain_carve(float *memory, unsigned D)
{
    unsigned tile = TILE * plain_ld(D), square = TILE * (TILE + 1);
    unsigned row = threadIdx.x / SHARE * (TILE + 1);

    return {memory,
            memory + tile,
            memory + 2 * tile,
            memory + 3 * tile,
            memory + 4 * tile + row,
            memory + 4 * tile + square + row};
}

/* P and dS of the thread's row with the tile that begins at row `column` of the other side. `h` is
 * the head of the queries. */
template <bool keys, typename T>
static __device__ void plain_scores(const struct plain_tiles &at, const struct plain_backward<T> &f,
                                    size_t h_of_all, unsigned own, const struct mics_seen &seen,
                                    unsigned column)
{
    unsigned ld = plain_ld(f.D), r = threadIdx.x / SHARE;

    for (unsigned c = threadIdx.x % SHARE; c < TILE; c += SHARE) {
        unsigned other = column + c, query = keys ? other : own;
        float p = 0, ds = 0;

        if (own < f.T_ && other >= seen.first && other <= seen.last) {
            float s = plain_dot(at.own_one + r * ld, at.one + c * ld, f.D) * f.scale;

            p = expf(s - f.lse[h_of_all * f.T_ + query]);
            ds = plain_dot(at.own_two + r * ld, at.two + c * ld, f.D);
            ds = p * (ds - f.delta[h_of_all * f.T_ + query]);
        }
        at.p[c] = p;
        at.ds[c] = ds;
    }
    __syncwarp();
}

template <typename T, int width, bool keys>
__global__ void __launch_bounds__(PLAIN_THREADS) grad_plain(const struct plain_backward<T> f)
{
    MICS_DYNAMIC_SHARED(float, memory);
    struct plain_tiles at = plain_carve(memory, f.D);
    unsigned heads = keys ? f.H_kv : f.H, group = f.H / f.H_kv;
    unsigned first = blockIdx.x % f.blocks * TILE, own = first + threadIdx.x / SHARE;
    unsigned head = blockIdx.x / f.blocks % heads, b = blockIdx.x / f.blocks / heads;
    unsigned begin = keys && f.causal ? first : 0;
    unsigned end = !keys && f.causal ? min(first + TILE, f.T_) : f.T_;
    const int32_t *targets = f.targets ? f.targets + (size_t)b * f.T_ : nullptr;
    struct mics_seen seen = {keys && f.causal ? own : 0, !keys && f.causal ? own : f.T_ - 1};
    const unsigned last = min(first + TILE, f.T_) - 1;
    struct plain_pair<T> mine = keys ? key_pair(f, b, head) : query_pair(f, b, head);
    float sum_one[width / SHARE] = {}, sum_two[width / SHARE] = {};

    if (targets && (keys || !f.causal)) {
        seen.last = mics_document_end(targets, last, f.T_);
        end = seen.last + 1;
        for (unsigned t = last + 1; t-- > own;)
            seen.last = targets[t] == MICS_TARGET_LAST ? t : seen.last;
    }
    if (targets && (!keys || !f.causal)) {
        begin = seen.first = mics_document_begin(targets, first);
        for (unsigned t = first; t < min(own, f.T_); t++)
            seen.first = targets[t] == MICS_TARGET_LAST ? t + 1 : seen.first;
    }
    if (keys) {
        end = mics_window_end(f.window, last, end - 1) + 1;
        seen.last = mics_window_end(f.window, own, seen.last);
    } else {
        begin = mics_window_begin(f.window, first, begin);
        seen.first = mics_window_begin(f.window, own, seen.first);
    }
    begin = begin / TILE * TILE;
    plain_load(at.own_one, mine.one, mine.ld_one, first, f.T_, f.D);
    plain_load(at.own_two, mine.two, mine.ld_two, first, f.T_, f.D);
    for (unsigned i = 0; i < (keys ? group : 1); i++) {
        unsigned h = keys ? head * group + i : head;
        struct plain_pair<T> other = keys ? query_pair(f, b, h) : key_pair(f, b, head / group);

        for (unsigned column = begin; column < end; column += TILE) {
            plain_load(at.one, other.one, other.ld_one, column, f.T_, f.D);
            plain_load(at.two, other.two, other.ld_two, column, f.T_, f.D);
            __syncthreads();
            plain_scores<keys>(at, f, (size_t)b * f.H + h, own, seen, column);
            plain_add<width>(sum_one, at.ds, at.one, f.D);
            if (keys)
                plain_add<width>(sum_two, at.p, at.two, f.D);
            __syncthreads();
        }
    }
    if (own < f.T_) {
        T *to = f.grad + (b * f.T_ + own) * f.stride + (keys ? f.H + head : head) * f.D;

        plain_store<width>(to, sum_one, f.scale, f.D);
        if (keys)
            plain_store<width>(to + f.H_kv * f.D, sum_two, 1, f.D);
    }
}

template <typename T, int width, bool keys>
static cudaError_t launch(const struct plain_backward<T> &f, cudaStream_t stream)
{
    size_t bytes = plain_bytes(4, 2, f.D);
    unsigned grid = f.blocks * (keys ? f.H_kv : f.H) * f.B;
    cudaError_t error = cudaFuncSetAttribute(
        grad_plain<T, width, keys>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);

    if (error != cudaSuccess)
        return error;
    return MICS_LAUNCH((grad_plain<T, width, keys>), grid, PLAIN_THREADS, bytes, stream, f);
}

template <typename T, int width>
static cudaError_t launch_all(const struct plain_backward<T> &f, cudaStream_t stream)
{
    size_t threads = (size_t)f.B * f.T_ * f.H * 32;
    unsigned grid = (unsigned)((threads + PLAIN_THREADS - 1) / PLAIN_THREADS);
    cudaError_t error = MICS_LAUNCH(row_products<T>, grid, PLAIN_THREADS, 0, stream, f);

    if (error == cudaSuccess)
        error = launch<T, width, true>(f, stream);
    if (error == cudaSuccess)
        error = launch<T, width, false>(f, stream);
    return error;
}

template <typename T>
static cudaError_t run(const struct mics_cuda_at *at, const struct mics_args_attention_grad *args)
{
    struct plain_backward<T> f = {
        .grad = static_cast<T *>(args->grad_qkv), .delta = args->delta,
        .grad_out = static_cast<const T *>(args->grad_out),
        .out = static_cast<const T *>(args->out), .qkv = static_cast<const T *>(args->qkv),
        .lse = args->lse, .stride = (size_t)(args->H + 2 * args->H_kv) * args->D,
        .ld_out = (size_t)args->H * args->D, .T_ = args->T, .B = args->B, .H = args->H,
        .H_kv = args->H_kv, .D = args->D, .blocks = plain_blocks(args->T),
        .scale = 1 / sqrtf((float)args->D), .causal = args->causal, .targets = args->targets,
        .window = mics_attention_window(args->window, args->T),
    };

    return args->D <= 64    ? launch_all<T, 64>(f, at->stream)
           : args->D <= 128 ? launch_all<T, 128>(f, at->stream)
                            : launch_all<T, 256>(f, at->stream);
}

} // namespace

bool mics_attention_plain_fits(unsigned D)
{
    return D <= MICS_HEAD_MAX && mics_block_fits(plain_bytes(4, 2, D));
}

cudaError_t mics_cuda_attention_plain(const struct mics_cuda_at *at,
                                      const struct mics_args_attention *args)
{
    if (args->D > MICS_HEAD_MAX)
        return cudaErrorInvalidValue;
    return mics_launch_typed(args->dtype, [&](auto t) { return run<decltype(t)>(at, args); });
}

cudaError_t mics_cuda_attention_grad_plain(const struct mics_cuda_at *at,
                                           const struct mics_args_attention_grad *args)
{
    if (args->D > MICS_HEAD_MAX)
        return cudaErrorInvalidValue;
    return mics_launch_typed(args->dtype, [&](auto t) { return run<decltype(t)>(at, args); });
}
