/* SPDX-License-Identifier: Apache-2.0 */
/* select_rows.cu - the rows of a batch that have a target. */
#include "cuda/gpu.h"
#include "cuda/kernels.h"
#include "cuda/reduce.cuh"

#define THREADS (MICS_WARPS_MAX * MICS_WARP)

/*
 * One block. Each warp counts the rows with a target in its own stretch; their sums say where the
 * rows of each stretch go. 4 bytes read twice per row and 8 written per selected row: some
 * microseconds, before products that take hundreds. The same result as the host's.
 */
__global__ void __launch_bounds__(THREADS) select_rows_kernel(struct mics_args_select_rows args)
{
    MICS_SHARED(uint32_t, counts, [MICS_WARPS_MAX]);
    const uint32_t warp = threadIdx.x / MICS_WARP, lane = threadIdx.x % MICS_WARP;
    const uint32_t stretch = ((args.rows - 1) / THREADS + 1) * MICS_WARP;
    const uint32_t begin = min(args.rows, warp * stretch), stop = min(args.rows, begin + stretch);
    uint32_t count = 0;

    for (uint32_t r = begin + lane; r - lane < stop; r += MICS_WARP)
        count += __popc(__ballot_sync(MICS_WHOLE_WARP, r < stop && args.targets[r] >= 0));
    if (lane == 0)
        counts[warp] = count;
    __syncthreads();
    const uint32_t all = mics_warp_sum(counts[lane]);
    uint32_t next = mics_warp_sum(lane < warp ? counts[lane] : 0u);
    uint32_t other = all + begin - next;
    for (uint32_t r = begin + lane; r - lane < stop; r += MICS_WARP) {
        const int32_t target = r < stop ? args.targets[r] : -1;
        const unsigned found = __ballot_sync(MICS_WHOLE_WARP, target >= 0);
        const uint32_t below = (uint32_t)__popc(found & ((1u << lane) - 1));
        const uint32_t at = target >= 0 ? next + below : other + lane - below;

        if (r < stop && at < args.most) {
            args.order[at] = r;
            args.selected[at] = target;
        }
        next += __popc(found);
        other += MICS_WARP - __popc(found);
    }
    if (threadIdx.x == 0 && all > args.most)
        *args.loss_sum = NAN;
}

cudaError_t mics_cuda_select_rows(const struct mics_cuda_at *at,
                                  const struct mics_args_select_rows *args)
{
    if (args->rows == 0)
        return cudaSuccess;
    if (args->most > args->rows || args->rows > 0x7fffffff)
        return cudaErrorInvalidValue;
    return MICS_LAUNCH(select_rows_kernel, 1, THREADS, 0, at->stream, *args);
}
