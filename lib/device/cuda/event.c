/* SPDX-License-Identifier: Apache-2.0 */
/* event.c - events are CUDA's: waiting for one that was never recorded holds nobody up there, too. */
#include "device/cuda/cuda.h"

#include <stdlib.h>

enum mics_status mics_cuda_event_open(struct mics_device *base, struct mics_event **out,
                                      struct mics_err *err)
{
    struct mics_event *event = calloc(1, sizeof *event);

    if (!event)
        return mics_err_nomem(err);
    event->device = (struct cuda_device *)base;
    mics_cuda_use(event->device);
    const cudaError_t error = cudaEventCreateWithFlags(&event->event, cudaEventBlockingSync);
    if (error != cudaSuccess) {
        free(event);
        return mics_cuda_error(err, error, "an event");
    }
    *out = event;
    return MICS_OK;
}

void mics_cuda_event_close(struct mics_event *event)
{
    if (!event)
        return;
    mics_cuda_use(event->device);
    (void)cudaEventDestroy(event->event); /* CUDA keeps it as long as it is needed */
    free(event);
}

void mics_cuda_event_record(struct mics_event *event, struct mics_stream *base)
{
    struct cuda_stream *stream = (struct cuda_stream *)base;

    mics_cuda_use(event->device);
    mics_cuda_fail(event->device, cudaEventRecord(event->event, stream->stream),
                   "an event on stream %s", stream->name);
}

void mics_cuda_event_wait(struct mics_stream *base, struct mics_event *event)
{
    struct cuda_stream *stream = (struct cuda_stream *)base;

    mics_cuda_use(event->device);
    mics_cuda_fail(event->device, cudaStreamWaitEvent(stream->stream, event->event, 0),
                   "stream %s waiting for an event", stream->name);
}

enum mics_status mics_cuda_event_sync(struct mics_event *event, struct mics_err *err)
{
    struct cuda_device *device = event->device;

    mics_cuda_use(device);
    mics_cuda_fail(device, cudaEventSynchronize(event->event),
                   "an operation on the GPU (MICS_GPU_SYNC=1 finds out which)");
    const enum mics_status status = mics_cuda_device_failure(&device->base, err);
    if (status == MICS_OK)
        mics_cuda_clock_adjust(&device->clock);
    return status;
}

/* A failed GPU reaches nothing any more, and holds nobody up. */
bool mics_cuda_event_reached(struct mics_event *event)
{
    mics_cuda_use(event->device);
    const cudaError_t error = cudaEventQuery(event->event);

    if (error != cudaSuccess)
        (void)cudaGetLastError();
    return error != cudaErrorNotReady;
}

double mics_cuda_event_time(const struct mics_event *event)
{
    mics_cuda_use(event->device);
    return mics_cuda_clock_time(&event->device->clock, event->event);
}
