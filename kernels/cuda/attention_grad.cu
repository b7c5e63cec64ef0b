/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_grad.cu - the gradient of attention on tensor cores: first delta, then the gradients of keys and
 * values, then those of queries; see attention_grad.cuh.
 *
 * Tolerance against the host: P and dS are rounded to bf16 before they are multiplied, 2^-8 of their largest.
 */
#include "attention_grad.cuh"

namespace
{

enum { DELTA_THREADS = 256, DELTA_LANES = 8 };

/* delta[b, h, t] = sum over d of grad_out * out: eight lanes for each row of a head, 16 bytes a load.
 * 4 bytes and 2 flops an element. */
__global__ void __launch_bounds__(DELTA_THREADS)
    row_products(float *delta, const mics_bf16 *grad_out, const mics_bf16 *out, unsigned rows,
                 unsigned T, unsigned H, unsigned D)
{
    size_t i = ((size_t)blockIdx.x * DELTA_THREADS + threadIdx.x) / DELTA_LANES;
    size_t row = i / H, h = i % H;
    float sum = 0;

    for (unsigned d = threadIdx.x % DELTA_LANES * 8; row < rows && d < D; d += DELTA_LANES * 8) {
        uint4 a = *reinterpret_cast<const uint4 *>(grad_out + i * D + d);
        uint4 b = *reinterpret_cast<const uint4 *>(out + i * D + d);
        const uint32_t x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};

#pragma unroll
        for (int j = 0; j < 4; j++) {
            sum += __uint_as_float(x[j] << 16) * __uint_as_float(y[j] << 16);
            sum += __uint_as_float(x[j] & 0xffff0000u) * __uint_as_float(y[j] & 0xffff0000u);
        }
    }
    for (int step = DELTA_LANES / 2; step > 0; step /= 2)
        sum += __shfl_xor_sync(~0u, sum, step);
    if (row < rows && threadIdx.x % DELTA_LANES == 0)
        delta[(row / T * H + h) * T + row % T] = sum;
}

template <typename P>
static cudaError_t launch(struct backward *f, unsigned heads, cudaStream_t stream)
{
    cudaError_t error = cudaFuncSetAttribute(
        grad_rows<P>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)P::shared_bytes);

    if (error != cudaSuccess)
        return error;
    f->blocks = (f->T + P::rows - 1) / P::rows;
    return MICS_LAUNCH(grad_rows<P>, f->blocks * heads, P::threads, P::shared_bytes, stream, *f);
}

template <bool causal>
static cudaError_t launch_both(struct backward *f, unsigned B, cudaStream_t stream)
{
    typedef grad_policy<64, true, causal, 2, 4, false, 2> keys64;
    typedef grad_policy<64, false, causal, 2, 4, true, 2> queries64;
    typedef grad_policy<128, true, causal, 1, 8, true, 1> keys128;
    typedef grad_policy<128, false, causal, 1, 8, true, 1> queries128;
    cudaError_t error = f->D <= 64 ? launch<keys64>(f, B * f->H_kv, stream)
                                   : launch<keys128>(f, B * f->H_kv, stream);

    if (error != cudaSuccess)
        return error;
    return f->D <= 64 ? launch<queries64>(f, B * f->H, stream)
                      : launch<queries128>(f, B * f->H, stream);
}

} // namespace

cudaError_t mics_cuda_attention_grad(const struct mics_cuda_at *at,
                                     const struct mics_op_attention_grad *args)
{
    unsigned rows = args->B * args->T;
    size_t threads = (size_t)rows * args->H * DELTA_LANES;
    struct backward f = {
        .grad = static_cast<mics_bf16 *>(args->grad_qkv),
        .qkv = static_cast<const mics_bf16 *>(args->qkv),
        .grad_out = static_cast<const mics_bf16 *>(args->grad_out),
        .lse = args->lse,
        .delta = args->delta,
        .stride = (size_t)(args->H + 2 * args->H_kv) * args->D,
        .ld_out = (size_t)args->H * args->D,
        .T = args->T,
        .H = args->H,
        .H_kv = args->H_kv,
        .D = args->D,
        .blocks = 0,
        .scale = 1 / sqrtf((float)args->D),
    };
    cudaError_t error;

    if (threads == 0)
        return cudaSuccess;
    if (!mics_attention_is_fast(args->dtype, args->D))
        return mics_cuda_attention_grad_plain(at, args);
    error = MICS_LAUNCH(row_products, (unsigned)((threads + DELTA_THREADS - 1) / DELTA_THREADS),
                        DELTA_THREADS, 0, at->stream, args->delta, f.grad_out,
                        static_cast<const mics_bf16 *>(args->out), rows, args->T, args->H, args->D);
    if (error != cudaSuccess)
        return error;
    return args->causal ? launch_both<true>(&f, args->B, at->stream)
                        : launch_both<false>(&f, args->B, at->stream);
}
