/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_grad_mma.cu - the gradient of attention on tensor cores by mma.sync, in three launches:
 * delta, the gradients of keys and values, the gradients of queries; see attention_grad_mma.cuh.
 *
 * Tolerance against the host: P and dS are rounded to bf16 before they are multiplied, 2^-8 of
 * their largest.
 */
#include "attention_grad_mma.cuh"

namespace
{

enum { DELTA_THREADS = 256, DELTA_LANES = 8 };

/* delta[b, h, t] = sum over d of grad_out * out: eight lanes for each row of a head, 16 bytes a
 * load. 4 bytes and 2 flops an element. */
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

static cudaError_t launch_keys(struct backward *f, unsigned heads, cudaStream_t stream)
{
    if (f->D <= 64)
        return grad_launch<grad_policy<64, true, 2, 4, 32, false, 2>>(f, heads, stream);
    return grad_launch<grad_policy<128, true, 1, 8, 32, true, 1>>(f, heads, stream);
}

static cudaError_t launch_queries(struct backward *f, unsigned heads, cudaStream_t stream)
{
    if (f->D <= 64)
        return grad_launch<grad_policy<64, false, 2, 4, 32, true, 2>>(f, heads, stream);
    return grad_launch<grad_policy<128, false, 1, 8, 32, true, 1>>(f, heads, stream);
}

} // namespace

cudaError_t mics_attention_delta(const struct mics_args_attention_grad *args, cudaStream_t stream)
{
    size_t threads = (size_t)args->B * args->T * args->H * DELTA_LANES;

    return MICS_LAUNCH(
        row_products, (unsigned)((threads + DELTA_THREADS - 1) / DELTA_THREADS), DELTA_THREADS, 0,
        stream, args->delta, static_cast<const mics_bf16 *>(args->grad_out),
        static_cast<const mics_bf16 *>(args->out), args->B * args->T, args->T, args->H, args->D);
}

cudaError_t mics_cuda_attention_grad_mma(const struct mics_cuda_at *at,
                                         const struct mics_args_attention_grad *args)
{
    unsigned keys = args->B * args->H_kv, queries = args->B * args->H;
    struct backward f = backward_of(args);
    cudaError_t error = mics_attention_delta(args, at->stream);

    if (error == cudaSuccess)
        error = launch_keys(&f, keys, at->stream);
    if (error == cudaSuccess)
        error = launch_queries(&f, queries, at->stream);
    return error;
}
