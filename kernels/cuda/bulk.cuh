/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk.cuh - copies of whole tiles into shared memory by the copy engine of compute capability 9.0, and the barriers
 * in shared memory that tell when they have arrived.
 *
 * A barrier (8 bytes, aligned to 8) has phases, which it counts by parity: phase 0, 1, 0, ... A phase ends when `count`
 * arrivals have come and all bytes that were announced have arrived; then the next begins. A wait for parity p
 * returns when the barrier is past a phase of parity p: so one for 1 returns at once on a new barrier.
 *
 * One thread begins a copy. What has arrived is seen by ordinary loads and by matrix products of all threads that
 * have waited. A place is written again only after all its readers have arrived at some barrier that the copying
 * thread has waited for.
 */
#ifndef MICS_KERNELS_CUDA_BULK_CUH
#define MICS_KERNELS_CUDA_BULK_CUH

#include "hopper.cuh"
#include "tensor_map.cuh"

#ifndef MICS_EMULATED

/* By one thread; mics_mbarrier_publish and a barrier of the block come before any other use. */
static __device__ __forceinline__ void mics_mbarrier_init(mics_shared_at at, unsigned count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}

/* The thread's new barriers are seen by bulk copies. */
static __device__ __forceinline__ void mics_mbarrier_publish(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ __forceinline__ void mics_mbarrier_arrive(mics_shared_at at)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}

/* Arrive, and announce `bytes` that bulk copies will bring in this phase. */
static __device__ __forceinline__ void mics_mbarrier_expect(mics_shared_at at, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void mics_mbarrier_wait(mics_shared_at at, unsigned parity)
{
    uint32_t over;

    do
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}\n"
                     : "=r"(over)
                     : "r"(at), "r"(parity)
                     : "memory");
    while (!over);
}

/* Begin to copy the map's box from column `column` of head `head` of row `row` of sequence `b` on to `to`, aligned to
 * 1024 bytes, as a column block of a tile. All bytes of the box count at the barrier, also those outside of the
 * tensor, which are zero. The map lies in global memory or is a __grid_constant__ parameter. */
static __device__ __forceinline__ void mics_bulk_load(mics_shared_at to, const CUtensorMap *map,
                                                      mics_shared_at barrier, unsigned column,
                                                      unsigned head, unsigned row, unsigned b)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(column), "r"(head), "r"(row), "r"(b)
                 : "memory");
}

#endif

#endif
