/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_cudnn.cuh - attention by cuDNN, where it is installed: a variant of attention_choice.cuh.
 *
 * It takes bf16 heads whose rows are whole 16-byte chunks, where cuDNN has an engine that gets along with the stream's
 * workspace, in slices if need be (cudnn_slices.cuh). Whether it does is found out when a shape is first met, which
 * is when its plans are made; they are kept. Nothing else is allocated on the device by us.
 *
 * Its gradient differs in its last bits from run to run (cudnn_attention.cuh).
 */
#ifndef MICS_KERNELS_CUDA_ATTENTION_CUDNN_CUH
#define MICS_KERNELS_CUDA_ATTENTION_CUDNN_CUH

#include "cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* cuDNN on one device. Any thread may use it. */
struct mics_cudnn;

/* Looks for no library yet. NULL: no memory. */
struct mics_cudnn *mics_cudnn_new(void);
void mics_cudnn_free(struct mics_cudnn *cudnn); /* after its streams are idle; NULL is fine */

/* Whether it takes the operation; makes plans where the shape is new. The first refusal for each reason is told. */
bool mics_cuda_attention_cudnn_takes(const struct mics_cuda_at *at,
                                     const struct mics_op_attention *args);
bool mics_cuda_attention_grad_cudnn_takes(const struct mics_cuda_at *at,
                                          const struct mics_op_attention_grad *args);

/* cudaErrorNotSupported: it does not take it. */
cudaError_t mics_cuda_attention_cudnn(const struct mics_cuda_at *at,
                                      const struct mics_op_attention *args);
cudaError_t mics_cuda_attention_grad_cudnn(const struct mics_cuda_at *at,
                                           const struct mics_op_attention_grad *args);

#ifdef __cplusplus
}
#endif

#endif
