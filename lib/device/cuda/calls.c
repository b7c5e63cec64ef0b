/* SPDX-License-Identifier: Apache-2.0 */
/* calls.c - host functions that a stream calls, in a thread of the stream (see cuda.h). */
#include "device/cuda/cuda.h"

#include "base/timed_wait.h"

#include <stdlib.h>

enum { RING = 256 };

struct cuda_calls {
    struct cuda_device *device;
    pthread_t thread;
    struct mics_args_call ring[RING];

    pthread_mutex_t lock;    /* guards all below */
    pthread_cond_t arrived;  /* the thread waits: the stream has reached a call, or stop */
    pthread_cond_t advanced; /* the caller waits: an entry is free */
    uint64_t enqueued, reached, finished;
    bool stop;

    _Atomic uint32_t *done; /* pinned: `finished`, for the stream */
};

/* One call. After a failure of the device, calls are skipped; the stream still advances. */
static void run_call(struct cuda_calls *calls, struct mics_args_call *op)
{
    if (!atomic_load(&calls->device->failed))
        op->fn(op->context ? op->context : op->payload);
}

static void *calls_main(void *arg)
{
    struct cuda_calls *calls = arg;

    pthread_mutex_lock(&calls->lock);
    for (;;) {
        while (calls->reached == calls->finished && !calls->stop)
            pthread_cond_wait(&calls->arrived, &calls->lock);
        if (calls->reached == calls->finished)
            break;
        struct mics_args_call *op = &calls->ring[calls->finished % RING];
        pthread_mutex_unlock(&calls->lock);
        run_call(calls, op);
        pthread_mutex_lock(&calls->lock);
        calls->finished++;
        atomic_store(calls->done, (uint32_t)calls->finished);
        pthread_cond_signal(&calls->advanced);
    }
    pthread_mutex_unlock(&calls->lock);
    return NULL;
}

/* A host function of the stream. It must not block, nor call CUDA. */
static void arrive(void *context)
{
    struct cuda_calls *calls = context;

    pthread_mutex_lock(&calls->lock);
    calls->reached++;
    pthread_cond_signal(&calls->arrived);
    pthread_mutex_unlock(&calls->lock);
}

static void calls_free(struct cuda_calls *calls)
{
    pthread_cond_destroy(&calls->advanced);
    pthread_cond_destroy(&calls->arrived);
    pthread_mutex_destroy(&calls->lock);
    mics_cuda_host_release(&calls->device->base, (void *)calls->done);
    free(calls);
}

static cudaError_t calls_open(struct cuda_device *device, struct cuda_calls **out)
{
    struct cuda_calls *calls = calloc(1, sizeof *calls);
    void *done;

    if (!calls)
        return cudaErrorMemoryAllocation;
    calls->device = device;
    pthread_mutex_init(&calls->lock, NULL);
    pthread_cond_init(&calls->arrived, NULL);
    mics_cond_init_timed(&calls->advanced);
    if (mics_cuda_host_alloc(&device->base, sizeof *calls->done, &done, NULL) == MICS_OK) {
        calls->done = done;
        atomic_init(calls->done, 0);
        if (pthread_create(&calls->thread, NULL, calls_main, calls) == 0) {
            *out = calls;
            return cudaSuccess;
        }
    }
    calls_free(calls);
    return cudaErrorMemoryAllocation;
}

/* Wait up to a second for a call to finish; locked. A GPU that failed never reaches one, which the
 * query reports. */
static cudaError_t wait_a_while(struct cuda_calls *calls, cudaStream_t stream)
{
    if (mics_cond_wait_for(&calls->advanced, &calls->lock, 1))
        return cudaSuccess;
    const cudaError_t error = cudaStreamQuery(stream);
    if (error != cudaErrorNotReady)
        return error;
    (void)cudaGetLastError(); /* else the next launch would report it */
    return cudaSuccess;
}

/* *number: calls enqueued so far, with this one. */
static cudaError_t enqueue(struct cuda_calls *calls, cudaStream_t stream,
                           const struct mics_args_call *op, uint64_t *number)
{
    cudaError_t error = cudaSuccess;

    pthread_mutex_lock(&calls->lock);
    while (error == cudaSuccess && calls->enqueued - calls->finished == RING)
        error = wait_a_while(calls, stream);
    if (error == cudaSuccess) {
        calls->ring[calls->enqueued % RING] = *op;
        *number = ++calls->enqueued;
    }
    pthread_mutex_unlock(&calls->lock);
    return error;
}

cudaError_t mics_cuda_call(struct cuda_stream *stream, const struct mics_args_call *op)
{
    struct cuda_device *device = cuda_device_of(&stream->base);
    cudaError_t error = cudaSuccess;
    uint64_t number;

    if (!device->wait_value)
        return cudaErrorNotSupported;
    if (!stream->calls)
        error = calls_open(device, &stream->calls);
    if (error != cudaSuccess)
        return error;
    error = enqueue(stream->calls, stream->stream, op, &number);
    if (error == cudaSuccess)
        error = cudaLaunchHostFunc(stream->stream, arrive, stream->calls);
    if (error != cudaSuccess)
        return error;
    return device->wait_value(stream->stream, (unsigned long long)(uintptr_t)stream->calls->done,
                              (uint32_t)number, 0) == 0
               ? cudaSuccess
               : cudaErrorUnknown;
}

void mics_cuda_calls_close(struct cuda_calls *calls)
{
    if (!calls)
        return;
    pthread_mutex_lock(&calls->lock);
    calls->stop = true;
    pthread_cond_signal(&calls->arrived);
    pthread_mutex_unlock(&calls->lock);
    pthread_join(calls->thread, NULL);
    calls_free(calls);
}
