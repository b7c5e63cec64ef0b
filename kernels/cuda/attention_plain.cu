/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_plain.cu - attention by fused multiply-adds: fp32, and heads that the tensor cores do not take; see
 * attention_plain.cuh.
 *
 * A block has 32 queries. 4 T T D flops a head, half of that when causal; shared memory sets the pace, about
 * one load for each multiply-add. Tolerance against the host in fp32: 1e-5, the order of sums.
 */
#include "attention_plain.cuh"

namespace
{

template <typename T> struct plain_forward {
    T *out;
    float *lse;
    const T *qkv;
    unsigned T_, H, H_kv, D, blocks;
    float scale;
    bool causal;
};

struct plain_row {
    float max, sum;
};

/* Exponentials of a row's scores into `row`; returns what earlier sums are to be multiplied by. */
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
    struct plain_row stats = {-INFINITY, 0};
    float out[width / SHARE] = {};

    plain_load(queries, from + h * f.D, stride, first, f.T_, f.D);
    for (unsigned key = 0; key < end; key += TILE) {
        float s[COLUMNS], factor;

        plain_load(keys, from + (f.H + kv) * f.D, stride, key, f.T_, f.D);
        plain_load(values, from + (f.H + f.H_kv + kv) * f.D, stride, key, f.T_, f.D);
        __syncthreads();
        for (int j = 0; j < COLUMNS; j++) {
            unsigned c = share + (unsigned)j * SHARE;
            bool seen = key + c < f.T_ && (!f.causal || key + c <= query);

            s[j] = seen ? plain_dot(queries + r * ld, keys + c * ld, f.D) * f.scale : -INFINITY;
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
static cudaError_t run(const struct mics_cuda_at *at, const struct mics_op_attention *args)
{
    struct plain_forward<T> f = {
        .out = static_cast<T *>(args->out), .lse = args->lse,
        .qkv = static_cast<const T *>(args->qkv), .T_ = args->T, .H = args->H, .H_kv = args->H_kv,
        .D = args->D, .blocks = plain_blocks(args->T), .scale = 1 / sqrtf((float)args->D),
        .causal = args->causal,
    };

    return args->D <= 64    ? launch<T, 64>(f, args->B, at->stream)
           : args->D <= 128 ? launch<T, 128>(f, args->B, at->stream)
                            : launch<T, 256>(f, args->B, at->stream);
}

} // namespace

cudaError_t mics_cuda_attention_plain(const struct mics_cuda_at *at,
                                      const struct mics_op_attention *args)
{
    if (args->D > MICS_HEAD_MAX)
        return cudaErrorInvalidValue;
    return args->dtype == MICS_BF16 ? run<mics_bf16>(at, args) : run<float>(at, args);
}
