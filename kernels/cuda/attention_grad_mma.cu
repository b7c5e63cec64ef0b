/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_grad_mma.cu - the gradient of attention on tensor cores by mma.sync, in three launches:
 * delta, the gradients of keys and values, the gradients of queries; see attention_grad_mma.cuh.
 *
 * Tolerance against the host: P and dS are rounded before they are multiplied: 2^-8 of their
 * largest in bf16, 2^-11 in fp16.
 */
#include "attention_grad_mma.cuh"

namespace
{

enum { DELTA_THREADS = 256, DELTA_LANES = 8 };

/* delta[b, h, t] = sum over d of grad_out * out: eight lanes for each row of a head, 16 bytes a
 * load. 4 bytes and 2 flops an element. */
template <typename Half>
__global__ void __launch_bounds__(DELTA_THREADS)
    row_products(float *delta, const mics_half *grad_out, const mics_half *out, unsigned rows,
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
            sum += mics_half_type<Half>::low(x[j]) * mics_half_type<Half>::low(y[j]);
            sum += mics_half_type<Half>::high(x[j]) * mics_half_type<Half>::high(y[j]);
        }
    }
    for (int step = DELTA_LANES / 2; step > 0; step /= 2)
        sum += __shfl_xor_sync(~0u, sum, step);
    if (row < rows && threadIdx.x % DELTA_LANES == 0)
        delta[(row / T * H + h) * T + row % T] = sum;
}

/* The first policy, or where a block of the GPU has no room for it (compute capability 7.5), the
 * second. */
template <typename P, typename Small>
static cudaError_t launch_fitting(struct backward *f, unsigned heads, cudaStream_t stream)
{
    if constexpr (mics_has_small_blocks())
        if (!mics_block_fits(P::shared_bytes))
            return grad_launch<Small>(f, heads, stream);
    return grad_launch<P>(f, heads, stream);
}

template <typename T>
static cudaError_t launch_keys(struct backward *f, unsigned heads, cudaStream_t stream)
{
    if (f->D <= 64)
        return launch_fitting<grad_policy<T, 64, true, 2, 4, 64, 32, false, 2>,
                              grad_policy<T, 64, true, 2, 4, 32, 32, false, 1>>(f, heads, stream);
    return launch_fitting<grad_policy<T, 128, true, 1, 8, 64, 32, true, 1>,
                          grad_policy<T, 128, true, 1, 4, 32, 32, true, 1>>(f, heads, stream);
}

template <typename T>
static cudaError_t launch_queries(struct backward *f, unsigned heads, cudaStream_t stream)
{
    if (f->D <= 64)
        return grad_launch<grad_policy<T, 64, false, 2, 4, 64, 32, true, 2>>(f, heads, stream);
    return grad_launch<grad_policy<T, 128, false, 1, 8, 64, 32, true, 1>>(f, heads, stream);
}

template <typename T>
static cudaError_t launch_delta(const struct mics_args_attention_grad *args, cudaStream_t stream)
{
    size_t threads = (size_t)args->B * args->T * args->H * DELTA_LANES;

    return MICS_LAUNCH(
        row_products<T>, (unsigned)((threads + DELTA_THREADS - 1) / DELTA_THREADS), DELTA_THREADS,
        0, stream, args->delta, static_cast<const mics_half *>(args->grad_out),
        static_cast<const mics_half *>(args->out), args->B * args->T, args->T, args->H, args->D);
}

template <typename T>
static cudaError_t run(const struct mics_cuda_at *at, const struct mics_args_attention_grad *args)
{
    unsigned keys = args->B * args->H_kv, queries = args->B * args->H;
    struct backward f = backward_of(args);
    cudaError_t error = launch_delta<T>(args, at->stream);

    if (error == cudaSuccess)
        error = launch_keys<T>(&f, keys, at->stream);
    if (error == cudaSuccess)
        error = launch_queries<T>(&f, queries, at->stream);
    return error;
}

} // namespace

cudaError_t mics_attention_delta(const struct mics_args_attention_grad *args, cudaStream_t stream)
{
    return launch_delta<mics_bf16>(args, stream);
}

cudaError_t mics_cuda_attention_grad_mma(const struct mics_cuda_at *at,
                                         const struct mics_args_attention_grad *args)
{
    return args->dtype == MICS_F16 ? run<mics_f16>(at, args) : run<mics_bf16>(at, args);
}
