/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock.c - times of events on the host's clock.
 *
 * CUDA tells how far two events are apart, as a float of milliseconds. So every event is compared with an anchor
 * that is not far away: an event on an idle stream of high priority, recorded between two looks at the
 * host's clock. A new anchor is made every few seconds, always between two readings of a whole step, so
 * that the times of one step are of one anchor.
 */
#include "device/cuda/cuda.h"

#define RENEW_S  2.0    /* a float of so many milliseconds is exact to 0.2 us */
#define LATEST_S 60.0   /* then even a bad anchor is better than the old one */
#define GOOD_S   200e-6 /* between the two looks */

enum { TRIES = 3 };

/* Anchor at `which`: *when is in the middle of the two looks, the answer their distance; negative: failed. */
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
    for (int i = 0; i < TRIES; i++) { /* the first is slow: everything is new */
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

void mics_cuda_clock_adjust(struct cuda_clock *clock)
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

double mics_cuda_clock_time(const struct cuda_clock *clock, cudaEvent_t event)
{
    float apart_ms = 0;

    if (cudaEventElapsedTime(&apart_ms, clock->anchors[clock->at], event) != cudaSuccess) {
        (void)cudaGetLastError(); /* after a failure, which is told elsewhere */
        return clock->anchor_s;
    }
    return clock->anchor_s + 1e-3 * (double)apart_ms;
}
