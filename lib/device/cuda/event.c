/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event.c - events, and their times on the host's clock.
 *
 * CUDA gives the time between two events as a float of milliseconds, so each event is timed from a
 * recent anchor: an event on an idle stream of high priority, recorded between two readings of the
 * host's clock. A new anchor is made every few seconds, always between reading two whole steps, so
 * that the times of one step are relative to one anchor.
 *
 * Waiting for an event that was never recorded returns at once, in CUDA as on the host.
 */
#include "device/cuda/cuda.h"

#include <stdlib.h>

#define RENEW_S  2.0    /* a float of so many milliseconds has a resolution of 0.2 us */
#define LATEST_S 60.0   /* after that any anchor is better than the old one */
#define GOOD_S   200e-6 /* between the two readings */

enum { TRIES = 3 };

/* Record anchor `which`: *when is the middle of the two readings; returns the time between them,
 * negative on failure. */
static double try_anchor(struct cuda_clock *clock, int which, double *when)
{
    const double before = clock->now_s();

    if (cudaEventRecord(clock->anchors[which], clock->stream) != cudaSuccess ||
        cudaEventSynchronize(clock->anchors[which]) != cudaSuccess)
        return -1;
    const double after = clock->now_s();
    *when = 0.5 * (before + after);
    return after - before;
}

enum mics_status mics_cuda_clock_open(struct cuda_clock *clock, double (*now_s)(void), int priority,
                                      struct mics_err *err)
{
    cudaError_t error;

    clock->now_s = now_s;
    error = cudaStreamCreateWithPriority(&clock->stream, cudaStreamNonBlocking, priority);
    for (int i = 0; error == cudaSuccess && i < 2; i++)
        error = cudaEventCreate(&clock->anchors[i]);
    if (error != cudaSuccess)
        return mics_cuda_error(err, error, "the clock of the GPU");
    double best = -1;
    for (int i = 0; i < TRIES; i++) { /* the first is slow */
        double when;
        const double width = try_anchor(clock, !clock->at, &when);

        if (width >= 0 && (best < 0 || width < best)) {
            best = width;
            clock->at = !clock->at;
            clock->anchor_s = when;
        }
    }
    return best >= 0 ? MICS_OK : mics_cuda_error(err, cudaGetLastError(), "the clock of the GPU");
}

void mics_cuda_clock_close(struct cuda_clock *clock)
{
    for (int i = 0; i < 2; i++)
        if (clock->anchors[i])
            (void)cudaEventDestroy(clock->anchors[i]);
    if (clock->stream)
        (void)cudaStreamDestroy(clock->stream);
}

/* Make a new anchor when the present one is old. */
static void clock_adjust(struct cuda_clock *clock)
{
    const double age = clock->now_s() - clock->anchor_s;
    double when;

    if (age < RENEW_S)
        return;
    const double width = try_anchor(clock, !clock->at, &when);
    if (width < 0 || (width > GOOD_S && age < LATEST_S))
        return;
    clock->at = !clock->at;
    clock->anchor_s = when;
}

static double clock_time(const struct cuda_clock *clock, cudaEvent_t event)
{
    float apart_ms = 0;

    if (cudaEventElapsedTime(&apart_ms, clock->anchors[clock->at], event) != cudaSuccess) {
        (void)cudaGetLastError(); /* after a failure, which is reported elsewhere */
        return clock->anchor_s;
    }
    return clock->anchor_s + 1e-3 * (double)apart_ms;
}

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
    (void)cudaEventDestroy(event->event); /* CUDA defers it until the event is no longer in use */
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
        clock_adjust(&device->clock);
    return status;
}

/* On a failed GPU every event counts as reached, so that no wait hangs. */
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
    return clock_time(&event->device->clock, event->event);
}
