/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_memory.c - memory of the GPU, and pinned memory of the host. */
#include "device/cuda/cuda.h"

#include <string.h>

#define MIB (1.0 / (1 << 20))

/* Granularity of memory that NCCL can register; smaller blocks are not registered. */
static const size_t shared_least = 2 << 20;

enum mics_status mics_cuda_no_memory(const struct cuda_device *device, size_t bytes,
                                     struct mics_err *err)
{
    size_t left = 0, total = 0;

    (void)cudaMemGetInfo(&left, &total);
    return mics_err_set(
        err, MICS_ERR_NOMEM, "%s: no memory for %.0f MiB: %.0f of %.0f MiB are free",
        device->description, (double)bytes * MIB, (double)left * MIB, (double)total * MIB);
}

enum mics_status mics_cuda_alloc_own(struct cuda_device *device, size_t bytes, void **out,
                                     struct mics_err *err)
{
    mics_cuda_use(device);
    const cudaError_t error = cudaMalloc(out, bytes ? bytes : 1);
    if (error == cudaSuccess)
        return MICS_OK;
    (void)cudaGetLastError();
    if (error != cudaErrorMemoryAllocation)
        return mics_cuda_error(err, error, device->description);
    return mics_cuda_no_memory(device, bytes, err);
}

enum mics_status mics_cuda_alloc(struct mics_device *base, size_t bytes, void **out,
                                 struct mics_err *err)
{
    struct cuda_device *device = (struct cuda_device *)base;

    mics_cuda_use(device);
#if MICS_HAVE_NCCL
    if (device->exchange && bytes >= shared_least)
        return mics_nccl_memory_alloc(device, bytes, out, err);
#endif
    return mics_cuda_alloc_own(device, bytes, out, err);
}

enum mics_status mics_cuda_memory_left(struct mics_device *base, uint64_t *out,
                                       struct mics_err *err)
{
    size_t left = 0, total = 0;

    mics_cuda_use((struct cuda_device *)base);
    const cudaError_t error = cudaMemGetInfo(&left, &total);
    *out = left;
    return mics_cuda_error(err, error, "the GPU's memory");
}

void mics_cuda_release(struct mics_device *base, void *memory)
{
    mics_cuda_use((struct cuda_device *)base);
#if MICS_HAVE_NCCL
    if (memory && mics_nccl_memory_release((struct cuda_device *)base, memory))
        return;
#endif
    /* Failures of earlier operations are reported where they are waited for. */
    (void)cudaFree(memory);
}

enum mics_status mics_cuda_host_alloc(struct mics_device *base, size_t bytes, void **out,
                                      struct mics_err *err)
{
    const struct cuda_device *device = (struct cuda_device *)base;

    mics_cuda_use(device);
    const cudaError_t error = cudaHostAlloc(out, bytes ? bytes : 1, cudaHostAllocPortable);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return mics_err_set(err, MICS_ERR_NOMEM, "no %zu bytes of pinned memory of the host: %s",
                            bytes, cudaGetErrorString(error));
    }
    memset(*out, 0, bytes);
    return MICS_OK;
}

void mics_cuda_host_release(struct mics_device *base, void *memory)
{
    mics_cuda_use((struct cuda_device *)base);
    if (memory)
        (void)cudaFreeHost(memory);
}
