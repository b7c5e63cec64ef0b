/* SPDX-License-Identifier: Apache-2.0 */
/* attention_delta.cu - what the gradient of attention needs of each query first: the sum of grad_out * out. */
#include "attention.cuh"

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

} // namespace

cudaError_t mics_attention_delta(const struct mics_op_attention_grad *args, cudaStream_t stream)
{
    size_t threads = (size_t)args->B * args->T * args->H * DELTA_LANES;

    return MICS_LAUNCH(
        row_products, (unsigned)((threads + DELTA_THREADS - 1) / DELTA_THREADS), DELTA_THREADS, 0,
        stream, args->delta, static_cast<const mics_bf16 *>(args->grad_out),
        static_cast<const mics_bf16 *>(args->out), args->B * args->T, args->T, args->H, args->D);
}
