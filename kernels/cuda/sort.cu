/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sort.cu - a radix sort with digits of 8 bits, from the lowest.
 *
 * A block owns a tile of 256 rows; each pass counts the digits of each tile, turns the counts into
 * destinations by a prefix sum over digits and tiles, and moves the rows there. A row's rank among
 * its tile's rows of the same digit is counted by looking at those before it: no atomic operation
 * decides an order, so that the result is always the same.
 */
#include "cuda/sort.cuh"

#include "cuda/reduce.cuh"

#define SORT_SCAN 1024 /* threads of the scan */

/* What one pass reads and writes; `order` NULL is 0, 1, 2, ... */
struct sort_pass {
    const uint32_t *keys, *order;
    uint32_t *keys_out, *order_out, *places;
    uint32_t rows, shift;
};

/* One block: the digits of a tile. */
static __global__ void __launch_bounds__(MICS_SORT_TILE) sort_count_kernel(struct sort_pass pass)
{
    MICS_SHARED(unsigned, counts, [MICS_SORT_DIGITS]);
    const uint32_t row = blockIdx.x * MICS_SORT_TILE + threadIdx.x;

    counts[threadIdx.x] = 0;
    __syncthreads();
    if (row < pass.rows)
        atomicAdd(&counts[pass.keys[row] >> pass.shift & (MICS_SORT_DIGITS - 1)], 1u);
    __syncthreads();
    pass.places[threadIdx.x * gridDim.x + blockIdx.x] = counts[threadIdx.x];
}

/* The sum of x over the threads before this one. `shared` has an element for each warp; 32
 * warps. */
static __device__ __forceinline__ uint32_t sort_before(uint32_t x, uint32_t *shared)
{
    const unsigned lane = threadIdx.x % MICS_WARP, warp = threadIdx.x / MICS_WARP;
    uint32_t sum = x, before = 0;

#pragma unroll
    for (unsigned lanes = 1; lanes < MICS_WARP; lanes *= 2) {
        const uint32_t other = __shfl_up_sync(MICS_WHOLE_WARP, sum, lanes);

        if (lane >= lanes)
            sum += other;
    }
    if (lane == MICS_WARP - 1)
        shared[warp] = sum;
    __syncthreads();
    for (unsigned w = 0; w < warp; w++)
        before += shared[w];
    return before + sum - x;
}

/* One block: counts become the sums of all counts before them. */
static __global__ void __launch_bounds__(SORT_SCAN)
    sort_scan_kernel(uint32_t *places, uint32_t count)
{
    MICS_SHARED(uint32_t, shared, [MICS_WARPS_MAX]);
    const uint32_t each = (count + SORT_SCAN - 1) / SORT_SCAN, first = threadIdx.x * each;
    const uint32_t stop = first + each < count ? first + each : count;
    uint32_t sum = 0;

#pragma unroll 8
    for (uint32_t i = first; i < stop; i++)
        sum += places[i];
    sum = sort_before(sum, shared);
    for (uint32_t i = first; i < stop; i++) {
        const uint32_t mine = places[i];

        places[i] = sum;
        sum += mine;
    }
}

/* One block: move a tile's rows to their destinations. */
static __global__ void __launch_bounds__(MICS_SORT_TILE) sort_move_kernel(struct sort_pass pass)
{
    MICS_SHARED(unsigned char, digits, [MICS_SORT_TILE]);
    const uint32_t row = blockIdx.x * MICS_SORT_TILE + threadIdx.x;
    const uint32_t key = row < pass.rows ? pass.keys[row] : 0;
    const unsigned digit = key >> pass.shift & (MICS_SORT_DIGITS - 1);
    uint32_t rank = 0;

    digits[threadIdx.x] = (unsigned char)digit;
    __syncthreads();
    if (row >= pass.rows)
        return;
    for (unsigned i = 0; i < threadIdx.x; i++)
        rank += digits[i] == digit;
    rank += pass.places[digit * gridDim.x + blockIdx.x];
    pass.keys_out[rank] = key;
    pass.order_out[rank] = pass.order ? pass.order[row] : row;
}

cudaError_t mics_sort_launch(cudaStream_t stream, const struct mics_sort *sort)
{
    const uint32_t tiles = mics_sort_tiles(sort->rows);
    struct sort_pass pass = {
        (const uint32_t *)sort->tokens, NULL, NULL, NULL, sort->places, sort->rows, 0};
    cudaError_t error = cudaSuccess;
    int to = 0;

    do {
        pass.keys_out = sort->keys[to];
        pass.order_out = sort->order[to];
        error = MICS_LAUNCH(sort_count_kernel, tiles, MICS_SORT_TILE, 0, stream, pass);
        if (error == cudaSuccess)
            error = MICS_LAUNCH(sort_scan_kernel, 1, SORT_SCAN, 0, stream, sort->places,
                                tiles * MICS_SORT_DIGITS);
        if (error == cudaSuccess)
            error = MICS_LAUNCH(sort_move_kernel, tiles, MICS_SORT_TILE, 0, stream, pass);
        pass.keys = pass.keys_out;
        pass.order = pass.order_out;
        pass.shift += 8;
        to ^= 1;
    } while (error == cudaSuccess && pass.shift < 32 && (sort->bound - 1) >> pass.shift > 0);
    return error;
}
