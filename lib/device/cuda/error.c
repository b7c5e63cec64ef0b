/* SPDX-License-Identifier: Apache-2.0 */
/* error.c - CUDA's errors as ours. The first is the device's for good; what follows from it is not worth saying. */
#include "device/cuda/cuda.h"

#include <stdarg.h>
#include <stdio.h>

static enum mics_status status_of(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? MICS_ERR_NOMEM : MICS_ERR_DEVICE;
}

enum mics_status mics_cuda_error(struct mics_err *err, cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return MICS_OK;
    return mics_err_set(err, status_of(error), "%s: %s (%s)", what, cudaGetErrorString(error),
                        cudaGetErrorName(error));
}

void mics_cuda_device_fail(struct mics_device *base, enum mics_status status, const char *text)
{
    struct cuda_device *device = (struct cuda_device *)base;

    pthread_mutex_lock(&device->lock);
    if (!atomic_load(&device->failed)) {
        device->status = status;
        mics_err_set(&device->failure, status, "%s", text);
        atomic_store(&device->failed, true);
    }
    pthread_mutex_unlock(&device->lock);
}

enum mics_status mics_cuda_device_failure(struct mics_device *base, struct mics_err *err)
{
    struct cuda_device *device = (struct cuda_device *)base;

    if (!atomic_load(&device->failed))
        return MICS_OK;
    return mics_err_set(err, device->status, "%s", device->failure.text);
}

enum mics_status mics_cuda_fail(struct cuda_device *device, cudaError_t error, const char *fmt, ...)
{
    char what[256];
    struct mics_err err;
    va_list args;

    if (error == cudaSuccess)
        return MICS_OK;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    mics_cuda_error(&err, error, what);
    mics_err_prefix(&err, "%s", device->description);
    mics_cuda_device_fail(&device->base, status_of(error), err.text);
    (void)cudaGetLastError(); /* said once */
    return status_of(error);
}

/* Which GPU a thread uses is the thread's; asking for the same again would be a call for nothing. */
void mics_cuda_use(const struct cuda_device *device)
{
    static _Thread_local int used = -1;

    if (used != device->gpu && cudaSetDevice(device->gpu) == cudaSuccess)
        used = device->gpu;
}
