/* SPDX-License-Identifier: Apache-2.0 */
/* attention.h - the kernels that attention.cc chooses from. Each enqueues its work on
 * at->stream. */
#ifndef MICS_KERNELS_CUDA_ATTENTION_H
#define MICS_KERNELS_CUDA_ATTENTION_H

#include "cuda/kernels.h"

/* Whether a block of this GPU can have so much shared memory. */
static inline bool mics_block_fits(size_t bytes)
{
    int device = 0, most = 0;

    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) ==
               cudaSuccess &&
           bytes <= (size_t)most;
}

/* Is this built for compute capability 7.x, whose blocks have less shared memory, too? What only
 * these need is left out otherwise. */
static constexpr bool mics_has_small_blocks()
{
#ifdef __CUDA_ARCH_LIST__
    const int archs[] = {__CUDA_ARCH_LIST__};

    for (int arch : archs)
        if (arch < 800)
            return true;
    return false;
#else
    return true;
#endif
}

/* On tensor cores of compute capability 7.5 (fp16 only) and later: attention_mma.cu,
 * attention_grad_mma.cu. For bf16 or fp16 heads of 8, 16, ... 128 in tensors that are aligned to 16
 * bytes. */
cudaError_t mics_cuda_attention_mma(const struct mics_cuda_at *at,
                                    const struct mics_args_attention *args);
cudaError_t mics_cuda_attention_grad_mma(const struct mics_cuda_at *at,
                                         const struct mics_args_attention_grad *args);

/* For such heads in bf16 on compute capability 9.0, where MICS_HOPPER: the folder hopper.
 * cudaErrorNotSupported: the driver cannot make tensor maps. */
cudaError_t mics_cuda_attention_hopper(const struct mics_cuda_at *at,
                                       const struct mics_args_attention *args);
cudaError_t mics_cuda_attention_grad_hopper(const struct mics_cuda_at *at,
                                            const struct mics_args_attention_grad *args);

/* args->delta from grad_out and out of such heads in bf16: attention_grad_mma.cu. */
cudaError_t mics_attention_delta(const struct mics_args_attention_grad *args, cudaStream_t stream);

/* For any type and alignment, heads of up to MICS_HEAD_MAX: attention_plain.cu. Whether a block of
 * this GPU has room for both directions of heads of D. */
bool mics_attention_plain_fits(unsigned D);
cudaError_t mics_cuda_attention_plain(const struct mics_cuda_at *at,
                                      const struct mics_args_attention *args);
cudaError_t mics_cuda_attention_grad_plain(const struct mics_cuda_at *at,
                                           const struct mics_args_attention_grad *args);

#endif
