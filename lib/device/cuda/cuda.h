/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda.h - internals of the GPU device, and its interface to the communicators (lib/comm/nccl). All
 * of it is in the plug-in.
 *
 * A stream is a CUDA stream with its own workspace. A call on it (the communicators' work on the
 * host) runs in a thread of the stream, because CUDA may run the host functions of all streams one
 * after another, and calls wait for other ranks: the host function only signals the thread that the
 * stream has reached the call, and the stream waits (cuStreamWaitValue32) for a number in pinned
 * memory that the thread writes when the call has returned.
 *
 * The host waits for the GPU only in stream_sync and event_sync, when memory is allocated or freed,
 * and when the ring of calls of a stream is full.
 */
#ifndef MICS_DEVICE_CUDA_CUDA_H
#define MICS_DEVICE_CUDA_CUDA_H

#include "device/plugin.h"

#include "cuda/kernels.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* The driver's cuStreamWaitValue32, looked up at run time: the plug-in does not link the driver. */
typedef int cuda_wait_value(cudaStream_t stream, unsigned long long at, uint32_t value,
                            unsigned flags);

/* Events with known host times, to which the times of other events are relative. */
struct cuda_clock {
    double (*now_s)(void);
    cudaStream_t stream;
    cudaEvent_t anchors[2]; /* [at] is in use */
    pthread_mutex_t lock;   /* guards what follows, which the watchdog reads, too */
    int at;
    double anchor_s; /* when anchors[at] was reached, on now_s()'s clock */
};

struct nccl_context;
struct nccl_memory;

struct cuda_device {
    struct mics_device base;
    int gpu;
    char description[288];
    int multiprocessors, high_priority;
    struct mics_cuda_products *products;
    struct mics_attention_choice attention;
    cuda_wait_value *wait_value;
    struct cuda_clock clock;
    struct nccl_context *exchange; /* whose communicators register memory; NULL: none */
    struct nccl_memory *shared;    /* memory allocated by NCCL */
    bool each; /* MICS_GPU_SYNC: wait for each operation, to report which one fails */

    pthread_mutex_t lock; /* guards the failure */
    atomic_bool failed;   /* set last */
    enum mics_status status;
    struct mics_err failure;
};

struct cuda_calls; /* what a stream runs on the host */

struct cuda_stream {
    struct mics_stream base;
    char name[16];
    cudaStream_t stream;
    struct mics_cuda_at at;
    struct cuda_calls *calls; /* NULL: none so far */
};

struct mics_event {
    struct cuda_device *device;
    cudaEvent_t event;
};

static inline struct cuda_device *cuda_device_of(const struct mics_stream *stream)
{
    return (struct cuda_device *)stream->device;
}

/* cuda_device.c: make `error` the device's failure, "WHAT: text (name)"; MICS_OK when there is no
 * error. Any thread. */
enum mics_status mics_cuda_fail(struct cuda_device *device, cudaError_t error, const char *fmt, ...)
    MICS_PRINTF(3, 4);
/* Write the text without touching a device. */
enum mics_status mics_cuda_error(struct mics_err *err, cudaError_t error, const char *what);
void mics_cuda_device_fail(struct mics_device *device, enum mics_status status, const char *text);
enum mics_status mics_cuda_device_failure(struct mics_device *device, struct mics_err *err);
/* Make the device's GPU the calling thread's. */
void mics_cuda_use(const struct cuda_device *device);

/* cuda_memory.c. Memory that programs allocate may be sent between GPUs, and is registered for
 * that; memory of the device's own is not. */
enum mics_status mics_cuda_alloc_own(struct cuda_device *device, size_t bytes, void **out,
                                     struct mics_err *err);
/* Returns MICS_ERR_NOMEM, with the bytes that were asked for and the bytes that are free. */
enum mics_status mics_cuda_no_memory(const struct cuda_device *device, size_t bytes,
                                     struct mics_err *err);
enum mics_status mics_cuda_alloc(struct mics_device *device, size_t bytes, void **out,
                                 struct mics_err *err);
enum mics_status mics_cuda_memory_left(struct mics_device *device, uint64_t *out,
                                       struct mics_err *err);
void mics_cuda_release(struct mics_device *device, void *memory);
enum mics_status mics_cuda_host_alloc(struct mics_device *device, size_t bytes, void **out,
                                      struct mics_err *err);
void mics_cuda_host_release(struct mics_device *device, void *memory);

/* lib/comm/nccl, when the plug-in is built with NCCL: communicators of device memory, and memory
 * that is registered with the communicators of device->exchange. A communicator initialises NCCL at
 * its first use, because most are only split. MICS_ERR_DEVICE: two ranks share a GPU; the text
 * names them. */
enum mics_status mics_nccl_open(struct mics_device *device, struct mics_comm *control,
                                struct mics_comm **out, struct mics_err *err);
enum mics_status mics_nccl_memory_alloc(struct cuda_device *device, size_t bytes, void **out,
                                        struct mics_err *err);
/* false: the memory was not allocated by mics_nccl_memory_alloc(). */
bool mics_nccl_memory_release(struct cuda_device *device, void *memory);

/* calls.c: enqueue a call of a function on the host, and end the thread that runs them. */
cudaError_t mics_cuda_call(struct cuda_stream *stream, const struct mics_args_call *op);
void mics_cuda_calls_close(struct cuda_calls *calls); /* NULL is fine */

#endif
