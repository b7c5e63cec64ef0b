/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_grad_plain.cu - the gradient of attention by fused multiply-adds: fp32, and heads that the tensor
 * cores do not take. The formulas, and why there are two passes, stand in attention_grad.cuh.
 *
 * A block owns 32 keys or queries. 14 T T D flops a head, half of that when causal. Tolerance against the host in
 * fp32: 1e-5, the order of sums.
 */
#include "attention_plain.cuh"

namespace
{

template <typename T> struct plain_backward {
    T *grad;
    float *delta;
    const T *grad_out, *out, *qkv;
    const float *lse;
    size_t stride, ld_out;
    unsigned T_, B, H, H_kv, D, blocks;
    float scale;
    bool causal;
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

/* P and dS of the thread's row with the tile that begins at row `column` of the other side. `h` is the head of the
 * queries. */
template <bool keys, typename T>
static __device__ void plain_scores(const struct plain_tiles &at, const struct plain_backward<T> &f,
                                    size_t h_of_all, unsigned own, unsigned column)
{
    unsigned ld = plain_ld(f.D), r = threadIdx.x / SHARE;

    for (unsigned c = threadIdx.x % SHARE; c < TILE; c += SHARE) {
        unsigned query = keys ? column + c : own, key = keys ? own : column + c;
        float p = 0, ds = 0;

        if (query < f.T_ && key < f.T_ && (!f.causal || key <= query)) {
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
    struct plain_pair<T> mine = keys ? key_pair(f, b, head) : query_pair(f, b, head);
    float sum_one[width / SHARE] = {}, sum_two[width / SHARE] = {};

    plain_load(at.own_one, mine.one, mine.ld_one, first, f.T_, f.D);
    plain_load(at.own_two, mine.two, mine.ld_two, first, f.T_, f.D);
    for (unsigned i = 0; i < (keys ? group : 1); i++) {
        unsigned h = keys ? head * group + i : head;
        struct plain_pair<T> other = keys ? query_pair(f, b, h) : key_pair(f, b, head / group);

        for (unsigned column = begin; column < end; column += TILE) {
            plain_load(at.one, other.one, other.ld_one, column, f.T_, f.D);
            plain_load(at.two, other.two, other.ld_two, column, f.T_, f.D);
            __syncthreads();
            plain_scores<keys>(at, f, (size_t)b * f.H + h, own, column);
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
static cudaError_t run(const struct mics_cuda_at *at, const struct mics_op_attention_grad *args)
{
    struct plain_backward<T> f = {
        .grad = static_cast<T *>(args->grad_qkv), .delta = args->delta,
        .grad_out = static_cast<const T *>(args->grad_out),
        .out = static_cast<const T *>(args->out), .qkv = static_cast<const T *>(args->qkv),
        .lse = args->lse, .stride = (size_t)(args->H + 2 * args->H_kv) * args->D,
        .ld_out = (size_t)args->H * args->D, .T_ = args->T, .B = args->B, .H = args->H,
        .H_kv = args->H_kv, .D = args->D, .blocks = plain_blocks(args->T),
        .scale = 1 / sqrtf((float)args->D), .causal = args->causal,
    };

    return args->D <= 64    ? launch_all<T, 64>(f, at->stream)
           : args->D <= 128 ? launch_all<T, 128>(f, at->stream)
                            : launch_all<T, 256>(f, at->stream);
}

} // namespace

cudaError_t mics_cuda_attention_grad_plain(const struct mics_cuda_at *at,
                                           const struct mics_op_attention_grad *args)
{
    if (args->D > MICS_HEAD_MAX)
        return cudaErrorInvalidValue;
    return args->dtype == MICS_BF16 ? run<mics_bf16>(at, args) : run<float>(at, args);
}
