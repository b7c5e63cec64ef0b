/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn_device.cuh - cuDNN on one device: its handle, and plans by shape. */
#ifndef MICS_KERNELS_CUDA_CUDNN_DEVICE_CUH
#define MICS_KERNELS_CUDA_CUDNN_DEVICE_CUH

#include "cuda/attention_cudnn.cuh"
#include "cuda/cudnn_slices.cuh"
#include "cuda/shapes.cuh"

#include <pthread.h>

/* What is known of one shape. */
struct mics_cudnn_known {
    struct mics_shape shape;
    struct mics_cudnn_shape key;
    bool taken;
    struct mics_cudnn_slices slices; /* if taken */
};

struct mics_cudnn {
    pthread_mutex_t
        lock; /* of all below, and of the handle between its stream's setting and its use */
    bool sought, found; /* the library */
    struct mics_cudnn_library library;
    cudnnHandle_t handle;
    struct mics_shapes shapes; /* struct mics_cudnn_known */
};

cudaError_t mics_cudnn_error(cudnnStatus_t status);

/* What is known of a shape, found out where it was not met before. NULL: cuDNN is absent, or no memory. Under the
 * lock. */
const struct mics_cudnn_known *mics_cudnn_find(const struct mics_cuda_at *at,
                                               const struct mics_cudnn_shape *shape);

#endif
