/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stopwatch.cuh - how ways of doing the same are compared by their time.
 *
 * Each is run once, then a few times between two events of the stream, which is waited for. One is
 * taken instead of another that stands before it only where it is faster by a margin, so that noise rarely
 * makes two runs of a program choose differently: another way rounds otherwise.
 */
#ifndef MICS_KERNELS_CUDA_STOPWATCH_CUH
#define MICS_KERNELS_CUDA_STOPWATCH_CUH

#include <cuda_runtime.h>

#define MICS_MEASURE_REPEAT 3
#define MICS_MEASURE_MARGIN 0.98f /* of the best time up to now */

struct mics_stopwatch {
    cudaEvent_t start, stop;
};

static inline void mics_stopwatch_close(struct mics_stopwatch *watch)
{
    if (watch->start)
        cudaEventDestroy(watch->start);
    if (watch->stop)
        cudaEventDestroy(watch->stop);
    watch->start = watch->stop = NULL;
}

/* False: no events; it is closed then. */
static inline bool mics_stopwatch_open(struct mics_stopwatch *watch)
{
    watch->start = watch->stop = NULL;
    if (cudaEventCreate(&watch->start) == cudaSuccess &&
        cudaEventCreate(&watch->stop) == cudaSuccess)
        return true;
    mics_stopwatch_close(watch);
    return false;
}

/* Milliseconds of one run; negative where one fails. `run` enqueues on the stream: bool run(). */
template <typename Run>
static float mics_stopwatch_time(const struct mics_stopwatch *watch, cudaStream_t stream, Run run,
                                 int repeat = MICS_MEASURE_REPEAT)
{
    float took = -1;

    for (int i = 0; i < repeat + 1; i++) {
        if (i == 1 && cudaEventRecord(watch->start, stream) != cudaSuccess)
            return -1;
        if (!run())
            return -1;
    }
    if (cudaEventRecord(watch->stop, stream) != cudaSuccess ||
        cudaEventSynchronize(watch->stop) != cudaSuccess ||
        cudaEventElapsedTime(&took, watch->start, watch->stop) != cudaSuccess)
        return -1;
    return took / (float)repeat;
}

/* Whether one that took so long is taken instead of the best before it, which took `least` (negative: there is
 * none). Failed ones never are. */
static inline bool mics_is_faster(float took, float least)
{
    return took >= 0 && (least < 0 || took < least * MICS_MEASURE_MARGIN);
}

#endif
