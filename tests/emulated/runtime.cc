/* SPDX-License-Identifier: Apache-2.0 */
/* runtime.cc - the runtime's functions on the host: see runtime.h. */
#include "runtime.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <new>

struct emu_stream {
    int priority;
};

struct emu_event {
    double time_ms;
    bool timed, recorded;
};

static thread_local cudaError_t last_error = cudaSuccess;
static thread_local bool broken; /* a launch failed: nothing works until a reset */

cudaError_t emu_note(cudaError_t error)
{
    if (error == cudaErrorLaunchFailure)
        broken = true;
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last_error = error;
    return broken ? cudaErrorLaunchFailure : error;
}

static double now_ms(void)
{
    auto now = std::chrono::steady_clock::now().time_since_epoch();

    return std::chrono::duration<double, std::milli>(now).count();
}

static cudaError_t allocate(void **out, size_t bytes)
{
    void *memory = nullptr;

    *out = nullptr;
    if (bytes == 0)
        return emu_note(cudaSuccess);
    if (posix_memalign(&memory, 256, bytes) != 0)
        return emu_note(cudaErrorMemoryAllocation);
    memset(memory, 0xff, bytes);
    *out = memory;
    return emu_note(cudaSuccess);
}

static std::atomic<size_t> used_bytes; /* by cudaMalloc */

size_t emu_memory_left(size_t *total)
{
    const size_t used = used_bytes;

    *total = (size_t)emu_setting("MICS_EMULATED_MEMORY", 8ll << 30);
    return used < *total ? *total - used : 0;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    size_t total;

    *out = nullptr;
    if (bytes > emu_memory_left(&total))
        return emu_note(cudaErrorMemoryAllocation);
    const cudaError_t error = allocate(out, bytes);
    if (*out)
        used_bytes += malloc_usable_size(*out);
    return error;
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    return allocate(out, bytes);
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned)
{
    return allocate(out, bytes);
}

cudaError_t cudaFree(void *memory)
{
    if (memory)
        used_bytes -= malloc_usable_size(memory);
    free(memory);
    return emu_note(cudaSuccess);
}

cudaError_t cudaFreeHost(void *memory)
{
    free(memory);
    return emu_note(cudaSuccess);
}

cudaError_t cudaHostRegister(void *, size_t, unsigned)
{
    return emu_note(cudaSuccess);
}

cudaError_t cudaHostUnregister(void *)
{
    return emu_note(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    *available = emu_memory_left(total);
    return emu_note(cudaSuccess);
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind)
{
    if (bytes > 0)
        memmove(dst, src, bytes);
    return emu_note(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t)
{
    return cudaMemcpy(dst, src, bytes, kind);
}

cudaError_t cudaMemset(void *dst, int value, size_t bytes)
{
    if (bytes > 0)
        memset(dst, value, bytes);
    return emu_note(cudaSuccess);
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t)
{
    return cudaMemset(dst, value, bytes);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned, int priority)
{
    *out = new (std::nothrow) emu_stream{priority};
    return emu_note(*out ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    return cudaStreamCreateWithPriority(out, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return cudaStreamCreateWithPriority(out, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    delete stream;
    return emu_note(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return emu_note(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t)
{
    return emu_note(cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t event, unsigned)
{
    return emu_note(event ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t fn, void *context)
{
    fn(context);
    return emu_note(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    *out = new (std::nothrow) emu_event{0, !(flags & cudaEventDisableTiming), false};
    return emu_note(*out ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return emu_note(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t)
{
    event->time_ms = now_ms();
    event->recorded = true;
    return emu_note(cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t)
{
    return emu_note(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t)
{
    return emu_note(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *time_ms, cudaEvent_t from, cudaEvent_t to)
{
    if (!from->timed || !to->timed || !from->recorded || !to->recorded)
        return emu_note(cudaErrorInvalidResourceHandle);
    *time_ms = (float)(to->time_ms - from->time_ms);
    return emu_note(cudaSuccess);
}

cudaError_t cudaDeviceSynchronize(void)
{
    return emu_note(cudaSuccess);
}

cudaError_t cudaDeviceReset(void)
{
    broken = false;
    last_error = cudaSuccess;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;

    if (!broken)
        last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}
