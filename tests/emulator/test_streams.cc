/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, events and copies of the emulator do what CUDA promises, and no more. */
#include "cuda/gpu.h"

#include "order.h"
#include "tap.h"

#include <stdlib.h>

static cudaStream_t open_stream(unsigned flags)
{
    cudaStream_t stream = nullptr;

    CHECK_INT(cudaStreamCreateWithFlags(&stream, flags), cudaSuccess);
    return stream;
}

static cudaEvent_t open_event(void)
{
    cudaEvent_t event = nullptr;

    CHECK_INT(cudaEventCreate(&event), cudaSuccess);
    return event;
}

/* `count` numbers: of the device, or pinned. */
static int *allocate(bool pinned, size_t count)
{
    void *memory = nullptr;

    CHECK_INT(pinned ? cudaMallocHost(&memory, count * sizeof(int))
                     : cudaMalloc(&memory, count * sizeof(int)),
              cudaSuccess);
    return static_cast<int *>(memory);
}

__global__ void put(int *out, int value)
{
    *out = value;
}

__global__ void fail(int *)
{
    if (threadIdx.x == 0)
        return;
    __syncthreads();
}

static void nothing_runs_before_it_is_waited_for(void)
{
    cudaStream_t stream = open_stream(cudaStreamNonBlocking);
    int *out = allocate(true, 1);
    int value = 5;

    *out = 0;
    CHECK_INT(MICS_LAUNCH(put, 1, 1, 0, stream, out, value), cudaSuccess);
    value = 6; /* the argument was copied */
    CHECK_INT(*out, 0);
    CHECK_INT(cudaStreamQuery(stream), cudaErrorNotReady);
    CHECK_INT(MICS_LAUNCH(put, 1, 1, 0, stream, out, 5),
              cudaErrorNotReady); /* no thread waits for it */
    CHECK_INT(cudaGetLastError(), cudaSuccess);
    CHECK_INT(cudaStreamSynchronize(stream), cudaSuccess);
    CHECK_INT(cudaStreamQuery(stream), cudaSuccess);
    CHECK_INT(*out, 5);
    cudaStreamDestroy(stream);
    cudaFreeHost(out);
}

static void pinned_memory_is_read_late_and_pageable_memory_at_once(void)
{
    cudaStream_t stream = open_stream(cudaStreamNonBlocking);
    int *pinned = allocate(true, 1), *device = allocate(false, 2), pageable = 1, got[2];

    *pinned = 1;
    CHECK_INT(cudaMemcpyAsync(device, pinned, sizeof(int), cudaMemcpyDefault, stream), cudaSuccess);
    CHECK_INT(cudaMemcpyAsync(device + 1, &pageable, sizeof(int), cudaMemcpyDefault, stream),
              cudaSuccess);
    *pinned = pageable = 2;
    CHECK_INT(cudaMemcpyAsync(got, device, sizeof(got), cudaMemcpyDeviceToHost, stream),
              cudaSuccess); /* waits: the host's end is pageable */
    CHECK_INT(got[0], 2);
    CHECK_INT(got[1], 1);
    cudaStreamDestroy(stream);
    cudaFreeHost(pinned);
    cudaFree(device);
}

static void streams_without_an_event_run_in_the_worst_order(void)
{
    cudaStream_t first = open_stream(cudaStreamNonBlocking),
                 second = open_stream(cudaStreamNonBlocking);
    cudaEvent_t event = open_event();
    int *out = allocate(true, 1);

    for (int waits = 0; waits < 2; waits++) {
        MICS_LAUNCH(put, 1, 1, 0, first, out, 1);
        cudaEventRecord(event, first);
        if (waits)
            cudaStreamWaitEvent(second, event, 0);
        MICS_LAUNCH(put, 1, 1, 0, second, out, 2);
        CHECK_INT(cudaStreamSynchronize(second), cudaSuccess);
        CHECK_INT(cudaEventQuery(event), waits ? cudaSuccess : cudaErrorNotReady);
        (void)cudaGetLastError();
        CHECK_INT(cudaStreamSynchronize(first), cudaSuccess);
        CHECK_INT(*out, waits ? 2 : 1);
    }
    cudaEventDestroy(event);
    cudaStreamDestroy(first);
    cudaStreamDestroy(second);
    cudaFreeHost(out);
}

static void the_default_stream_waits_only_for_blocking_streams(void)
{
    cudaStream_t blocking = open_stream(cudaStreamDefault),
                 other = open_stream(cudaStreamNonBlocking);
    int *out = allocate(false, 2), got[2];

    CHECK_INT(cudaMemset(out, 0, 2 * sizeof(int)), cudaSuccess);
    CHECK_INT(cudaDeviceSynchronize(), cudaSuccess);
    MICS_LAUNCH(put, 1, 1, 0, blocking, out, 7);
    MICS_LAUNCH(put, 1, 1, 0, other, out + 1, 7);
    CHECK_INT(cudaMemcpy(got, out, sizeof(got), cudaMemcpyDeviceToHost), cudaSuccess);
    CHECK_INT(got[0], 7);
    CHECK_INT(got[1], 0);
    cudaStreamDestroy(blocking);
    cudaStreamDestroy(other);
    cudaFree(out); /* waits for both */
}

static void copies_beyond_memory_and_of_another_kind_are_refused(void)
{
    int *device = allocate(false, 4), host[8] = {};

    CHECK_INT(cudaMemcpy(device, host, sizeof(host), cudaMemcpyHostToDevice),
              cudaErrorInvalidValue);
    CHECK_INT(cudaMemcpy(device, host, 4, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
    CHECK_INT(cudaGetLastError(), cudaErrorInvalidValue);
    CHECK_INT(cudaFreeHost(device), cudaErrorInvalidValue);
    (void)cudaGetLastError();
    cudaFree(device);
}

static void events_have_times_only_after_they_are_reached(void)
{
    cudaStream_t stream = open_stream(cudaStreamNonBlocking);
    cudaEvent_t from = open_event(), to = open_event();
    float apart_ms = -1;

    CHECK_INT(cudaEventQuery(from), cudaSuccess);
    CHECK_INT(cudaEventSynchronize(from), cudaSuccess);
    CHECK_INT(cudaEventElapsedTime(&apart_ms, from, to), cudaErrorInvalidResourceHandle);
    (void)cudaGetLastError();
    cudaEventRecord(from, stream);
    cudaEventRecord(to, stream);
    CHECK_INT(cudaEventElapsedTime(&apart_ms, from, to), cudaErrorNotReady);
    (void)cudaGetLastError();
    CHECK_INT(cudaEventSynchronize(to), cudaSuccess);
    CHECK_INT(cudaEventElapsedTime(&apart_ms, from, to), cudaSuccess);
    CHECK(apart_ms >= 0);
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    cudaStreamDestroy(stream);
}

static void a_failed_kernel_is_reported_later_and_permanently(void)
{
    cudaStream_t stream = open_stream(cudaStreamNonBlocking);
    int *out = allocate(true, 1);

    *out = 0;
    CHECK_INT(MICS_LAUNCH(fail, 1, 32, 0, stream, out), cudaSuccess);
    CHECK_INT(MICS_LAUNCH(put, 1, 1, 0, stream, out, 1), cudaSuccess);
    CHECK_INT(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
    CHECK_INT(cudaGetLastError(), cudaErrorLaunchFailure);
    CHECK_INT(cudaStreamQuery(stream), cudaErrorLaunchFailure);
    CHECK_INT(MICS_LAUNCH(put, 1, 1, 0, stream, out, 2), cudaErrorLaunchFailure);
    CHECK_INT(*out, 0);
    cudaDeviceReset();
    CHECK_INT(MICS_LAUNCH(put, 1, 1, 0, stream, out, 3), cudaSuccess);
    CHECK_INT(cudaStreamSynchronize(stream), cudaSuccess);
    CHECK_INT(*out, 3);
    cudaStreamDestroy(stream);
    cudaFreeHost(out);
}

static void call_cuda(void *context)
{
    *static_cast<cudaError_t *>(context) = cudaDeviceSynchronize();
}

static void a_function_of_the_host_must_not_call_cuda(void)
{
    cudaStream_t stream = open_stream(cudaStreamNonBlocking);
    cudaError_t got = cudaSuccess;

    CHECK_INT(cudaLaunchHostFunc(stream, call_cuda, &got), cudaSuccess);
    CHECK_INT(cudaStreamSynchronize(stream), cudaSuccess);
    CHECK_INT(got, cudaErrorNotPermitted);
    cudaStreamDestroy(stream);
}

/* The host only polls; the GPU makes progress by itself. */
static void operations_without_a_waiter_run_in_the_end(void)
{
    cudaStream_t stream = open_stream(cudaStreamNonBlocking);
    int *out = allocate(true, 1);

    *out = 0;
    MICS_LAUNCH(put, 1, 1, 0, stream, out, 1);
    while (cudaStreamQuery(stream) == cudaErrorNotReady)
        (void)cudaGetLastError();
    CHECK_INT(*out, 1);
    cudaStreamDestroy(stream);
    cudaFreeHost(out);
}

int main(void)
{
    setenv("MICS_EMULATED_ORDER", "late", 1);
    setenv("MICS_EMULATED_PATIENCE_MS", "300", 1); /* however slow this machine is */
    TAP_RUN(nothing_runs_before_it_is_waited_for);
    TAP_RUN(pinned_memory_is_read_late_and_pageable_memory_at_once);
    TAP_RUN(streams_without_an_event_run_in_the_worst_order);
    TAP_RUN(the_default_stream_waits_only_for_blocking_streams);
    TAP_RUN(copies_beyond_memory_and_of_another_kind_are_refused);
    TAP_RUN(events_have_times_only_after_they_are_reached);
    TAP_RUN(a_failed_kernel_is_reported_later_and_permanently);
    TAP_RUN(a_function_of_the_host_must_not_call_cuda);
    TAP_RUN(operations_without_a_waiter_run_in_the_end);
    return tap_done();
}
