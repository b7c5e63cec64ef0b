/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudnn_library.cuh - cuDNN, opened at run time: what is built with its headers runs without it.
 *
 * Looked for: where MICS_CUDNN says (0: nowhere); else by the loader as libcudnn.so.9, in the folder that was found
 * when this was built, and beside cuBLASLt, also as pip's packages lie (nvidia/cudnn/lib).
 */
#ifndef MICS_KERNELS_CUDA_CUDNN_LIBRARY_CUH
#define MICS_KERNELS_CUDA_CUDNN_LIBRARY_CUH

#include <cudnn_graph.h>
#include <stddef.h>

/* Before it, attention is known to be wrong on some GPUs, or wants other graphs. */
#define MICS_CUDNN_VERSION_MIN 91002

#define MICS_CUDNN_WHY_BYTES 256

/* Its functions, by their names without "cudnn" and "Backend". */
struct mics_cudnn_library {
    size_t version; /* 91900: 9.19.0 */
    size_t (*get_version)(void);
    const char *(*get_error_string)(cudnnStatus_t);
    void (*get_last_error_string)(char *, size_t);
    cudnnStatus_t (*create)(cudnnHandle_t *);
    cudnnStatus_t (*destroy)(cudnnHandle_t);
    cudnnStatus_t (*set_stream)(cudnnHandle_t, cudaStream_t);
    cudnnStatus_t (*create_descriptor)(cudnnBackendDescriptorType_t, cudnnBackendDescriptor_t *);
    cudnnStatus_t (*destroy_descriptor)(cudnnBackendDescriptor_t);
    cudnnStatus_t (*finalize)(cudnnBackendDescriptor_t);
    cudnnStatus_t (*set_attribute)(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
                                   cudnnBackendAttributeType_t, int64_t, const void *);
    cudnnStatus_t (*get_attribute)(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
                                   cudnnBackendAttributeType_t, int64_t, int64_t *, void *);
    cudnnStatus_t (*execute)(cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t);
};

/* Find and open it. False: `why` says in one line why not. It is never closed again: it cannot be unloaded safely
 * while the driver may still run its code. */
bool mics_cudnn_library_open(struct mics_cudnn_library *out, char why[MICS_CUDNN_WHY_BYTES]);

/* What a status means, with cuDNN's own last words: "CUDNN_STATUS_NOT_SUPPORTED: ...". */
void mics_cudnn_explain(const struct mics_cudnn_library *library, cudnnStatus_t status,
                        char why[MICS_CUDNN_WHY_BYTES]);

#endif
