/* SPDX-License-Identifier: Apache-2.0 */
/*
 * squared_norm.c - the sum of squares of an array, in double.
 *
 * Blocks of fixed size are summed each by one thread; their sums are added in order. 4 bytes and 2
 * flops per element.
 */
#include "host/kernels.h"
#include "host/pool.h"
#include "host/vector.h"

#define GROUP 1024 /* blocks whose sums are held at a time */

struct squared_norm {
    const float *in;
    uint64_t count;
    double sums[GROUP];
};

static mics_vd widen(const float *from)
{
    mics_vf_half half;

    memcpy(&half, from, sizeof(half));
    return __builtin_convertvector(half, mics_vd);
}

static double sum_block(const float *in, uint64_t count)
{
    mics_vd even = {0}, odd = {0};
    double sum = 0;
    uint64_t i = 0;

    for (; i + MICS_LANES <= count; i += MICS_LANES) {
        mics_vd a = widen(in + i), b = widen(in + i + MICS_LANES / 2);

        even += a * a;
        odd += b * b;
    }
    even += odd;
    for (unsigned lane = 0; lane < MICS_LANES / 2; lane++)
        sum += even[lane];
    for (; i < count; i++)
        sum += (double)in[i] * in[i];
    return sum;
}

static void sum_blocks(void *context, uint64_t begin, uint64_t end)
{
    struct squared_norm *norm = context;

    for (uint64_t block = begin; block < end; block++) {
        uint64_t first = block * MICS_FLAT_BLOCK;

        norm->sums[block] =
            sum_block(norm->in + first, mics_flat_stop(block + 1, norm->count) - first);
    }
}

void mics_host_squared_norm(struct mics_pool *pool, const struct mics_op_squared_norm *args)
{
    const uint64_t group = (uint64_t)GROUP * MICS_FLAT_BLOCK;

    for (uint64_t done = 0; done < args->count; done += group) {
        struct squared_norm norm = {args->in + done, mics_min_u64(args->count - done, group), {0}};
        uint64_t blocks = mics_ceil_div(norm.count, MICS_FLAT_BLOCK);

        mics_flat_run(pool, norm.count, sum_blocks, &norm);
        for (uint64_t block = 0; block < blocks; block++)
            *args->sum += norm.sums[block];
    }
}
